package fallback

import (
	"cmp"
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/internal/layer"
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
	scratch  layer.Scratches[int] // of the places of checks in the request
	keeper   keeper

	announcing sync.Mutex // guards announced, and makes calls of Options.Changed follow one another
	announced  Stats
}

// Charger is an optional interface of the local store. With it the store can be told what the
// primary has admitted, more exactly and at less cost.
type Charger interface {
	// Charge charges each limit of the checks independently, whether the cost fits or not,
	// but fills no bucket beyond its capacity.
	Charge(checks []headgate.Check)
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
	f.debts.init(options.Debts)
	f.shares.Store(newShares(options.Nodes))
	f.breaker.failures, f.breaker.ramp, f.breaker.base = options.Failures, options.Ramp, time.Now()
	f.breaker.rowBegan = make(chan struct{}, 1)
	f.breaker.changed = f.stateChanged
	f.keeper.start(f)
	return f, nil
}

// Store returns the store to ask: a [headgate.Ledger] if the one inside is one.
func (f *Layer) Store() headgate.Store {
	if inner, ok := f.inner.(headgate.Ledger); ok {
		local, _ := f.options.Local.(headgate.Ledger)
		return &ledger{outer{f}, inner, local}
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

// counts are what a fallback counts since it was made.
type counts struct {
	failures, refused, open, local       atomic.Int64
	opened, probes, probesFailed, handed atomic.Int64
}

// Stats says what a [Layer] is doing and what it has done. Counts began when the layer was
// made, unless their comments say otherwise.
type Stats struct {
	State State
	// Cause is the error that requests get while the primary is not asked. It is nil unless
	// State is Open.
	Cause error
	// Nodes is how many nodes share the primary: the last count, or a higher one shortly
	// before it.
	Nodes int64
	// NodesError is why the last attempt to count the nodes failed. It is nil if they were
	// counted, or if the primary is no [Members].
	NodesError error
	// Learning says that the primary has lost its data, so that requests must fit this
	// node's share as well.
	Learning bool
	// Failures counts the calls to the primary that failed, except those whose caller had
	// given up.
	Failures int64
	// Refused, Open and Local count the requests that were decided without the primary: those
	// that got an error, those that were let in uncounted, and those that this node's share
	// decided.
	Refused, Open, Local int64
	// Opened is how often the breaker has opened.
	Opened int64
	// Probes counts the probes that an open breaker has sent, and ProbesFailed those of them
	// that failed.
	Probes, ProbesFailed int64
	// Debts is for how many pairs of rule and key units are still to be charged to the
	// primary. DebtsDropped counts how often there was no room for another pair.
	Debts        int
	DebtsDropped int64
	// HandedBack is the number of units that were admitted locally and charged to the primary
	// when it was back.
	HandedBack int64
}

// Nodes returns the same number as [Stats.Nodes], at less cost: for layers that need it for
// each request.
func (f *Layer) Nodes() int64 { return f.shares.Load().nodes }

// Stats returns what the layer is doing.
func (f *Layer) Stats() Stats {
	s := Stats{
		State: stateOf(f.breaker.word.Load()), Nodes: f.shares.Load().nodes, Learning: f.learning.Load(),
		Failures: f.counts.failures.Load(), Refused: f.counts.refused.Load(), Open: f.counts.open.Load(), Local: f.counts.local.Load(),
		Opened: f.counts.opened.Load(), Probes: f.counts.probes.Load(), ProbesFailed: f.counts.probesFailed.Load(),
		Debts: int(f.debts.size.Load()), DebtsDropped: f.debts.dropped.Load(), HandedBack: f.counts.handed.Load(),
	}
	if cause := f.breaker.refusal.Load(); s.State == Open && cause != nil {
		s.Cause = *cause
	}
	if err := f.keeper.nodesError.Load(); err != nil {
		s.NodesError = *err
	}
	return s
}

// stateChanged follows a change of the breaker's state.
func (f *Layer) stateChanged() {
	if stateOf(f.breaker.word.Load()) == Open {
		f.counts.opened.Add(1)
		signal(f.keeper.woken)
	}
	f.announce()
}

// announce calls Changed if anything has changed.
func (f *Layer) announce() {
	f.announcing.Lock()
	defer f.announcing.Unlock()
	was, is := f.announced, f.Stats()
	f.announced = is
	if was.State != is.State || was.Learning != is.Learning || (was.NodesError == nil) != (is.NodesError == nil) {
		f.options.Changed(was, is)
	}
}
