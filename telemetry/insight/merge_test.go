package insight_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/telemetry/insight"
)

// TestMergeIsBounded has three nodes with different clients, and compares what they say
// together with the truth.
func TestMergeIsBounded(t *testing.T) {
	t.Parallel()
	c := start()
	rule := headgate.MustRule("r", headgate.PerMinute(1000))
	truth := make(map[string]int64)
	random := rand.New(rand.NewPCG(3, 4))
	var merged insight.Rule
	var heat insight.Heat
	var overview insight.Overview
	var denials []insight.Denial
	for n := range 3 {
		r := newRecorder(t, insight.Options{Now: c.Now})
		door := r.Door("http")
		for range 20_000 {
			key := fmt.Sprint(int(random.ExpFloat64()*300) + n*50)
			door.Decided(0, []headgate.Check{{Rule: rule, Key: key}}, decided(rule, true, 900))
			truth[key]++
		}
		door.Decided(0, []headgate.Check{{Rule: rule, Key: "x"}}, decided(rule, false, 0))
		one, _ := r.Rule("r", insight.Last(time.Minute))
		two, _ := r.Heat("r", insight.Last(2*time.Minute), 30)
		three := r.Overview(insight.Last(time.Minute), 10)
		four, _ := r.Denials(0, 10)
		denials = insight.MergeDenials(four, denials)
		if n == 0 {
			merged, heat, overview = one, two, three
			continue
		}
		merged.Merge(one)
		heat.Merge(two, 30)
		overview.Merge(three, 10)
	}
	if merged.Use.Total != 60_000 || merged.Allowed != 60_000 || merged.Denied.Keys[0].Count != 3 {
		t.Errorf("the sums: %+v", merged.Counts)
	}
	listed := make(map[string]bool)
	for _, k := range merged.Use.Keys {
		listed[k.Key.Raw] = true
		if is := truth[k.Key.Raw]; k.Count-k.Error > is || is > k.Count {
			t.Errorf("%q has %d, and %d with an error of %d is said", k.Key.Raw, is, k.Count, k.Error)
		}
	}
	for key, is := range truth {
		if !listed[key] && is > merged.Use.Absent {
			t.Errorf("%q has %d and is not listed, and absent ones have at most %d", key, is, merged.Use.Absent)
		}
	}
	if o := overview; o.Doors[0].Allowed != 60_000 || o.Rules[0].Allowed != 60_000 || o.Minutes[len(o.Minutes)-1].Denied != 3 {
		t.Errorf("the overview: %+v", o.Rules)
	}
	if len(heat.Rows) != 30 || len(heat.Rows[0].Use) != 2 || heat.Rows[0].Use[1] < heat.Rows[29].Use[1] {
		t.Errorf("the heat has %d rows", len(heat.Rows))
	}
	if len(denials) != 3 || denials[0].Node == denials[1].Node {
		t.Errorf("the denials: %+v", denials)
	}
}

// TestMergeOfNonsense has a node that answers what no recorder reports.
func TestMergeOfNonsense(t *testing.T) {
	t.Parallel()
	row := func(key string, use, denied int) insight.HeatRow {
		r := insight.HeatRow{Key: insight.Name{Raw: key}}
		for range max(use, denied) {
			r.Use, r.Denied = append(r.Use, 1), append(r.Denied, 1)
		}
		r.Use, r.Denied = r.Use[:use], r.Denied[:denied]
		return r
	}
	for _, begin := range []int64{0, 60, -60, 1 << 62, -1 << 62} {
		heat := insight.Heat{Begin: 60, Rows: []insight.HeatRow{row("a", 3, 0), row("b", 0, 3), row("c", 2, 1), row("d", 3, 3)}}
		heat.Merge(insight.Heat{Begin: begin, Rows: []insight.HeatRow{row("a", 3, 3), row("b", 3, 3), row("c", 9, 9), row("d", 0, 9), row("e", 1, 0), row("f", 5, 5)}}, 10)
		if len(heat.Rows) == 0 || heat.Rows[0].Key.Raw != "d" {
			t.Errorf("from %d: %+v", begin, heat.Rows)
		}
	}
}
