package redis_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/regions"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// BenchmarkRegions has callers ask for decisions of a region's share, and for as long of the whole
// limit without the layer, in turn. It reports the time of the former as a part of the latter's.
func BenchmarkRegions(b *testing.B) {
	const slice = 100 * time.Millisecond
	own := stores.Open(b, dial(b, servers.Start(b, servers.Redis)), nil)
	layer, err := regions.New(own, regions.Options{Region: "eu", Regions: []string{"eu", "us"}, Store: own, Home: memory.New(), Floor: 50})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = layer.Close(context.Background()) })
	check := headgate.Check{Rule: headgate.MustRule("r", headgate.PerSecond(1_000_000_000)), Key: "k", Hints: headgate.Hints{Scope: headgate.Global}}
	ways := []headgate.Store{own, layer.Store()}
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprint(callers), func(b *testing.B) {
			var done [2]int64
			for b.Loop() {
				for i, way := range ways {
					done[i] += decided(b, way, check, callers, slice)
				}
			}
			b.ReportMetric(float64(done[0])/float64(done[1]), "regions÷none")
			b.ReportMetric(float64(done[1])/float64(b.N)/slice.Seconds(), "decisions/s")
		})
	}
}

// decided is how many decisions callers get within a while.
func decided(b *testing.B, from headgate.Store, check headgate.Check, callers int, slice time.Duration) int64 {
	var done atomic.Int64
	var all sync.WaitGroup
	for begin := time.Now(); callers > 0; callers-- {
		all.Go(func() {
			checks := []headgate.Check{check}
			for time.Since(begin) < slice {
				if _, err := from.Take(context.Background(), headgate.OpTake, checks, nil); err != nil {
					b.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	all.Wait()
	return done.Load()
}
