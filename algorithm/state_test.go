package algorithm_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// TestRefund: units come back to where they were charged, and never more than is
// there.
func TestRefund(t *testing.T) {
	const second = headgate.Instant(1_000_000)
	bucket := headgate.PerSecond(10)
	window := headgate.Limit{Algorithm: headgate.FixedWindow, Count: 10, Period: 10 * time.Second}
	first, daily := window, window
	first.Align = headgate.AlignFirst
	daily.Align, daily.Period = headgate.AlignDay, 0
	counter := headgate.Limit{Algorithm: headgate.SlidingCounter, Count: 10, Period: 10 * time.Second}
	const now = 95 * second // in the window from 90 s to 100 s, and in that of a day
	type state = algorithm.State
	for _, c := range []struct {
		name  string
		limit headgate.Limit
		state state
		cost  int64
		at    headgate.Instant
		want  state
	}{
		{"a bucket", bucket, state{Stamp: now, Used: 7}, 3, 0, state{Stamp: now, Used: 4}},
		{"a bucket, with a fraction", bucket, state{Stamp: now, Used: 7, Extra: 0}, 3, now - 5, state{Stamp: now, Used: 4}},
		{"a bucket, all", bucket, state{Stamp: now, Used: 7}, 7, 0, state{}},
		{"a bucket, more than all", bucket, state{Stamp: now, Used: 7}, headgate.MaxCount, 0, state{}},
		{"a window", window, state{Stamp: 100 * second, Used: 7}, 3, 0, state{Stamp: 100 * second, Used: 4}},
		{"a window, charged at its first instant", window, state{Stamp: 100 * second, Used: 7}, 3, 90 * second, state{Stamp: 100 * second, Used: 4}},
		{"a window, charged before it", window, state{Stamp: 100 * second, Used: 7}, 3, 90*second - 1, state{Stamp: 100 * second, Used: 7}},
		{"a window, all", window, state{Stamp: 100 * second, Used: 7}, 9, now, state{}},
		{"from the first request", first, state{Stamp: 104 * second, Used: 7}, 3, 94 * second, state{Stamp: 104 * second, Used: 4}},
		{"from the first request, before it", first, state{Stamp: 104 * second, Used: 7}, 3, 94*second - 1, state{Stamp: 104 * second, Used: 7}},
		{"a day", daily, state{Stamp: 86_400 * second, Used: 7}, 3, 1, state{Stamp: 86_400 * second, Used: 4}},
		{"a day, the one before", daily, state{Stamp: 86_400 * second, Used: 7}, 3, -1, state{Stamp: 86_400 * second, Used: 7}},
		{"a counter", counter, state{Stamp: 90 * second, Used: 7, Extra: 5}, 3, 0, state{Stamp: 90 * second, Used: 4, Extra: 5}},
		{"a counter, both windows", counter, state{Stamp: 90 * second, Used: 7, Extra: 5}, 9, 0, state{Stamp: 90 * second, Extra: 3}},
		{"a counter, all", counter, state{Stamp: 90 * second, Used: 7, Extra: 5}, 99, 0, state{}},
		{"a counter, this window's", counter, state{Stamp: 90 * second, Used: 7, Extra: 5}, 9, 90 * second, state{Stamp: 90 * second, Extra: 5}},
		{"a counter, the last window's", counter, state{Stamp: 90 * second, Used: 7, Extra: 5}, 9, 90*second - 1, state{Stamp: 90 * second, Used: 7}},
		{"a counter, of long ago", counter, state{Stamp: 90 * second, Used: 7, Extra: 5}, 9, 80*second - 1, state{Stamp: 90 * second, Used: 7, Extra: 5}},
		{"a counter, its only window", counter, state{Stamp: 90 * second, Extra: 5}, 9, 85 * second, state{}},
	} {
		if got := algorithm.Refund(one(t, c.limit), c.state, now, c.cost, c.at, 0); got != c.want {
			t.Errorf("%s: %+v less %d of %d is %+v, want %+v", c.name, c.state, c.cost, c.at, got, c.want)
		}
	}
}

// TestRefundBucket: what a bucket has refilled of the units is not given back again,
// to the fraction of a unit.
func TestRefundBucket(t *testing.T) {
	const now, unit = headgate.Instant(95_000_000), headgate.Instant(100_000) // one unit in 100 ms
	type state = algorithm.State
	l := one(t, headgate.PerSecond(10).WithBurst(50))
	for _, c := range []struct {
		name  string
		state state
		cost  int64
		at    headgate.Instant
		used  int64
		want  state
	}{
		{"at once", state{Stamp: now, Used: 7}, 3, now, 3, state{Stamp: now, Used: 4}},
		{"half a unit later", state{Stamp: now - unit/2, Used: 7}, 3, now - unit/2, 3, state{Stamp: now, Used: 4}},
		{"half a unit later, in another phase", state{Stamp: now - unit/4, Used: 7}, 3, now - unit/2, 3, state{Stamp: now - 3*unit/4, Used: 5}},
		{"two units and a half later", state{Stamp: now - unit/2, Used: 7}, 3, now - 5*unit/2, 3, state{Stamp: now, Used: 6}},
		{"all of it", state{Stamp: now - unit/2, Used: 7}, 3, now - 3*unit, 3, state{Stamp: now - unit/2, Used: 7}},
		{"others were refilled first", state{Stamp: now - unit/2, Used: 7}, 3, now - 5*unit/2, 6, state{Stamp: now - unit/2, Used: 4}},
		{"not all of the others", state{Stamp: now - unit/2, Used: 7}, 3, now - 5*unit/2, 4, state{Stamp: now, Used: 5}},
		{"the last fraction", state{Stamp: now - unit/4, Used: 1}, 1, now - unit/2, 1, state{Stamp: now - 3*unit/4, Used: 1}},
		{"no more than there is", state{Stamp: now, Used: 1}, 3, now - unit/2, 3, state{}},
		{"not known", state{Stamp: now - unit/2, Used: 7}, 3, now - 5*unit/2, 0, state{Stamp: now - unit/2, Used: 4}},
		{"from the future", state{Stamp: now, Used: 7}, 3, now + unit, 3, state{Stamp: now, Used: 4}},
	} {
		if got := algorithm.Refund(l, c.state, now, c.cost, c.at, c.used); got != c.want {
			t.Errorf("%s: %+v less %d of %d is %+v, want %+v", c.name, c.state, c.cost, c.at, got, c.want)
		}
	}
}

// TestDescribe: every field is set, whatever the decision held before.
func TestDescribe(t *testing.T) {
	for a := headgate.TokenBucket; a <= headgate.SlidingCounter; a++ {
		l := one(t, headgate.Limit{Algorithm: a, Count: 3, Period: time.Second})
		dirty := headgate.Decision{Allowed: true, Remaining: 99, RetryAfter: 99, ResetAfter: 99, Delay: 99, At: 99}
		want := headgate.Decision{Limit: l, Allowed: true, Remaining: 3, At: epoch}
		if a == headgate.SlidingWindow {
			algorithm.WindowFacts{}.Describe(&dirty, l, epoch, 1, false)
		} else {
			algorithm.Describe(&dirty, l, algorithm.State{}, algorithm.State{}, epoch, 1, true)
		}
		if dirty != want {
			t.Errorf("%s: an unused limit is described as %+v, want %+v", a, dirty, want)
		}
		want.Allowed, want.RetryAfter = false, headgate.Never
		if a == headgate.SlidingWindow {
			algorithm.WindowFacts{}.Describe(&dirty, l, epoch, 4, false)
		} else {
			algorithm.Describe(&dirty, l, algorithm.State{}, algorithm.State{}, epoch, 4, false)
		}
		if dirty != want {
			t.Errorf("%s: a cost above the limit is described as %+v, want %+v", a, dirty, want)
		}
	}
	// A window that was charged is described as it is then.
	l := one(t, headgate.Sliding(5, time.Second))
	log := new(algorithm.Log)
	log.Open(epoch-400_000, algorithm.Need{Horizon: algorithm.Micros(l.Micros()), Count: l.Count})
	log.Add(epoch-400_000, 2)
	var d headgate.Decision
	log.Facts(l, epoch, 2).Describe(&d, l, epoch, 2, true)
	if want := (headgate.Decision{Limit: l, Allowed: true, Remaining: 1, ResetAfter: time.Second, At: epoch}); d != want {
		t.Errorf("a charged window is described as %+v, want %+v", d, want)
	}
}

// TestAgain: a request that is repeated is admitted or denied as it was, by the numbers
// of today.
func TestAgain(t *testing.T) {
	allow := headgate.Decision{Allowed: true, Remaining: 3, Delay: time.Second}
	deny := headgate.Decision{Remaining: 1, RetryAfter: time.Minute}
	shadow := headgate.Decision{Shadow: true, RetryAfter: time.Hour}
	for name, c := range map[string]struct {
		admitted  bool
		now, want []headgate.Decision
	}{
		"admitted, and would be": {true, []headgate.Decision{allow, shadow}, []headgate.Decision{allow, shadow}},
		"admitted":               {true, []headgate.Decision{deny, shadow, allow}, []headgate.Decision{{Allowed: true, Remaining: 1}, shadow, allow}},
		"denied, and would be":   {false, []headgate.Decision{deny, allow}, []headgate.Decision{deny, allow}},
		"denied":                 {false, []headgate.Decision{shadow, allow, allow}, []headgate.Decision{shadow, {Remaining: 3}, allow}},
	} {
		algorithm.Again(c.now, c.admitted)
		for i := range c.now {
			if c.now[i] != c.want[i] {
				t.Errorf("%s: decision %d is %+v, want %+v", name, i, c.now[i], c.want[i])
			}
		}
	}
}

// TestReached: a state is never taken for one of later than it was decided at, nor of
// earlier than the refill of a unit, or a period, before that.
func TestReached(t *testing.T) {
	const now, second = headgate.Instant(1_800_000_000_123_456), headgate.Instant(1_000_000)
	for _, c := range []struct {
		limit  headgate.Limit
		within headgate.Instant // before now
	}{
		{headgate.PerSecond(10), second / 10},
		{headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 10, Period: time.Second}, second / 10},
		{headgate.Limit{Algorithm: headgate.FixedWindow, Count: 10, Period: time.Minute}, 60 * second},
		{headgate.Limit{Algorithm: headgate.FixedWindow, Count: 10, Period: time.Minute, Align: headgate.AlignFirst}, 0},
		{headgate.Limit{Algorithm: headgate.FixedWindow, Count: 10, Align: headgate.AlignDay}, 24 * 3600 * second},
		{headgate.Limit{Algorithm: headgate.SlidingCounter, Count: 10, Period: time.Minute}, 60 * second},
	} {
		l := one(t, c.limit)
		if got := algorithm.Reached(l, algorithm.State{}); got != 0 {
			t.Errorf("%v: a free state was reached at %d, want 0", c.limit.Algorithm, got)
		}
		s := algorithm.Charge(l, algorithm.State{}, now, 7)
		if got := algorithm.Reached(l, s); got > now || got < now-c.within {
			t.Errorf("%v: reached at %d, want at most %d before %d", c.limit.Algorithm, got, c.within, now)
		}
	}
	rule := headgate.MustRule("r", headgate.PerHour(9), headgate.Limit{Algorithm: headgate.Penalty, Count: 2, Period: time.Minute, Block: time.Hour})
	penalty := &rule.Limits()[1]
	if got := algorithm.Reached(penalty, algorithm.Punish(penalty, algorithm.State{}, now)); got != 0 {
		t.Errorf("penalty: reached at %d, want 0", got)
	}
}
