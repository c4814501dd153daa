package storetest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// The test of a store in its own package.
func ExampleRun() {
	test := func(t *testing.T) {
		storetest.Run(t, func(_ testing.TB, clock func() int64) headgate.Store {
			return memory.New(memory.Clock(clock))
		})
	}
	fmt.Printf("%T\n", test) // go test would run it as func TestStore(t *testing.T)
	// Output: func(*testing.T)
}

func ExampleParseVector() {
	v, err := storetest.ParseVector("login.vec", `
clock 2026-01-01T00:00:00Z

rule login
    sliding_window 20 per 60s
    token_bucket   5 per 3s burst 8

at 0s    take login/ann 8 -> allow remaining=12 reset=1m ; allow remaining=0 reset=4.8s
at 200ms take login/ann   -> allow remaining=12 reset=59.8s ; deny remaining=0 retry=400ms reset=4.6s
at 1s    refund login/ann 3 @0s
    -> allow remaining=15 reset=59s
     ; allow remaining=4 reset=2s
`)
	if err != nil {
		fmt.Println(err)
		return
	}
	clock := storetest.NewClock(storetest.Epoch)
	store := storetest.NewModel(clock.Now)
	for _, step := range v.Steps {
		clock.Set(step.Now)
		got, err := store.Take(context.Background(), step.Op, step.Checks, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		for i := range got {
			fmt.Printf("line %d, %v: %t\n", step.Line, got[i].Limit, got[i] == step.Want[i])
		}
	}
	// Output:
	// line 8, 20 per 1m: true
	// line 8, 5 per 3s burst 8: true
	// line 9, 20 per 1m: true
	// line 9, 5 per 3s burst 8: true
	// line 10, 20 per 1m: true
	// line 10, 5 per 3s burst 8: true
}

// A clock for tests stands still until it is moved.
func ExampleClock() {
	clock := storetest.NewClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	store := memory.New(memory.Clock(clock.Now))
	limiter := headgate.New(store, headgate.MustRule("api", headgate.PerMinute(1)))
	for range 3 {
		d, err := limiter.Allow(context.Background(), "user42")
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(d.Allowed, d.RetryAfter)
		clock.Add(d.RetryAfter)
	}
	// Output:
	// true 0s
	// false 1m0s
	// true 0s
}
