package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// The examples decide by a clock that stands still, so that what they print is
// always the same. Programs write memory.New().
func store() *memory.Store {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC).UnixMicro()
	return memory.New(memory.Clock(func() int64 { return now }))
}

func Example() {
	ctx := context.Background()
	login := headgate.MustRule("login",
		headgate.PerMinute(20),
		headgate.Sliding(2, 3*time.Second))
	limiter := headgate.New(store(), login)

	for range 3 {
		d, err := limiter.Allow(ctx, "user42")
		if err != nil {
			fmt.Println(err) // the store could not answer
			return
		}
		if !d.Allowed {
			fmt.Printf("over %v, try again in %v\n", d.Limit, d.RetryAfter)
			continue
		}
		fmt.Printf("go on, %d left\n", d.Remaining)
	}
	// Output:
	// go on, 1 left
	// go on, 0 left
	// over 2 per 3s, try again in 3s
}

// A request that must fit several rules, under several keys, or be charged to
// none.
func ExampleLimiter_Take() {
	client := headgate.MustRule("client", headgate.PerSecond(10))
	address := headgate.MustRule("address", headgate.Sliding(3, time.Minute))
	service := headgate.MustRule("service", headgate.PerSecond(1000))
	limiter := headgate.New(store(), client)

	for _, cost := range []int64{2, 2} {
		v, err := limiter.Take(context.Background(),
			headgate.Check{Rule: client, Key: "k1", Cost: cost},
			headgate.Check{Rule: address, Key: "203.0.113.10", Cost: cost},
			headgate.Check{Rule: service})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("allowed:", v.Allowed)
		for _, d := range v.Decisions {
			fmt.Printf("  %s: %t, %d of %v left\n", d.Rule.Name(), d.Allowed, d.Remaining, d.Limit)
		}
	}
	// Output:
	// allowed: true
	//   client: true, 8 of 10 per 1s left
	//   address: true, 1 of 3 per 1m left
	//   service: true, 999 of 1000 per 1s left
	// allowed: false
	//   client: true, 8 of 10 per 1s left
	//   address: false, 1 of 3 per 1m left
	//   service: true, 999 of 1000 per 1s left
}

// Wait ends at once when the unit cannot fit before the context's deadline.
func ExampleLimiter_Wait() {
	limiter := headgate.New(store(), headgate.MustRule("partner", headgate.PerMinute(1)))
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for range 2 {
		err := limiter.Wait(ctx, "api.example.com")
		var denied *headgate.DeniedError
		if errors.As(err, &denied) {
			fmt.Println(err)
			continue
		}
		fmt.Println("go on", err)
	}
	// Output:
	// go on <nil>
	// headgate: denied by rule "partner", limit "1 per 1m": fits in 1m0s; the context's deadline comes first
}

// What a request really costs may be known only when it is done.
func ExampleLimiter_Refund() {
	ctx := context.Background()
	limiter := headgate.New(store(), headgate.MustRule("export", headgate.PerHour(1000)))
	d, err := limiter.AllowN(ctx, "user42", 500) // as much as it can be
	if err != nil || !d.Allowed {
		fmt.Println(d, err)
		return
	}
	if err := limiter.Refund(ctx, "user42", 380, d.At); err != nil { // it was 120
		fmt.Println(err)
		return
	}
	d, err = limiter.Peek(ctx, "user42", 1)
	fmt.Println(d.Remaining, err)
	// Output: 880 <nil>
}

// The tokens of an answer are counted when it is there. Until then what it may need
// at most is reserved.
func ExampleLimiter_Reserve() {
	ctx := context.Background()
	tokens := headgate.MustRule("tokens", headgate.PerHour(1000))
	limiter := headgate.New(store(), tokens)
	reservation, v, err := limiter.Reserve(ctx, headgate.Terms{}, headgate.Check{Rule: tokens, Key: "user42", Cost: 500})
	if err != nil || !v.Allowed {
		fmt.Println(v, err)
		return
	}
	fmt.Println("meanwhile:", v.Decisions[0].Remaining)
	v, err = limiter.Settle(ctx, reservation, 120)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("in the end:", v.Decisions[0].Remaining)
	// Output:
	// meanwhile: 500
	// in the end: 880
}

func ExampleParseLimit() {
	for _, text := range []string{"20 per 60s", "50 per 1s burst 200", "1000 per calendar month in Europe/Berlin", "20 per fortnight"} {
		l, err := headgate.ParseLimit(headgate.TokenBucket, text)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(l.Algorithm, &l)
	}
	// Output:
	// token_bucket 20 per 1m
	// token_bucket 50 per 1s burst 200
	// fixed_window 1000 per calendar month in Europe/Berlin
	// headgate: period "fortnight": write a whole number and a unit, such as 500ms, 60s, 5m, 1h, 1d or 1w (in limit "20 per fortnight")
}

// Every mistake is told at once.
func ExampleNewRule() {
	_, err := headgate.NewRule("sign in",
		headgate.PerMinute(0),
		headgate.Sliding(5, 3*time.Second).WithBurst(10))
	fmt.Println(err)
	// Output: headgate: rule "sign in": the name has ' ' at byte 4; spaces, control characters and braces are not allowed; limit 1: count is 0, must be 1 to 9007199254740991; limit 2: burst is 10, but sliding_window admits at most its count at once and has no burst
}

func ExampleObserve() {
	counted := 0
	observed := headgate.Observe(store(), headgate.Hooks{
		Decided: func(_ context.Context, op headgate.Op, _ []headgate.Check, decisions []headgate.Decision, _ time.Duration) {
			if v := headgate.NewVerdict(decisions); op == headgate.OpTake && !v.Allowed {
				counted++
			}
		},
	})
	limiter := headgate.New(observed, headgate.MustRule("api", headgate.PerHour(1)))
	for range 3 {
		if _, err := limiter.Allow(context.Background(), "user42"); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println(counted, "denied")
	// Output: 2 denied
}

// Hooks of one's own see each decision of a store.
func ExampleHooks() {
	store := headgate.Observe(memory.New(), headgate.Hooks{
		Decided: func(_ context.Context, op headgate.Op, checks []headgate.Check, decisions []headgate.Decision, _ time.Duration) {
			verdict := headgate.NewVerdict(decisions)
			if d := verdict.Deciding(); op == headgate.OpTake && !verdict.Allowed && d != nil {
				fmt.Println(checks[d.Check].Key, "is denied by", d.Rule.Name()+":", d.Limit)
			}
		},
	})
	limiter := headgate.New(store, headgate.MustRule("login", headgate.Sliding(2, time.Minute)))
	for range 3 {
		if _, err := limiter.Allow(context.Background(), "ann"); err != nil {
			fmt.Println(err)
		}
	}
	// Output: ann is denied by login: 2 per 1m
}
