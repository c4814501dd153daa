package insightbench

import (
	"math"
	"testing"

	"github.com/headgate/headgate/bench/internal/measure"
)

// TestRun: everything is measured, and what does not depend on the machine holds.
func TestRun(t *testing.T) {
	w := &measure.Work{Short: true, Tell: func(string, ...any) {}}
	p := planOf(w)
	p.Slice = 1
	text, err := run(t.Context(), w, p)
	if err != nil {
		t.Fatal(err)
	}
	if len(text.Bars) != 10 {
		t.Errorf("there are %d bars", len(text.Bars))
	}
	for _, b := range text.Bars[4:] {
		if math.IsNaN(b.Got) {
			t.Errorf("%s was not measured", b.What)
		}
	}
	for i, want := range map[int]float64{4: 0, 6: 1} { // what is wrong, and the recall
		if b := text.Bars[i]; b.Got != want {
			t.Errorf("%s is %v", b.What, b.Got)
		}
	}
	if b := text.Bars[5]; b.Got > 1 {
		t.Errorf("%s is %v", b.What, b.Got)
	}
}
