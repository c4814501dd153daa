package decide

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// call is one call of the store, with the checks of all parts that have the same operation.
type call struct {
	ask       Ask
	decisions []headgate.Decision
	wanted    bool // some part has the operation
	answered  bool
}

func (c *call) reset() {
	clear(c.ask.Checks)
	clear(c.decisions)
	*c = call{ask: Ask{Checks: c.ask.Checks[:0]}, decisions: c.decisions[:0]}
}

// newCall prepares a call for parts with these facts.
func (p *Parts) newCall(facts policy.Descriptor) *call {
	if p.called == len(p.calls) {
		p.calls = append(p.calls, new(call))
	}
	c := p.calls[p.called]
	p.called++
	c.ask.Policy, c.ask.Descriptor = p.ask.Policy, facts
	return c
}

// take carries out the parts, and appends the decisions about all of them to dst, each once and
// without those of refunds. Unless the parts are Independent, all of them are charged, or none is.
// Peeks come first, and refunds last.
func (p *Parts) take(ctx context.Context, o *Over, ask *Ask, dst []headgate.Decision) ([]headgate.Decision, error) {
	p.ask, p.made, ask.Took = ask, dst, 0
	if !p.Independent {
		err := p.takeAll(ctx, o, p.List)
		if err == nil {
			p.noteReport()
		}
		return p.made, err
	}
	for i := range p.List {
		begin := len(p.made)
		if err := p.takeAll(ctx, o, p.List[i:i+1]); err != nil {
			return p.made, err
		}
		if err := p.takeRest(ctx, o, &p.List[i], p.made[begin:]); err != nil {
			return p.made, err
		}
	}
	p.applyQuotas(p.List)
	return p.made, nil
}

// takeAll carries out the parts so that all are charged or none.
func (p *Parts) takeAll(ctx context.Context, o *Over, parts []Part) error {
	facts := p.ask.Descriptor
	if len(parts) == 1 {
		facts = of(parts[0].facts, facts)
	}
	for op := range p.byOp {
		p.byOp[op] = p.newCall(facts)
	}
	denied := false
	for i := range parts {
		p.add(&parts[i])
		denied = denied || parts[i].TurnsAway()
	}
	peeks, takes, refunds := p.byOp[headgate.OpPeek], p.byOp[headgate.OpTake], p.byOp[headgate.OpRefund]

	if err := p.call(ctx, o, peeks, headgate.OpPeek); err != nil {
		return err
	}
	denied = denied || !headgate.NewVerdict(peeks.decisions).Allowed
	op := headgate.OpTake
	if denied && len(takes.ask.Checks) > 0 {
		op = headgate.OpPeek
	}
	if err := p.call(ctx, o, takes, op); err != nil {
		return err
	}
	p.made = append(append(p.made, peeks.decisions...), takes.decisions...)
	for i := range parts {
		if parts[i].Op != headgate.OpRefund {
			p.gather(&parts[i])
		}
	}
	denied = denied || !headgate.NewVerdict(takes.decisions).Allowed
	if !p.Independent && p.applyQuotas(parts) && !denied {
		denied = true
		if err := p.giveBack(ctx, o, parts); err != nil {
			return err
		}
	}

	op = headgate.OpRefund
	if denied {
		op = headgate.OpPeek
	}
	if err := p.call(ctx, o, refunds, op); err != nil {
		return err
	}
	for i := range parts {
		if parts[i].Op == headgate.OpRefund {
			p.gather(&parts[i])
		}
	}
	return nil
}

// giveBack gives back what the takes of a request were charged, because the request is not admitted
// after all.
func (p *Parts) giveBack(ctx context.Context, o *Over, parts []Part) error {
	takes := p.byOp[headgate.OpTake]
	b := p.newCall(takes.ask.Descriptor)
	var charges []int // for each check to give back, its index among the takes
	for i := range takes.ask.Checks {
		c, charged := takes.ask.Checks[i], false
		for j := range takes.decisions {
			if got := &takes.decisions[j]; got.Check == i {
				c.At, charged = got.At, got.Allowed
				if !charged {
					break
				}
			}
		}
		if charged {
			b.wanted = true
			b.ask.Checks = append(b.ask.Checks, c)
			b.ask.Cost = max(b.ask.Cost, c.Cost)
			charges = append(charges, i)
		}
	}
	if err := p.call(ctx, o, b, headgate.OpRefund); err != nil {
		return err
	}
	for back, place := range charges {
		first := slices.IndexFunc(b.decisions, func(d headgate.Decision) bool { return d.Check == back })
		if first < 0 {
			continue
		}
		now := b.decisions[first:]
		update(p.made[len(p.made)-len(takes.decisions):], place, now)
		for i := range parts {
			if parts[i].Op == headgate.OpTake {
				update(p.Decisions(&parts[i]), place, now)
			}
		}
	}
	return nil
}

// call asks the store, if any part wants the call.
func (p *Parts) call(ctx context.Context, o *Over, c *call, op headgate.Op) (err error) {
	if !c.wanted {
		return nil
	}
	c.ask.Op = op
	c.decisions, err = o.call(ctx, &c.ask, c.decisions)
	c.answered = err == nil
	p.ask.Took += c.ask.Took
	return err
}

// add adds a part to the call of its operation. If a check is in the call already, it is
// not added again, but its cost may change. For limits that a descriptor names itself, the
// costs are added up. A rule of a policy that binds several descriptors counts the request
// once, at the highest cost.
func (p *Parts) add(part *Part) {
	b := p.byOp[part.Op]
	ask := &b.ask
	b.wanted = true
	ask.Cost = max(ask.Cost, part.Cost)
	switch {
	case part.Listed != nil && part.Denies && ask.Denied == nil:
		ask.Denied = part.Listed
	case part.Listed != nil && part.Unlimited && ask.Allowed == nil:
		ask.Allowed = part.Listed
	}
	part.places = span{len(p.places), len(p.places)}
	for _, c := range of(part.checks, p.ask.Checks) {
		place := find(ask.Checks, &c)
		brought := part.Brought != nil
		if brought && place >= 0 && c.Rule.Limits()[0].Count < ask.Checks[place].Rule.Limits()[0].Count {
			// Two limits have one counter. A request within the smaller limit is within both.
			ask.Checks[place].Rule = c.Rule
		}
		switch {
		case place < 0:
			place = len(ask.Checks)
			ask.Checks = append(ask.Checks, c)
		case part.Op == headgate.OpPeek:
		case part.direct || brought:
			ask.Checks[place].Cost = min(ask.Checks[place].Cost+c.Cost, headgate.MaxCount)
		default:
			ask.Checks[place].Cost = max(ask.Checks[place].Cost, c.Cost)
		}
		p.places = append(p.places, place)
	}
	part.places.to = len(p.places)
}

// find returns the place of the check with the same counters, or -1.
func find(checks []headgate.Check, c *headgate.Check) int {
	for i := range checks {
		if o := &checks[i]; o.Key == c.Key && o.Rule.Name() == c.Rule.Name() {
			return i
		}
	}
	return -1
}

// gather collects the decisions about the checks of a part.
func (p *Parts) gather(part *Part) {
	part.decisions.from = len(p.decisions)
	if part.Leaf != nil && part.Denies {
		nothing := part.Leaf.Nothing(headgate.Instant(time.Now().UnixMicro()))
		nothing.Allowed = part.Op == headgate.OpRefund
		p.decisions = append(p.decisions, nothing)
	}
	for _, place := range of(part.places, p.places) {
		for _, d := range p.byOp[part.Op].decisions {
			if d.Check == place {
				p.decisions = append(p.decisions, d)
			}
		}
	}
	part.decisions.to = len(p.decisions)
}

// takeRest takes what is left of the limits for a part that was charged separately and whose cost did
// not fit. made holds the part's decisions among those of the request.
func (p *Parts) takeRest(ctx context.Context, o *Over, part *Part, made []headgate.Decision) error {
	if part.Op != headgate.OpTake {
		return nil
	}
	decisions := p.Decisions(part)
	for i, c := range of(part.checks, p.ask.Checks) {
		left, fits := c.Cost, true
		for j := range decisions {
			if got := &decisions[j]; got.Check == i {
				left, fits = min(left, got.Remaining), fits && got.Allowed
			}
		}
		if fits || left == 0 {
			continue
		}
		c.Cost = left
		b := p.newCall(of(part.facts, p.ask.Descriptor))
		b.wanted, b.ask.Cost = true, left
		b.ask.Checks = append(b.ask.Checks, c)
		if err := p.call(ctx, o, b, headgate.OpTake); err != nil {
			return err
		}
		update(decisions, i, b.decisions)
		update(made, i, b.decisions)
	}
	return nil
}

// update updates the decisions about one check with the state from later decisions about the same
// limits, in the same order.
func update(decisions []headgate.Decision, check int, now []headgate.Decision) {
	for i := range decisions {
		if d := &decisions[i]; d.Check == check && len(now) > 0 {
			d.Remaining, d.ResetAfter = now[0].Remaining, now[0].ResetAfter
			now = now[1:]
		}
	}
}

// quota reports whether a limit in quota mode binds the part, whether the part is beyond it, and
// how long it takes until the part fits again. A limit that is also in shadow mode binds, but is
// never exceeded.
func (p *Parts) quota(part *Part) (binds, beyond bool, wait time.Duration) {
	if part.Op == headgate.OpRefund {
		return false, false, 0
	}
	decisions := p.Decisions(part)
	for i := range decisions {
		d := &decisions[i]
		if !p.inQuota(part, d) {
			continue
		}
		binds = true
		if d.Allowed || part.Leaf != nil && part.Leaf.Shadow {
			continue
		}
		beyond = true
		if d.RetryAfter == headgate.Never || wait != headgate.Never && d.RetryAfter > wait {
			wait = d.RetryAfter
		}
	}
	return binds, beyond, wait
}

// inQuota reports whether the limit of a decision is in quota mode.
func (p *Parts) inQuota(part *Part, d *headgate.Decision) bool {
	if part.Leaf != nil {
		return part.Leaf.Quota
	}
	if part.Brought != nil {
		return false
	}
	r := p.ask.Policy.Rule(d.Rule.Name())
	return r != nil && r.Mode == policy.ModeQuota
}

// applyQuotas turns the request away if all parts with a quota are beyond it, and reports whether it did.
// A request with several quotas may use any of them, as in envoyproxy/ratelimit, so it is denied
// only when none has anything left. The part with the shortest wait then denies.
func (p *Parts) applyQuotas(parts []Part) bool {
	var soonest *Part
	var least time.Duration
	left := false
	for i := range parts {
		part := &parts[i]
		binds, beyond, wait := p.quota(part)
		part.Beyond = beyond
		switch {
		case !binds:
		case !beyond:
			left = true
		case soonest == nil || wait != headgate.Never && (least == headgate.Never || wait < least):
			soonest, least = part, wait
		}
	}
	if soonest == nil || left {
		return false
	}
	soonest.spent = true
	decisions := p.Decisions(soonest)
	for i := range decisions {
		d := &decisions[i]
		if d.Allowed || !p.inQuota(soonest, d) {
			continue
		}
		for j := range p.made {
			if p.made[j] == *d {
				p.made[j].Shadow = false
			}
		}
		d.Shadow = false
	}
	return true
}

// Reports detects reports of use that were refused. Envoy, with apply_on_stream_done, peeks before
// the work and takes the units that were used afterwards. Without Independent, such a report is
// refused as a whole if it does not fit, and none of the use is counted.
//
// To recognise reports, it remembers the rules that callers of Envoy's protocol peek at. A
// request counts as a refused report if all of the following hold: it is denied; it only takes;
// each part names its own number of units; and callers peek at every rule that binds it. This is a
// guess: good enough for a warning, but not for a decision.
//
// Reports is safe for concurrent use.
type Reports struct {
	// Refused is called, with the name of a rule, for each request that looks like a report and
	// was refused. It must be quick. It may be nil.
	Refused func(rule string)

	rules sync.Map // The keys are names of rules of the policy.
}

// note remembers the rules of checks that are peeked at. It ignores limits that came with a
// descriptor: they all have one name, which identifies none of them.
func (r *Reports) note(checks []headgate.Check) {
	for i := range checks {
		if name := checks[i].Rule.Name(); name != BroughtRule {
			if _, known := r.rules.Load(name); !known {
				r.rules.Store(name, true)
			}
		}
	}
}

// noteReport records the rules that a request has peeked at, after it was carried out. It calls
// Refused if the request looks like a report and was refused.
func (p *Parts) noteReport() {
	if p.Reports == nil || p.Reports.Refused == nil {
		return
	}
	p.Reports.note(p.byOp[headgate.OpPeek].ask.Checks)
	takes := p.byOp[headgate.OpTake]
	if !p.Each || len(takes.ask.Checks) == 0 || headgate.NewVerdict(takes.decisions).Allowed {
		return
	}
	for i := range p.List {
		if p.List[i].Op != headgate.OpTake || p.List[i].TurnsAway() {
			return
		}
	}
	for i := range takes.ask.Checks {
		if _, known := p.Reports.rules.Load(takes.ask.Checks[i].Rule.Name()); !known {
			return
		}
	}
	p.Reports.Refused(takes.ask.Checks[0].Rule.Name())
}
