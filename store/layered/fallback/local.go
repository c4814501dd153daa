package fallback

import (
	"context"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/layered/internal/layer"
)

// taking carries out an operation as [headgate.Store.Take] does.
type taking func(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error)

// asking asks the primary, and appends its decisions.
type asking func(ctx context.Context, dst []headgate.Decision) ([]headgate.Decision, error)

func (f *Layer) get() *scratch {
	s, _ := f.pool.Get().(*scratch)
	s.checks, s.decisions, s.places = s.checks[:0], s.decisions[:0], s.places[:0]
	return s
}

// put returns the scratch to the pool, without the request's keys, which it must not keep
// alive.
func (f *Layer) put(s *scratch) {
	clear(s.checks)
	f.pool.Put(s)
}

// share adds this node's share of a check of the request.
func (s *scratch) share(table *shares, c *headgate.Check, place int) {
	s.checks = append(s.checks, *c)
	s.checks[len(s.checks)-1].Rule = table.Of(c.Rule)
	s.places = append(s.places, place)
}

// decideWithout decides a request without the primary, by the OnError of its checks. cause is why
// the primary does not decide it.
func (f *Layer) decideWithout(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision, cause error, take taking) ([]headgate.Decision, error) {
	if err := store.Validate(op, checks); err != nil {
		return dst, err
	}
	if op == headgate.OpReset || ctx.Err() != nil || !f.decides(checks) {
		f.counts.refused.Add(1)
		return dst, cause
	}
	local := slices.ContainsFunc(checks, func(c headgate.Check) bool { return f.onError(&c) == headgate.OnErrorLocal })
	if stateOf(f.breaker.word.Load()) == Closed {
		f.options.Decided(cause)
	}
	if !local {
		f.counts.open.Add(1)
		for i := range checks {
			dst = appendOpen(dst, &checks[i], i)
		}
		return dst, nil
	}
	f.counts.local.Add(1)
	return f.takeLocal(ctx, op, checks, dst, take)
}

// takeLocal lets the local store decide the checks whose OnError is local, and lets the others
// pass.
func (f *Layer) takeLocal(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision, take taking) ([]headgate.Decision, error) {
	s := f.get()
	defer f.put(s)
	table := f.shares.Load()
	for i := range checks {
		if f.onError(&checks[i]) == headgate.OnErrorLocal {
			s.share(table, &checks[i], i)
		}
	}
	var err error
	if s.decisions, err = take(ctx, op, s.checks, s.decisions); err != nil {
		return dst, err
	}
	f.owe(op, checks, s)
	rest := s.decisions
	for i := range checks {
		if f.onError(&checks[i]) != headgate.OnErrorLocal {
			dst = appendOpen(dst, &checks[i], i)
			continue
		}
		n := len(checks[i].Rule.Limits())
		dst = appendLocal(dst, checks, s.places, rest[:n])
		rest = rest[n:]
	}
	return dst, nil
}

// owe records what the local store has admitted, or taken back, so that it is charged to the
// primary later.
func (f *Layer) owe(op headgate.Op, checks []headgate.Check, s *scratch) {
	switch op {
	case headgate.OpTake:
		charged, admitted := layer.Charged(s.decisions)
		if !admitted {
			return
		}
		for i, place := range s.places {
			if charged&(1<<i) != 0 {
				f.debts.add(&checks[place], checks[place].Units())
			}
		}
	case headgate.OpCharge:
		for _, place := range s.places {
			f.debts.add(&checks[place], checks[place].Units())
		}
	case headgate.OpRefund:
		for _, place := range s.places {
			f.debts.add(&checks[place], -checks[place].Units())
		}
	}
}

// appendOpen appends decisions of a check that is let in uncounted. As nothing is known of its
// limits, they seem free.
func appendOpen(dst []headgate.Decision, c *headgate.Check, check int) []headgate.Decision {
	limits := c.Rule.Limits()
	now := time.Now().UnixMicro()
	for i := range limits {
		dst = append(dst, headgate.Decision{
			Rule: c.Rule, Limit: &limits[i], Check: check, Allowed: true, Shadow: c.Shadow,
			Source: headgate.SourceOpen, Remaining: limits[i].Capacity(), At: headgate.Instant(now),
		})
	}
	return dst
}

// triesAgain is the RetryAfter of a request whose cost fits its limit but not this node's share
// of the limit. The store may be back by then.
const triesAgain = time.Second

// appendLocal appends decisions of the local store. places has the place of each of its checks
// in the request.
func appendLocal(dst []headgate.Decision, checks []headgate.Check, places []int, decisions []headgate.Decision) []headgate.Decision {
	for i := range decisions {
		d := decisions[i]
		d.Check = places[d.Check]
		c := &checks[d.Check]
		d.Rule, d.Source = c.Rule, headgate.SourceLocal
		if d.RetryAfter == headgate.Never && d.Limit.Capacity() < c.Units() && fits(c) {
			d.RetryAfter = max(d.ResetAfter, triesAgain)
		}
		dst = append(dst, d)
	}
	return dst
}

// fits reports whether the limits of a check can hold its cost at all.
func fits(c *headgate.Check) bool {
	limits := c.Rule.Limits()
	for i := range limits {
		if limits[i].Algorithm != headgate.Penalty && limits[i].Capacity() < c.Units() {
			return false
		}
	}
	return true
}

// mirror makes the local store follow what the primary did, so that it knows what this node has
// admitted when it has to decide.
func (f *Layer) mirror(ctx context.Context, op headgate.Op, checks []headgate.Check, decisions []headgate.Decision) {
	if op == headgate.OpPeek || !f.keeps(checks) {
		return
	}
	bits := ^uint64(0)
	if op == headgate.OpTake {
		bits, _ = layer.Charged(decisions)
	}
	s := f.get()
	table := f.shares.Load()
	for i := range checks {
		if bits&(1<<i) != 0 && f.keeps(checks[i:i+1]) {
			s.share(table, &checks[i], i)
			if op == headgate.OpTake {
				// A shadow is charged by itself, whatever the other checks say.
				s.checks[len(s.checks)-1].Shadow = true
			}
		}
	}
	switch {
	case len(s.checks) == 0:
	case (op == headgate.OpTake || op == headgate.OpCharge) && f.charger != nil:
		f.charger.Charge(s.checks)
	default:
		// If this fails, the local store knows a little less. No request suffers from it.
		s.decisions, _ = f.options.Local.Take(ctx, op, s.checks, s.decisions)
	}
	f.put(s)
}

// keeps reports whether any of the checks is counted locally.
func (f *Layer) keeps(checks []headgate.Check) bool {
	for i := range checks {
		if f.onError(&checks[i]) == headgate.OnErrorLocal {
			return true
		}
	}
	return f.options.Learn > 0
}

// learn decides a request while the primary has forgotten what it admitted: the
// request must fit this node's share as well.
func (f *Layer) learn(ctx context.Context, word uint64, op headgate.Op, checks []headgate.Check, dst []headgate.Decision, ask asking, take taking) ([]headgate.Decision, error) {
	if err := store.Validate(op, checks); err != nil {
		return dst, err
	}
	s := f.get()
	defer f.put(s)
	table := f.shares.Load()
	for i := range checks {
		s.share(table, &checks[i], i)
	}
	var err error
	if s.decisions, err = f.options.Local.Take(ctx, op, s.checks, s.decisions); err != nil {
		return dst, err
	}
	held, fits := layer.Charged(s.decisions)
	if !fits {
		f.counts.local.Add(1)
		return appendLocal(dst, checks, s.places, s.decisions), nil
	}
	began := f.breaker.now()
	asked, release := f.spare(ctx, checks)
	out, err := ask(asked, dst)
	release()
	admitted := false
	if err == nil {
		f.breaker.answered(began)
		_, admitted = layer.Charged(out[len(dst):])
	}
	if op == headgate.OpTake && !admitted {
		f.giveBack(ctx, s, held)
	}
	if err != nil && f.noteError(ctx, word, began, err) {
		return f.decideWithout(ctx, op, checks, dst, err, take)
	}
	return out, err
}

// giveBack returns to the local store what was taken for the checks of these bits.
func (f *Layer) giveBack(ctx context.Context, s *scratch, held uint64) {
	back := s.checks[:0]
	for i := range s.checks {
		if held&(1<<i) != 0 {
			s.checks[i].At = s.decisions[0].At
			back = append(back, s.checks[i])
		}
	}
	if len(back) > 0 {
		// If this fails, the share has some units too many in use until its limits free them.
		_, _ = f.options.Local.Take(ctx, headgate.OpRefund, back, s.decisions[:0])
	}
}
