package postgres_test

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/test/servers"
)

// BenchmarkDeadlines has 64 callers ask without a pause under deadlines that are short
// for the machine. It tells how many decisions were made in a second, how many calls in
// a hundred failed, and how many connections were made beyond those of the beginning:
// a deadline that is missed must not cost one.
func BenchmarkDeadlines(b *testing.B) {
	const callers, lasting, connections = 64, 4 * time.Second, 8
	s := servers.StartPostgres(b)
	rule := headgate.MustRule("r", headgate.Per(1_000_000, time.Second))
	for _, keys := range []int64{10_000, 1} {
		for _, timeout := range []time.Duration{10 * time.Millisecond, 20 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond} {
			b.Run(fmt.Sprintf("keys=%d/timeout=%v", keys, timeout), func(b *testing.B) {
				config, err := pgxpool.ParseConfig(s.URL())
				if err != nil {
					b.Fatal(err)
				}
				config.MaxConns, config.MinConns = connections, connections
				pool, err := pgxpool.NewWithConfig(b.Context(), config)
				if err != nil {
					b.Fatal(err)
				}
				defer pool.Close()
				store, err := postgres.New(b.Context(), pool, postgres.Timeout(timeout))
				if err != nil {
					b.Fatal(err)
				}
				defer store.Close()
				limiter := headgate.New(store, rule)
				var made, failed, next atomic.Int64
				for b.Loop() {
					end := time.Now().Add(lasting)
					var wg sync.WaitGroup
					for range callers {
						wg.Go(func() {
							for time.Now().Before(end) {
								if _, err := limiter.Allow(b.Context(), strconv.FormatInt(next.Add(1)%keys, 10)); err != nil {
									failed.Add(1)
								} else {
									made.Add(1)
								}
							}
						})
					}
					wg.Wait()
				}
				b.ReportMetric(float64(made.Load())/lasting.Seconds()/float64(b.N), "decisions/s")
				b.ReportMetric(100*float64(failed.Load())/float64(made.Load()+failed.Load()), "%failed")
				b.ReportMetric(float64(max(0, pool.Stat().NewConnsCount()-connections)), "reconnects")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}
