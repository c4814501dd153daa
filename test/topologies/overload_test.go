package topologies

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
)

// BenchmarkOverload counts the decisions that are in time while more ask than can be
// answered, each by a call of its own: callers without a pause, on one server and on a
// cluster, under the deadline that stores have by themselves.
func BenchmarkOverload(b *testing.B) {
	single, cluster := servers.Start(b, servers.Redis), servers.StartCluster(b, servers.Redis)
	for name, url := range map[string]string{"single": single.URL() + "?combine_from=0", "cluster": cluster.URL()} {
		for _, callers := range []int{64, 256, 1000, 2000, 4000} {
			b.Run(fmt.Sprintf("%s/%d", name, callers), func(b *testing.B) {
				store, err := redis.Open(b.Context(), url)
				if err != nil {
					b.Fatal(err)
				}
				defer store.Close()
				limiter := headgate.New(store, headgate.MustRule("r", headgate.Per(1_000_000, 24*time.Hour)))
				var decided, failed atomic.Int64
				var stopped atomic.Bool
				var all sync.WaitGroup
				b.ResetTimer()
				for i := range callers {
					all.Go(func() {
						for n := i; !stopped.Load(); n += callers {
							if _, err := limiter.Allow(context.Background(), strconv.Itoa(n%100_000)); err == nil {
								decided.Add(1)
							} else {
								failed.Add(1)
							}
						}
					})
				}
				time.Sleep(time.Duration(b.N) * time.Second)
				stopped.Store(true)
				all.Wait()
				seconds := b.Elapsed().Seconds()
				b.ReportMetric(float64(decided.Load())/seconds, "in-time/s")
				b.ReportMetric(float64(failed.Load())/seconds, "failed/s")
			})
		}
	}
}
