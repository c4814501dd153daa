package layered_test

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered"
	"github.com/headgate/headgate/store/memory"
)

// away is a store that does not answer, such as a Redis that is down.
type away struct{}

func (away) Take(context.Context, headgate.Op, []headgate.Check, []headgate.Decision) ([]headgate.Decision, error) {
	return nil, headgate.ErrUnavailable
}

// While the store is away, each of two nodes counts half of the limit.
func ExampleNewFallback() {
	ctx := context.Background()
	fallback, err := layered.NewFallback(ctx, away{}, memory.New(), layered.FallbackOptions{
		Default: headgate.OnErrorLocal,
		Nodes:   2,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer fallback.Close()
	limiter := headgate.New(fallback.Store(), headgate.MustRule("login", headgate.PerHour(4)))
	for range 3 {
		d, err := limiter.Allow(ctx, "user42")
		fmt.Println(d.Allowed, d.Source, err)
	}
	// Output:
	// true local <nil>
	// true local <nil>
	// false local <nil>
}

// A key that was denied costs the store nothing until it may come again.
func ExampleNewDenials() {
	calls := 0
	store := headgate.Observe(memory.New(), headgate.Hooks{
		Decided: func(context.Context, headgate.Op, []headgate.Check, []headgate.Decision, time.Duration) { calls++ },
	})
	denials := layered.NewDenials(store, layered.DenyCacheOptions{All: true, Trust: time.Hour})
	defer denials.Close()
	limiter := headgate.New(denials.Store(), headgate.MustRule("login", headgate.PerHour(1)))
	for range 100 {
		if _, err := limiter.Allow(context.Background(), "user42"); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println("the store was asked", calls, "times")
	// Output: the store was asked 2 times
}
