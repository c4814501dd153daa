package outbound

import (
	"math"
	"testing"
	"time"
)

// TestPaceIsLearnt: a pace begins with the first refusal, grows until the next one, and is forgotten
// when there is none for long.
func TestPaceIsLearnt(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	var p pace
	rate := func(after time.Duration) float64 {
		r, _ := p.rate(p.From.Add(after))
		return r
	}
	if rate(0) != 0 {
		t.Errorf("before any refusal, the rate is %v", rate(0))
	}
	p.refused(&run{accepted: 5, first: now}, sending{at: now}, now, time.Second)
	if rate(0) != 5 || rate(2*time.Second) != 80 {
		t.Errorf("5 accepted, then a pause of 1s: the rate is %v, and after 2s %v", rate(0), rate(2*time.Second))
	}
	// Refused at about 80 a second: calls are sent at less, for some time.
	p.refused(&run{accepted: 40, bound: p.From.Add(2 * time.Second)}, sending{at: p.From.Add(2 * time.Second)}, p.From.Add(2*time.Second), time.Second)
	base := rate(0)
	if base < 40 || base > 80 || rate(firstHold*time.Second) != base || rate((firstHold+1)*time.Second) != base*probing {
		t.Errorf("the rate is %v, %v, and then %v", base, rate(firstHold*time.Second), rate((firstHold+1)*time.Second))
	}
	// Nothing is accepted any more: that says little of the rate, which is found out again within seconds.
	for range 100 {
		p.refused(&run{}, sending{at: p.From.Add(20 * time.Millisecond)}, p.From.Add(20*time.Millisecond), time.Second)
	}
	if slow, r := rate(0), rate(finding*time.Second); slow > base/60 || r != base {
		t.Errorf("in an outage, the rate is %v, and %v after a while", slow, r)
	}
	// Nor does it if of two calls the second one is refused first.
	late := p.From.Add(20 * time.Millisecond)
	if p.refused(&run{sent: 2, first: p.From}, sending{at: p.From.Add(10 * time.Millisecond), before: 1}, late, time.Second); rate(finding*time.Second) != base {
		t.Errorf("in an outage, the second call is refused first: the rate is %v after a while, and was %v", rate(finding*time.Second), base)
	}
	p.Up = true
	if rate(0) != base {
		t.Errorf("after the first call that is admitted, the rate is %v, and was %v before", rate(0), base)
	}
	p.Up = false
	// Nor do a few calls, each of which is refused after the rate has grown without being needed.
	for range 100 {
		p.refused(&run{}, sending{at: p.From.Add(5 * time.Second)}, p.From.Add(5*time.Second), time.Second)
	}
	if rate(0) > base {
		t.Errorf("after a long outage, the rate is %v", rate(0))
	}
	p.refused(&run{accepted: 10, first: p.From, bound: p.From.Add(100 * time.Millisecond)}, sending{at: p.From.Add(5 * time.Second)}, p.From.Add(5*time.Second), time.Second)
	if rate(0) > 2*base {
		t.Errorf("calls had to wait long ago, and the rate is %v", rate(0))
	}
	if r := rate((maxHold + probes + forgotten + 1) * time.Second); r != 0 {
		t.Errorf("after a minute without a refusal, the rate is %v", r)
	}
}

// TestPaceClimbs: a rate that has held is raised by little, so that the next one holds, too. One that was far too low
// is not kept to.
func TestPaceClimbs(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	for _, c := range []struct{ base, refused, least, most float64 }{
		{50, 51, 50, 50.6}, {50, 55.5, 50.1, 50.6}, {10, 10.3, 10, 10.2}, {10, 11.2, 10.1, 10.2}, {10, 12, 11, 12},
	} {
		p := pace{Base: c.base, Known: true, Up: true, Unit: time.Second, From: now}
		at := now.Add(maxHold*time.Second + time.Duration(math.Log(c.refused/c.base)/math.Log(probing)*float64(time.Second)))
		p.refused(&run{sent: 100, accepted: 100, first: now, bound: at}, sending{at: at, before: 100}, at, time.Second)
		if p.Base < c.least || p.Base > c.most {
			t.Errorf("%v held, and %v was refused: the rate is %v", c.base, c.refused, p.Base)
		}
	}
}

// TestPacedCallsAreSpread: calls are sent one by one, and what a busy machine holds up is caught up with.
func TestPacedCallsAreSpread(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	p := newPartner(nil, nil, false)
	p.pace = pace{Base: 10, Known: true, Unit: time.Second, From: now}
	p.next = now
	for i := range 3 {
		if wait := p.due(now); wait != 0 {
			t.Errorf("call %d waits for %v", i, wait)
		}
		p.take(new(call), now)
		if wait := p.due(now); wait != 100*time.Millisecond {
			t.Errorf("after call %d, the next one waits for %v", i, wait)
		}
		now = now.Add(100 * time.Millisecond)
	}
	waited := &call{turn: make(chan struct{}, 1)}
	p.take(waited, now.Add(late/2))
	if wait := p.due(now); wait != 100*time.Millisecond {
		t.Errorf("after one that was held up a little, the next one waits for %v", wait)
	}
	now = now.Add(10 * time.Second)
	p.take(waited, now)
	if wait := p.due(now.Add(-late)); wait != 100*time.Millisecond {
		t.Errorf("after one that was held up for long, the next one waits for %v", wait+late)
	}
	now = now.Add(10 * time.Second)
	p.take(new(call), now)
	if wait := p.due(now); wait != 100*time.Millisecond {
		t.Errorf("after ten seconds without calls, the second one waits for %v", wait)
	}
}

// TestChanceIsNoCrowd: two calls that come at the same time do not show that as many come as may be sent.
func TestChanceIsNoCrowd(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	p := newPartner(nil, nil, false)
	p.pace = pace{Base: 100, Known: true, Unit: time.Second, From: now.Add(-(maxHold + probes + 5) * time.Second)}
	p.take(&call{came: now.Add(-time.Millisecond)}, now)
	if rate, _ := p.pace.rate(now); rate < 100_000 || !p.seen.bound.IsZero() {
		t.Errorf("a call waits for 1ms, and is said to be bound by %v a second", rate)
	}
	p.until = now.Add(-time.Millisecond)
	if p.take(&call{came: now.Add(-20 * time.Millisecond)}, now); !p.seen.bound.IsZero() {
		t.Error("a call waits for a pause, and is said to be bound")
	}
	p.until = time.Time{}
	p.take(&call{came: now.Add(-20 * time.Millisecond)}, now)
	if p.seen.bound.IsZero() {
		t.Error("a call waits for 20ms, and is not bound")
	}
}

// TestOutageIsNoTime: while all calls are rejected, the rate does not grow.
func TestOutageIsNoTime(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	p := newPartner(nil, nil, false)
	p.pace = pace{Base: 10, Known: true, Up: true, Unit: time.Second, From: now}
	p.accept(sending{at: now}, now)
	now = now.Add(time.Hour)
	if p.outlast(now); p.pace.next(now, 1) != 100*time.Millisecond {
		t.Errorf("in an outage, calls are %v apart", p.pace.next(now, 1))
	}
	p.accept(sending{at: now}, now)
	now = now.Add(time.Hour)
	if p.accept(sending{at: now}, now); p.pace.next(now, 1) != 0 {
		t.Errorf("after an hour without calls, they are %v apart", p.pace.next(now, 1))
	}
	p.pace.From, p.well = now.Add(time.Second), now.Add(-time.Second)
	if p.outlast(now); p.pace.From != now.Add(time.Second) {
		t.Errorf("a pause of 1s ends after %v", p.pace.From.Sub(now))
	}
}

// TestSoonest: how long a call waits at least is when its turn would come, by all that is known.
func TestSoonest(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	for name, c := range map[string]struct {
		p      *partner
		before int
		want   time.Duration
	}{
		"nothing is known":    {&partner{}, 1000, 0},
		"a pause":             {&partner{until: now.Add(time.Minute)}, 1000, time.Minute},
		"a pace that holds":   {&partner{pace: pace{Base: 10, Known: true, Unit: time.Second, From: now}}, 250, 25 * time.Second},
		"a pace that grows":   {&partner{pace: pace{Base: 10, Unit: time.Second, From: now}}, 1000, 3560 * time.Millisecond},
		"a pace that ends":    {&partner{pace: pace{Base: 1e-6, Known: true, Unit: time.Second, From: now}}, 1e9, (maxHold + probes + forgotten) * time.Second},
		"little is left":      {&partner{gap: time.Second, ends: now.Add(time.Minute)}, 30, 30 * time.Second},
		"until it is renewed": {&partner{gap: time.Second, ends: now.Add(time.Minute)}, 1000, time.Minute},
	} {
		if got := c.p.soonest(now, c.before); got.Round(10*time.Millisecond) != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
