package headgate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Limiter asks a store whether requests fit the limiter's rules. Several rules
// of one limiter are charged together, under the same key. It is safe for
// concurrent use.
type Limiter struct {
	store  Store
	single singleStore // store, if it is one and the limits are such as its methods are for
	rule   *Rule       // the one rule, if it has one limit and there is single
	limit  *Limit      // the one limit of rule
	rules  []*Rule
	places []Decision // the rule, limit and check of each decision
	pool   sync.Pool  // of *scratch
	sleep  func(context.Context, time.Duration) error
}

// singleStore is what package store calls Single.
type singleStore interface {
	TakeSingle(ctx context.Context, rule *Rule, key string, cost int64) (allowed bool, remaining int64, retry, reset, delay time.Duration, at Instant, err error)
	TakeKey(ctx context.Context, rules []*Rule, key string, cost int64) (which int, allowed bool, remaining int64, retry, reset, delay time.Duration, at Instant, ok bool)
}

// keyLimits is how many limits TakeKey is for.
const keyLimits = 8

// scratch is what one call needs and the next can use again, so that Allow
// allocates nothing.
type scratch struct {
	checks    []Check
	decisions []Decision
}

// New returns a limiter for rules over a store. It panics without a store,
// without a rule, or with two rules of one name: mistakes in the program, not in
// its input.
func New(store Store, rules ...*Rule) *Limiter {
	if store == nil || len(rules) == 0 || len(rules) > MaxChecks {
		panic(fmt.Sprintf("headgate: New needs a store and 1 to %d rules", MaxChecks))
	}
	l := &Limiter{store: store, rules: append([]*Rule(nil), rules...), sleep: sleep}
	for i, r := range rules {
		switch {
		case r == nil || len(r.limits) == 0:
			panic(fmt.Sprintf("headgate: New: rule %d is not made by NewRule", i+1))
		case slices.ContainsFunc(rules[:i], func(o *Rule) bool { return o.name == r.name }):
			panic(fmt.Sprintf("headgate: New: two rules have the name %q", r.name))
		}
		for j := range r.limits {
			l.places = append(l.places, Decision{Rule: r, Limit: &r.limits[j], Check: i})
		}
	}
	l.single, _ = store.(singleStore)
	switch unfit := func(d Decision) bool { return d.Limit.Algorithm == SlidingWindow || d.Limit.Algorithm == Penalty }; {
	case l.single == nil:
	case len(l.places) == 1:
		l.rule, l.limit = l.places[0].Rule, l.places[0].Limit
	case len(l.places) > keyLimits || slices.ContainsFunc(l.places, unfit):
		l.single = nil
	}
	l.pool.New = func() any {
		return &scratch{l.checksFor("", 1), make([]Decision, len(l.places))}
	}
	return l
}

func (l *Limiter) checksFor(key string, cost int64) []Check {
	checks := make([]Check, len(l.rules))
	for i, r := range l.rules {
		checks[i] = Check{Rule: r, Key: key, Cost: cost}
	}
	return checks
}

// Allow takes one unit for key from every rule, or none, and returns the
// decision that settled it; see [Verdict.Deciding]. It does not allocate if the
// store does not.
func (l *Limiter) Allow(ctx context.Context, key string) (d Decision, err error) {
	err = l.take(ctx, key, 1, &d)
	return d, err
}

// AllowN is [Limiter.Allow] for a cost of n units, 1 to MaxCount.
func (l *Limiter) AllowN(ctx context.Context, key string, n int64) (d Decision, err error) {
	err = l.take(ctx, key, n, &d)
	return d, err
}

// Peek says what AllowN would say, and charges nothing.
func (l *Limiter) Peek(ctx context.Context, key string, n int64) (d Decision, err error) {
	err = l.do(ctx, OpPeek, key, n, &d)
	return d, err
}

// Refund gives n units back to key. Pass the At of the decision that charged
// them, so that units whose window has ended are not given back twice; zero
// means "just now".
func (l *Limiter) Refund(ctx context.Context, key string, n int64, at Instant) error {
	if n == 0 {
		return noUnits()
	}
	checks := l.checksFor(key, n)
	for i := range checks {
		checks[i].At = at
	}
	_, err := l.store.Take(ctx, OpRefund, checks, nil)
	return err
}

// Reset forgets what key has used under every rule of the limiter.
func (l *Limiter) Reset(ctx context.Context, key string) error {
	_, err := l.store.Take(ctx, OpReset, l.checksFor(key, 1), nil)
	return err
}

// Take charges all checks or none, and answers for every limit. The checks may
// have any rules and keys, the limiter's own or others.
func (l *Limiter) Take(ctx context.Context, checks ...Check) (Verdict, error) {
	decisions, err := l.store.Take(ctx, OpTake, checks, nil)
	if err != nil {
		return Verdict{}, err
	}
	return NewVerdict(decisions), nil
}

// take is what Allow and AllowN do. A Decision takes long to copy, because the copy waits until all
// fields are written. So the compiler inlines those two into their callers, and take writes the
// fields where the callers want them. The store returns each field by itself for the same reason.
func (l *Limiter) take(ctx context.Context, key string, n int64, d *Decision) (err error) {
	if l.rule == nil || n == 0 {
		return l.takeKey(ctx, key, n, d)
	}
	d.Rule, d.Limit = l.rule, l.limit
	d.Allowed, d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay, d.At, err = l.single.TakeSingle(ctx, l.rule, key, n)
	if err != nil {
		d.Rule, d.Limit = nil, nil
	}
	return err
}

// takeKey is take for all but one limit.
func (l *Limiter) takeKey(ctx context.Context, key string, n int64, d *Decision) error {
	if l.single != nil && n != 0 {
		which, allowed, remaining, retry, reset, delay, at, ok := l.single.TakeKey(ctx, l.rules, key, n)
		if ok {
			p := &l.places[which]
			d.Rule, d.Limit, d.Check, d.Allowed = p.Rule, p.Limit, p.Check, allowed
			d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay, d.At = remaining, retry, reset, delay, at
			return nil
		}
	}
	return l.do(ctx, OpTake, key, n, d)
}

// do fills d unless it returns an error.
func (l *Limiter) do(ctx context.Context, op Op, key string, n int64, d *Decision) error {
	if n == 0 {
		return noUnits()
	}
	s := l.pool.Get().(*scratch)
	for i := range s.checks {
		s.checks[i].Key, s.checks[i].Cost = key, n
	}
	decisions, err := l.store.Take(ctx, op, s.checks, s.decisions[:0])
	if err == nil {
		// To copy it as a whole would wait until all that the store has written is in the cache.
		b := deciding(decisions)
		d.Rule, d.Limit, d.Check, d.Shadow, d.Allowed, d.Source = b.Rule, b.Limit, b.Check, b.Shadow, b.Allowed, b.Source
		d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay, d.At = b.Remaining, b.RetryAfter, b.ResetAfter, b.Delay, b.At
	}
	for i := range s.checks {
		s.checks[i].Key = "" // a pooled scratch must not keep the caller's key alive
	}
	if err == nil {
		s.decisions = decisions
	}
	l.pool.Put(s)
	return err
}

// noUnits is the error of the methods that take a number of units: to a Check zero
// means one, but to a caller who computed a cost of zero it does not.
func noUnits() error {
	return Invalid("request", "cost", "the cost is 0, must be 1 to %d", MaxCount)
}

// Wait takes one unit for key from every rule as soon as they fit, and holds the
// caller for the delay of a leaky bucket. It returns nil when the caller may go
// on; a [*DeniedError] if the unit cannot fit before the context's deadline, or
// never; the context's error if it ends meanwhile. In each of those cases
// nothing stays charged. Callers that wait for the same key are not queued in
// order.
func (l *Limiter) Wait(ctx context.Context, key string) error { return l.WaitN(ctx, key, 1) }

// WaitN is [Limiter.Wait] for a cost of n units.
func (l *Limiter) WaitN(ctx context.Context, key string, n int64) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		d, err := l.AllowN(ctx, key, n)
		if err != nil {
			return err
		}
		pause := d.Delay
		if !d.Allowed {
			pause = d.RetryAfter
		}
		if pause == Never {
			return &DeniedError{Decision: d}
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < pause {
			if d.Allowed {
				if err := l.giveBack(ctx, key, n, d.At); err != nil {
					return err
				}
			}
			return &DeniedError{Decision: d, Reason: "the context's deadline comes first"}
		}
		if err := l.sleep(ctx, pause); err != nil {
			if d.Allowed {
				if back := l.giveBack(ctx, key, n, d.At); back != nil {
					return back
				}
			}
			return err
		}
		if d.Allowed {
			return nil
		}
	}
}

// giveBackWithin bounds a refund that must outlive the context that was
// cancelled.
const giveBackWithin = time.Second

func (l *Limiter) giveBack(ctx context.Context, key string, n int64, at Instant) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackWithin)
	defer cancel()
	return l.Refund(ctx, key, n, at)
}

// sleep waits for d or for the context, whichever ends first.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ledger is the limiter's store, if it remembers requests.
func (l *Limiter) ledger() (Ledger, error) {
	if ledger, ok := l.store.(Ledger); ok {
		return ledger, nil
	}
	return nil, fmt.Errorf("%w: the limiter's store, %T, does not remember requests by an id", errors.ErrUnsupported, l.store)
}

// TakeOnce is [Limiter.Take] for a request that may be repeated: with the same id
// it is charged once, and answered alike. See [Ledger].
func (l *Limiter) TakeOnce(ctx context.Context, terms Terms, checks ...Check) (Verdict, error) {
	ledger, err := l.ledger()
	if err != nil {
		return Verdict{}, err
	}
	decisions, err := ledger.TakeOnce(ctx, terms, checks, nil)
	if err != nil {
		return Verdict{}, err
	}
	return NewVerdict(decisions), nil
}

// Reserve is [Limiter.Take] at a cost that is an estimate. If the verdict allows the
// request, settle the reservation when the real cost is known, or cancel it; see
// [Ledger]. The zero Terms are good for most.
func (l *Limiter) Reserve(ctx context.Context, terms Terms, checks ...Check) (Reservation, Verdict, error) {
	ledger, err := l.ledger()
	if err != nil {
		return Reservation{}, Verdict{}, err
	}
	r, decisions, err := ledger.Reserve(ctx, terms, checks, nil)
	if err != nil {
		return Reservation{}, Verdict{}, err
	}
	return r, NewVerdict(decisions), nil
}

// Recall finds a reservation by its ID, which another process may have made.
func (l *Limiter) Recall(ctx context.Context, id string) (Reservation, error) {
	ledger, err := l.ledger()
	if err != nil {
		return Reservation{}, err
	}
	return ledger.Recall(ctx, id)
}

// Settle makes the cost of a reservation the real one: each check is charged what
// a request of that cost would have been. What was estimated too much is given back,
// and what is missing is charged whether it fits or not. The call may be repeated.
func (l *Limiter) Settle(ctx context.Context, r Reservation, cost int64) (Verdict, error) {
	ledger, err := l.ledger()
	if err != nil {
		return Verdict{}, err
	}
	if cost < 0 || cost > MaxCount {
		return Verdict{}, Invalid("settlement", "cost", "the cost is %d, must be 0 to %d", cost, MaxCount)
	}
	decisions, err := ledger.Settle(ctx, r, r.Units(cost), nil)
	if err != nil {
		return Verdict{}, err
	}
	return NewVerdict(decisions), nil
}

// Cancel gives back all that a reservation has charged.
func (l *Limiter) Cancel(ctx context.Context, r Reservation) error {
	_, err := l.Settle(ctx, r, 0)
	return err
}
