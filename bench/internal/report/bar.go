package report

import "math"

// Bar is a measured ratio and the bound it is held to.
type Bar struct {
	// What is measured, in words.
	What string
	// Bound is the number that Got must reach.
	Bound float64
	// AtMost says that Got must not exceed Bound; else it must not fall short.
	AtMost bool
	// Got is the measured number; NaN if the run did not measure it.
	Got float64
}

// Met reports whether the bar was measured and met.
func (b Bar) Met() bool {
	if math.IsNaN(b.Got) {
		return false
	}
	if b.AtMost {
		return b.Got <= b.Bound
	}
	return b.Got >= b.Bound
}

// Bars lays bars out as a table.
func Bars(bars []Bar) string {
	t := Table{Columns: []string{"bar", "bound", "measured", "met"}}
	for _, b := range bars {
		bound, met := "≥ ", "no"
		if b.AtMost {
			bound = "≤ "
		}
		switch {
		case math.IsNaN(b.Got):
			met = "not measured"
		case b.Met():
			met = "yes"
		}
		t.Add(b.What, bound+Number(b.Bound), Number(b.Got), met)
	}
	return t.String()
}
