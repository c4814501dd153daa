package memory_test

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

func Example() {
	login := headgate.MustRule("login", headgate.PerMinute(3))
	limiter := headgate.New(memory.New(), login)
	for range 4 {
		d, err := limiter.Allow(context.Background(), "user42")
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(d.Allowed, d.Remaining)
	}
	// Output:
	// true 2
	// true 1
	// true 0
	// false 0
}

// A clock of one's own replays recorded traffic, or makes a test exact.
func ExampleClock() {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	store := memory.New(memory.Clock(func() int64 { return now.UnixMicro() }))
	limiter := headgate.New(store, headgate.MustRule("api", headgate.Sliding(2, 10*time.Second)))
	for _, after := range []time.Duration{0, 4 * time.Second, time.Second, 5 * time.Second} {
		now = now.Add(after)
		d, err := limiter.Allow(context.Background(), "user42")
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(now.Format(time.TimeOnly), d.Allowed, d.RetryAfter)
	}
	// Output:
	// 00:00:00 true 0s
	// 00:00:04 true 0s
	// 00:00:05 false 5s
	// 00:00:10 true 0s
}

func ExampleStore_Stats() {
	store := memory.New(memory.MaxBytes(64 << 20))
	limiter := headgate.New(store, headgate.MustRule("api", headgate.PerHour(1000), headgate.Sliding(50, time.Minute)))
	for _, key := range []string{"a", "b", "c"} {
		if _, err := limiter.Allow(context.Background(), key); err != nil {
			fmt.Println(err)
			return
		}
	}
	stats := store.Stats()
	fmt.Printf("%d counters, %d of them logs; %d decisions on shared counters\n", stats.Counters, stats.Logs, stats.Shared)
	// Output: 6 counters, 3 of them logs; 0 decisions on shared counters
}
