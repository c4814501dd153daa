package retry

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"
)

// traffic is calls at an even rate to a service by a throttle.
type traffic struct {
	throttle Throttle
	now      time.Time
	every    time.Duration
}

// run makes calls to the endpoints in turn, and returns how many of how many were sent.
func (c *traffic) run(d time.Duration, accepts bool, endpoints ...string) (sent, calls int) {
	for end := c.now.Add(d); c.now.Before(end); c.now = c.now.Add(c.every) {
		endpoint := endpoints[calls%len(endpoints)]
		calls++
		if c.throttle.Wait(endpoint, c.now) <= 0 {
			sent++
			if accepts {
				c.throttle.Accepted(endpoint)
			} else {
				c.throttle.Rejected(endpoint, c.now)
			}
		}
	}
	return sent, calls
}

func begin(every time.Duration) *traffic {
	return &traffic{now: time.Unix(1_800_000_000, 0), every: every}
}

// TestThrottle: hardly any calls are sent to a service that rejects them all, however many
// endpoints it has, and all of them soon after it has recovered.
func TestThrottle(t *testing.T) {
	t.Parallel()
	many := make([]string, 1000)
	for i := range many {
		many[i] = strconv.Itoa(i)
	}
	for _, endpoints := range [][]string{{"a"}, {"a", "b"}, {"a", "b", "c", "d", "e"}, many} {
		for _, every := range []time.Duration{100 * time.Millisecond, 10 * time.Millisecond} {
			for _, outage := range []time.Duration{20 * time.Second, time.Minute, 10 * time.Minute, time.Hour} {
				c := begin(every)
				sent, calls := c.run(outage, false, endpoints...)
				if sent > calls/20+2*fewest+int(shortest/every) || sent < int(outage/longest) {
					t.Errorf("%d endpoints, a call each %v: %d of %d were sent within %v", len(endpoints), every, sent, calls, outage)
				}
				c.run(longest, true, endpoints...)
				if sent, calls := c.run(time.Second, true, endpoints...); sent < calls {
					t.Errorf("%d endpoints, a call each %v, %v after an outage of %v: %d of %d are sent", len(endpoints), every, longest, outage, sent, calls)
				}
			}
		}
	}
}

// TestThrottleSpares: no call fails that need not.
func TestThrottleSpares(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		every time.Duration
		calls func(c *traffic) (sent, calls int)
	}{
		{"a pause", time.Millisecond, func(c *traffic) (int, int) {
			c.run(time.Second, true, "a")
			sent, calls := c.run(shortest, false, "a")
			sent2, calls2 := c.run(time.Second, true, "a")
			return sent + sent2, calls + calls2
		}},
		{"rare calls", 5 * time.Second, func(c *traffic) (int, int) { return c.run(time.Hour, false, "a") }},
		{"another endpoint", 10 * time.Millisecond, func(c *traffic) (sent, calls int) {
			c.run(time.Hour, false, "failing")
			return c.run(time.Minute, true, "healthy")
		}},
		{"another endpoint that is called now and then", 10 * time.Millisecond, func(c *traffic) (sent, calls int) {
			for range 100 {
				c.run(time.Minute, false, "failing")
				s, n := c.run(c.every, true, "healthy")
				sent, calls = sent+s, calls+n
			}
			return sent, calls
		}},
		{"a part is accepted", 10 * time.Millisecond, func(c *traffic) (sent, calls int) {
			for range 1000 {
				s, n := c.run(4*c.every, false, "a")
				s2, n2 := c.run(c.every, true, "a")
				sent, calls = sent+s+s2, calls+n+n2
			}
			return sent, calls
		}},
		{"long after the last call", time.Millisecond, func(c *traffic) (int, int) {
			c.run(time.Minute, false, "a")
			c.now = c.now.Add(2*longest + time.Millisecond)
			// They are under way at once.
			sent := 0
			for range 50 {
				if c.throttle.Wait("a", c.now) <= 0 {
					sent++
				}
			}
			return sent, 50
		}},
	} {
		if sent, calls := c.calls(begin(c.every)); sent != calls {
			t.Errorf("%s: %d of %d calls were sent", c.name, sent, calls)
		}
	}
}

// TestThrottlePartialFailure: what is rejected at random does not stop the rest.
func TestThrottlePartialFailure(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, is := range []struct {
		every        time.Duration
		accepts, min float64 // shares
	}{
		{100 * time.Millisecond, 0.5, 0.99},
		{10 * time.Millisecond, 0.5, 1},
		{100 * time.Millisecond, 0.3, 0.95},
		{10 * time.Millisecond, 0.3, 0.99},
		{100 * time.Millisecond, 0.2, 0.8},
		{10 * time.Millisecond, 0.2, 0.95},
		{100 * time.Millisecond, 0.1, 0.5},
		{10 * time.Millisecond, 0.1, 0.1},
	} {
		c := begin(is.every)
		sent, calls := 0, 0
		for range 60_000 {
			s, n := c.run(is.every, random.Float64() < is.accepts, "a")
			sent, calls = sent+s, calls+n
		}
		if share := float64(sent) / float64(calls); share < is.min {
			t.Errorf("a call each %v, of which %.1f are accepted: %.3f are sent, want %.2f", is.every, is.accepts, share, is.min)
		} else {
			t.Logf("a call each %v, of which %.1f are accepted: %.3f are sent", is.every, is.accepts, share)
		}
	}
}

// TestThrottleStaysClosed: a service that accepts one call by chance is not sent all of them.
func TestThrottleStaysClosed(t *testing.T) {
	t.Parallel()
	c := begin(10 * time.Millisecond)
	c.run(time.Minute, false, "a")
	sent, calls := 0, 0
	for range 10 {
		c.throttle.Accepted("a")
		s, n := c.run(time.Minute, false, "a")
		sent, calls = sent+s, calls+n
	}
	if sent > calls/100 {
		t.Errorf("%d of %d calls were sent", sent, calls)
	}
	if !c.throttle.Closed("a") || c.throttle.Closed("b") {
		t.Errorf("closed for the endpoint that rejects: %v, for another: %v", c.throttle.Closed("a"), c.throttle.Closed("b"))
	}
	for range 3 {
		c.throttle.Rejected("a", c.now)
		c.now = c.now.Add(longest)
		if wait := c.throttle.Wait("a", c.now); wait > 0 {
			t.Errorf("no call is sent for another %v", wait)
		}
		if wait := c.throttle.Wait("a", c.now); wait != longest {
			t.Errorf("the next call is sent in %v, want %v", wait, longest)
		}
	}
}

// TestThrottleLearnsAnew: a service that has accepted a part for long is found to be down nearly as soon as any other.
func TestThrottleLearnsAnew(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	c := begin(100 * time.Millisecond)
	for range 10_000 {
		c.run(c.every, random.Float64() < 0.3, "a")
	}
	if sent, calls := c.run(time.Minute, false, "a"); sent > most+20 {
		t.Errorf("%d of %d calls were sent", sent, calls)
	}
	c.run(time.Minute, true, "a")
	if sent, calls := c.run(time.Minute, false, "a"); sent > calls/20 {
		t.Errorf("after a good minute, %d of %d calls were sent", sent, calls)
	}
}

// TestThrottleInTurn: clients that tell each other of rejections fail calls after fewer of their own, and one whose turn
// it is not to send a call sends the next one when it was told to.
func TestThrottleInTurn(t *testing.T) {
	t.Parallel()
	c := begin(100 * time.Millisecond)
	enough := Row{fewest, time.Minute}
	c.throttle.Wait("a", c.now)
	c.throttle.Hear("a", c.now, enough, enough)
	for range few {
		c.throttle.Rejected("a", c.now)
	}
	if c.throttle.Closed("a") {
		t.Error("what others were rejected fails calls of one that was not")
	}
	for what, row := range map[string]Row{"too few rejections": {fewest - 1, time.Minute}, "rejections within a short time": {fewest, shortest / 2}} {
		c.throttle.Hear("a", c.now, row, row)
		if alone, _, _ := c.throttle.Probe("a"); c.throttle.Closed("a") || alone != 0 {
			t.Errorf("%s fail calls", what)
		}
	}
	c.throttle.Hear("a", c.now, Row{fewest, time.Second}, enough)
	if alone, all, _ := c.throttle.Probe("a"); !c.throttle.Closed("a") || c.throttle.Closed("b") || alone != time.Second || all {
		t.Errorf("closed for the endpoint: %v, for another: %v, with %v between calls to all: %v", c.throttle.Closed("a"), c.throttle.Closed("b"), alone, all)
	}
	if c.throttle.Postpone("a", c.now, time.Minute, fewest-1) || !c.throttle.Postpone("a", c.now, 300*time.Millisecond, fewest) {
		t.Error("a call is sent in turn though others were rejected too few, or is not though they were rejected enough")
	}
	if wait := c.throttle.Wait("a", c.now); wait != 300*time.Millisecond {
		t.Errorf("the next call is sent in %v", wait)
	}
	c.throttle.Rejected("b", c.now)
	c.throttle.Rejected("b", c.now)
	c.throttle.Hear("b", c.now, Row{}, enough)
	if alone, all, _ := c.throttle.Probe("c"); !c.throttle.Closed("c") || alone != longest || !all {
		t.Errorf("several endpoints reject, and calls to others are sent, %v apart", alone)
	}
}

// TestThrottleTells: what is told of rejections is neither told twice, nor often, nor while calls fail, and whoever has
// told of them says when they are over.
func TestThrottleTells(t *testing.T) {
	t.Parallel()
	c := begin(time.Millisecond)
	told, times := 0, 0
	for range 2000 {
		for range 3 {
			c.throttle.Rejected("a", c.now)
		}
		if this, all := c.throttle.Tell("a", c.now); this > 0 {
			told, times = told+this, times+1
			if all > this {
				t.Errorf("%d rejections by the endpoint, and %d by all", this, all)
			}
			if !c.throttle.Accepted("a") {
				t.Error("what was told is not taken back")
			}
		} else if c.throttle.Accepted("a") {
			t.Error("what was not told is taken back")
		}
		c.now = c.now.Add(c.every)
	}
	if want := tellings + int(2*time.Second/shortest) - 1; times != want || told != 3*times {
		t.Errorf("told %d times of %d rejections, want %d times", times, told, want)
	}
	c.now = c.now.Add(time.Minute)
	told = 0
	for range 2 * shortest / c.every {
		c.throttle.Rejected("a", c.now)
		this, _ := c.throttle.Tell("a", c.now)
		if told += this; this > 0 && c.throttle.Closed("a") {
			t.Error("it is told of rejections while calls fail")
		}
		c.now = c.now.Add(c.every)
	}
	if _, _, rest := c.throttle.Probe("a"); told+rest != most && rest != 1 {
		t.Errorf("told of %d rejections in a row, and then of %d", told, rest)
	}
}

// TestPause: a retry waits until a pause of the service would be over, but not because of a rejection now and then.
func TestPause(t *testing.T) {
	t.Parallel()
	c := begin(time.Millisecond)
	for i := range few {
		if wait := c.throttle.Pause("a", c.now); wait != 0 {
			t.Errorf("after %d rejections, a retry waits for %v", i, wait)
		}
		c.throttle.Rejected("a", c.now)
	}
	c.now = c.now.Add(shortest / 4)
	if wait := c.throttle.Pause("a", c.now); wait < shortest*3/4 || wait > shortest*5/4 {
		t.Errorf("a retry waits for %v", wait)
	}
	if wait := c.throttle.Pause("a", c.now.Add(2*shortest)); wait != 0 {
		t.Errorf("after long, a retry waits for %v", wait)
	}
}
