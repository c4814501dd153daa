package admission

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
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

// Outcome says what happened to a request.
type Outcome uint8

const (
	// Passed means that the limits admit the request, or nothing binds it.
	Passed Outcome = iota
	// Open means that the store did not answer, and the request is let in without a decision.
	Open
	// Lacking means that the request lacks the entry that a binding counts by.
	Lacking
	// Unclear means that servers read the request in different ways, and a rule depends on the
	// difference.
	Unclear
	// TooLong means that a value of the request is longer than [policy.MaxValue].
	TooLong
	// Listed means that the policy's deny list turns the request away.
	Listed
	// Denied means that a limit denies the request.
	Denied
	// Shed means that the gate for the work in progress does not let the request in.
	Shed
	// Busy means that, by a rule of the policy, too much is in progress.
	Busy
	// Unavailable means that the store did not answer, and the request is not let in
	// without it.
	Unavailable
	// Ended means that the request's context ended before there was a decision.
	Ended
	// Broken means that the program has made a check that no store could take.
	Broken
)

// Attempt is one request at a gate, with its outcome. It belongs to a pool: call Free once the
// request has been answered.
type Attempt[R any] struct {
	Outcome Outcome
	// Entry is the name of the entry for Lacking and TooLong and, if it is about an entry, for
	// Unclear. Why is the text for the client, for Unclear.
	Entry, Why string
	// Err is the error behind Open, Unavailable, Ended, Broken and Shed. Hooks were told about it,
	// except for Ended.
	Err error
	// Rejection is the gate's answer, for Shed.
	Rejection *flow.Rejection
	// Refusal is the reason, for Busy.
	Refusal *inprogress.Refusal
	// Passage must be told how the request ends, for Passed and Open. It is nil if nothing depends
	// on that.
	Passage *Passage[R]
	// Charge has the verdict, for Passed and Denied.
	Charge
	// Rules is the policy that the request is decided by, throughout; nil if there is none.
	Rules *policy.Set

	gate   *Gate[R]
	needed []Fact[R]
	facts  policy.Descriptor
	bounds []policy.Bound
	held   []flow.Permit
	load   Load
}

// Try decides on a request. If the limits deny it, Try waits until it fits, for as long
// as it may wait.
func (g *Gate[R]) Try(ctx context.Context, r R, wait time.Duration) *Attempt[R] {
	a := g.pool.Get().(*Attempt[R])
	now := g.now.Load()
	a.needed = now.facts
	if g.group.UsesPolicy {
		a.Rules = now.rules
	}
	if a.Outcome = a.enter(ctx, r); a.Outcome == Passed {
		a.Outcome = a.decide(ctx, r, wait)
	}
	if a.Outcome == Ended && a.load.Gate != nil {
		a.Outcome = a.refused(ctx, r, a.Err)
	}
	switch a.Outcome {
	case Passed, Open:
		a.load.Permit.Begin()
	default:
		a.load.Permit.Done(flow.Unused)
	}
	switch a.Outcome {
	case Passed:
		a.Verdict.Allowed = true // also where nothing binds the request
		a.warn(r)
		a.Passage = a.newPassage(ctx, r)
	case Busy:
		if g.Hooks.Busy != nil {
			g.Hooks.Busy(r, a.Refusal)
		}
	case Denied:
		if g.Hooks.Denied != nil {
			g.Hooks.Denied(r, a.Verdict)
		}
	case Shed:
		if g.Hooks.Shed != nil {
			g.Hooks.Shed(r, a.Rejection)
		}
	case Open:
		g.failed(r, a.Err)
		a.Passage = a.newPassage(ctx, r)
	case Unavailable, Broken:
		g.failed(r, a.Err)
	}
	return a
}

// Free gives the attempt back to its pool.
func (a *Attempt[R]) Free() {
	clear(a.facts[:cap(a.facts)])
	clear(a.held)
	a.held, a.bounds, a.Refusal = a.held[:0], nil, nil
	a.Entry, a.Why, a.Err, a.Rejection, a.Passage, a.load = "", "", nil, nil, nil, Load{}
	a.Rules, a.needed = nil, nil
	a.Reset()
	a.gate.pool.Put(a)
}

// decide takes a request from its facts to the outcome.
func (a *Attempt[R]) decide(ctx context.Context, r R, wait time.Duration) Outcome {
	cost := int64(1)
	if find := a.gate.group.Cost; find != nil {
		if cost = find(r); cost == 0 {
			return Passed
		}
		if a.Err = costError(a.gate.group.CostOption, cost); a.Err != nil {
			return Broken
		}
	}
	facts, legible := a.find(r)
	if !legible {
		return Unclear
	}
	for i := range facts {
		if len(facts[i].Value) > policy.MaxValue {
			a.Entry = facts[i].Name
			a.gate.missing(r, a.Entry)
			return TooLong
		}
	}
	if outcome := a.bind(r, facts, cost); outcome != Passed {
		return outcome
	}
	// Permits come first, so that a refused request is charged nothing. Giving them back needs no
	// store.
	if len(a.bounds) > 0 {
		if outcome := a.hold(ctx, r); outcome != Passed {
			return outcome
		}
	}
	outcome := Broken
	defer func() { // after a panic of the store, too
		if outcome != Passed && outcome != Open {
			inprogress.Leave(a.held, flow.Unused)
		}
	}()
	outcome = a.charge(ctx, r, wait)
	return outcome
}

// hold takes all permits that the request needs by the rules, or none. It may wait for them. A
// waiting request is not in progress, so it gives the gate's permit back and asks the gate again
// afterwards.
func (a *Attempt[R]) hold(ctx context.Context, r R) Outcome {
	a.load.Permit.Done(flow.Unused)
	var err error
	a.held, err = a.gate.Keeper.Enter(ctx, a.bounds, a.held)
	if refusal, refused := errors.AsType[*inprogress.Refusal](err); refused {
		a.Err, a.Refusal = err, refusal
		return Busy
	}
	outcome := a.refused(ctx, r, err)
	if outcome == Passed {
		outcome = a.refused(ctx, r, a.load.Enter(ctx))
	}
	if outcome != Passed {
		inprogress.Leave(a.held, flow.Unused)
	}
	return outcome
}

// costError returns what is wrong with a cost that the function of an option returned, or
// nil.
func costError(option string, cost int64) error {
	if cost >= 0 && cost <= headgate.MaxCount {
		return nil
	}
	return fmt.Errorf("%w: the function of %s returned %d, must be 0 to %d", headgate.ErrInvalid, option, cost, headgate.MaxCount)
}

// find returns the facts of the request. legible is false if one of them is unclear. The facts are
// in the attempt's memory, unless Describe returns a slice of its own.
func (a *Attempt[R]) find(r R) (facts policy.Descriptor, legible bool) {
	g := a.gate
	a.facts = a.facts[:0]
	for i := range a.needed {
		f := &a.needed[i]
		if f.Unclear != nil {
			if a.Why = f.Unclear(r); a.Why != "" {
				a.Entry = f.Name
				g.missing(r, f.Name)
				return nil, false
			}
		}
		if v := f.Find(r); v != "" {
			a.facts = append(a.facts, policy.Entry{Name: f.Name, Value: v})
		}
	}
	if g.Unclear != nil {
		if a.Why = g.Unclear(r); a.Why != "" {
			return nil, false
		}
	}
	if g.Describe != nil {
		return g.Describe(r, a.facts), true
	}
	return a.facts, true
}

// bind fills in the checks.
func (a *Attempt[R]) bind(r R, facts policy.Descriptor, cost int64) Outcome {
	g := a.gate
	a.Checks = a.Checks[:0]
	for i := range g.group.Bindings {
		b := &g.group.Bindings[i]
		if entry := b.Key.lacks(facts); entry != "" && !a.excuse(r, facts, b, entry, cost) {
			a.Entry = entry
			return Lacking
		}
	}
	if len(g.group.Bindings) > 0 {
		if a.Checks, a.Err = g.own.Match(facts, cost, a.Checks); a.Err != nil {
			return Broken
		}
	}
	if a.Rules == nil {
		return Passed
	}
	found, err := a.Rules.Decide(facts, cost, a.Checks)
	switch {
	case err != nil:
		a.Err = err
		return Broken
	case found.Denied != nil:
		return Listed
	case found.Allowed == nil:
		a.Checks, a.bounds = found.Checks, found.Bounds
	}
	return Passed
}

// excuse reports whether a request that lacks the entry may go on. It may add a check by the
// request's address.
func (a *Attempt[R]) excuse(r R, facts policy.Descriptor, b *Binding[R], entry string, cost int64) bool {
	a.gate.missing(r, entry)
	switch a.gate.Missing {
	case PassMissing: // Rules do not bind a request that lacks an entry.
		return true
	case CountMissingByIP:
		key := a.gate.fallbackKey(facts)
		for _, rule := range b.Rules {
			if key != "" {
				a.Checks = append(a.Checks, headgate.Check{Rule: rule, Key: key, Cost: cost})
			}
		}
		return key != ""
	}
	return false
}

// fallbackMark precedes the address in the key of a request without an identity. No header can hold
// it, so the key differs from the name of any user or tenant.
const fallbackMark = "\x1fip:"

// fallbackKey returns the key of a request that is counted by its address, or "" if it has none. As
// in the keys of policies, IPv4 has one form, IPv6 counts by its first bits, and zones are ignored.
func (g *Gate[R]) fallbackKey(facts policy.Descriptor) string {
	text, _ := facts.Get(g.Address.Name)
	a, err := netip.ParseAddr(text)
	if err != nil {
		return ""
	}
	if a = a.Unmap().WithZone(""); a.Is6() && g.IPv6Bits < 128 {
		if p, err := a.Prefix(g.IPv6Bits); err == nil {
			return fallbackMark + p.String()
		}
	}
	return fallbackMark + a.String()
}

// charge lets the store decide, if a limit binds the request. If the request is denied and may wait,
// charge waits and tries again.
func (a *Attempt[R]) charge(ctx context.Context, r R, wait time.Duration) Outcome {
	g := a.gate
	if len(a.Checks) == 0 {
		return Passed
	}
	if a.Ledger != nil && a.Rules != nil {
		a.Terms.For = a.Rules.Term(a.Checks)
	}
	for {
		if g.OneWait {
			a.MaxDelay = wait
		}
		var outcome Outcome
		outcome, a.Err = a.Decide(ctx)
		if a.Lost != nil {
			g.failed(r, a.Lost)
		}
		if outcome == Passed {
			g.waited(r, a.Verdict.Delay)
		}
		// Never is negative. With OneWait, a request that would be held longer than it may wait
		// does not fit later either.
		again := a.Verdict.RetryAfter
		if outcome != Denied || again <= 0 || again > wait || a.tooLate && g.OneWait || EndsWithin(ctx, again) {
			return outcome
		}
		if a.Err = a.wait(ctx, again); a.Err != nil {
			return Ended
		}
		g.waited(r, again)
		wait -= again
	}
}

// warn tells the hook which limits of an admitted request warn.
func (a *Attempt[R]) warn(r R) {
	g := a.gate
	if a.Rules == nil || g.Hooks.Soft == nil || !a.Rules.Warns() {
		return
	}
	for i := range a.Verdict.Decisions {
		if d := &a.Verdict.Decisions[i]; d.Allowed && a.Rules.Soft(d) {
			g.Hooks.Soft(r, *d)
		}
	}
}

// Passage is an admitted request for which something depends on how it ends. Call [Passage.End]
// once when it has ended.
type Passage[R any] struct {
	gate    *Gate[R]
	ctx     context.Context // the request's own
	request R
	permits []flow.Permit
	permit  flow.Permit // the permit of the gate for the work in progress
	charges bool        // units are settled or given back when the request ends
	charge  Charge
	rules   *policy.Set  // those that the request was decided by, or nil
	cost    atomic.Int64 // that the handler has set, or -1
}

// settles reports whether there is a reservation, so that End asks for the cost.
func (p *Passage[R]) settles() bool { return p.charge.Reservation.ID != "" }

// newPassage returns the passage of the request, or nil if nothing depends on how the request ends.
func (a *Attempt[R]) newPassage(ctx context.Context, r R) *Passage[R] {
	g := a.gate
	reserved := a.Reservation.ID != ""
	charges := a.Outcome == Passed && (reserved || a.Rules != nil && a.Rules.Awaits(a.Checks))
	if !charges && len(a.held) == 0 && !a.load.Permit.Held() {
		return nil
	}
	// The attempt is reused for another request, so the passage copies what it keeps.
	p := &Passage[R]{gate: g, ctx: ctx, request: r, permits: slices.Clone(a.held), permit: a.load.Permit, charges: charges, rules: a.Rules}
	p.cost.Store(-1)
	if charges {
		p.charge = Charge{Store: a.Store, Ledger: a.Ledger, Reservation: a.Reservation}
		if !reserved {
			p.charge.Checks = a.Charged()
		}
	}
	return p
}

// costKey is the key of a request's passage in a context. Adapters with different types of requests
// have different keys.
type costKey[R any] struct{}

// Context returns a context in which [SetCost] and [Done] find the passage, and which carries the
// permits that it holds. If neither is needed, it returns ctx itself.
func (p *Passage[R]) Context(ctx context.Context) context.Context {
	ctx = inprogress.Context(ctx, p.permits)
	if !p.settles() && !p.permit.Held() {
		return ctx
	}
	return context.WithValue(p.permit.Context(ctx), costKey[R]{}, p)
}

// SetCost sets the real cost of the request of a context. It reports whether the request has a
// reservation to settle. The last call counts.
func SetCost[R any](ctx context.Context, cost int64) bool {
	p, ok := ctx.Value(costKey[R]{}).(*Passage[R])
	if !ok || !p.settles() {
		return false
	}
	p.cost.Store(max(cost, 0))
	return true
}

// End ends everything that the passage holds: permits, because others may wait for them, and then
// the charge, by the HTTP status of the answer or the one that stands for it. If there is a
// reservation to settle, End calls cost for the real cost of the request, with the request and the
// cost that the handler has set, or -1. End outlives the request's context by at most a second. A
// permit that [Passage.Done] did not give back says nothing about the work.
func (p *Passage[R]) End(status int, cost func(r R, set int64) int64) {
	p.Leave()
	var err error
	switch {
	case p.settles():
		err = p.settle(status, cost(p.request, p.cost.Load()))
	case p.charges:
		err = p.charge.Refund(p.ctx, Uncharged(p.rules, p.charge.Checks, status))
	}
	if err != nil {
		p.gate.failed(p.request, err)
	}
}

// Leave gives the permits back. End does so as well.
func (p *Passage[R]) Leave() {
	p.permit.Done(flow.Ignore)
	inprogress.Leave(p.permits, flow.Ignore)
}

// settle settles the reservation of a request that has ended with the status at that cost.
func (p *Passage[R]) settle(status int, cost int64) error {
	if err := costError("Settle", cost); err != nil {
		return fmt.Errorf("%w; the request stays charged as estimated", err)
	}
	units := p.charge.Reservation.Units(cost)
	if p.rules != nil {
		units = p.rules.Settle(&p.charge.Reservation, cost, nil, status)
	}
	_, err := p.charge.Settle(p.ctx, units)
	return err
}
