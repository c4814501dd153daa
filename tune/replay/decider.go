package replay

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/tune/accesslog"
)

// outcome is what a policy does with one request.
type outcome struct {
	decisions []headgate.Decision
	verdict   headgate.Verdict
	listed    *policy.ListEntry // the entry of the deny list that denies it
	allowed   bool
	bunched   bool // allowed if all requests of its second came at once
	refused   bool // it cannot be decided, so every door refuses it
	unclear   bool // servers read its path in different ways
}

// by returns the name of the rule, or the entry of the deny list, that denies the request.
func (o *outcome) by() string {
	switch {
	case o.allowed:
		return ""
	case o.listed != nil:
		return "deny list: " + o.listed.Name
	}
	if d := o.verdict.Deciding(); d != nil {
		return d.Rule.Name()
	}
	return "refused"
}

// timed is a store whose clock shows only the time that is set.
type timed struct {
	*memory.Store
	now atomic.Int64
}

func newTimed(bytes int64) *timed {
	t := new(timed)
	t.Store = memory.New(memory.Clock(t.now.Load), memory.MaxBytes(bytes))
	return t
}

// decider decides requests by one policy.
type decider struct {
	facts    *facts
	bindings *bindings
	spread   *timed
	bunched  *timed // nil if the log's times are fine

	binding  *binding // of the last request
	refunds  []headgate.Check
	together []headgate.Decision
	out      outcome
}

// storeBytes bounds the memory of each store. A million keys take about a tenth of it.
const storeBytes = memory.DefaultMaxBytes

func newDecider(set *policy.Set, entries []string) (*decider, []string) {
	f, problems := newFacts(set, entries)
	return &decider{facts: f, bindings: newBindings(set), spread: newTimed(storeBytes)}, problems
}

// coarse makes the decider also decide as if all requests of a second came at once.
func (d *decider) coarse() { d.bunched = newTimed(storeBytes) }

// decide decides a request. The outcome is valid until the next call.
func (d *decider) decide(r *accesslog.Request) *outcome {
	o := &d.out
	*o = outcome{decisions: o.decisions[:0], allowed: true, bunched: true}
	var descriptor policy.Descriptor
	descriptor, o.unclear = d.facts.of(r)
	b := d.bindings.of(descriptor)
	d.binding = b
	switch {
	case b.refused:
		o.allowed, o.bunched, o.refused = false, false, true
		return o
	case b.denied != nil:
		o.listed, o.allowed, o.bunched = b.denied, false, false
		return o
	case len(b.checks) == 0:
		return o
	}
	d.spread.now.Store(r.Spread)
	o.decisions = d.take(d.spread, o.decisions, b, r)
	o.verdict = headgate.NewVerdict(o.decisions)
	o.allowed, o.bunched = o.verdict.Allowed, o.verdict.Allowed
	if d.bunched != nil {
		d.bunched.now.Store(r.Time)
		d.together = d.take(d.bunched, d.together[:0], b, r)
		o.bunched = allowed(d.together)
	}
	return o
}

// take asks a store, and refunds what is not charged for the status of the response.
func (d *decider) take(s *timed, dst []headgate.Decision, b *binding, r *accesslog.Request) []headgate.Decision {
	dst, err := s.Take(context.Background(), headgate.OpTake, b.checks, dst)
	if err != nil {
		// The checks come from a valid policy, and a memory store has no other errors.
		panic(err)
	}
	if r.Status == 0 || !b.awaits || !allowed(dst) {
		return dst
	}
	d.refunds = slices.DeleteFunc(append(d.refunds[:0], b.checks...), func(c headgate.Check) bool { return d.bindings.set.Charged(&c, int(r.Status)) })
	if len(d.refunds) > 0 {
		for i := range d.refunds {
			d.refunds[i].At = dst[0].At
		}
		if _, err := s.Take(context.Background(), headgate.OpRefund, d.refunds, nil); err != nil {
			panic(err)
		}
	}
	return dst
}

// allowed returns the verdict of the decisions.
func allowed(decisions []headgate.Decision) bool {
	for i := range decisions {
		if d := &decisions[i]; !d.Allowed && !d.Shadow {
			return false
		}
	}
	return true
}
