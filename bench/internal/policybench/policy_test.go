package policybench

import (
	"math"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/measure"
)

// TestAllocations: finding the rules of a request allocates nothing, however many
// there are.
func TestAllocations(t *testing.T) {
	for _, k := range kinds {
		for _, n := range sizes {
			set, err := k.set(n)
			if err != nil {
				t.Fatal(err)
			}
			request, checks := k.request(), make([]headgate.Check, 0, 8)
			match := func() { checks, err = set.Match(request, 1, checks[:0]) }
			if got := testing.AllocsPerRun(100, match); got != 0 || err != nil || len(checks) != 1 || checks[0].Key != "user42" {
				t.Errorf("%s, %d rules: %v allocations, checks %v, %v", k.name, n, got, checks, err)
			}
		}
	}
}

// TestRun: every cell is measured, and every bar is there.
func TestRun(t *testing.T) {
	told := 0
	text, err := run(t.Context(), &measure.Work{Tell: func(string, ...any) { told++ }}, measure.Plan{Rounds: 2, Slice: 1})
	if err != nil {
		t.Fatal(err)
	}
	if want := 2 * len(kinds) * len(sizes); told != want {
		t.Errorf("progress was told %d times, want %d", told, want)
	}
	if len(text.Bars) != len(kinds)+1 {
		t.Errorf("there are %d bars", len(text.Bars))
	}
	for _, b := range text.Bars {
		if math.IsNaN(b.Got) {
			t.Errorf("%s was not measured", b.What)
		}
	}
	for _, k := range kinds {
		if !strings.Contains(text.String(), "| "+k.name+" ") {
			t.Errorf("the table lacks %s:\n%s", k.name, text)
		}
	}
}
