package insight

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
)

func TestLatencyBuckets(t *testing.T) {
	t.Parallel()
	last := 0
	for took := time.Duration(1); took < 8*time.Second; took += took/50 + 1 {
		b := latencyBucket(took)
		if b < last {
			t.Fatalf("%v is in bucket %d, after %d", took, b, last)
		}
		last = b
		if bound := latencyBound(b); took >= bound || took > 2*time.Microsecond && float64(bound) > 1.26*float64(took) {
			t.Fatalf("%v is in bucket %d, which ends at %v", took, b, bound)
		}
	}
}

func TestLatencyReport(t *testing.T) {
	t.Parallel()
	var l Latency
	now := time.Unix(1_800_000_000, 0)
	for i := range 1000 {
		took := 100 * time.Microsecond
		if i >= 985 {
			took = 20 * time.Millisecond
		}
		l.Add(now, took)
	}
	l.Fail(now, errors.New("headgate: gone"))
	r := l.Report(now, Last(time.Minute))
	if r.Range.Calls != 1000 || r.Range.Errors != 1 || r.LastError != "gone" {
		t.Errorf("%+v", r.Range)
	}
	if r.Range.P50 < 100 || r.Range.P50 > 125 || r.Range.P99 < 20_000 || r.Range.P99 > 25_000 {
		t.Errorf("percentiles: %+v", r.Range)
	}
	later := now.Add(Kept)
	l.Add(later, time.Millisecond)
	if r = l.Report(later, Last(Kept)); r.Range.Calls != 1 || r.Range.Errors != 0 || len(r.Minutes) != int(minutes) {
		t.Errorf("two hours later: %+v", r.Range)
	}
}

// TestLatencyHooks: a call is counted in the minute in which it ends.
func TestLatencyHooks(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		var l Latency
		h := l.Hooks()
		for _, pause := range []time.Duration{0, 59 * time.Second, time.Second - 1, 1, 0, 2 * time.Minute} {
			time.Sleep(pause)
			h.Decided(t.Context(), headgate.OpTake, nil, nil, time.Millisecond)
		}
		var calls []int64
		for _, m := range l.Report(time.Now(), Last(4*time.Minute)).Minutes {
			calls = append(calls, m.Calls)
		}
		if want := []int64{3, 2, 0, 1}; !slices.Equal(calls[len(calls)-4:], want) {
			t.Errorf("the minutes have %v calls, not %v", calls, want)
		}
	})
}
