package redis_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/shared"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// BenchmarkUnbound has 64 workers do short work under a limit that never binds, without a
// gate, with a lease for each permit, and with leases that linger. It reports what they do
// in a second as a part of what they do without a gate in the same run.
func BenchmarkUnbound(b *testing.B) {
	const workers, slice = 64, time.Second
	s := servers.Start(b, servers.Redis)
	permits, err := store.PermitsOf(stores.Open(b, dial(b, s), nil))
	if err != nil {
		b.Fatal(err)
	}
	gate := func(name string, linger time.Duration) flow.Gate {
		g, err := shared.New(permits, shared.Config{Name: name, Prefix: name, Limit: 1000, Linger: linger})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = g.Close(context.Background()) })
		return g
	}
	ways := []flow.Gate{nil, gate("each", 0), gate("linger", 10*time.Millisecond)}
	for _, lasts := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond} {
		b.Run(fmt.Sprint(lasts), func(b *testing.B) {
			var done [3]int64
			for b.Loop() {
				for i, g := range ways {
					done[i] += work(b, g, workers, lasts, slice)
				}
			}
			b.ReportMetric(float64(done[1])/float64(done[0]), "each÷none")
			b.ReportMetric(float64(done[2])/float64(done[0]), "linger÷none")
		})
	}
}

// work is how much the workers have done within a while.
func work(b *testing.B, g flow.Gate, workers int, lasts, slice time.Duration) int64 {
	var done atomic.Int64
	var all sync.WaitGroup
	for begin := time.Now(); workers > 0; workers-- {
		all.Go(func() {
			for time.Since(begin) < slice {
				var p flow.Permit
				if g != nil {
					var err error
					if p, err = g.Acquire(b.Context(), flow.Request{Key: "k"}); err != nil {
						b.Error(err)
						return
					}
				}
				time.Sleep(lasts)
				p.Done(flow.Success)
				done.Add(1)
			}
		})
	}
	all.Wait()
	return done.Load()
}
