//go:build unix

package envoyrlqs

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store/memory"
)

// BenchmarkStreams is what 300 Envoys cost in five seconds, in which each reports its buckets once and
// the service looks five times: when each has 100 of 3,000 buckets, and when all have the same one.
// It leaves out gRPC and the network. It reports the part of a core that is used, and the memory for
// each bucket of a stream.
func BenchmarkStreams(b *testing.B) {
	const streams = 300
	for _, c := range []struct{ buckets, each int }{{3000, 100}, {1, 1}} {
		b.Run(fmt.Sprint(c.buckets), func(b *testing.B) {
			now := int64(1_700_000_000_000_000)
			set, err := policy.New([]policy.Rule{{Per: []policy.Part{{Entry: "tenant"}}, Limits: headgate.MustRule("tenant", headgate.PerSecond(10_000))}})
			if err != nil {
				b.Fatal(err)
			}
			heap := func() uint64 {
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				return m.HeapAlloc
			}
			reports := make([]*pb.RateLimitQuotaUsageReports, streams)
			for i := range reports {
				reports[i] = &pb.RateLimitQuotaUsageReports{Domain: "d"}
				for j := range c.each {
					reports[i].BucketQuotaUsages = append(reports[i].BucketQuotaUsages, &pb.RateLimitQuotaUsageReports_BucketQuotaUsage{
						BucketId:    &pb.BucketId{Bucket: map[string]string{"tenant": fmt.Sprint((i*37 + j) % c.buckets)}},
						TimeElapsed: durationpb.New(5 * time.Second), NumRequestsAllowed: uint64(i % 7 * 100), NumRequestsDenied: uint64(i % 3),
					})
				}
			}
			before := heap()
			var answered atomic.Int64
			s := New(Options{
				Rules:     func() decide.Policy { return decide.Policy{Set: set} },
				Assigned:  func(Kind) { answered.Add(1) },
				Documents: memory.New(memory.Clock(func() int64 { return now })), Logger: slog.New(slog.DiscardHandler),
			})
			open := make([]*stream, streams)
			for i := range open {
				open[i] = &stream{service: s, id: fmt.Sprint(i), began: time.Now(), held: make(map[string]*held)}
			}
			asked := func() {
				for tick := range 5 {
					now += 1_000_000
					for i, x := range open {
						if i%5 == tick {
							if _, err := x.report(context.Background(), reports[i]); err != nil {
								b.Fatal(err)
							}
						}
						x.look(context.Background())
					}
				}
			}
			for range 4 { // Until they have what they want.
				asked()
			}
			answers, began := answered.Load(), spent(b)
			for b.Loop() {
				asked()
			}
			b.ReportMetric((spent(b)-began).Seconds()/float64(b.N)/5*100, "%core")
			b.ReportMetric(float64(answered.Load()-answers)/float64(b.N)/5, "answers/s")
			b.ReportMetric(float64(heap()-before)/float64(streams*c.each), "B/bucket")
			runtime.KeepAlive(open)
			runtime.KeepAlive(reports)
		})
	}
}

// spent is the time that this process has had of processors.
func spent(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
