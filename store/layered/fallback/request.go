package fallback

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/layered/internal/layer"
)

// outer is the store inside with a fallback.
type outer struct{ *Layer }

// Take implements [headgate.Store]. An error wraps [headgate.ErrUnavailable] if the
// primary does not answer and the checks want no decision without it. While the
// primary answers, and for checks that are not decided locally, it does not allocate
// unless the primary does.
func (f outer) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	return f.decide(ctx, &request{op: op, checks: checks}, dst)
}

// request is what is asked of the primary or, under other rules, of the local store.
type request struct {
	op     headgate.Op // headgate.OpTake if ledger is not nil
	checks []headgate.Check

	// A request that is remembered also has:
	ledger *ledger
	terms  *headgate.Terms
	made   *headgate.Reservation // where to put the reservation, or nil
}

// primary asks the primary.
func (f *Layer) primary(ctx context.Context, r *request, dst []headgate.Decision) (_ []headgate.Decision, err error) {
	switch {
	case r.ledger == nil:
		return f.inner.Take(ctx, r.op, r.checks, dst)
	case r.made != nil:
		*r.made, dst, err = r.ledger.inner.Reserve(ctx, *r.terms, r.checks, dst)
		return dst, err
	}
	return r.ledger.inner.TakeOnce(ctx, *r.terms, r.checks, dst)
}

// local asks the local store for the given checks.
func (f *Layer) local(ctx context.Context, r *request, checks []headgate.Check, dst []headgate.Decision) (_ []headgate.Decision, err error) {
	switch {
	case r.ledger == nil || r.ledger.local == nil:
		return f.options.Local.Take(ctx, r.op, checks, dst)
	case r.made != nil:
		if *r.made, dst, err = r.ledger.local.Reserve(ctx, *r.terms, checks, dst); r.made.ID != "" {
			r.made.ID += r.ledger.mark()
		}
		return dst, err
	}
	return r.ledger.local.TakeOnce(ctx, *r.terms, checks, dst)
}

// decide lets the primary decide if it may be asked and answers.
func (f *Layer) decide(ctx context.Context, r *request, dst []headgate.Decision) ([]headgate.Decision, error) {
	word, may := f.breaker.enter()
	if !may {
		return f.decideWithout(ctx, r, dst, *f.breaker.refusal.Load())
	}
	if f.learning.Load() && r.op <= headgate.OpPeek {
		return f.learn(ctx, word, r, dst)
	}
	out, without, err := f.askPrimary(ctx, word, r, dst)
	if without {
		return f.decideWithout(ctx, r, dst, err)
	}
	if err == nil {
		f.mirror(ctx, r.op, r.checks, out[len(dst):])
	}
	return out, err
}

// askPrimary asks the primary, and records for the breaker whether it has answered. without says that
// the request is to be decided without the primary.
func (f *Layer) askPrimary(ctx context.Context, word uint64, r *request, dst []headgate.Decision) (out []headgate.Decision, without bool, err error) {
	began := f.breaker.now()
	asking, release := f.spare(ctx, r.checks)
	out, err = f.primary(asking, r, dst)
	release()
	if err != nil {
		return out, f.noteError(ctx, word, began, err), err
	}
	f.breaker.answered(began)
	return out, false, nil
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

// share adds this node's share of a check of the request.
func (t *shares) add(s *layer.Scratch[int], c *headgate.Check, place int) {
	s.Checks = append(s.Checks, *c)
	s.Checks[len(s.Checks)-1].Rule = t.Of(c.Rule)
	s.Parts = append(s.Parts, place)
}

// decideWithout decides a request without the primary, by the OnError of its checks. The local store
// decides those whose OnError is local, and the others pass. cause is why the primary does not decide
// the request.
func (f *Layer) decideWithout(ctx context.Context, r *request, dst []headgate.Decision, cause error) ([]headgate.Decision, error) {
	if err := store.Validate(r.op, r.checks); err != nil {
		return dst, err
	}
	if r.op == headgate.OpReset || ctx.Err() != nil || !f.decides(r.checks) {
		f.counts.refused.Add(1)
		return dst, cause
	}
	if stateOf(f.breaker.word.Load()) == Closed {
		f.options.Decided(cause)
	}
	s := f.scratch.Get()
	defer f.scratch.Put(s)
	table := f.shares.Load()
	for i := range r.checks {
		if f.onError(&r.checks[i]) == headgate.OnErrorLocal {
			table.add(s, &r.checks[i], i)
		}
	}
	if len(s.Checks) == 0 {
		f.counts.open.Add(1)
	} else {
		f.counts.local.Add(1)
		var err error
		if s.Decisions, err = f.local(ctx, r, s.Checks, s.Decisions); err != nil {
			return dst, err
		}
		f.owe(r.op, r.checks, s)
	}
	rest := s.Decisions
	for i := range r.checks {
		if f.onError(&r.checks[i]) != headgate.OnErrorLocal {
			dst = appendOpen(dst, &r.checks[i], i)
			continue
		}
		n := len(r.checks[i].Rule.Limits())
		dst = appendLocal(dst, r.checks, s.Parts, rest[:n])
		rest = rest[n:]
	}
	return dst, nil
}

// owe records what the local store has admitted, or taken back, so that it is charged to the
// primary later.
func (f *Layer) owe(op headgate.Op, checks []headgate.Check, s *layer.Scratch[int]) {
	switch op {
	case headgate.OpTake:
		charged, admitted := layer.Charged(s.Decisions)
		if !admitted {
			return
		}
		for i, place := range s.Parts {
			if charged&(1<<i) != 0 {
				f.debts.add(&checks[place], checks[place].Units())
			}
		}
	case headgate.OpCharge:
		for _, place := range s.Parts {
			f.debts.add(&checks[place], checks[place].Units())
		}
	case headgate.OpRefund:
		for _, place := range s.Parts {
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
	s := f.scratch.Get()
	table := f.shares.Load()
	for i := range checks {
		if bits&(1<<i) != 0 && f.keeps(checks[i:i+1]) {
			table.add(s, &checks[i], i)
			if op == headgate.OpTake {
				// A shadow is charged by itself, whatever the other checks say.
				s.Checks[len(s.Checks)-1].Shadow = true
			}
		}
	}
	switch {
	case len(s.Checks) == 0:
	case (op == headgate.OpTake || op == headgate.OpCharge) && f.charger != nil:
		f.charger.Charge(s.Checks)
	default:
		// If this fails, the local store knows a little less. No request suffers from it.
		s.Decisions, _ = f.options.Local.Take(ctx, op, s.Checks, s.Decisions)
	}
	f.scratch.Put(s)
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
func (f *Layer) learn(ctx context.Context, word uint64, r *request, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := store.Validate(r.op, r.checks); err != nil {
		return dst, err
	}
	s := f.scratch.Get()
	defer f.scratch.Put(s)
	table := f.shares.Load()
	for i := range r.checks {
		table.add(s, &r.checks[i], i)
	}
	var err error
	if s.Decisions, err = f.options.Local.Take(ctx, r.op, s.Checks, s.Decisions); err != nil {
		return dst, err
	}
	held, fits := layer.Charged(s.Decisions)
	if !fits {
		f.counts.local.Add(1)
		return appendLocal(dst, r.checks, s.Parts, s.Decisions), nil
	}
	out, without, err := f.askPrimary(ctx, word, r, dst)
	admitted := false
	if err == nil {
		_, admitted = layer.Charged(out[len(dst):])
	}
	if r.op == headgate.OpTake && !admitted {
		f.giveBack(ctx, s, held)
	}
	if without {
		return f.decideWithout(ctx, r, dst, err)
	}
	return out, err
}

// giveBack returns to the local store what was taken for the checks of these bits.
func (f *Layer) giveBack(ctx context.Context, s *layer.Scratch[int], held uint64) {
	back := s.Checks[:0]
	for i := range s.Checks {
		if held&(1<<i) != 0 {
			s.Checks[i].At = s.Decisions[0].At
			back = append(back, s.Checks[i])
		}
	}
	if len(back) > 0 {
		// If this fails, the share has some units too many in use until its limits free them.
		_, _ = f.options.Local.Take(ctx, headgate.OpRefund, back, s.Decisions[:0])
	}
}

// shares are this node's shares of rules, under the rules' own names, for one number of nodes.
// They are counted in the same counters as those for any other number: a limit's slot does
// not depend on its count.
type shares struct {
	nodes int64
	*layer.Derived[*headgate.Rule]
}

func newShares(nodes int64) *shares {
	return &shares{nodes, layer.NewDerived(func(rule *headgate.Rule) *headgate.Rule { return divide(rule, nodes) })}
}

// divide returns the rule with its counts and bursts divided by the number of nodes, rounded
// down, but at least one. A penalty counts denials, not units, and stays as it is.
func divide(rule *headgate.Rule, nodes int64) *headgate.Rule {
	if nodes <= 1 {
		return rule
	}
	limits := append([]headgate.Limit(nil), rule.Limits()...)
	for i := range limits {
		l := &limits[i]
		if l.Algorithm == headgate.Penalty {
			continue
		}
		l.Count = max(1, l.Count/nodes)
		if l.Burst != 0 {
			l.Burst = max(1, l.Burst/nodes)
		}
	}
	share, err := headgate.NewRule(rule.Name(), limits...)
	if err == nil {
		return share
	}
	// The parts of valid limits are valid, except for a bucket that takes nearly
	// headgate.MaxRefill to fill and whose count was rounded down further than its burst.
	for i := range limits {
		limits[i].Burst = min(limits[i].Burst, limits[i].Count)
	}
	return headgate.MustRule(rule.Name(), limits...)
}

// ledger is a ledger with a fallback.
type ledger struct {
	outer
	inner headgate.Ledger
	local headgate.Ledger // nil if the local store is none
}

var _ headgate.Ledger = (*ledger)(nil)

// TakeOnce implements [headgate.Ledger]. A request that is decided without the primary is
// remembered by this node only, and not at all if its local store is no ledger.
func (l *ledger) TakeOnce(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	return l.decide(ctx, &request{checks: checks, ledger: l, terms: &terms}, dst)
}

// Reserve implements [headgate.Ledger]. A reservation that was made without the
// primary is settled by this node alone. If no check is decided locally, or the
// local store is no ledger, there is nothing to settle, and the reservation has no
// ID.
func (l *ledger) Reserve(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	var r headgate.Reservation
	out, err := l.decide(ctx, &request{checks: checks, ledger: l, terms: &terms, made: &r}, dst)
	return r, out, err
}

// mark ends the ids of the reservations that this node has made without the primary.
func (l *ledger) mark() string { return "~" + l.options.Node[:min(8, len(l.options.Node))] }

// isLocal reports whether a reservation is the local store's, and the id that it has there.
func (l *ledger) isLocal(id string) (string, bool) {
	own, found := strings.CutSuffix(id, l.mark())
	return own, found && l.local != nil
}

// Recall implements [headgate.Ledger]. A reservation that another node has made without the
// primary cannot be found here.
func (l *ledger) Recall(ctx context.Context, id string) (headgate.Reservation, error) {
	if own, found := l.isLocal(id); found {
		r, err := l.local.Recall(ctx, own)
		if err == nil {
			r.ID = id
		}
		if !errors.Is(err, headgate.ErrNoReservation) {
			return r, err
		}
	}
	var r headgate.Reservation
	err := l.askOnly(ctx, func() (err error) {
		r, err = l.inner.Recall(ctx, id)
		return err
	})
	return r, err
}

// Settle implements [headgate.Ledger]. A reservation of the primary can only be
// settled while the primary answers. Settling it again later is safe.
func (l *ledger) Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := store.ValidateSettle(&r, units); err != nil {
		return dst, err
	}
	if own, found := l.isLocal(r.ID); found {
		held := r
		held.ID = own
		out, err := l.local.Settle(ctx, held, units, dst)
		if !errors.Is(err, headgate.ErrNoReservation) {
			return l.settledLocally(&r, units, dst, out), err
		}
	}
	var out []headgate.Decision
	err := l.askOnly(ctx, func() (err error) {
		out, err = l.inner.Settle(ctx, r, units, dst)
		return err
	})
	if err != nil {
		return dst, err
	}
	l.mirrorSettlement(ctx, &r, units)
	return out, nil
}

// settledLocally adds to the debt what a reservation has cost beyond its estimate. If it has cost
// less, the debt is not reduced here: no more of it is charged than the local store holds.
func (l *ledger) settledLocally(r *headgate.Reservation, units []int64, dst, out []headgate.Decision) []headgate.Decision {
	for i := len(dst); i < len(out); i++ {
		out[i].Source = headgate.SourceLocal
	}
	for i := range r.Checks {
		if more := units[i] - r.Checks[i].Units(); len(out) > len(dst) && more > 0 {
			l.debts.change(layer.CounterOf(&r.Checks[i]), func(d *debt) { d.units = min(d.units+more, headgate.MaxCount) })
		}
	}
	return out
}

// mirrorSettlement makes the local store follow a settlement of the primary's.
func (l *ledger) mirrorSettlement(ctx context.Context, r *headgate.Reservation, units []int64) {
	for i, n := range units {
		c := r.Checks[i]
		switch more := n - c.Units(); {
		case more > 0:
			c.Cost = more
			d := headgate.Decision{Allowed: true}
			l.mirror(ctx, headgate.OpTake, []headgate.Check{c}, []headgate.Decision{d})
		case more < 0:
			c.Cost = -more
			l.mirror(ctx, headgate.OpRefund, []headgate.Check{c}, nil)
		}
	}
}

// askOnly makes a call that only the primary can answer.
func (l *ledger) askOnly(ctx context.Context, call func() error) error {
	word, may := l.breaker.enter()
	if !may {
		l.counts.refused.Add(1)
		return *l.breaker.refusal.Load()
	}
	began := l.breaker.now()
	err := call()
	if err != nil {
		if l.noteError(ctx, word, began, err) {
			l.counts.refused.Add(1)
		}
		return err
	}
	l.breaker.answered(began)
	return nil
}
