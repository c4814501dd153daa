package memory_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// BenchmarkTake takes from one key, and from a million in any order. "denied" always asks for a
// cost that does not fit.
func BenchmarkTake(b *testing.B) {
	window := headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1e9, Period: time.Minute}
	hour := headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1e9, Period: time.Hour}
	day := headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1e9, Period: 24 * time.Hour}
	counter := headgate.Limit{Algorithm: headgate.SlidingCounter, Count: 1e9, Period: time.Minute}
	cases := []struct {
		name  string
		rules []*headgate.Rule
	}{
		{"bucket", []*headgate.Rule{headgate.MustRule("a", headgate.Per(100_000_000, time.Second))}},
		{"denied", []*headgate.Rule{headgate.MustRule("a", headgate.PerHour(3))}},
		{"wide", []*headgate.Rule{headgate.MustRule("a", headgate.Per(999_999_937, 30*24*time.Hour))}},
		{"fixed", []*headgate.Rule{headgate.MustRule("a", window)}},
		{"counter", []*headgate.Rule{headgate.MustRule("a", counter)}},
		{"three", []*headgate.Rule{headgate.MustRule("a", headgate.PerSecond(100_000_000), headgate.PerMinute(900_000_000), headgate.PerHour(1_000_000_000))}},
		{"threefixed", []*headgate.Rule{headgate.MustRule("a", window, hour, day)}},
		{"twochecks", []*headgate.Rule{headgate.MustRule("a", headgate.Per(100_000_000, time.Second)), headgate.MustRule("b", headgate.PerMinute(900_000_000))}},
		{"sliding100", []*headgate.Rule{headgate.MustRule("a", headgate.Sliding(100, time.Minute))}},
		{"sliding100k", []*headgate.Rule{headgate.MustRule("a", headgate.Sliding(100_000, time.Second))}},
		{"sliding2", []*headgate.Rule{headgate.MustRule("a", headgate.Sliding(30, 20*time.Second), headgate.Sliding(600, 10*time.Minute))}},
	}
	for _, c := range cases {
		for _, keys := range []int{1, 1 << 20} {
			b.Run(c.name+"/"+strconv.Itoa(keys)+"keys", func(b *testing.B) {
				limiter := headgate.New(memory.New(), c.rules...)
				names := make([]string, keys)
				for i := range names {
					names[i] = "user:" + strconv.Itoa(i)
					if _, err := limiter.Allow(context.Background(), names[i]); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportAllocs()
				b.ResetTimer()
				var seed atomic.Uint32
				b.RunParallel(func(p *testing.PB) {
					i := seed.Add(977_777_777)
					for p.Next() {
						i = i*1664525 + 1013904223
						if _, err := limiter.Allow(context.Background(), names[int(i>>12)&(keys-1)]); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}
