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
	DefaultMaxRetry = time.Second
	DefaultBeat     = 3 * time.Second
	DefaultDebts    = 1 << 14
)

// Options are what a [Layer] can be told. The zero Options turn
// requests away while the primary does not answer.
type Options struct {
	// Local is the store that counts by this node's share of the limits, and that nobody
	// else uses. Required.
	Local headgate.Store
	// Default is what is done with checks that do not say it themselves.
	// OnErrorReturn is the same as OnErrorDeny.
	Default headgate.OnError
	// Members counts the nodes that share the primary. Nil means the primary, if
	// it can.
	Members Members
	// Node names this node among them: up to 64 bytes, another one for each
	// process. Empty makes one up.
	Node string
	// Nodes is how many nodes there are as long as nobody has counted them. Zero
	// means one.
	Nodes int64
	// Learn is for how long after its data was lost the primary's admissions are
	// not enough: a request must fit this node's share of its limits as well, of
	// which this node knows what it has admitted. All checks are charged locally
	// then, whatever their OnError. Zero means never.
	Learn time.Duration
	// Failures is how many calls in a row fail until the breaker opens. Zero means
	// DefaultFailures.
	Failures int64
	// Ramp is how long after a probe was answered until all requests are decided
	// by the primary again. Zero means DefaultRamp.
	Ramp time.Duration
	// MaxRetry is the longest time between two probes. Zero means DefaultMaxRetry.
	MaxRetry time.Duration
	// Beat is the time between two counts of the nodes; one that was not heard of
	// for three of them is gone. Zero means DefaultBeat.
	Beat time.Duration
	// Debts is for how many pairs of rule and key it is remembered what was
	// admitted locally, to be charged to the primary later. Zero means
	// DefaultDebts.
	Debts int
	// Changed is called after each change of Stats.State, Learning and NodesError,
	// with what was before and what is. It must be quick, and must not call the
	// fallback. Nil means nobody.
	Changed func(was, is Stats)
	// Decided is called for each request that was asked of the primary and then decided
	// without it, for the reason given, while the breaker is closed: part of the primary is
	// sick, which changes no state. It must be quick, and safe for concurrent use. Nil means
	// nobody.
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

// Layer decides as the store inside does while that answers, and by each check's OnError
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

// Charger is what the local store may offer, so that it can be told more exactly,
// and for less, what the primary has admitted.
type Charger interface {
	// Charge charges each limit of the checks by itself, whether the cost fits or
	// not, but no bucket beyond its capacity.
	Charge(checks []headgate.Check)
}

// scratch is what one call needs and the next can use again.
type scratch struct {
	checks    []headgate.Check
	decisions []headgate.Decision
	places    []int // of the checks, among those of the request
}

// New returns a layer around a store. It counts the nodes once before it returns, if the store
// answers within its deadline or a second; it is no error if not. Close the layer when it is
// no longer needed.
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

// Close ends the probes, charges what is owed to the store as far as that can be done at
// once, and tells the other nodes that this one is gone. All of that ends with the context;
// it is no error if not all was done. The stores stay open. Closing again does nothing.
func (f *Layer) Close(ctx context.Context) error {
	f.keeper.stop(ctx)
	return nil
}

// onError is what to do with a check while the primary does not answer.
func (f *Layer) onError(c *headgate.Check) headgate.OnError {
	if c.OnError == headgate.OnErrorReturn {
		return f.options.Default
	}
	return c.OnError
}

// outer is the store inside, with a fallback.
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
		return f.learn(ctx, word, op, checks, dst, func(dst []headgate.Decision) ([]headgate.Decision, error) {
			return f.inner.Take(ctx, op, checks, dst)
		}, f.options.Local.Take)
	}
	waited := stopwatch(ctx)
	out, err := f.inner.Take(ctx, op, checks, dst)
	if err != nil {
		if f.noteError(ctx, word, err, waited) {
			return f.decideWithout(ctx, op, checks, dst, err, f.options.Local.Take)
		}
		return out, err
	}
	f.breaker.answered()
	f.mirror(ctx, op, checks, out[len(dst):])
	return out, nil
}

// stopwatch returns the time. It returns the zero time if the context has no deadline: the time is
// only needed to judge a deadline.
func stopwatch(ctx context.Context) time.Time {
	if _, has := ctx.Deadline(); has {
		return time.Now()
	}
	return time.Time{}
}

// patience is how long a store must have had to answer before a caller's own deadline counts as
// its failure.
const patience = 5 * time.Millisecond

// noteError notes an error of the primary. It reports whether the request is to be decided
// without the primary. That is not so if the error is an answer, or if the caller is gone.
func (f *Layer) noteError(ctx context.Context, word uint64, err error, began time.Time) bool {
	ended := ctx.Err()
	switch {
	case errors.Is(err, headgate.ErrConflict), errors.Is(err, headgate.ErrNoReservation):
		f.breaker.answered()
		return false
	case errors.Is(err, headgate.ErrDamaged):
		f.breaker.answered() // The store is well; it is this counter that is not.
		return ended == nil
	case !errors.Is(err, headgate.ErrUnavailable), errors.Is(ended, context.Canceled):
		return false
	case ended != nil && time.Since(began) < patience:
		return false
	}
	f.counts.failures.Add(1)
	f.breaker.failed(word, err)
	return ended == nil
}
