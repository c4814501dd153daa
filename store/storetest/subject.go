package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// Maker makes a fresh and empty store that decides by clock, in microseconds since
// the Unix epoch. It may register a cleanup, and end the test if it cannot make
// one.
type Maker func(t testing.TB, clock func() int64) headgate.Store

// Set puts the clock to a time in microseconds since the Unix epoch.
func (c *Clock) Set(micros int64) { c.micros.Store(micros) }

// subject is a store under test and its clock.
type subject struct {
	t     testing.TB
	clock *Clock
	store headgate.Store
}

func newSubject(t testing.TB, mk Maker) *subject {
	t.Helper()
	clock := NewClock(Epoch)
	return &subject{t: t, clock: clock, store: mk(t, clock.Now)}
}

// do carries out a request that must not fail, and checks what holds of every
// decision, whatever the limit and the store.
func (s *subject) do(op headgate.Op, checks ...headgate.Check) []headgate.Decision {
	s.t.Helper()
	got, err := s.store.Take(context.Background(), op, checks, nil)
	if err != nil {
		s.t.Fatalf("%s: %v", op, err)
	}
	i := 0
	for c := range checks {
		limits := checks[c].Rule.Limits()
		for l := range limits {
			if op == headgate.OpReset {
				continue
			}
			if i == len(got) {
				s.t.Fatalf("%s: %d decisions, want one for each limit of %d checks", op, len(got), len(checks))
			}
			d := &got[i]
			if d.Rule != checks[c].Rule || d.Limit != &limits[l] || d.Check != c || int64(d.At) != s.clock.Now() {
				s.t.Fatalf("decision %d is of check %d, rule %v, limit %v, at %d; want check %d, rule %v, limit %v, at %d", i, d.Check, d.Rule, d.Limit, d.At,
					c, checks[c].Rule, &limits[l], s.clock.Now())
			}
			s.sane(d, op, checks[c].Units())
			i++
		}
	}
	if i != len(got) {
		s.t.Fatalf("%s: %d decisions, want %d", op, len(got), i)
	}
	return got
}

// sane checks what the fields of a decision say of one another.
func (s *subject) sane(d *headgate.Decision, op headgate.Op, cost int64) {
	s.t.Helper()
	capacity := d.Limit.Capacity()
	never := !d.Allowed && cost > capacity
	switch {
	case d.Remaining < 0 || d.Remaining > capacity:
		s.t.Fatalf("%v: remaining is %d, must be 0 to %d", d.Limit, d.Remaining, capacity)
	case op == headgate.OpRefund && (!d.Allowed || d.RetryAfter != 0 || d.Delay != 0):
		s.t.Fatalf("%v: a refund said %s", d.Limit, formatDecision(d))
	case d.Allowed != (d.RetryAfter == 0):
		s.t.Fatalf("%v: allowed is %t, and retry after is %v", d.Limit, d.Allowed, d.RetryAfter)
	case never != (d.RetryAfter == headgate.Never):
		s.t.Fatalf("%v: retry after is %v for a cost of %d, capacity %d", d.Limit, d.RetryAfter, cost, capacity)
	case d.ResetAfter < 0 || d.Delay < 0 || d.Delay > 0 && (!d.Allowed || d.Limit.Algorithm != headgate.LeakyBucket):
		s.t.Fatalf("%v: %s", d.Limit, formatDecision(d))
	case d.Remaining < capacity && d.ResetAfter == 0:
		s.t.Fatalf("%v: %d of %d remain, and reset after is 0", d.Limit, d.Remaining, capacity)
	case !d.Allowed && !never && d.RetryAfter > d.ResetAfter:
		s.t.Fatalf("%v: retry after %v, when it is fully free after %v", d.Limit, d.RetryAfter, d.ResetAfter)
	}
	if op == headgate.OpTake && d.Allowed && d.Limit.Algorithm == headgate.LeakyBucket && d.Delay > d.ResetAfter {
		s.t.Fatalf("%v: delay %v, when it is fully free after %v", d.Limit, d.Delay, d.ResetAfter)
	}
}

// one is do for a single check, and returns its first decision.
func (s *subject) one(op headgate.Op, r *headgate.Rule, key string, cost int64) headgate.Decision {
	s.t.Helper()
	return s.do(op, headgate.Check{Rule: r, Key: key, Cost: cost})[0]
}

// want takes or peeks, and checks how that ends and what remains of the first limit.
func (s *subject) want(op headgate.Op, r *headgate.Rule, key string, cost int64, allowed bool, remaining int64) headgate.Decision {
	s.t.Helper()
	d := s.one(op, r, key, cost)
	if d.Allowed != allowed || d.Remaining != remaining {
		s.t.Fatalf("%s of %d by %v, key %q: %s; want allowed %t, remaining %d", op, cost, r, key, formatDecision(&d), allowed, remaining)
	}
	return d
}

// wait moves the clock.
func (s *subject) wait(d time.Duration) { s.clock.Add(d) }

// limits are one or more of each algorithm, with remainders and without.
func limits() map[string]headgate.Limit {
	return map[string]headgate.Limit{
		"token_bucket":          headgate.PerSecond(10),
		"token_bucket/thirds":   headgate.PerSecond(3).WithBurst(7),
		"token_bucket/slow":     headgate.Per(7, 30*24*time.Hour),
		"token_bucket/prime":    headgate.Per(999_983, 86_399_999_999*time.Microsecond).WithBurst(1000),
		"leaky_bucket":          {Algorithm: headgate.LeakyBucket, Count: 7, Period: time.Second, Burst: 9},
		"fixed_window":          {Algorithm: headgate.FixedWindow, Count: 6, Period: 7 * time.Second},
		"fixed_window/first":    {Algorithm: headgate.FixedWindow, Count: 6, Period: 7 * time.Second, Align: headgate.AlignFirst},
		"fixed_window/calendar": {Algorithm: headgate.FixedWindow, Count: 6, Align: headgate.AlignDay},
		"sliding_window":        headgate.Sliding(8, 11*time.Second),
		"sliding_window/long":   headgate.Sliding(700, 24*time.Hour),
		"sliding_counter":       {Algorithm: headgate.SlidingCounter, Count: 9, Period: 13 * time.Second},
		"sliding_counter/prime": {Algorithm: headgate.SlidingCounter, Count: 997, Period: 86_399_999_999 * time.Microsecond},
	}
}

// eachLimit runs a case for each of limits, as the only limit of a rule.
func eachLimit(t *testing.T, run func(t *testing.T, l headgate.Limit, r *headgate.Rule)) {
	for name, l := range limits() {
		t.Run(name, func(t *testing.T) { run(t, l, headgate.MustRule("r", l)) })
	}
}
