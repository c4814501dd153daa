package admission

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/inprogress"
)

// Group are the settings of one gate, in addition to the options of all gates.
type Group[R any] struct {
	// Option is the name of the option that has made the bindings, for messages about mistakes.
	Option   string
	Bindings []Binding[R]
	// Cost returns how many units a request takes; nil means one. CostOption is the name of the
	// option that has set it.
	Cost       func(R) int64
	CostOption string
	// UsesPolicy makes the rules of [Options.Source] bind as well.
	UsesPolicy bool
	// Gate bounds the work in progress; nil means no bound. Describe returns the request for the
	// gate, and false if the request does not have to pass the gate.
	Gate     flow.Gate
	Describe func(R) (flow.Request, bool)
	// Settles makes the cost an estimate, which is reserved: see [Passage.End].
	Settles bool
}

// Gate decides on requests. It is safe for concurrent use, and nothing of it changes but what is
// in force; make it with [New].
type Gate[R any] struct {
	*Options[R]
	group Group[R]
	own   *policy.Set // the bindings
	now   *atomic.Pointer[inForce[R]]
	pool  sync.Pool // of *Attempt[R]
}

// New returns a gate for each group, in their order. If the options have Problems afterwards, the
// gates must not be used.
func New[R any](o *Options[R], groups ...Group[R]) []*Gate[R] {
	o.check()
	if o.Source != nil && o.Keeper == nil {
		o.Keeper = inprogress.New(inprogress.Options{})
	}
	c := newCompiler(o)
	now := new(atomic.Pointer[inForce[R]])
	gates := make([]*Gate[R], len(groups))
	for i, group := range groups {
		g := &Gate[R]{Options: o, group: group, now: now, own: c.compile(group.Option, group.Bindings)}
		charge := Charge{Store: o.Store, Failure: o.Failure, MaxDelay: o.MaxDelay, Sleep: o.Sleep}
		if group.Settles {
			if ledger, ok := o.Store.(headgate.Ledger); ok {
				charge.Ledger = ledger
			} else if o.Store != nil {
				o.Bad("Settle", "Settle needs a store that remembers requests, and %T does not", o.Store)
			}
		}
		g.pool.New = func() any {
			a := &Attempt[R]{gate: g, Charge: charge}
			if group.Gate != nil {
				a.Sleep = a.load.Sleep
			}
			return a
		}
		gates[i] = g
	}
	c.findFacts()
	now.Store(c.inForce(nil))
	if o.Source != nil {
		c.follow(now)
	}
	return gates
}

// Limits reports whether the gate has anything to limit by.
func (g *Gate[R]) Limits() bool {
	return len(g.group.Bindings) > 0 || g.group.UsesPolicy && g.Source != nil
}

func (g *Gate[R]) missing(r R, entry string) {
	if g.Hooks.Missing != nil {
		g.Hooks.Missing(r, entry)
	}
}

func (g *Gate[R]) failed(r R, err error) {
	if g.Hooks.Failed != nil {
		g.Hooks.Failed(r, err)
	}
}

func (g *Gate[R]) waited(r R, d time.Duration) {
	if d > 0 && g.Hooks.Waited != nil {
		g.Hooks.Waited(r, d)
	}
}
