package memory

import (
	"sync"
	"testing"
	"time"
)

// TestSettle: a decision is never earlier than the last one of its shard, unless
// the clock was set back.
func TestSettle(t *testing.T) {
	s := New()
	sh := &s.shards[0]
	start := s.timeIn(s.read(), sh)
	stale := s.read()
	if got := s.timeIn(stale-overtaken+1, sh); got != start && got < sh.last {
		t.Errorf("a reading just overtaken gives %d, want the last time or a later one", got)
	}
	last := sh.last
	// Held up for ten seconds between reading and locking: the clock has not been
	// set back, and says so.
	if got := s.timeIn(last-10_000_000, sh); got < last {
		t.Errorf("a reading that is ten seconds old gives %d, want at least %d", got, last)
	}
	last = sh.last
	s.own.offset.Add(-int64(time.Hour))
	got := s.timeIn(s.read(), sh)
	if back := last - got; back < 3_500_000_000 || back > 3_700_000_000 {
		t.Errorf("the clock was set back an hour, and time goes back by %d µs", back)
	}
	if again := s.timeIn(s.read(), sh); again < got {
		t.Errorf("time goes back again, from %d to %d", got, again)
	}
}

// TestSettleSeveral: shards that are locked together agree on a time.
func TestSettleSeveral(t *testing.T) {
	s := New()
	a, b := &s.shards[0], &s.shards[1]
	now := s.timeIn(s.read(), a)
	b.last = now + overtaken/2
	if got := s.timeIn(now, b); got != b.last {
		t.Errorf("settled on %d, want the later shard's %d", got, b.last)
	}
}

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
	// A step of the wall clock is followed at the next look at it.
	c.offset.Add(-int64(time.Hour))
	c.next.Store(0)
	c.now()
	before := time.Now().UnixMicro()
	now := c.now()
	if after := time.Now().UnixMicro(); now < before-100_000 || now > after+100_000 {
		t.Errorf("the clock says %d after it was synchronised, between %d and %d", now, before, after)
	}
}

// TestHeldUp: who was held up between reading the wall clock and the monotonic one does not
// set the time back.
func TestHeldUp(t *testing.T) {
	c := newClock()
	was := c.offset.Load()
	const second = int64(time.Second)
	for _, held := range []int64{apart, second, 3600 * second} {
		before := 5 * second
		mono := before + held // the wall clock was read at the beginning
		if c.follow(before, mono, mono, was+before) || c.offset.Load() != was {
			t.Errorf("held up by %d ns: the time goes back by %d", held, was-c.offset.Load())
		}
	}
	if before := 7 * second; !c.follow(before, before+50, before+100, was+before+50+second) || c.offset.Load() != was+second {
		t.Errorf("the clock was set ahead by a second, and time goes ahead by %d ns", c.offset.Load()-was)
	}
}
