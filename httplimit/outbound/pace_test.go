package outbound

import (
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
	p.refused(&run{accepted: 5, first: now}, 0, now, time.Second)
	if rate(0) != 5 || rate(2*time.Second) != 80 {
		t.Errorf("5 accepted, then a pause of 1s: the rate is %v, and after 2s %v", rate(0), rate(2*time.Second))
	}
	// Refused at about 60 a second: calls are sent at less, for some time.
	p.refused(&run{accepted: 40, bound: true}, 0, p.From.Add(2*time.Second), time.Second)
	base := rate(0)
	if base < 25 || base > 60 || rate(holds*time.Second) != base || rate((holds+10)*time.Second) <= base {
		t.Errorf("the rate is %v, %v, and then %v", base, rate(holds*time.Second), rate((holds+10)*time.Second))
	}
	// Nothing is accepted any more: that says nothing of the rate.
	for range 100 {
		p.refused(&run{}, 0, p.From.Add(20*time.Millisecond), time.Second)
	}
	if rate(0) != base/2 || rate(time.Second) != 2*base {
		t.Errorf("after an outage, the rate is %v, and after a second %v", rate(0), rate(time.Second))
	}
	if r := rate((forgotten + 1) * time.Second); r != 0 {
		t.Errorf("after a minute without a refusal, the rate is %v", r)
	}
}

// TestPacedCallsAreSpread: calls are sent one by one, and who finds no place asks again.
func TestPacedCallsAreSpread(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	p := &partner{pace: pace{Base: 10, Known: true, Unit: time.Second, From: now}}
	for i, want := range []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond} {
		if wait, taken, ok := p.slot(now, time.Hour); wait != want || !taken || !ok {
			t.Errorf("call %d: %v, %v, %v", i, wait, taken, ok)
		}
	}
	if _, taken, ok := p.slot(now, time.Hour); taken || !ok {
		t.Errorf("a call without a place: %v, %v", taken, ok)
	}
	if _, _, ok := p.slot(now, time.Millisecond); ok {
		t.Error("a call that may not wait has got a place")
	}
}
