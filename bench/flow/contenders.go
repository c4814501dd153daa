package flow

import (
	"context"
	"math"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/adaptivethrottler"
	"github.com/go-kratos/aegis/ratelimit"
	"github.com/go-kratos/aegis/ratelimit/bbr"
	"golang.org/x/sync/semaphore"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/adaptive"
	"github.com/headgate/headgate/flow/shed"
	"github.com/headgate/headgate/flow/simulate"
)

// contender is somebody who takes part. Its subject is made in the bubble that it runs
// in.
type contender struct {
	name string
	make func() (simulate.Subject, error)
}

// The limits of those that find theirs. All begin at the same, and may go as high.
const initial, highest = 20, 1000

var contenders = []contender{
	{"Headgate, knee and queue", func() (simulate.Subject, error) {
		k, err := adaptive.NewKnee(adaptive.KneeConfig{Initial: initial, Max: highest})
		if err != nil {
			return simulate.Subject{}, err
		}
		limit := adaptive.New("limit", k)
		queue, err := shed.New(limit, shed.Config{Name: "queue"})
		return simulate.Subject{Gate: queue, Waits: true, Limit: limitOf(limit)}, err
	}},
	{"Headgate, knee", func() (simulate.Subject, error) {
		k, err := adaptive.NewKnee(adaptive.KneeConfig{Initial: initial, Max: highest})
		return estimated(k, err)
	}},
	{"failsafe-go, limiter", failsafeLimiter()},
	{"failsafe-go, throttler", func() (simulate.Subject, error) {
		l := adaptivethrottler.NewWithDefaults[any]()
		return simulate.Subject{Gate: gate(func() (func(flow.Outcome), bool) {
			return func(o flow.Outcome) {
				if o == flow.Success {
					l.RecordSuccess()
				} else {
					l.RecordFailure()
				}
			}, l.TryAcquirePermit()
		})}, nil
	}},
	{"Gradient2", func() (simulate.Subject, error) {
		g, err := adaptive.NewGradient2(adaptive.Bounds{Initial: initial, Min: 1, Max: highest})
		return estimated(g, err)
	}},
	{"Vegas", func() (simulate.Subject, error) {
		v, err := adaptive.NewVegas(adaptive.Bounds{Initial: initial, Max: highest}, 1)
		return estimated(v, err)
	}},
	{"AIMD", func() (simulate.Subject, error) {
		a, err := adaptive.NewAIMD(adaptive.Bounds{Initial: initial, Min: 1, Max: highest}, time.Second)
		return estimated(a, err)
	}},
	{"aegis BBR", func() (simulate.Subject, error) {
		l := bbr.NewLimiter(bbr.WithCPUThreshold(math.MinInt64))
		return simulate.Subject{Gate: gate(func() (func(flow.Outcome), bool) {
			done, err := l.Allow()
			return func(flow.Outcome) { done(ratelimit.DoneInfo{}) }, err == nil
		})}, nil
	}},
	{"x/sync semaphore of 200", func() (simulate.Subject, error) {
		s := semaphore.NewWeighted(200)
		return simulate.Subject{Gate: gate(func() (func(flow.Outcome), bool) {
			return func(flow.Outcome) { s.Release(1) }, s.TryAcquire(1)
		})}, nil
	}},
	{"nothing", func() (simulate.Subject, error) {
		return simulate.Subject{Gate: flow.Chain()}, nil
	}},
}

// failsafeLimiter makes the library's limiter with its default settings, changed by options.
func failsafeLimiter(
	options ...func(adaptivelimiter.Builder[any]) adaptivelimiter.Builder[any],
) func() (simulate.Subject, error) {
	return func() (simulate.Subject, error) {
		b := adaptivelimiter.NewBuilder[any]().WithLimits(1, highest, initial)
		for _, o := range options {
			b = o(b)
		}
		l := b.Build()
		return simulate.Subject{
			Gate:  gate(func() (func(flow.Outcome), bool) { return failsafe(l) }),
			Limit: func() float64 { return float64(l.Limit()) },
		}, nil
	}
}

// tripwire makes it with the settings of Tripwire, the simulator of the library's author.
func tripwire() func() (simulate.Subject, error) {
	return failsafeLimiter(func(b adaptivelimiter.Builder[any]) adaptivelimiter.Builder[any] {
		return b.WithRecentWindow(time.Second, time.Second, 10).WithBaselineWindow(60).WithCorrelationWindow(50)
	})
}

func estimated(e adaptive.Estimator, err error) (simulate.Subject, error) {
	if err != nil {
		return simulate.Subject{}, err
	}
	limit := adaptive.New("limit", e)
	return simulate.Subject{Gate: limit, Limit: limitOf(limit)}, nil
}

func limitOf(g *adaptive.Gate) func() float64 {
	return func() float64 { return float64(g.Limit()) }
}

// failsafe takes a permit as the library's handlers do: all that ended is recorded, but
// for what ended early, which is dropped.
func failsafe(l adaptivelimiter.AdaptiveLimiter[any]) (func(flow.Outcome), bool) {
	permit, ok := l.TryAcquirePermit()
	return func(o flow.Outcome) {
		if o == flow.Unused {
			permit.Drop()
			return
		}
		permit.Record()
	}, ok
}

// gate is a [flow.Gate] of a peer: it returns how to give back what it has taken.
type gate func() (done func(flow.Outcome), ok bool)

// Acquire implements [flow.Gate].
func (g gate) Acquire(ctx context.Context, r flow.Request) (flow.Permit, error) {
	return g.TryAcquire(ctx, r)
}

// TryAcquire implements [flow.Gate].
func (g gate) TryAcquire(context.Context, flow.Request) (flow.Permit, error) {
	done, ok := g()
	if !ok {
		return flow.Permit{}, refused
	}
	h := &holder{done: done}
	return h.Issue(h), nil
}

// refused is what peers say: they have no word on whether to try again, and callers do.
var refused = &flow.Rejection{Gate: "peer", Reason: flow.ReasonBusy, Retry: true}

type holder struct {
	flow.Slot
	done func(flow.Outcome)
}

// GiveBack implements [flow.Holder].
func (h *holder) GiveBack(o flow.Outcome) { h.done(o) }

// Bind implements [flow.Holder].
func (h *holder) Bind(ctx context.Context, _ flow.Permit) context.Context { return ctx }
