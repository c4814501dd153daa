package redisbench

import (
	"math"
	"strings"
	"testing"
	"time"
)

// TestRunCombined: a short run measures every bar, and decisions share calls where the
// table says so.
func TestRunCombined(t *testing.T) {
	server := started(t, "redis-server")
	// On a machine that is busy few of the callers get to ask within a short time, and
	// those do not share calls.
	plan := Plan{Rounds: 1, Slice: 50 * time.Millisecond, Callers: []int{1, 64, 256}, Keys: 1000}
	var o *CombinedOutcome
	for shared := false; !shared && plan.Slice < 3*time.Second; plan.Slice *= 4 {
		var err error
		if o, err = RunCombined(t.Context(), server, plan); err != nil {
			t.Fatal(err)
		}
		shared = true
		for _, s := range append(o.Buckets, o.Others...) {
			if strings.HasSuffix(s.Contender.Name, ", combined") && s.Samples[256][0].Calls() > 0.8 {
				shared = false
			}
		}
	}
	for _, bar := range o.Bars() {
		if math.IsNaN(bar.Got) || bar.Got <= 0 {
			t.Errorf("%s: got %v", bar.What, bar.Got)
		}
	}
	for _, s := range append(o.Buckets, o.Others...) {
		shares := strings.HasSuffix(s.Contender.Name, ", combined")
		for callers, samples := range s.Samples {
			if calls := samples[0].Calls(); shares && callers == 256 && calls > 0.8 || !shares && calls < 0.99 {
				t.Errorf("%s: %v script calls for each of %d callers' decisions", s.Contender.Name, calls, callers)
			}
		}
	}
	if text := o.Markdown(); !strings.Contains(text, combinedName) || !strings.Contains(text, "three sliding windows") {
		t.Errorf("the tables lack contenders:\n%s", text)
	}
}

func TestPaired(t *testing.T) {
	sample := func(seconds int) Sample { return Sample{Decisions: 60, Elapsed: time.Duration(seconds) * time.Second} }
	a := []Sample{sample(1), sample(2), sample(30)}
	b := []Sample{sample(2), sample(4), sample(30)}
	if got := paired(a, b, Sample.PerSecond); got != 2 {
		t.Errorf("got %v, want 2, the median of the rounds' ratios", got)
	}
}
