package algorithm_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// charge charges a log under a list of limits.
func charge(g *algorithm.Log, r *headgate.Rule, now headgate.Instant, cost int64) {
	g.Open(now, algorithm.NeedOf(r))
	g.Add(now, cost)
}

// used is how many units are inside the window of a rule's only limit.
func used(g *algorithm.Log, r *headgate.Rule, now headgate.Instant) int64 {
	return g.Facts(&r.Limits()[0], now, 1).Used
}

// TestOtherListsForgetNothing: whatever lists are charged meanwhile, and in whatever
// order, what a list has charged is inside its windows for as long as they are.
func TestOtherListsForgetNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for round := range 300 {
		rules := make([]*headgate.Rule, 2+rng.IntN(7))
		for i := range rules {
			period := time.Duration(1+rng.Int64N(int64(1)<<(3+rng.IntN(20)))) * time.Microsecond
			rules[i] = headgate.MustRule("r", headgate.Sliding(1+rng.Int64N(headgate.MaxLog), period))
		}
		type charged struct {
			by int
			at headgate.Instant
		}
		var past []charged
		g, now := new(algorithm.Log), epoch
		for range 300 {
			now += headgate.Instant(rng.Int64N(int64(1) << rng.IntN(20)))
			by := rng.IntN(len(rules))
			charge(g, rules[by], now, 1)
			past = append(past, charged{by, now})
			if n := len(g.Spans()); n > algorithm.MaxSpans {
				t.Fatalf("round %d: the log has %d spans, must have at most %d", round, n, algorithm.MaxSpans)
			}
			for i, r := range rules {
				own := int64(0)
				for _, c := range past {
					if c.by == i && c.at > now-headgate.Instant(r.Limits()[0].Micros()) {
						own++
					}
				}
				if u := used(g, r, now); u < own {
					t.Fatalf("round %d: %d units are inside %v, and it has charged %d itself", round, u, r, own)
				}
			}
		}
	}
}

// TestOneListOneSpan: a list that is alone has one span, whatever it charges, and remembers
// nothing beyond its longest window.
func TestOneListOneSpan(t *testing.T) {
	r := headgate.MustRule("r", headgate.Sliding(10, time.Minute))
	longer := headgate.MustRule("r", headgate.Sliding(10, time.Hour))
	g, changes, until := new(algorithm.Log), 0, headgate.Instant(0)
	for i := range headgate.Instant(600) {
		charge(g, r, epoch+i*1_000_000, 1)
		if len(g.Spans()) != 1 {
			t.Fatalf("the log has %d spans, want 1", len(g.Spans()))
		}
		if g.Until() != until {
			changes, until = changes+1, g.Until()
		}
		if want := min(i+1, 60); used(g, longer, epoch+i*1_000_000) != int64(want) {
			t.Fatalf("after %d s a longer window sees %d units, want %d", i, used(g, longer, epoch+i*1_000_000), want)
		}
	}
	// Once in 7.5 seconds, and the charges come each second.
	if changes != 75 {
		t.Errorf("the span changed %d times, want 75", changes)
	}
}

// TestSqueeze: a log that a busy list fills beside a long window stays small, and no
// window of either list sees a difference.
func TestSqueeze(t *testing.T) {
	busy := headgate.MustRule("r", headgate.Sliding(500, time.Second))
	long := headgate.MustRule("r", headgate.Sliding(700, 24*time.Hour))
	g, now, most := new(algorithm.Log), epoch, 0
	charge(g, long, now, 1)
	times := []headgate.Instant{now}
	for i := range 50_000 {
		now += headgate.Instant(1000 + i%7)
		charge(g, busy, now, 1)
		times = append(times, now)
		most = max(most, g.Len())
		if i%1000 != 0 {
			continue
		}
		facts := g.Facts(&long.Limits()[0], now, 1)
		if i < 1000 {
			continue
		}
		// The window is full until all but 699 have left.
		if blocking := times[len(times)-700]; facts.Used < 700 || facts.Blocking != blocking || facts.Newest != now {
			t.Fatalf("charge %d: %+v; want the blocking unit at %d, the newest at %d", i, facts, blocking, now)
		}
	}
	if most > 4000 {
		t.Errorf("the log had up to %d entries, want no more than both windows and some", most)
	}
	// Given back, the others count again: all of them, at the time of the newest that was
	// squeezed.
	g.Refund(40_000, 0)
	if u := used(g, long, now); u != 10_001 {
		t.Errorf("%d units are inside after a refund of 40,000 of 50,001, want 10,001", u)
	}
}

// TestSpanSlots: a span that was kept among the states of a key is the same span, and no
// limit's state is taken for one.
func TestSpanSlots(t *testing.T) {
	want := algorithm.Span{Horizon: 366 * 24 * 3600_000_000, Until: epoch, Count: headgate.MaxLog, Short: 1023}
	if got, ok := algorithm.SpanOf(want.Slot(), want.State()); !ok || got != want {
		t.Errorf("the span came back as %+v, %t; want %+v", got, ok, want)
	}
	if slot := one(t, headgate.Sliding(3, 366*24*time.Hour)).Slot(); slot != want.Slot() {
		t.Errorf("the slot is %x, want that of the window, %x", want.Slot(), slot)
	}
	for a := headgate.TokenBucket; a <= headgate.SlidingCounter; a++ {
		l := headgate.Limit{Algorithm: a, Count: 3, Period: time.Second}
		if _, ok := algorithm.SpanOf(one(t, l).Slot(), algorithm.State{}); ok != (a == headgate.SlidingWindow) {
			t.Errorf("the slot of a %s is a span's: %t", a, ok)
		}
	}
}

// TestForeign: what a program without spans has charged is remembered for as long as it
// asked for.
func TestForeign(t *testing.T) {
	known := []algorithm.Span{{Horizon: 100, Until: epoch + 112, Count: 5}}
	for _, c := range []struct {
		spans           []algorithm.Span
		newest, expires headgate.Instant
		want            int
	}{
		{nil, epoch, epoch + 60, 1},
		{nil, epoch, epoch, 0},
		{known, epoch, epoch + 112, 1},
		{known, epoch + 50, epoch + 160, 2},
	} {
		got := algorithm.Foreign(c.spans[:len(c.spans):len(c.spans)], c.newest, c.expires)
		if len(got) != c.want {
			t.Errorf("%v, the newest at %d, kept until %d: %d spans, want %d", c.spans, c.newest, c.expires, len(got), c.want)
		}
		g := algorithm.NewLog([]algorithm.Entry{{Time: c.newest, Sum: 1}}, got)
		if g.Until() < c.expires && c.want > 0 {
			t.Errorf("the log remembers until %d, and was kept until %d", g.Until(), c.expires)
		}
	}
}
