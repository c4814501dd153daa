package adaptive

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/flow"
)

// Gate admits as many units as an estimator allows. It is a [flow.Gate] without keys and without a
// queue, and safe for concurrent use. Make one with [New].
type Gate struct {
	name string
	now  func() time.Duration
	// changed is called with the lock held when the limit has changed; it may be nil.
	changed func(before, after int64)

	mu        sync.Mutex // guards what follows
	estimator Estimator
	limit     int64
	inUse     int64
	average   time.Duration // of the durations of successful work
	admitted  uint64
	rejected  [flow.Reasons]uint64
	done      [flow.Outcomes]uint64
	unused    []*taking
	last      *flow.Rejection // returned again while its numbers are still true
}

// spare is how many takings a gate keeps for reuse.
const spare = 1024

// taking is what the gate keeps for a permit.
type taking struct {
	flow.Slot
	of       *Gate
	cost     int64
	inFlight int64
	start    time.Duration
}

// Option changes how a [Gate] works.
type Option func(*Gate)

// OnLimit makes the gate call f after each change of the limit. f runs under the gate's lock: it
// must be quick and must not call the gate.
func OnLimit(f func(before, after int64)) Option { return func(g *Gate) { g.changed = f } }

// Clock makes the gate read that clock, which must only move forward, and be safe for concurrent use.
// It is for simulations.
func Clock(now func() time.Duration) Option { return func(g *Gate) { g.now = now } }

// New returns a gate that uses the estimator. Nobody else may use the estimator from then on. name
// appears in the gate's rejections.
func New(name string, estimator Estimator, options ...Option) *Gate {
	epoch := time.Now()
	g := &Gate{
		name: name, now: func() time.Duration { return time.Since(epoch) },
		estimator: estimator, limit: max(estimator.Limit(), 1),
	}
	for _, o := range options {
		o(g)
	}
	return g
}

// Limit returns how many units may be in use now.
func (g *Gate) Limit() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.limit
}

// Base returns how long work takes if it does not have to wait, as far as the estimator knows. It
// is zero before there are samples, and for estimators that do not measure it. See [Knee.Base].
func (g *Gate) Base() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e, ok := g.estimator.(interface{ Base() time.Duration }); ok {
		return e.Base()
	}
	return 0
}

// Acquire implements [flow.Gate]. It never waits. For a queue, put a gate of package shed in front.
func (g *Gate) Acquire(ctx context.Context, r flow.Request) (flow.Permit, error) {
	return g.TryAcquire(ctx, r)
}

// TryAcquire implements [flow.Gate].
func (g *Gate) TryAcquire(ctx context.Context, r flow.Request) (flow.Permit, error) {
	if err := r.Validate(); err != nil {
		return flow.Permit{}, err
	}
	if outer, ok := ctx.Value(g).(flow.Permit); ok && outer.Held() {
		return flow.Permit{}, nil
	}
	t, rejection := g.enter(r.Units())
	if t == nil {
		return flow.Permit{}, rejection
	}
	// The clock is read without holding the lock, and only for admitted requests.
	t.start = g.now()
	return t.Issue(t), nil
}

// enter counts the request as in progress, or returns the rejection.
func (g *Gate) enter(cost int64) (*taking, *flow.Rejection) {
	g.mu.Lock()
	defer g.mu.Unlock()
	// A request that costs more than the whole limit is admitted if nothing else is in progress.
	// The limit moves, so the request would otherwise depend on its present value.
	if cost > g.limit-g.inUse && g.inUse > 0 {
		return nil, g.refuse()
	}
	var t *taking
	if n := len(g.unused); n > 0 {
		t, g.unused = g.unused[n-1], g.unused[:n-1]
	} else {
		t = &taking{of: g}
	}
	g.inUse += cost
	g.admitted++
	t.cost, t.inFlight = cost, g.inUse
	return t, nil
}

// refuse counts a rejection and returns it.
func (g *Gate) refuse() *flow.Rejection {
	is := flow.Rejection{Gate: g.name, Reason: flow.ReasonBusy, Limit: g.limit, InUse: g.inUse}
	if g.average > 0 {
		// On average, all work that is in progress now has ended after this time. Rounding it lets
		// the gate return the same rejection again.
		is.RetryAfter = max(g.average.Round(10*time.Millisecond), 10*time.Millisecond)
	}
	g.rejected[flow.ReasonBusy]++
	if g.last == nil || *g.last != is {
		g.last = new(flow.Rejection)
		*g.last = is
	}
	return g.last
}

// GiveBack implements [flow.Holder].
func (t *taking) GiveBack(outcome flow.Outcome) {
	g := t.of
	now := g.now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inUse -= t.cost
	g.done[outcome]++
	rtt := now - t.start
	if outcome == flow.Success {
		if g.average == 0 {
			g.average = rtt
		}
		g.average += (rtt - g.average) / 16
	}
	if outcome != flow.Unused {
		limit := max(g.estimator.Update(Sample{t.start, rtt, t.inFlight, outcome}), 1)
		if before := g.limit; limit != before {
			g.limit = limit
			if g.changed != nil {
				g.changed(before, limit)
			}
		}
	}
	if len(g.unused) < spare {
		g.unused = append(g.unused, t)
	}
}

// Begin implements [flow.Beginner].
func (t *taking) Begin() { t.start = t.of.now() }

// Bind implements [flow.Holder].
func (t *taking) Bind(ctx context.Context, p flow.Permit) context.Context {
	return context.WithValue(ctx, t.of, p)
}

// Stats is a snapshot.
func (g *Gate) Stats() flow.Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return flow.Stats{
		Limit: g.limit, InUse: g.inUse, Admitted: g.admitted, Rejected: g.rejected, Done: g.done,
	}
}
