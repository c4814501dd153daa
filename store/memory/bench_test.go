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

func BenchmarkAllow(b *testing.B) {
	rules := map[string]*headgate.Rule{
		"bucket":  headgate.MustRule("bucket", headgate.PerSecond(1000)),
		"large":   headgate.MustRule("large", headgate.Per(999_999_999_989, 24*time.Hour)),
		"huge":    headgate.MustRule("huge", headgate.Per(headgate.MaxCount, headgate.MaxPeriod)),
		"window":  headgate.MustRule("window", headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1_000_000, Period: time.Hour}),
		"counter": headgate.MustRule("counter", headgate.Limit{Algorithm: headgate.SlidingCounter, Count: 1_000_000, Period: time.Hour}),
		"buckets": headgate.MustRule("buckets", headgate.PerSecond(1000), headgate.PerMinute(20_000), headgate.PerHour(500_000)),
		"windows": headgate.MustRule("windows", headgate.Sliding(30, 20e9), headgate.Sliding(600, 600e9)),
	}
	for name, rule := range rules {
		for _, keys := range []int{1, 1 << 20} {
			b.Run(name+"/"+strconv.Itoa(keys)+"keys", func(b *testing.B) {
				limiter := headgate.New(memory.New(), rule)
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
