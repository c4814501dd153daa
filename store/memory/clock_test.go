package memory

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/internal/bubbletest"
)

// TestLateReading: a decision is never earlier than the last one of its shard, however long ago its
// caller has read the clock.
func TestLateReading(t *testing.T) {
	s := New()
	a, b := &s.shards[0], &s.shards[1]
	now := s.timeIn(s.read(), a)
	for _, late := range []headgate.Instant{1, 999, 1000, 10_000_000} {
		if got := s.timeIn(now-late, a); got != now {
			t.Errorf("a reading that is %d µs old gives %d, want the last time, %d", late, got, now)
		}
	}
	b.last = now + 500
	if got := s.timeIn(now, b); got != b.last {
		t.Errorf("shards that are locked together: %d, want the later one's %d", got, b.last)
	}
}

// TestClock: the clock never steps back, and is as far from the wall clock as it was at first.
func TestClock(t *testing.T) {
	c := newClock()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			last := c.now()
			for range 20_000 {
				now := c.now()
				if now < last {
					t.Errorf("time goes back from %d to %d", last, now)
					return
				}
				last = now
			}
		})
	}
	all.Wait()
	if w := c.wallAt(c.start + 10*resync); w.ahead != 0 {
		t.Errorf("the wall clock has not stepped, and is %d µs ahead", w.ahead)
	}
}

// TestFollow: the wall clock is followed, but not by a goroutine that was held up between reading
// the two clocks, and what was charged before a step is found where it was.
func TestFollow(t *testing.T) {
	c := newClock()
	const second = headgate.Instant(1_000_000)
	for _, heldUp := range []headgate.Instant{apart, second, 3600 * second} {
		before := c.start + 5*second
		mono := before + heldUp // the wall clock was read at the beginning
		if c.follow(before, mono, mono, before) || c.wall.Load().ahead != 0 {
			t.Errorf("held up by %d µs: the wall clock is %d ahead", heldUp, c.wall.Load().ahead)
		}
	}
	before := c.start + 7*second
	if !c.follow(before, before+1, before+2, before+1+apart-1) || c.wall.Load().ahead != 0 {
		t.Errorf("a difference of reading is taken for a step of %d µs", c.wall.Load().ahead)
	}
	if !c.follow(before, before+1, before+2, before+1-3600*second) || c.wall.Load().ahead != -3600*1_000_000 {
		t.Errorf("the wall clock was set back by an hour, and is %d µs ahead", c.wall.Load().ahead)
	}
	w := c.wall.Load()
	for said, want := range map[headgate.Instant]headgate.Instant{
		0: 0, before - 1: before - 1, c.start - 1: c.start - 1 + 3600*second, before: before + 3600*second,
	} {
		if got := w.read(said); got != want {
			t.Errorf("the wall clock said %d at %d, want %d", said, got, want)
		}
	}
}

// TestWallReads: whatever the wall clock was set to, and however often, the time that it has shown
// leads back to the time of the clock, or to an earlier one at which it has shown the same.
func TestWallReads(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 1))
		now := headgate.Instant(1e15)
		w := &wall{offset: offset{since: now}}
		type shown struct{ now, said headgate.Instant }
		var all []shown
		for range rng.IntN(20) {
			for range 5 {
				now += headgate.Instant(rng.Int64N(1000))
				all = append(all, shown{now, w.shown(now)})
			}
			now++
			w = w.stepped(now, algorithm.Micros(rng.Int64N(6000)-3000))
			if len(w.before) > maxBefore {
				t.Fatalf("%d offsets are remembered, want %d at most", len(w.before), maxBefore)
			}
		}
		for _, s := range all {
			if len(w.before) > 0 && s.now < w.before[0].since || len(w.before) == maxBefore {
				continue // forgotten
			}
			if got := w.read(s.said); got > s.now || got < s.now && !slices.ContainsFunc(all, func(o shown) bool { return o.said >= s.said && o.now < s.now }) {
				t.Fatalf("seed %d: %d was shown at %d, and is read as %d", seed, s.said, s.now, got)
			}
		}
	}
}

// TestStepsOfTheWallClock: only windows that begin at times of the wall clock notice that it was
// set. All decisions are told at its time.
func TestStepsOfTheWallClock(t *testing.T) {
	for name, c := range map[string]struct {
		limit headgate.Limit
		step  time.Duration
		frees bool
	}{
		"bucket":            {headgate.Per(1, 24*time.Hour), 48 * time.Hour, false},
		"bucket, back":      {headgate.Per(1, 24*time.Hour), -48 * time.Hour, false},
		"sliding window":    {headgate.Sliding(1, 24*time.Hour), 48 * time.Hour, false},
		"first to come":     {headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1, Period: 24 * time.Hour, Align: headgate.AlignFirst}, 48 * time.Hour, false},
		"calendar day":      {headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1, Align: headgate.AlignDay}, 48 * time.Hour, true},
		"calendar, back":    {headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1, Align: headgate.AlignYear}, -time.Hour, false},
		"window of the UTC": {headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1, Period: 24 * time.Hour}, 48 * time.Hour, true},
	} {
		for _, single := range []bool{true, false} {
			s := New()
			checks := []headgate.Check{{Rule: headgate.MustRule("r", c.limit), Key: "k"}}
			if !single {
				checks = append(checks, headgate.Check{Rule: headgate.MustRule("other", headgate.PerSecond(1000)), Key: "k"})
			}
			stepped := time.Duration(0)
			take := func(op headgate.Op) headgate.Decision {
				got, err := s.Take(context.Background(), op, checks, nil)
				if err != nil {
					t.Fatal(err)
				}
				if off := time.Since(got[0].At.Time()) + stepped; off < -time.Minute || off > time.Hour {
					t.Errorf("%s: a decision was at %v, %v after the clock was set by %v", name, got[0].At.Time(), off, stepped)
				}
				if off := s.Now().Sub(got[0].At.Time()); off < 0 || off > time.Hour {
					t.Errorf("%s: a decision was at %v, and now it is %v", name, got[0].At.Time(), s.Now())
				}
				return got[0]
			}
			charged := take(headgate.OpTake)
			if d := take(headgate.OpTake); !charged.Allowed || d.Allowed {
				t.Fatalf("%s: admitted %t and %t, want once", name, charged.Allowed, d.Allowed)
			}
			old := s.own.wall.Load()
			s.own.wall.Store(old.stepped(s.own.now(), old.ahead+algorithm.Micros(c.step.Microseconds())))
			stepped = c.step
			s.own.next.Store(int64(s.own.now() + 3600*resync))
			if d := take(headgate.OpPeek); d.Allowed != c.frees {
				t.Errorf("%s: after a step of %v allowed is %t, want %t: %+v", name, c.step, d.Allowed, c.frees, d)
			}
			if !c.frees {
				continue
			}
			if d := take(headgate.OpTake); !d.Allowed {
				t.Errorf("%s: denied in a new window: %+v", name, d)
			}
			checks[0].At = charged.At // in the window before
			take(headgate.OpRefund)
			checks[0].At = 0
			if d := take(headgate.OpPeek); d.Allowed {
				t.Errorf("%s: a unit of the window before was given back to the next: %+v", name, d)
			}
		}
	}
}

// TestTellsTheWallClock: decisions without a lock and reservations are told at the time of the wall
// clock, and that time says when units were charged, whatever the wall clock was set to since.
func TestTellsTheWallClock(t *testing.T) {
	ctx := context.Background()
	rule := headgate.MustRule("r", headgate.Per(10, 24*time.Hour))
	for _, by := range []time.Duration{48 * time.Hour, -48 * time.Hour} {
		s := New()
		take := func() headgate.Instant {
			t.Helper()
			ok, _, _, _, _, at, err := s.TakeSingle(ctx, rule, "k", 1)
			if err != nil || !ok {
				t.Fatalf("a unit is denied, or the error is %v", err)
			}
			return at
		}
		first := take()
		reserved, _, err := s.Reserve(ctx, headgate.Terms{For: time.Hour}, []headgate.Check{{Rule: rule, Key: "k", Cost: 3}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		take() // the entry is open again
		s.own.wall.Store(s.own.wall.Load().stepped(s.own.now(), algorithm.Micros(by.Microseconds())))
		s.own.next.Store(int64(s.own.now() + 3600*resync))
		last := take()
		if off := last.Time().Sub(first.Time()) - by; off < 0 || off > time.Hour {
			t.Errorf("set by %v: two units were taken at %v and %v", by, first.Time(), last.Time())
		}
		left := func() int64 {
			got, err := s.Take(ctx, headgate.OpPeek, []headgate.Check{{Rule: rule, Key: "k"}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return got[0].Remaining
		}
		if n := left(); n != 4 {
			t.Errorf("set by %v: %d units are left, want 4", by, n)
		}
		if _, err := s.Settle(ctx, reserved, []int64{1}, nil); err != nil || left() != 6 {
			t.Errorf("set by %v: %d units are left after the settlement, want 6, or the error is %v", by, left(), err)
		}
		for _, at := range []headgate.Instant{last, first} {
			before := left()
			checks := []headgate.Check{{Rule: rule, Key: "k", At: at}}
			if _, err := s.Take(ctx, headgate.OpRefund, checks, nil); err != nil || left() != before+1 {
				t.Errorf("set by %v: a refund of a unit leaves %d of %d before, or the error is %v", by, left(), before, err)
			}
		}
		if again, err := s.Recall(ctx, reserved.ID); err != nil || again.Expires != reserved.Expires {
			t.Errorf("set by %v: the reservation ends at %v, recalled at %v: %v", by, reserved.Expires, again.Expires, err)
		}
	}
}

// TestBubble: the clock of testing/synctest is the store's, in a store that was made in the bubble
// and in one that was made before: its clock is that of the bubble from the first call on.
func TestBubble(t *testing.T) {
	for name, limit := range map[string]headgate.Limit{
		"token bucket":    headgate.PerMinute(30),
		"fixed window":    {Algorithm: headgate.FixedWindow, Count: 30, Period: time.Minute},
		"sliding counter": {Algorithm: headgate.SlidingCounter, Count: 30, Period: time.Minute},
		"sliding window":  headgate.Sliding(30, time.Minute),
	} {
		outside := New()
		bubbletest.Test(t, func(t *testing.T) {
			for place, s := range map[string]headgate.Store{"outside": outside, "inside": New()} {
				limiter := headgate.New(s, headgate.MustRule("x", limit))
				for range 2 {
					admitted := 0
					for range 100 {
						d, err := limiter.Allow(t.Context(), "a")
						if err != nil {
							t.Fatal(err)
						}
						if d.Allowed {
							admitted++
						}
					}
					if admitted != 30 {
						t.Errorf("%s, made %s the bubble: %d of 30 were admitted", name, place, admitted)
					}
					time.Sleep(2 * time.Minute)
				}
			}
		})
	}
}
