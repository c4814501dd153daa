package flow

import (
	"context"
	"testing"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"golang.org/x/sync/semaphore"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/adaptive"
	"github.com/headgate/headgate/flow/permits"
	"github.com/headgate/headgate/flow/shed"
)

// newKnee returns a gate with a limit that stays at n.
func newKnee(n int64) *adaptive.Gate {
	return adaptive.New("limit", must(adaptive.NewKnee(adaptive.KneeConfig{Initial: n, Min: n, Max: n})))
}

func benchmarkGate(b *testing.B, g flow.Gate) {
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		p, err := g.Acquire(ctx, flow.Request{Key: "user42"})
		if err != nil {
			b.Fatal(err)
		}
		p.Done(flow.Success)
	}
}

// BenchmarkAcquire takes a permit and gives it back.
func BenchmarkAcquire(b *testing.B) {
	b.Run("permits by key", func(b *testing.B) {
		benchmarkGate(b, must(permits.New(permits.Config{Limit: 10, Queue: 10})))
	})
	b.Run("permits shared", func(b *testing.B) {
		benchmarkGate(b, must(permits.New(permits.Config{Limit: 10, Queue: 10, Shared: true})))
	})
	b.Run("knee", func(b *testing.B) { benchmarkGate(b, newKnee(10)) })
	b.Run("knee and queue", func(b *testing.B) {
		benchmarkGate(b, must(shed.New(newKnee(10), shed.Config{})))
	})
	b.Run("x-sync", func(b *testing.B) {
		s, ctx := semaphore.NewWeighted(10), context.Background()
		b.ReportAllocs()
		for b.Loop() {
			if err := s.Acquire(ctx, 1); err != nil {
				b.Fatal(err)
			}
			s.Release(1)
		}
	})
	b.Run("failsafe-go", func(b *testing.B) {
		l, ctx := adaptivelimiter.NewBuilder[any]().WithLimits(10, 10, 10).Build(), context.Background()
		b.ReportAllocs()
		for b.Loop() {
			p, err := l.AcquirePermit(ctx)
			if err != nil {
				b.Fatal(err)
			}
			p.Record()
		}
	})
}

// BenchmarkReject asks for a permit where there is none.
func BenchmarkReject(b *testing.B) {
	ctx := context.Background()
	for _, c := range []struct {
		name string
		gate flow.Gate
	}{
		{"permits by key", must(permits.New(permits.Config{Limit: 1}))},
		{"permits shared", must(permits.New(permits.Config{Limit: 1, Shared: true}))},
		{"knee", newKnee(1)},
	} {
		b.Run(c.name, func(b *testing.B) {
			p, err := c.gate.TryAcquire(ctx, flow.Request{Key: "user42"})
			if err != nil {
				b.Fatal(err)
			}
			defer p.Done(flow.Ignore)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.gate.TryAcquire(ctx, flow.Request{Key: "user42"}); err == nil {
					b.Fatal("there was a permit")
				}
			}
		})
	}
	b.Run("x-sync", func(b *testing.B) {
		s := semaphore.NewWeighted(1)
		s.TryAcquire(1)
		b.ReportAllocs()
		for b.Loop() {
			if s.TryAcquire(1) {
				b.Fatal("there was a permit")
			}
		}
	})
	b.Run("failsafe-go", func(b *testing.B) {
		l := adaptivelimiter.NewBuilder[any]().WithLimits(1, 1, 1).Build()
		if _, ok := l.TryAcquirePermit(); !ok {
			b.Fatal("there was no permit")
		}
		b.ReportAllocs()
		for b.Loop() {
			if _, ok := l.TryAcquirePermit(); ok {
				b.Fatal("there was a permit")
			}
		}
	})
}
