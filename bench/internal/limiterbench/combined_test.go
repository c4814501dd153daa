package limiterbench

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
)

// TestCombined: a short run measures every bar, and decisions share calls where the
// table says so.
func TestCombined(t *testing.T) {
	w := &measure.Work{Redis: started(t, "redis-server")}
	// On a machine that is busy few of the callers get to ask within a short time, and
	// those do not share calls.
	plan := redisPlan{Plan: measure.Plan{Rounds: 1, Slice: 50 * time.Millisecond, Keys: 1000}, callers: []int{1, 64, 256}}
	var buckets, others, all measure.Rows
	for shared := false; !shared && plan.Slice < 3*time.Second; plan.Slice *= 4 {
		var err error
		if buckets, others, err = combined(t.Context(), w, plan); err != nil {
			t.Fatal(err)
		}
		shared, all = true, append(append(measure.Rows{}, buckets...), others...)
		for _, r := range all {
			if strings.HasSuffix(r.Name, ", combined") && r.Median(256, measure.Sample.CallsEach) > 0.8 {
				shared = false
			}
		}
	}
	text := plan.combinedText("", buckets, others)
	for _, bar := range text.Bars {
		if math.IsNaN(bar.Got) || bar.Got <= 0 {
			t.Errorf("%s: got %v", bar.What, bar.Got)
		}
	}
	for _, r := range all {
		shares := strings.HasSuffix(r.Name, ", combined")
		for callers, samples := range r.Samples {
			if calls := samples[0].CallsEach(); shares && callers == 256 && calls > 0.8 || !shares && calls < 0.99 {
				t.Errorf("%s: %v script calls for each of %d callers' decisions", r.Name, calls, callers)
			}
		}
	}
	if !strings.Contains(text.String(), combinedName) || !strings.Contains(text.String(), "three sliding windows") {
		t.Errorf("the tables lack contenders:\n%s", text)
	}
}
