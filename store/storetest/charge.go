package storetest

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// Cases about what is charged, and what is given back.

// everything is a rule with one limit of each algorithm. The clock of a case that
// uses it stands still, so their periods do not matter.
func everything(capacity int64) []headgate.Limit {
	return []headgate.Limit{
		headgate.PerHour(capacity),
		{Algorithm: headgate.LeakyBucket, Count: capacity, Period: time.Hour},
		{Algorithm: headgate.FixedWindow, Count: capacity, Period: time.Hour, Align: headgate.AlignFirst},
		{Algorithm: headgate.FixedWindow, Count: capacity, Align: headgate.AlignMonth},
		headgate.Sliding(capacity, time.Hour),
		headgate.Sliding(capacity, time.Minute),
		{Algorithm: headgate.SlidingCounter, Count: capacity, Period: time.Hour},
	}
}

func mixedAllOrNothing(t *testing.T, mk Maker) {
	for tight := range everything(9) {
		l := everything(9)
		l[tight].Count = 5 // the one that denies
		t.Run(l[tight].Algorithm.String()+" "+l[tight].String(), func(t *testing.T) {
			s := newSubject(t, mk)
			r := headgate.MustRule("r", l...)
			take := headgate.Check{Rule: r, Key: "k", Cost: 3}
			for _, d := range s.do(headgate.OpTake, take) {
				if !d.Allowed {
					t.Fatalf("%v denied the first request", d.Limit)
				}
			}
			for range 3 {
				for i, d := range s.do(headgate.OpTake, take) {
					if want := i != tight; d.Allowed != want {
						t.Fatalf("limit %d, %v: allowed is %t, want %t", i, d.Limit, d.Allowed, want)
					}
					if want := d.Limit.Capacity() - 3; d.Remaining != want {
						t.Fatalf("limit %d, %v: %d remain after a denial by limit %d, want %d", i, d.Limit, d.Remaining, tight, want)
					}
				}
			}
			take.Cost = 2
			for _, d := range s.do(headgate.OpTake, take) {
				if !d.Allowed || d.Remaining != d.Limit.Capacity()-5 {
					t.Fatalf("%v: %s; want allowed, 5 used", d.Limit, formatDecision(&d))
				}
			}
		})
	}
}

func checksAllOrNothing(t *testing.T, mk Maker) {
	const n = 6
	for tight := range n {
		s := newSubject(t, mk)
		var checks []headgate.Check
		for i := range n {
			capacity := int64(9)
			if i == tight {
				capacity = 5
			}
			// Two rules of the same name are one rule: its limits are the counter's.
			r := headgate.MustRule("rule"+string(rune('a'+i/2)), everything(capacity)[i%7])
			checks = append(checks, headgate.Check{Rule: r, Key: "key" + string(rune('a'+i)), Cost: int64(1 + i%3)})
		}
		for range 3 {
			s.do(headgate.OpTake, checks...)
		}
		before := s.do(headgate.OpPeek, checks...)
		checks[tight].Cost = 6
		for i, d := range s.do(headgate.OpTake, checks...) {
			if d.Remaining != before[i].Remaining {
				t.Errorf("check %d: %d remain after check %d denied, want %d", i, d.Remaining, tight, before[i].Remaining)
			}
			if i == tight && d.Allowed {
				t.Errorf("check %d of cost 6 is allowed, with a capacity of 5", i)
			}
		}
		checks[tight].Cost = 1
		for i, d := range s.do(headgate.OpPeek, checks...) {
			if d.Remaining != before[i].Remaining {
				t.Errorf("check %d: %d remain after the denial, want %d", i, d.Remaining, before[i].Remaining)
			}
		}
	}
}

func neverFits(t *testing.T, mk Maker) {
	eachLimit(t, func(t *testing.T, l headgate.Limit, r *headgate.Rule) {
		s := newSubject(t, mk)
		room := l.Capacity()
		for _, cost := range []int64{room + 1, 2 * room, headgate.MaxCount} {
			if d := s.want(headgate.OpTake, r, "k", cost, false, room); d.RetryAfter != headgate.Never {
				t.Errorf("cost %d: retry after %v, want Never", cost, d.RetryAfter)
			}
		}
		s.want(headgate.OpTake, r, "k", room, true, 0)
		if d := s.want(headgate.OpTake, r, "k", room+1, false, 0); d.RetryAfter != headgate.Never {
			t.Errorf("when full, cost %d: retry after %v, want Never", room+1, d.RetryAfter)
		}
	})
}

func refundNeverOverCredits(t *testing.T, mk Maker) {
	eachLimit(t, func(t *testing.T, l headgate.Limit, r *headgate.Rule) {
		s := newSubject(t, mk)
		room := l.Capacity()
		// Of what was never used nothing comes back.
		for _, at := range []int64{0, s.clock.Now(), s.clock.Now() - 5, s.clock.Now() + 1e9} {
			s.do(headgate.OpRefund, headgate.Check{Rule: r, Key: "k", Cost: headgate.MaxCount, At: headgate.Instant(at)})
			s.want(headgate.OpPeek, r, "k", 1, true, room)
		}
		// Of what was used no more than that.
		for range 3 {
			took := s.want(headgate.OpTake, r, "k", 2, true, room-2)
			for _, at := range []int64{int64(took.At), 0, int64(took.At)} {
				d := s.do(headgate.OpRefund, headgate.Check{Rule: r, Key: "k", Cost: room + 5, At: headgate.Instant(at)})[0]
				if d.Remaining != room || d.ResetAfter != 0 {
					t.Fatalf("all is given back: %s; want %d remaining", formatDecision(&d), room)
				}
			}
		}
		// Nothing was saved up: exactly the capacity can be taken.
		s.want(headgate.OpTake, r, "k", room, true, 0)
		s.want(headgate.OpTake, r, "k", 1, false, 0)
	})
}

// owedInWindow: a sliding window owes at most 10^9 units, of the first charge as of later ones.
func owedInWindow(t *testing.T, mk Maker) {
	const most = 1_000_000_000
	for before := range int64(2) {
		s := newSubject(t, mk)
		check := headgate.Check{Rule: headgate.MustRule("r", headgate.Sliding(9, time.Hour)), Key: "k", Cost: 1}
		if before > 0 {
			s.do(headgate.OpTake, check)
		}
		check.Cost = 3 * most
		s.do(headgate.OpCharge, check)
		check.Cost = most - 1
		s.do(headgate.OpRefund, check)
		s.want(headgate.OpPeek, check.Rule, "k", 1, true, 8)
	}
}

func refundTogether(t *testing.T, mk Maker) {
	s := newSubject(t, mk)
	var checks []headgate.Check
	for i, l := range everything(9) {
		r := headgate.MustRule("rule"+string(rune('a'+i)), l, headgate.PerMinute(20))
		checks = append(checks, headgate.Check{Rule: r, Key: "k", Cost: int64(i + 1)})
	}
	s.do(headgate.OpTake, checks...)
	taken := s.do(headgate.OpTake, checks[:4]...)
	for i := range checks {
		checks[i].At = taken[0].At
	}
	s.do(headgate.OpRefund, checks...)
	for i, d := range s.do(headgate.OpPeek, checks...) {
		used := int64(0)
		if i < 8 { // two limits of each of four checks, charged twice
			used = checks[i/2].Cost
		}
		if want := d.Limit.Capacity() - used; d.Remaining != want {
			t.Errorf("decision %d, %v: %d remain, want %d", i, d.Limit, d.Remaining, want)
		}
	}
}

func resetForgets(t *testing.T, mk Maker) {
	s := newSubject(t, mk)
	a, b := headgate.MustRule("a", everything(9)...), headgate.MustRule("b", everything(9)...)
	all := []headgate.Check{{Rule: a, Key: "k", Cost: 7}, {Rule: a, Key: "l", Cost: 6}, {Rule: b, Key: "k", Cost: 5}, {Rule: b, Key: "l", Cost: 4}}
	s.do(headgate.OpTake, all...)
	s.do(headgate.OpReset, all[0], all[3])
	s.do(headgate.OpReset, all[0]) // again
	s.do(headgate.OpReset, headgate.Check{Rule: a, Key: "never used"})
	want := []int64{9, 3, 4, 9}
	for i, d := range s.do(headgate.OpPeek, all...) {
		if w := want[d.Check]; d.Remaining != w {
			t.Errorf("decision %d, %v of check %d: %d remain, want %d", i, d.Limit, d.Check, d.Remaining, w)
		}
	}
}
