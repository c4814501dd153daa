package decide

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate"
)

// batch holds the checks of all parts that have the same operation. The store is asked for
// them in one call.
type batch struct {
	ask       Ask
	decisions []headgate.Decision
	used      bool // some part has the operation
}

func (b *batch) reset() {
	clear(b.ask.Checks)
	clear(b.decisions)
	*b = batch{ask: Ask{Checks: b.ask.Checks[:0]}, decisions: b.decisions[:0]}
}

// Take carries out the parts, which must be resolved. Unless they are Independent, all of them
// are charged, or none is. Peeks come first, and refunds last. In the end Take tells the
// Decider; see [Decider.Told].
func (p *Parts) Take(ctx context.Context, d Decider) error {
	began := time.Now()
	err := p.take(ctx, d)
	p.Took = time.Since(began)
	d.Told(p, err)
	return err
}

func (p *Parts) take(ctx context.Context, d Decider) error {
	if !p.Independent {
		err := p.together(ctx, d, p.List)
		if err == nil {
			p.noteReport()
		}
		return err
	}
	for i := range p.List {
		begin := len(p.Told)
		if err := p.together(ctx, d, p.List[i:i+1]); err != nil {
			return err
		}
		if err := p.fill(ctx, d, &p.List[i], p.Told[begin:]); err != nil {
			return err
		}
	}
	p.spend(p.List)
	return nil
}

// together carries out the parts so that all are charged or none.
func (p *Parts) together(ctx context.Context, d Decider, parts []Part) error {
	facts := p.facts
	if len(parts) == 1 {
		facts = of(parts[0].facts, p.facts)
	}
	for op := range p.batches {
		p.batches[op].reset()
		p.batches[op].ask.Descriptor = facts
	}
	denied := false
	for i := range parts {
		p.add(&parts[i])
		denied = denied || parts[i].TurnsAway()
	}
	peeks, takes, refunds := &p.batches[headgate.OpPeek], &p.batches[headgate.OpTake], &p.batches[headgate.OpRefund]

	if err := p.call(ctx, d, peeks, headgate.OpPeek); err != nil {
		return err
	}
	denied = denied || !headgate.NewVerdict(peeks.decisions).Allowed
	op := headgate.OpTake
	if denied && len(takes.ask.Checks) > 0 {
		op = headgate.OpPeek
	}
	if err := p.call(ctx, d, takes, op); err != nil {
		return err
	}
	p.Told = append(append(p.Told, peeks.decisions...), takes.decisions...)
	for i := range parts {
		if parts[i].Op != headgate.OpRefund {
			p.gather(&parts[i])
		}
	}
	denied = denied || !headgate.NewVerdict(takes.decisions).Allowed
	if !p.Independent && p.spend(parts) && !denied {
		denied = true
		if err := p.giveBack(ctx, d, parts); err != nil {
			return err
		}
	}

	op = headgate.OpRefund
	if denied {
		op = headgate.OpPeek
	}
	if err := p.call(ctx, d, refunds, op); err != nil {
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
func (p *Parts) giveBack(ctx context.Context, d Decider, parts []Part) error {
	takes, b := &p.batches[headgate.OpTake], &p.batches[headgate.OpPeek]
	b.reset()
	b.ask.Descriptor = takes.ask.Descriptor
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
			b.used = true
			b.ask.Checks = append(b.ask.Checks, c)
			b.ask.Cost = max(b.ask.Cost, c.Cost)
			charges = append(charges, i)
		}
	}
	if err := p.call(ctx, d, b, headgate.OpRefund); err != nil {
		return err
	}
	for back, place := range charges {
		first := slices.IndexFunc(b.decisions, func(d headgate.Decision) bool { return d.Check == back })
		if first < 0 {
			continue
		}
		now := b.decisions[first:]
		fillIn(p.Told[len(p.Told)-len(takes.decisions):], place, now)
		for i := range parts {
			if parts[i].Op == headgate.OpTake {
				fillIn(p.Decisions(&parts[i]), place, now)
			}
		}
	}
	return nil
}

// call carries out one batch, if any part is in it.
func (p *Parts) call(ctx context.Context, d Decider, b *batch, op headgate.Op) (err error) {
	if !b.used {
		return nil
	}
	b.ask.Op, b.ask.Policy, b.ask.Parts = op, p.Policy, p
	b.decisions, err = d.Take(ctx, &b.ask, b.decisions)
	return err
}

// add puts a part into the batch of its operation. If a check is in the batch already, it is
// not added again, but its cost may change. For limits that a descriptor names itself, the
// costs are added up. A rule of a policy that binds several descriptors counts the request
// once, at the highest cost.
func (p *Parts) add(part *Part) {
	b := &p.batches[part.Op]
	ask := &b.ask
	b.used = true
	ask.Cost = max(ask.Cost, part.Cost)
	switch {
	case part.Listed != nil && part.Denies && ask.Denied == nil:
		ask.Denied = part.Listed
	case part.Listed != nil && part.Unlimited && ask.Allowed == nil:
		ask.Allowed = part.Listed
	}
	part.places = span{len(p.places), len(p.places)}
	for _, c := range of(part.checks, p.checks) {
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
		for _, d := range p.batches[part.Op].decisions {
			if d.Check == place {
				p.decisions = append(p.decisions, d)
			}
		}
	}
	part.decisions.to = len(p.decisions)
}

// fill takes what is left of the limits for a part that was charged separately and whose cost did
// not fit. told holds the part's decisions in p.Told.
func (p *Parts) fill(ctx context.Context, d Decider, part *Part, told []headgate.Decision) error {
	if part.Op != headgate.OpTake {
		return nil
	}
	decisions := p.Decisions(part)
	for i, c := range of(part.checks, p.checks) {
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
		b := &p.batches[headgate.OpTake]
		b.reset()
		b.used = true
		b.ask.Checks = append(b.ask.Checks, c)
		b.ask.Descriptor, b.ask.Cost = of(part.facts, p.facts), left
		if err := p.call(ctx, d, b, headgate.OpTake); err != nil {
			return err
		}
		fillIn(decisions, i, b.decisions)
		fillIn(told, i, b.decisions)
	}
	return nil
}

// fillIn updates the decisions about one check with the state from later decisions about the same
// limits, in the same order.
func fillIn(decisions []headgate.Decision, check int, now []headgate.Decision) {
	for i := range decisions {
		if d := &decisions[i]; d.Check == check && len(now) > 0 {
			d.Remaining, d.ResetAfter = now[0].Remaining, now[0].ResetAfter
			now = now[1:]
		}
	}
}
