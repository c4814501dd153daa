package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// LiveChange is a change of a rule's limits while they are in use: what a client
// that has used some of the old limits has left of the new ones.
type LiveChange struct {
	// What is changed, for people.
	What string
	// Before and After are the limits, as [headgate.ParseLimit] reads them behind
	// their algorithm.
	Before, After []string
	// Used is how many units the client takes before the change, at once.
	Used int64
	// Left is what remains of each new limit right after it.
	Left []int64
}

// LiveChanges has the rows of docs/changing-limits.md, and more. Every store passes it.
func LiveChanges() []LiveChange {
	return []LiveChange{
		{"a count is raised", []string{"sliding_window 100 per 1m"}, []string{"sliding_window 150 per 1m"}, 80, []int64{70}},
		{"a count is lowered", []string{"sliding_window 100 per 1m"}, []string{"sliding_window 50 per 1m"}, 30, []int64{20}},
		{"a count is lowered below what is used", []string{"sliding_window 100 per 1m"}, []string{"sliding_window 50 per 1m"}, 80, []int64{0}},
		{"a rate is raised", []string{"token_bucket 100 per 1m"}, []string{"token_bucket 150 per 1m"}, 80, []int64{70}},
		{"a rate is lowered", []string{"token_bucket 100 per 1m"}, []string{"token_bucket 50 per 1m"}, 30, []int64{20}},
		{"a burst is raised", []string{"token_bucket 10 per 1m burst 20"}, []string{"token_bucket 10 per 1m burst 50"}, 15, []int64{35}},
		{"a burst is lowered", []string{"token_bucket 10 per 1m burst 50"}, []string{"token_bucket 10 per 1m burst 20"}, 30, []int64{0}},
		{"a queue is made shorter", []string{"leaky_bucket 10 per 1m burst 50"}, []string{"leaky_bucket 10 per 1m burst 20"}, 30, []int64{0}},
		{"a count of fixed windows", []string{"fixed_window 100 per 1h"}, []string{"fixed_window 200 per 1h"}, 80, []int64{120}},
		{"a count of calendar windows", []string{"fixed_window 100 per calendar day"}, []string{"fixed_window 200 per calendar day"}, 80, []int64{120}},
		{"a count of a sliding counter", []string{"sliding_counter 100 per 1h"}, []string{"sliding_counter 60 per 1h"}, 80, []int64{0}},
		{"a window is added", []string{"sliding_window 100 per 1h"}, []string{"sliding_window 100 per 1h", "sliding_window 50 per 1m"}, 30, []int64{70, 20}},
		{"a window is removed", []string{"sliding_window 100 per 1h", "sliding_window 50 per 1m"}, []string{"sliding_window 100 per 1h"}, 30, []int64{70}},
		{"a limit of another kind is added", []string{"token_bucket 100 per 1h"}, []string{"token_bucket 100 per 1h", "fixed_window 500 per calendar day"}, 30, []int64{70, 500}},
		{"a limit of another kind is removed", []string{"token_bucket 100 per 1h", "fixed_window 500 per calendar day"}, []string{"fixed_window 500 per calendar day"}, 30, []int64{470}},
		{"the order of limits", []string{"token_bucket 100 per 1h", "fixed_window 500 per 1h"}, []string{"fixed_window 500 per 1h", "token_bucket 100 per 1h"}, 30, []int64{470, 70}},
		{"the period of a sliding window is made shorter", []string{"sliding_window 100 per 1h"}, []string{"sliding_window 100 per 1m"}, 30, []int64{70}},
		{"the period of a sliding window is made longer", []string{"sliding_window 100 per 1m"}, []string{"sliding_window 100 per 1h"}, 30, []int64{70}},
		{"the period of a bucket", []string{"token_bucket 100 per 1m"}, []string{"token_bucket 200 per 2m"}, 30, []int64{200}},
		{"the period of fixed windows", []string{"fixed_window 100 per 1h"}, []string{"fixed_window 1000 per 1d"}, 30, []int64{1000}},
		{"the period of a sliding counter", []string{"sliding_counter 100 per 1h"}, []string{"sliding_counter 200 per 2h"}, 30, []int64{200}},
		{"where fixed windows begin", []string{"fixed_window 100 per 1h"}, []string{"fixed_window 100 per 1h from first request"}, 30, []int64{100}},
		{"the algorithm", []string{"token_bucket 100 per 1m"}, []string{"sliding_window 100 per 1m"}, 30, []int64{100}},
		{"a penalty is added", []string{"sliding_window 100 per 1m"}, []string{"sliding_window 100 per 1m", "penalty 5 denials per 1m block 1m"}, 30, []int64{70, 5}},
	}
}

// Row is the change as a row of a Markdown table.
func (c LiveChange) Row() string {
	left := make([]string, len(c.Left))
	for i, n := range c.Left {
		left[i] = fmt.Sprint(n)
	}
	code := func(limits []string) string { return "`" + strings.Join(limits, "`<br>`") + "`" }
	return fmt.Sprintf("| %s | %s | %s | %d | %s |", c.What, code(c.Before), code(c.After), c.Used, strings.Join(left, ", "))
}

func liveRule(t *testing.T, texts []string) *headgate.Rule {
	t.Helper()
	limits := make([]headgate.Limit, len(texts))
	for i, text := range texts {
		name, rest, _ := strings.Cut(text, " ")
		a, err := headgate.ParseAlgorithm(name)
		if err != nil {
			t.Fatal(err)
		}
		if limits[i], err = headgate.ParseLimit(a, rest); err != nil {
			t.Fatal(err)
		}
	}
	return headgate.MustRule("r", limits...)
}

// liveChanges proves the table, forth and back: under the old limits nothing is
// lost by the visit to the new ones.
func liveChanges(t *testing.T, mk Maker) {
	for _, c := range LiveChanges() {
		t.Run(c.What, func(t *testing.T) {
			s := newSubject(t, mk)
			before, after := liveRule(t, c.Before), liveRule(t, c.After)
			was := s.do(headgate.OpTake, headgate.Check{Rule: before, Key: "k", Cost: c.Used})
			for i, d := range s.do(headgate.OpPeek, headgate.Check{Rule: after, Key: "k"}) {
				if d.Remaining != c.Left[i] {
					t.Errorf("%v: %d remain, want %d", d.Limit, d.Remaining, c.Left[i])
				}
			}
			admitted := headgate.NewVerdict(s.do(headgate.OpTake, headgate.Check{Rule: after, Key: "k"})).Allowed
			for i, d := range s.do(headgate.OpPeek, headgate.Check{Rule: before, Key: "k"}) {
				// Another unit is gone where both versions count in one place.
				if d.Remaining != was[i].Remaining && (!admitted || d.Remaining != was[i].Remaining-1) {
					t.Errorf("back under %v: %d remain, of %d before", d.Limit, d.Remaining, was[i].Remaining)
				}
			}
		})
	}
}

// Cases about penalties.

func penaltyBlocks(t *testing.T, mk Maker) {
	s := newSubject(t, mk)
	r := headgate.MustRule("login", headgate.Sliding(2, 10*time.Second), headgate.Blocking(3, time.Minute, 20*time.Second, time.Minute))
	ask := func(op headgate.Op, allowed bool, left int64, retry time.Duration) {
		t.Helper()
		d := s.do(op, headgate.Check{Rule: r, Key: "k"})
		v := headgate.NewVerdict(d)
		if v.Allowed != allowed || d[1].Remaining != left || v.RetryAfter != retry {
			t.Fatalf("%s: allowed %t, %d denials left, retry after %v; want %t, %d, %v", op, v.Allowed, d[1].Remaining, v.RetryAfter, allowed, left, retry)
		}
	}
	ask(headgate.OpTake, true, 3, 0)
	ask(headgate.OpTake, true, 3, 0)
	ask(headgate.OpTake, false, 2, 10*time.Second)
	ask(headgate.OpPeek, false, 2, 10*time.Second) // peeks are not punished
	ask(headgate.OpTake, false, 1, 10*time.Second)
	ask(headgate.OpTake, false, 0, 20*time.Second) // the block begins
	s.wait(11 * time.Second)
	ask(headgate.OpTake, false, 0, 9*time.Second) // the window is free again, and the block lasts
	s.wait(9*time.Second - time.Microsecond)
	ask(headgate.OpTake, false, 0, time.Microsecond)
	s.wait(time.Microsecond)
	ask(headgate.OpTake, true, 3, 0)

	// The next block is twice as long, and the one after as long as may be.
	for _, block := range []time.Duration{40 * time.Second, time.Minute, time.Minute} {
		s.wait(10 * time.Second)
		for range 3 { // the first is admitted
			s.do(headgate.OpTake, headgate.Check{Rule: r, Key: "k", Cost: 2})
		}
		ask(headgate.OpTake, false, 0, block)
		s.wait(block)
	}
	// Who was not denied for as long as the longest block begins anew.
	s.wait(time.Minute)
	for range 2 {
		ask(headgate.OpTake, true, 3, 0)
	}
	s.do(headgate.OpTake, headgate.Check{Rule: r, Key: "k"})
	s.do(headgate.OpTake, headgate.Check{Rule: r, Key: "k"})
	ask(headgate.OpTake, false, 0, 20*time.Second)
	// A reset lifts a block, a refund does not.
	s.do(headgate.OpRefund, headgate.Check{Rule: r, Key: "k", Cost: 2})
	ask(headgate.OpTake, false, 0, 20*time.Second)
	s.do(headgate.OpReset, headgate.Check{Rule: r, Key: "k"})
	ask(headgate.OpTake, true, 3, 0)
}

// penaltyOfOthers: only the denials of its own rule count, shadows' too, and others
// in the request are not charged for them.
func penaltyOfOthers(t *testing.T, mk Maker) {
	s := newSubject(t, mk)
	own := headgate.MustRule("own", headgate.PerHour(5), headgate.Blocking(1, time.Hour, time.Hour, 0))
	full := headgate.MustRule("full", headgate.PerHour(1))
	s.do(headgate.OpTake, headgate.Check{Rule: full, Key: "k"})
	for range 3 {
		if d := s.do(headgate.OpTake, headgate.Check{Rule: own, Key: "k"}, headgate.Check{Rule: full, Key: "k"}); !d[1].Allowed || d[1].Remaining != 1 {
			t.Fatalf("a denial by another rule counts: %s", formatDecision(&d[1]))
		}
	}
	s.do(headgate.OpTake, headgate.Check{Rule: own, Key: "s", Cost: 5, Shadow: true})
	s.do(headgate.OpTake, headgate.Check{Rule: own, Key: "s", Shadow: true})
	if d := s.do(headgate.OpPeek, headgate.Check{Rule: own, Key: "s"}); d[1].Allowed {
		t.Fatalf("in shadow a penalty does not count: %s", formatDecision(&d[1]))
	}
	// A blocked rule denies the request as a whole.
	if d := s.do(headgate.OpTake, headgate.Check{Rule: full, Key: "another"}, headgate.Check{Rule: own, Key: "s"}); !d[0].Allowed || d[2].Allowed {
		t.Fatal("a blocked key is admitted")
	}
	s.want(headgate.OpPeek, full, "another", 1, true, 1)
}

// Cases about ledgers.

func ledgerOf(s *subject) headgate.Ledger {
	s.t.Helper()
	l, ok := s.store.(headgate.Ledger)
	if !ok {
		s.t.Fatalf("%T is no headgate.Ledger", s.store)
	}
	return l
}

// onceAtOnce: of many calls with one id one is charged, and all are told the same.
func onceAtOnce(t *testing.T, mk Maker) {
	s := newSubject(t, mk)
	l := ledgerOf(s)
	r := headgate.MustRule("r", headgate.Sliding(1000, time.Hour), headgate.PerHour(1000))
	const ids, calls = 20, 8
	type told struct {
		id        int
		remaining int64
		err       error
	}
	answers := make(chan told)
	for i := range ids * calls {
		go func() {
			d, err := l.TakeOnce(context.Background(), headgate.Terms{ID: fmt.Sprint(i % ids)}, []headgate.Check{{Rule: r, Key: "k", Cost: 3}}, nil)
			a := told{id: i % ids, err: err}
			if err == nil {
				a.remaining = d[0].Remaining
			}
			answers <- a
		}()
	}
	seen := map[int]int64{}
	for range ids * calls {
		a := <-answers
		if a.err != nil {
			t.Fatal(a.err)
		}
		if was, known := seen[a.id]; known && was != a.remaining {
			t.Errorf("request %d was told that %d remain, and then %d", a.id, was, a.remaining)
		}
		seen[a.id] = a.remaining
	}
	s.want(headgate.OpPeek, r, "k", 1, true, 1000-3*ids)
}

// settledAtOnce: of many settlements of one reservation at different costs one
// counts.
func settledAtOnce(t *testing.T, mk Maker) {
	s := newSubject(t, mk)
	l := ledgerOf(s)
	ctx := context.Background()
	a := headgate.MustRule("a", headgate.Sliding(1000, time.Hour))
	b := headgate.MustRule("b", headgate.PerHour(1000))
	left := int64(1000)
	for range 20 {
		reservation, _, err := l.Reserve(ctx, headgate.Terms{}, []headgate.Check{{Rule: a, Key: "k", Cost: 10}, {Rule: b, Key: "k", Cost: 20, Factor: 2}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		won := make(chan int64)
		for cost := range int64(8) {
			go func() {
				for range 3 {
					if _, err := l.Settle(ctx, reservation, reservation.Units(cost), nil); err != nil {
						won <- -1
						return
					}
				}
				won <- cost
			}()
		}
		winner := int64(-1)
		for range 8 {
			if cost := <-won; cost >= 0 {
				if winner >= 0 {
					t.Errorf("the reservation was settled at %d and at %d", winner, cost)
				}
				winner = cost
			}
		}
		if winner < 0 {
			t.Fatal("no settlement counted")
		}
		left -= winner
		s.want(headgate.OpPeek, a, "k", 1, true, left)
		s.want(headgate.OpPeek, b, "k", 1, true, 2*left-1000)
	}
}

// settledIsForgotten: a settlement can be repeated for ten seconds, or for longer if the caller gave
// the id, and then there is no such reservation.
func settledIsForgotten(t *testing.T, mk Maker) {
	s := newSubject(t, mk)
	l := ledgerOf(s)
	ctx := context.Background()
	checks := []headgate.Check{{Rule: headgate.MustRule("r", headgate.Sliding(1000, 24*time.Hour)), Key: "k", Cost: 10}}
	var both []headgate.Reservation
	for _, id := range []string{"", "chosen"} {
		r, _, err := l.Reserve(ctx, headgate.Terms{ID: id, For: time.Hour}, checks, nil)
		if err != nil {
			t.Fatal(err)
		}
		both = append(both, r)
	}
	s.wait(30 * time.Minute) // the ten seconds begin with the settlement
	for round, step := range []struct {
		wait   time.Duration
		wanted [2]error
	}{
		{0, [2]error{}},
		{store.RepeatFor - time.Second, [2]error{}},
		{2 * time.Second, [2]error{headgate.ErrNoReservation, nil}},
		{30*time.Minute + store.SettledFor - store.RepeatFor - 2*time.Second, [2]error{headgate.ErrNoReservation, nil}},
		{2 * time.Second, [2]error{headgate.ErrNoReservation, headgate.ErrNoReservation}},
	} {
		s.wait(step.wait)
		for i, r := range both {
			if _, err := l.Settle(ctx, r, []int64{3}, nil); !errors.Is(err, step.wanted[i]) {
				t.Errorf("step %d, reservation %q: got %v, want %v", round, r.ID, err, step.wanted[i])
			}
			if _, err := l.Recall(ctx, r.ID); round < 3 && !errors.Is(err, step.wanted[i]) {
				t.Errorf("step %d, reservation %q is found or not: got %v, want %v", round, r.ID, err, step.wanted[i])
			}
		}
	}
	s.want(headgate.OpPeek, checks[0].Rule, "k", 1, true, 994)
}

// refilledIsNotGivenBack: what a bucket has refilled since it was charged is there
// once, not twice.
func refilledIsNotGivenBack(t *testing.T, mk Maker) {
	s := newSubject(t, mk)
	r := headgate.MustRule("r", headgate.Per(60, time.Minute))
	ctx := context.Background()
	l := ledgerOf(s)
	reserve := func(cost int64) headgate.Reservation {
		t.Helper()
		reservation, _, err := l.Reserve(ctx, headgate.Terms{For: time.Hour}, []headgate.Check{{Rule: r, Key: "k", Cost: cost}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return reservation
	}
	cancel := func(reservation headgate.Reservation) {
		t.Helper()
		if _, err := l.Settle(ctx, reservation, []int64{0}, nil); err != nil {
			t.Fatal(err)
		}
	}
	// Idle before: after 10 s all 10 units are refilled.
	reservation := reserve(10)
	s.wait(10 * time.Second)
	s.want(headgate.OpTake, r, "k", 60, true, 0)
	cancel(reservation)
	s.want(headgate.OpTake, r, "k", 1, false, 0)
	s.wait(time.Minute)
	// Busy before: what was refilled were the units of others.
	s.want(headgate.OpTake, r, "k", 50, true, 10)
	reservation = reserve(10)
	s.wait(10 * time.Second)
	s.want(headgate.OpTake, r, "k", 10, true, 0)
	cancel(reservation)
	s.want(headgate.OpTake, r, "k", 10, true, 0)
	s.want(headgate.OpTake, r, "k", 1, false, 0)
	// A plain refund does not know what was in use. It gives no more than could be
	// in use still.
	s.wait(time.Minute)
	d := s.want(headgate.OpTake, r, "k", 60, true, 0)
	s.wait(40 * time.Second)
	s.want(headgate.OpTake, r, "k", 40, true, 0)
	s.do(headgate.OpRefund, headgate.Check{Rule: r, Key: "k", Cost: 60, At: d.At})
	s.want(headgate.OpPeek, r, "k", 1, true, 20)
}
