package storetest

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// Cases about time: when a request fits, and what a clock may do.

// retry checks that what was denied is denied until a microsecond before its
// RetryAfter has passed, and admitted then. It leaves the clock there.
func (s *subject) retry(denied headgate.Decision, op headgate.Op, checks ...headgate.Check) {
	s.t.Helper()
	if denied.Allowed || denied.RetryAfter <= 0 {
		s.t.Fatalf("%s; want a denial that says when", formatDecision(&denied))
	}
	s.wait(denied.RetryAfter - time.Microsecond)
	if v := headgate.NewVerdict(s.do(op, checks...)); v.Allowed {
		s.t.Fatalf("%v said retry after %v, and admitted a microsecond earlier", denied.Limit, denied.RetryAfter)
	}
	s.wait(time.Microsecond)
	if v := headgate.NewVerdict(s.do(op, checks...)); !v.Allowed {
		s.t.Fatalf("%v said retry after %v, and then: %s", denied.Limit, denied.RetryAfter, formatDecision(v.Deciding()))
	}
}

func retryIsExact(t *testing.T, mk Maker) {
	eachLimit(t, func(t *testing.T, l headgate.Limit, r *headgate.Rule) {
		s := newSubject(t, mk)
		room := l.Capacity()
		// Charged in pieces at odd times, so that remainders and ages differ.
		for i, left := 0, room; left > 0; i++ {
			cost := min(left, max(1, room/4))
			if s.one(headgate.OpTake, r, "k", cost).Allowed {
				left -= cost
			}
			s.wait(time.Duration(77_777*i+i) * time.Microsecond)
		}
		for _, cost := range []int64{1, 2, room / 2, room - 1, room} {
			// Fill up first: a window may have ended meanwhile.
			if left := s.one(headgate.OpPeek, r, "k", 1).Remaining; left > 0 {
				s.one(headgate.OpTake, r, "k", left)
			}
			c := headgate.Check{Rule: r, Key: "k", Cost: cost}
			s.retry(s.do(headgate.OpTake, c)[0], headgate.OpTake, c)
		}
	})
}

// retryOfSeveral checks that a whole request fits at the longest of its
// RetryAfters, if nothing else comes.
func retryOfSeveral(t *testing.T, mk Maker) {
	for _, n := range []int{2, 5, 12} {
		s := newSubject(t, mk)
		var checks []headgate.Check
		i := 0
		for name, l := range limits() {
			if l.Capacity() > 900 {
				l.Burst, l.Count = 0, 900 // one cost for all
			}
			checks = append(checks, headgate.Check{Rule: headgate.MustRule(name, l, headgate.Sliding(l.Count, 5*time.Second)), Key: "k"})
			if i++; i == n {
				break
			}
		}
		for range 80 {
			v := headgate.NewVerdict(s.do(headgate.OpTake, checks...))
			if v.Allowed {
				s.wait(123_457 * time.Microsecond)
				continue
			}
			s.retry(*v.Deciding(), headgate.OpTake, checks...)
		}
	}
}

func resetIsExact(t *testing.T, mk Maker) {
	eachLimit(t, func(t *testing.T, l headgate.Limit, r *headgate.Rule) {
		s := newSubject(t, mk)
		room := l.Capacity()
		for _, cost := range []int64{1, 2, room} {
			d := s.one(headgate.OpTake, r, "k", cost)
			s.wait(d.ResetAfter - time.Microsecond)
			if d := s.one(headgate.OpPeek, r, "k", room); d.Remaining == room || d.ResetAfter != time.Microsecond {
				t.Errorf("a microsecond before it is free: %s", formatDecision(&d))
			}
			s.wait(time.Microsecond)
			if d := s.one(headgate.OpPeek, r, "k", room); !d.Allowed || d.Remaining != room || d.ResetAfter != 0 {
				t.Errorf("when it is free: %s", formatDecision(&d))
			}
		}
	})
}

func delaysAreEven(t *testing.T, mk Maker) {
	s := newSubject(t, mk)
	l := headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 7, Period: time.Second, Burst: 20}
	r := headgate.MustRule("r", l)
	start := s.clock.Now()
	sent := int64(0) // units that have left, or will
	for i := range int64(300) {
		cost := 1 + i%3
		d := s.one(headgate.OpTake, r, "k", cost)
		if !d.Allowed {
			s.wait(d.RetryAfter)
			continue
		}
		// The bucket never runs empty here, so unit n leaves n sevenths of a second
		// after the start, rounded up.
		want := (sent*1_000_000 + 6) / 7
		if got := int64(d.At) + d.Delay.Microseconds() - start; got != want {
			t.Fatalf("request %d of cost %d leaves %d µs after the start, want %d: %s", i, cost, got, want, formatDecision(&d))
		}
		sent += cost
		s.wait(time.Duration(i*31%100_000) * time.Microsecond)
	}
}

// slidingIsExact fills two windows at random times, and looks at every window
// that ends with an admission.
func slidingIsExact(t *testing.T, mk Maker) {
	s := newSubject(t, mk)
	r := headgate.MustRule("r", headgate.Sliding(40, 10*time.Second), headgate.Sliding(9, time.Second))
	type admitted struct{ at, cost int64 }
	var past []admitted
	for i := range int64(700) {
		s.wait(time.Duration(i*i*7919%41_000) * time.Microsecond)
		cost := 1 + i*i%5
		now := s.clock.Now()
		ds := s.do(headgate.OpTake, headgate.Check{Rule: r, Key: "k", Cost: cost})
		for j := range ds {
			l := ds[j].Limit
			used := int64(0)
			for _, a := range past {
				if a.at > now-l.Micros() {
					used += a.cost
				}
			}
			if want := used+cost <= l.Count; ds[j].Allowed != want {
				t.Fatalf("step %d: %d of %v are in use, a cost of %d: allowed is %t", i, used, l, cost, ds[j].Allowed)
			}
		}
		if ds[0].Allowed && ds[1].Allowed {
			past = append(past, admitted{now, cost})
		}
	}
}

// bucketIsExact takes all it can get for a while: that is the burst and what the
// rate yields, to the unit.
func bucketIsExact(t *testing.T, mk Maker) {
	for _, l := range []headgate.Limit{
		headgate.PerSecond(10),
		headgate.Per(7, 3*time.Second).WithBurst(4),
		headgate.Per(999_983, 86_399_999_999*time.Microsecond).WithBurst(50),
		headgate.Per(1_000_003, time.Second).WithBurst(50),
		{Algorithm: headgate.LeakyBucket, Count: 17, Period: time.Minute, Burst: 3},
	} {
		s := newSubject(t, mk)
		r := headgate.MustRule("r", l)
		start, total := s.clock.Now(), int64(0)
		for range 200 {
			d := s.one(headgate.OpTake, r, "k", 1)
			if d.Allowed {
				total++
				continue
			}
			s.wait(d.RetryAfter)
		}
		elapsed := s.clock.Now() - start
		// The products stay below 2^63: counts to 10^6, microseconds to 10^12.
		if want := l.Capacity() + elapsed*l.Count/l.Micros(); total != want && total != want-1 {
			t.Errorf("%v: %d units in %d µs, want %d, or one less if the last is still to be taken", &l, total, elapsed, want)
		}
	}
}

func clockStepsBack(t *testing.T, mk Maker) {
	for _, back := range []time.Duration{time.Microsecond, 100 * time.Millisecond, 30 * time.Second, time.Hour, 400 * 24 * time.Hour} {
		t.Run(back.String(), func(t *testing.T) {
			eachLimit(t, func(t *testing.T, l headgate.Limit, r *headgate.Rule) {
				s := newSubject(t, mk)
				room := l.Capacity()
				s.want(headgate.OpTake, r, "k", room, true, 0)
				s.wait(-back)
				for _, op := range []headgate.Op{headgate.OpPeek, headgate.OpTake, headgate.OpPeek} {
					d := s.want(op, r, "k", 1, false, 0)
					if most := 3 * time.Duration(l.Micros()) * time.Microsecond; d.RetryAfter > most {
						t.Fatalf("retry after %v, want at most three periods: %v", d.RetryAfter, most)
					}
				}
				c := headgate.Check{Rule: r, Key: "k"}
				s.retry(s.do(headgate.OpPeek, c)[0], headgate.OpTake, c)
				// A second step, and back to the true time: nothing is won by either.
				s.one(headgate.OpTake, r, "k", max(1, s.one(headgate.OpPeek, r, "k", 1).Remaining))
				s.wait(-back)
				s.want(headgate.OpTake, r, "k", 1, false, 0)
			})
		})
	}
}
