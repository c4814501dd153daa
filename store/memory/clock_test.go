package memory

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
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
	for at, want := range map[headgate.Instant]headgate.Instant{0: 0, before - 1: before - 1, before: before - 3600*second} {
		if got := w.at(at); got != want {
			t.Errorf("at %d the wall clock said %d, want %d", at, got, want)
		}
	}
}

// TestStepsOfTheWallClock: only windows that begin at times of the wall clock notice that it was
// set. What they say about the time is the store's, too.
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
			take := func(op headgate.Op) headgate.Decision {
				got, err := s.Take(context.Background(), op, checks, nil)
				if err != nil {
					t.Fatal(err)
				}
				if off := time.Since(got[0].At.Time()); off < -time.Minute || off > time.Hour {
					t.Errorf("%s: a decision was at %v", name, got[0].At.Time())
				}
				return got[0]
			}
			charged := take(headgate.OpTake)
			if d := take(headgate.OpTake); !charged.Allowed || d.Allowed {
				t.Fatalf("%s: admitted %t and %t, want once", name, charged.Allowed, d.Allowed)
			}
			old := s.own.wall.Load()
			s.own.wall.Store(&wall{ahead: old.ahead + algorithm.Micros(c.step.Microseconds()), was: old.ahead, since: s.own.now()})
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
