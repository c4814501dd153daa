package storetest

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// Cases about limits that change while they are in use.

func raisedAndLowered(t *testing.T, mk Maker) {
	eachLimit(t, func(t *testing.T, l headgate.Limit, r *headgate.Rule) {
		if l.Burst != 0 {
			l.Burst = 0 // the count is what changes
			r = headgate.MustRule("r", l)
		}
		change := func(count int64) *headgate.Rule {
			l := l
			l.Count = count
			return headgate.MustRule("r", l)
		}
		s := newSubject(t, mk)
		room := l.Capacity()
		s.want(headgate.OpTake, r, "k", room-1, true, 1)

		raised := change(2 * room)
		s.want(headgate.OpPeek, raised, "k", room+1, true, room+1)
		s.want(headgate.OpTake, raised, "k", room+2, false, room+1)
		s.want(headgate.OpTake, raised, "k", 2, true, room-1)

		s.want(headgate.OpPeek, r, "k", 1, false, 0)
		// Not so far that it takes longer than RetryAfter can tell.
		lowered := change(max(2, room/100))
		s.want(headgate.OpTake, lowered, "k", 1, false, 0)
		if d := s.want(headgate.OpTake, lowered, "k", max(2, room/100)+1, false, 0); d.RetryAfter != headgate.Never {
			t.Errorf("a cost above the lowered limit: retry after %v, want Never", d.RetryAfter)
		}
		c := headgate.Check{Rule: lowered, Key: "k"}
		s.retry(s.do(headgate.OpTake, c)[0], headgate.OpTake, c)
	})
}

// addedAndRemoved changes a rule of one limit to one with another limit before or
// behind it, and back. Clocks stand still: what differs is what was lost.
func addedAndRemoved(t *testing.T, mk Maker) {
	all := everything(9)
	for i := range all {
		for j := range all {
			if i == j {
				continue
			}
			s := newSubject(t, mk)
			alone := headgate.MustRule("r", all[i])
			before, behind := headgate.MustRule("r", all[j], all[i]), headgate.MustRule("r", all[i], all[j])
			check := func(r *headgate.Rule) headgate.Check { return headgate.Check{Rule: r, Key: "k"} }
			// A window that joins another one sees the log that is there.
			fresh := int64(9)
			if all[i].Algorithm == headgate.SlidingWindow && all[j].Algorithm == headgate.SlidingWindow {
				fresh = 7
			}
			wants := func(step string, got []headgate.Decision, want ...int64) {
				t.Helper()
				for k := range got {
					if !got[k].Allowed || got[k].Remaining != want[k] {
						t.Fatalf("%s, limits %v and %v: %s; want %d remaining", step, &all[i], &all[j], formatDecision(&got[k]), want[k])
					}
				}
			}
			s.want(headgate.OpTake, alone, "k", 2, true, 7)
			wants("added before", s.do(headgate.OpTake, check(before)), fresh-1, 6)
			wants("turned around", s.do(headgate.OpTake, check(behind)), 5, fresh-2)
			wants("removed", s.do(headgate.OpTake, check(alone)), 4)
			seen := fresh - 2
			if fresh == 7 {
				seen = 4
			}
			wants("added behind", s.do(headgate.OpTake, check(behind)), 3, seen-1)
			wants("and looked at", s.do(headgate.OpPeek, check(before)), seen-1, 3)
		}
	}
}

// versionsInTurns is what happens while a new policy is rolled out: some nodes
// have the old limits, some the new.
func versionsInTurns(t *testing.T, mk Maker) {
	s := newSubject(t, mk)
	shared := headgate.Limit{Algorithm: headgate.FixedWindow, Count: 20, Period: time.Hour, Align: headgate.AlignFirst}
	old := headgate.MustRule("r", headgate.PerHour(50), shared, headgate.Sliding(30, time.Hour))
	next := headgate.MustRule("r", headgate.Sliding(30, time.Hour), headgate.Per(9, 2*time.Hour), shared)
	admitted, denied := 0, 0
	for i := range 60 {
		r := old
		if i%2 == 1 {
			r = next
		}
		if headgate.NewVerdict(s.do(headgate.OpTake, headgate.Check{Rule: r, Key: "k"})).Allowed {
			admitted++
		} else {
			denied++
		}
	}
	// The new limit of nine stops the new version; the old one goes on to the limit
	// that both have.
	if admitted != 20 || denied != 40 {
		t.Errorf("%d were admitted and %d denied, want 20 and 40", admitted, denied)
	}
	for _, d := range s.do(headgate.OpPeek, headgate.Check{Rule: next, Key: "k"}) {
		if want := map[headgate.Algorithm]int64{headgate.SlidingWindow: 10, headgate.TokenBucket: 0, headgate.FixedWindow: 0}[d.Limit.Algorithm]; d.Remaining != want {
			t.Errorf("%v: %d remain, want %d", d.Limit, d.Remaining, want)
		}
	}
}
