package storetest

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// Cases about several lists of limits that one rule has for one key: by tariff, by method,
// by an override, or because two versions of the policy are in use side by side.

// limitsByMethod is a rule with limits: {method: {GET: [100 per 1s], POST: [5 per 1h]}}.
// A GET must not make the POSTs of the hour forgotten.
func limitsByMethod(t *testing.T, mk Maker) {
	s := newSubject(t, mk)
	get := headgate.MustRule("api", headgate.Sliding(100, time.Second))
	post := headgate.MustRule("api", headgate.Sliding(5, time.Hour))
	for i := range int64(6) {
		s.want(headgate.OpTake, post, "ann", 1, i < 5, max(0, 4-i))
	}
	for range 20 {
		s.wait(1200 * time.Millisecond)
		s.want(headgate.OpTake, get, "ann", 1, true, 99)
		d := s.want(headgate.OpTake, post, "ann", 1, false, 0)
		if d.RetryAfter <= time.Hour-20*1200*time.Millisecond {
			t.Fatalf("retry after %v, which is too early", d.RetryAfter)
		}
	}
	// 20 GETs count in the hour as well: the sixth POST fits when the last of them but
	// four has left.
	d := s.one(headgate.OpPeek, post, "ann", 1)
	if want := time.Hour - 4*1200*time.Millisecond; d.RetryAfter != want {
		t.Errorf("retry after %v, want %v", d.RetryAfter, want)
	}
	s.retry(d, headgate.OpTake, headgate.Check{Rule: post, Key: "ann"})
}

// hourlyWindowAdded is the rollout of a policy that adds a window: one server has
// [20 per 1s], the other [20 per 1s, 80 per 1h], and both ask all the time.
func hourlyWindowAdded(t *testing.T, mk Maker) {
	s := newSubject(t, mk)
	old := headgate.MustRule("api", headgate.Sliding(20, time.Second))
	next := headgate.MustRule("api", headgate.Sliding(20, time.Second), headgate.Sliding(80, time.Hour))
	ask := func(r *headgate.Rule) bool {
		return headgate.NewVerdict(s.do(headgate.OpTake, headgate.Check{Rule: r, Key: "ann"})).Allowed
	}
	// From the first charge of the new list on all units count in its hour.
	if !ask(next) {
		t.Fatal("the first request is denied")
	}
	all, hourly := 1, 1
	for range 220 { // 11 s
		s.wait(25 * time.Millisecond)
		if ask(old) {
			all++
		}
		s.wait(25 * time.Millisecond)
		if ask(next) {
			all, hourly = all+1, hourly+1
			if all > 80 {
				t.Fatalf("the hourly list has admitted request %d of all", all)
			}
		}
	}
	if hourly < 36 || hourly > 44 {
		t.Errorf("the hourly list has admitted %d, want about half of 80", hourly)
	}
	if all < 160 {
		t.Errorf("%d were admitted, want more than 160: the old list has no hourly limit", all)
	}
	// When only the new list is left, it admits nothing before the hour has passed.
	d := s.do(headgate.OpPeek, headgate.Check{Rule: next, Key: "ann"})
	s.wait(headgate.NewVerdict(d).RetryAfter - time.Microsecond)
	if ask(next) {
		t.Error("the hourly list admits a request a microsecond before it said")
	}
	s.wait(time.Microsecond)
	if !ask(next) {
		t.Error("the hourly list denies a request when it said that it would fit")
	}
}

// listsForgetNothing: whatever lists take turns, no list ever admits more of its own in a
// window than that window's count.
func listsForgetNothing(t *testing.T, mk Maker) {
	for round := range uint64(6) {
		s := newSubject(t, mk)
		rng := rand.New(rand.NewPCG(21, round))
		rules := make([]*headgate.Rule, 2+rng.IntN(4))
		for i := range rules {
			limits := make([]headgate.Limit, 1+rng.IntN(2))
			for j := range limits {
				micros := 1 + rng.Int64N(240_000_000)>>rng.IntN(12)
				limits[j] = headgate.Sliding(1+rng.Int64N(25), time.Duration(micros)*time.Microsecond)
			}
			rules[i] = headgate.MustRule("r", limits...)
		}
		type taken struct{ at, units int64 }
		past := make([][]taken, len(rules))
		for range 200 {
			s.wait(time.Duration(rng.Int64N(1_000_000<<rng.IntN(5))) * time.Microsecond)
			i, cost := rng.IntN(len(rules)), 1+rng.Int64N(3)
			if !headgate.NewVerdict(s.do(headgate.OpTake, headgate.Check{Rule: rules[i], Key: "k", Cost: cost})).Allowed {
				continue
			}
			past[i] = append(past[i], taken{s.clock.Now(), cost})
			for j := range rules[i].Limits() {
				l, used := &rules[i].Limits()[j], int64(0)
				for _, p := range past[i] {
					if p.at > s.clock.Now()-l.Micros() {
						used += p.units
					}
				}
				if used > l.Count {
					t.Fatalf("round %d: of %v, list %d has admitted %d itself within %v", round, rules, i, used, l)
				}
			}
		}
	}
}

// busyBesideLong: a list that charges thousands of units while another one needs only the
// newest few of them. Its store may keep less than all, and decides as if it kept all.
func busyBesideLong(t *testing.T, mk Maker) {
	s := newSubject(t, mk)
	model := NewModel(s.clock.Now)
	rng := rand.New(rand.NewPCG(23, 24))
	rules := []*headgate.Rule{
		headgate.MustRule("r", headgate.Sliding(300, time.Second)),
		headgate.MustRule("r", headgate.Sliding(300, time.Second), headgate.Sliding(2_500, 20*time.Second)),
		headgate.MustRule("r", headgate.Sliding(40, 24*time.Hour)),
	}
	compare := func(op headgate.Op, c headgate.Check) {
		t.Helper()
		want, err := model.Take(t.Context(), op, []headgate.Check{c}, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := s.do(op, c)
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%s under %v: %s; want %s", op, c.Rule, formatDecision(&got[i]), formatDecision(&want[i]))
			}
		}
	}
	for range 30 {
		compare(headgate.OpTake, headgate.Check{Rule: rules[2], Key: "k"})
	}
	for range 1800 { // more charges than come before a log is squeezed
		s.wait(time.Duration(rng.IntN(8)) * time.Millisecond)
		c := headgate.Check{Rule: rules[rng.IntN(2)], Key: "k", Cost: 1 + rng.Int64N(2)}
		if rng.IntN(300) == 0 {
			c.Cost = 100 // of more than the log keeps one by one
		}
		compare(headgate.OpTake, c)
		switch rng.IntN(60) {
		case 0:
			compare(headgate.OpRefund, headgate.Check{Rule: rules[0], Key: "k", Cost: 1 + rng.Int64N(40)})
		case 1:
			compare(headgate.OpPeek, headgate.Check{Rule: rules[2], Key: "k"})
		}
	}
	// Given back, what the store has not kept one by one is still in use.
	compare(headgate.OpRefund, headgate.Check{Rule: rules[0], Key: "k", Cost: 4_000})
	for _, r := range rules {
		compare(headgate.OpPeek, headgate.Check{Rule: r, Key: "k"})
	}
	s.wait(24*time.Hour - time.Minute)
	compare(headgate.OpTake, headgate.Check{Rule: rules[2], Key: "k"})
	s.wait(2 * time.Minute)
	compare(headgate.OpTake, headgate.Check{Rule: rules[2], Key: "k"})
}
