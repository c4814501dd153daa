package policybench

import (
	"math"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// TestAllocations: finding the rules of a request allocates nothing, however many
// there are.
func TestAllocations(t *testing.T) {
	for _, k := range Kinds() {
		for _, n := range Sizes() {
			set, err := k.Set(n)
			if err != nil {
				t.Fatal(err)
			}
			request, checks := k.Request(), make([]headgate.Check, 0, 8)
			match := func() { checks, err = set.Match(request, 1, checks[:0]) }
			if got := testing.AllocsPerRun(100, match); got != 0 || err != nil || len(checks) != 1 || checks[0].Key != "user42" {
				t.Errorf("%s, %d rules: %v allocations, checks %v, %v", k.Name, n, got, checks, err)
			}
		}
	}
}

// TestRun: every cell is measured, and every bar is there.
func TestRun(t *testing.T) {
	plan := Short()
	plan.Slice = 1
	var progress int
	plan.Progress = func(string, ...any) { progress++ }
	o, err := Run(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	if progress != plan.Rounds {
		t.Errorf("progress was told %d times", progress)
	}
	bars := o.Bars()
	if len(bars) != len(Kinds())+1 {
		t.Errorf("there are %d bars", len(bars))
	}
	for _, b := range bars {
		if math.IsNaN(b.Got) {
			t.Errorf("%s was not measured", b.What)
		}
	}
	text := o.Markdown()
	for _, k := range Kinds() {
		if !strings.Contains(text, "| "+k.Name+" ") {
			t.Errorf("the table lacks %s:\n%s", k.Name, text)
		}
	}
}
