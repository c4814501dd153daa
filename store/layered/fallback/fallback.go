package fallback

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// The defaults of [Options].
const (
	DefaultFailures = 5
	DefaultRamp     = 500 * time.Millisecond
	DefaultMaxRetry = 200 * time.Millisecond
	DefaultBeat     = 3 * time.Second
	DefaultDebts    = 1 << 14
)

// Options change a [Layer]. With the zero Options, requests are turned away while the primary
// does not answer.
type Options struct {
	// Local is the store that counts against this node's share of the limits. Nothing else may
	// use it. Required.
	Local headgate.Store
	// Default is what happens to checks that say nothing themselves. OnErrorReturn is the
	// same as OnErrorDeny.
	Default headgate.OnError
	// Members counts the nodes that share the primary. Nil means that the primary does, if it
	// can.
	Members Members
	// Node is the name of this node among them, up to 64 bytes, different in each process.
	// If it is empty, New makes one up.
	Node string
	// Nodes is how many nodes are assumed until they have been counted. Zero means one.
	Nodes int64
	// Learn is how long, after the primary has lost its data, a request must fit this node's
	// share of its limits as well as what the primary admits. This node still knows what it
	// has admitted itself. With a Learn above zero all checks are charged locally, whatever
	// their OnError. Zero means never.
	Learn time.Duration
	// Failures is how many calls in a row must fail to open the breaker. They must also be
	// spread over some time; see the package comment. Zero means DefaultFailures.
	Failures int64
	// Ramp is the longest time from the first answered probe until the primary decides all
	// requests again. It is an eighth of the outage if that is shorter. Zero means DefaultRamp.
	Ramp time.Duration
	// MaxRetry is the longest time between two probes that the primary refuses. Zero means
	// DefaultMaxRetry.
	MaxRetry time.Duration
	// Beat is the time between two counts of the nodes. A node that three counts in a row did
	// not find is gone. Zero means DefaultBeat.
	Beat time.Duration
	// Debts is for how many pairs of rule and key the layer remembers what was admitted
	// locally, so that it can be charged to the primary later. Zero means DefaultDebts.
	Debts int
	// Changed is called after each change of Stats.State, Learning and NodesError, with the
	// Stats before and after it. It must be quick, and must not call the layer. It may be nil.
	Changed func(was, is Stats)
	// Decided is called, with the primary's error, for each request that was decided without
	// the primary although the breaker was closed: a part of the primary may fail without a
	// change of state. It must be quick, and safe for concurrent use. It may be nil.
	Decided func(cause error)
}

func (o *Options) setDefaults() {
	o.Nodes = max(o.Nodes, 1)
	o.Failures = cmp.Or(o.Failures, DefaultFailures)
	o.Ramp = cmp.Or(o.Ramp, DefaultRamp)
	o.MaxRetry = cmp.Or(o.MaxRetry, DefaultMaxRetry)
	o.Beat = cmp.Or(o.Beat, DefaultBeat)
	o.Debts = cmp.Or(o.Debts, DefaultDebts)
	if o.Node == "" {
		o.Node = rand.Text()
	}
	if o.Changed == nil {
		o.Changed = func(Stats, Stats) {}
	}
	if o.Decided == nil {
		o.Decided = func(error) {}
	}
}

func (o *Options) check() (problems headgate.Problems) {
	if o.Default > headgate.OnErrorLocal {
		problems.Add("default", "default is %v, must be allow, deny or local", o.Default)
	}
	if len(o.Node) > 64 {
		problems.Add("node", "the node's name has %d bytes, must have at most 64", len(o.Node))
	}
	if o.Failures < 0 {
		problems.Add("failures", "failures is %d, must be 1 or more", o.Failures)
	}
	for _, d := range []struct {
		name      string
		is, least time.Duration
	}{
		{"learn", o.Learn, 0},
		{"ramp", o.Ramp, time.Millisecond},
		{"max retry", o.MaxRetry, firstRetry},
		{"beat", o.Beat, 10 * time.Millisecond},
	} {
		if d.is < d.least || d.is > time.Hour {
			problems.Add(d.name, "%s is %v, must be %v to %v", d.name, d.is, d.least, time.Hour)
		}
	}
	if o.Debts < 0 {
		problems.Add("debts", "debts is %d, must be 1 or more", o.Debts)
	}
	return problems
}

// Layer lets the store inside decide while that answers, and decides by each check's OnError
// while it does not. Make one with [New]. It is safe for concurrent use.
type Layer struct {
	inner   headgate.Store
	charger Charger // the local store, if it is one
	options Options

	breaker  breaker
	learning atomic.Bool
	shares   atomic.Pointer[shares]
	debts    debts
	counts   counts
	pool     sync.Pool // of *scratch
	keeper   keeper

	telling sync.Mutex // guards told, and has changes told one after another
	told    Stats
}

// Charger is an optional interface of the local store. With it the store can be told what the
// primary has admitted, more exactly and at less cost.
type Charger interface {
	// Charge charges each limit of the checks independently, whether the cost fits or not,
	// but fills no bucket beyond its capacity.
	Charge(checks []headgate.Check)
}

// scratch is the memory of one call, which later calls use again.
type scratch struct {
	checks    []headgate.Check
	decisions []headgate.Decision
	places    []int // of the checks, among those of the request
}

// New returns a layer around a store. Before it returns it tries to count the nodes, for no
// longer than the store's deadline or a second; it is no error if that fails. Close the layer
// when it is no longer needed.
func New(inner headgate.Store, options Options) (*Layer, error) {
	options.setDefaults()
	problems := options.check()
	if inner == nil || options.Local == nil {
		problems.Add("store", "it needs a store and a local store")
	}
	if err := problems.Err("fallback"); err != nil {
		return nil, err
	}
	f := &Layer{inner: inner, options: options}
	f.charger, _ = options.Local.(Charger)
	if f.options.Members == nil {
		f.options.Members, _ = inner.(Members)
	}
	f.pool.New = func() any { return new(scratch) }
	f.debts.init(options.Debts)
	f.shares.Store(newShares(options.Nodes))
	f.breaker.failures, f.breaker.ramp, f.breaker.base = options.Failures, options.Ramp, time.Now()
	f.breaker.rows = make(chan struct{}, 1)
	f.breaker.changed = f.stateChanged
	f.keeper.start(f)
	return f, nil
}

// Store returns the store to ask: a [headgate.Ledger] if the one inside is one.
func (f *Layer) Store() headgate.Store {
	if inner, ok := f.inner.(headgate.Ledger); ok {
		l := &ledger{outer: outer{f}, inner: inner}
		l.local, _ = f.options.Local.(headgate.Ledger)
		return l
	}
	return outer{f}
}

// Close ends the probes, charges to the store those debts that it can charge at once, and
// tells the other nodes that this one is gone. All of that ends with the context; it is no
// error if some of it was not done. The stores stay open. Closing again does nothing.
func (f *Layer) Close(ctx context.Context) error {
	f.keeper.stop(ctx)
	return nil
}

// onError returns what to do with a check while the primary does not answer.
func (f *Layer) onError(c *headgate.Check) headgate.OnError {
	if c.OnError == headgate.OnErrorReturn {
		return f.options.Default
	}
	return c.OnError
}

// outer is the store inside with a fallback.
type outer struct{ *Layer }

// Take implements [headgate.Store]. An error wraps [headgate.ErrUnavailable] if the
// primary does not answer and the checks want no decision without it. While the
// primary answers, and for checks that are not decided locally, it does not allocate
// unless the primary does.
func (f outer) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	word, ask := f.breaker.enter()
	if !ask {
		return f.decideWithout(ctx, op, checks, dst, *f.breaker.refusal.Load(), f.options.Local.Take)
	}
	if f.learning.Load() && op <= headgate.OpPeek {
		return f.learn(ctx, word, op, checks, dst, func(ctx context.Context, dst []headgate.Decision) ([]headgate.Decision, error) {
			return f.inner.Take(ctx, op, checks, dst)
		}, f.options.Local.Take)
	}
	began := f.breaker.now()
	asking, release := f.spare(ctx, checks)
	out, err := f.inner.Take(asking, op, checks, dst)
	release()
	if err != nil {
		if f.noteError(ctx, word, began, err) {
			return f.decideWithout(ctx, op, checks, dst, err, f.options.Local.Take)
		}
		return out, err
	}
	f.breaker.answered(began)
	f.mirror(ctx, op, checks, out[len(dst):])
	return out, nil
}

// sparePart is the part of a caller's time in which the store is not waited for, if the checks can be
// decided without it.
const sparePart = 4

// spare returns the context for a call to the store. It leaves the caller some of its time if the
// request can be decided without the store. The function that it returns must be called.
func (f *Layer) spare(ctx context.Context, checks []headgate.Check) (context.Context, context.CancelFunc) {
	end, has := ctx.Deadline()
	if !has {
		return ctx, func() {}
	}
	// The store's own deadline comes before one that is far away.
	left := time.Until(end)
	if left > 2*silence || !f.decides(checks) {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, end.Add(-left/sparePart))
}

// decides reports whether checks can be decided without the primary.
func (f *Layer) decides(checks []headgate.Check) bool {
	for i := range checks {
		if o := f.onError(&checks[i]); o != headgate.OnErrorAllow && o != headgate.OnErrorLocal && !checks[i].Shadow {
			return false
		}
	}
	return true
}

// tooShort is the time below which a deadline that has passed says nothing of the store.
const tooShort = 5 * time.Millisecond

// noteError records an error of the primary, and reports whether the request is to be decided
// without the primary. It is not if the error is an answer, or if the caller has given up.
func (f *Layer) noteError(ctx context.Context, word uint64, began int64, err error) bool {
	ended := ctx.Err()
	switch {
	case errors.Is(err, headgate.ErrConflict), errors.Is(err, headgate.ErrNoReservation):
		f.breaker.answered(began)
		return false
	case errors.Is(err, headgate.ErrDamaged):
		f.breaker.answered(began) // The store is well; it is this counter that is not.
		return ended == nil
	case !errors.Is(err, headgate.ErrUnavailable), errors.Is(ended, context.Canceled):
		return false
	case timedOut(err) && f.breaker.now()-began < int64(tooShort):
		return ended == nil
	}
	f.counts.failures.Add(1)
	f.breaker.failed(word, began, err)
	return ended == nil
}
