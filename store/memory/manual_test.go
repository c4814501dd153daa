package memory_test

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// A test that turns the clock: the sixth attempt is denied, and a quarter of an hour later one passes.
func ExampleManualClock() {
	clock := memory.NewManualClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	limiter := headgate.New(memory.New(memory.Clock(clock.Micros)), headgate.MustRule("login", headgate.Sliding(5, 15*time.Minute)))
	ctx := context.Background()
	for range 6 {
		d, _ := limiter.Allow(ctx, "ada")
		fmt.Print(d.Allowed, " ")
	}
	clock.Advance(15 * time.Minute)
	d, _ := limiter.Allow(ctx, "ada")
	fmt.Println(d.Allowed, clock.Now().Format(time.TimeOnly))
	// Output: true true true true true false true 00:15:00
}
