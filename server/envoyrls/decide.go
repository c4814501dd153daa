package envoyrls

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/decide"
)

// batch is what is asked of the store in one call: the checks of all descriptors
// that have the same operation.
type batch struct {
	ask       decide.Ask
	decisions []headgate.Decision
	used      bool // some descriptor has the operation
}

func (b *batch) reset() {
	clear(b.ask.Checks)
	clear(b.ask.Named)
	clear(b.decisions)
	*b = batch{ask: decide.Ask{Checks: b.ask.Checks[:0], Named: b.ask.Named[:0]}, decisions: b.decisions[:0]}
}

// decide asks for the decisions of all descriptors.
func (s *Service) decide(ctx context.Context, q *scratch) error {
	if !s.options.Independent {
		return s.together(ctx, q, q.plans)
	}
	for i := range q.plans {
		begin := len(q.told)
		if err := s.together(ctx, q, q.plans[i:i+1]); err != nil {
			return err
		}
		if err := s.fill(ctx, q, &q.plans[i], q.told[begin:]); err != nil {
			return err
		}
	}
	return nil
}

// together carries out the plans so that all are charged or none.
func (s *Service) together(ctx context.Context, q *scratch, plans []plan) error {
	facts := q.facts
	if len(plans) == 1 {
		facts = of(plans[0].facts, q.facts)
	}
	for op := range q.batches {
		q.batches[op].reset()
		q.batches[op].ask.Descriptor = facts
	}
	denied := false
	for i := range plans {
		q.add(&plans[i])
		denied = denied || plans[i].turnsAway()
	}
	peeks, takes, refunds := &q.batches[headgate.OpPeek], &q.batches[headgate.OpTake], &q.batches[headgate.OpRefund]

	if err := s.take(ctx, q, peeks, headgate.OpPeek); err != nil {
		return err
	}
	denied = denied || !headgate.NewVerdict(peeks.decisions).Allowed
	op := headgate.OpTake
	if denied && len(takes.ask.Checks) > 0 {
		op = headgate.OpPeek
	}
	if err := s.take(ctx, q, takes, op); err != nil {
		return err
	}
	q.told = append(append(q.told, peeks.decisions...), takes.decisions...)

	op = headgate.OpRefund
	if denied || !headgate.NewVerdict(takes.decisions).Allowed {
		op = headgate.OpPeek
	}
	if err := s.take(ctx, q, refunds, op); err != nil {
		return err
	}
	for i := range plans {
		q.gather(&plans[i])
	}
	return nil
}

// take carries out one batch, if any descriptor is in it.
func (s *Service) take(ctx context.Context, q *scratch, b *batch, op headgate.Op) (err error) {
	if !b.used {
		return nil
	}
	b.ask.Op, b.ask.Policy = op, q.policy
	b.decisions, err = s.decider.Take(ctx, &b.ask, b.decisions)
	return err
}

// add puts a plan into the batch of its operation. A check that is there already
// is not put there twice. The costs of what the descriptors mean themselves are
// added up; a rule of a policy that several of them come under counts the request
// once, at the highest cost.
func (q *scratch) add(p *plan) {
	b := &q.batches[p.op]
	ask := &b.ask
	b.used = true
	ask.Cost = max(ask.Cost, p.cost)
	if p.named.Rule != "" {
		ask.Named = append(ask.Named, p.named)
	}
	switch {
	case p.listed != nil && p.denies && ask.Denied == nil:
		ask.Denied = p.listed
	case p.listed != nil && p.unlimited && ask.Allowed == nil:
		ask.Allowed = p.listed
	}
	p.places = span{len(q.places), len(q.places)}
	for _, c := range of(p.checks, q.checks) {
		place := find(ask.Checks, &c)
		brought := c.Rule.Name() == OverrideRule
		if brought && place >= 0 && c.Rule.Limits()[0].Count < ask.Checks[place].Rule.Limits()[0].Count {
			// Two counts for one counter: what is within the smaller one is within both.
			ask.Checks[place].Rule = c.Rule
		}
		switch {
		case place < 0:
			place = len(ask.Checks)
			ask.Checks = append(ask.Checks, c)
		case p.op == headgate.OpPeek:
		case q.policy.Nested != nil || p.named.Rule != "" || brought:
			ask.Checks[place].Cost = min(ask.Checks[place].Cost+c.Cost, headgate.MaxCount)
		default:
			ask.Checks[place].Cost = max(ask.Checks[place].Cost, c.Cost)
		}
		q.places = append(q.places, place)
	}
	p.places.to = len(q.places)
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

// gather keeps the decisions that a plan's checks got.
func (q *scratch) gather(p *plan) {
	p.decisions.from = len(q.decisions)
	for _, place := range of(p.places, q.places) {
		for _, d := range q.batches[p.op].decisions {
			if d.Check == place {
				q.decisions = append(q.decisions, d)
			}
		}
	}
	p.decisions.to = len(q.decisions)
}

// turnsAway reports whether the descriptor is turned away whatever the counters
// say.
func (p *plan) turnsAway() bool {
	return p.denies && p.op != headgate.OpRefund && (p.leaf == nil || !p.leaf.Shadow && !p.leaf.Quota)
}

// fill takes what is left of limits that the cost of a plan, which was carried out
// by itself, did not fit into. Told are its decisions among those that are told.
func (s *Service) fill(ctx context.Context, q *scratch, p *plan, told []headgate.Decision) error {
	if p.op != headgate.OpTake {
		return nil
	}
	decisions := of(p.decisions, q.decisions)
	for i, c := range of(p.checks, q.checks) {
		left, fits := c.Cost, true
		for j := range decisions {
			if d := &decisions[j]; d.Check == i {
				left, fits = min(left, d.Remaining), fits && d.Allowed
			}
		}
		if fits || left == 0 {
			continue
		}
		c.Cost = left
		b := &q.batches[headgate.OpTake]
		b.reset()
		b.used = true
		b.ask.Checks = append(b.ask.Checks, c)
		b.ask.Descriptor, b.ask.Cost = of(p.facts, q.facts), left
		if p.named.Rule != "" {
			b.ask.Named = append(b.ask.Named, decide.Named{Rule: p.named.Rule, Key: p.named.Key, Cost: left})
		}
		if err := s.take(ctx, q, b, headgate.OpTake); err != nil {
			return err
		}
		fillIn(decisions, i, b.decisions)
		fillIn(told, i, b.decisions)
	}
	return nil
}

// fillIn gives the decisions of one check the state that is in others, of the same
// limits in the same order.
func fillIn(decisions []headgate.Decision, check int, now []headgate.Decision) {
	for i := range decisions {
		if d := &decisions[i]; d.Check == check && len(now) > 0 {
			d.Remaining, d.ResetAfter = now[0].Remaining, now[0].ResetAfter
			now = now[1:]
		}
	}
}
