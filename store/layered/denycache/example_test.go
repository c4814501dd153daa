package denycache_test

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/denycache"
	"github.com/headgate/headgate/store/memory"
)

// A key that was denied costs the store nothing until it may come again.
func Example() {
	calls := 0
	store := headgate.Observe(memory.New(), headgate.Hooks{
		Decided: func(context.Context, headgate.Op, []headgate.Check, []headgate.Decision, time.Duration) { calls++ },
	})
	denials, err := denycache.New(store, denycache.Options{All: true, Trust: time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	defer denials.Close(ctx)
	limiter := headgate.New(denials.Store(), headgate.MustRule("login", headgate.PerHour(1)))
	for range 100 {
		if _, err := limiter.Allow(ctx, "user42"); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println("the store was asked", calls, "times")
	// Output: the store was asked 2 times
}
