package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// Table is a Markdown table. The first column holds names, the others figures.
type Table struct {
	Columns []string
	Rows    [][]string
}

// Add appends a row; cells that are missing stay empty, and cells beyond the
// columns are a mistake in the program.
func (t *Table) Add(cells ...string) {
	if len(cells) > len(t.Columns) {
		panic(fmt.Sprintf("report: a row has %d cells, the table %d columns", len(cells), len(t.Columns)))
	}
	t.Rows = append(t.Rows, append(cells, make([]string, len(t.Columns)-len(cells))...))
}

// Append adds the rows of a table that has the same columns.
func (t *Table) Append(more *Table) {
	t.Columns, t.Rows = more.Columns, append(t.Rows, more.Rows...)
}

// String writes the table with its columns aligned, so that it reads well as
// plain text too.
func (t *Table) String() string {
	widths := make([]int, len(t.Columns))
	for _, row := range append([][]string{t.Columns}, t.Rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(escape(cell)), 3)
		}
	}
	var b strings.Builder
	line := func(row []string) {
		for i, cell := range row {
			cell = escape(cell)
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 {
				b.WriteString("| " + cell + pad + " ")
			} else {
				b.WriteString("| " + pad + cell + " ")
			}
		}
		b.WriteString("|\n")
	}
	line(t.Columns)
	for i, w := range widths {
		if i == 0 {
			b.WriteString("|" + strings.Repeat("-", w+2))
		} else {
			b.WriteString("|" + strings.Repeat("-", w+1) + ":")
		}
	}
	b.WriteString("|\n")
	for _, row := range t.Rows {
		line(row)
	}
	return b.String()
}

// escape keeps a cell in its column.
func escape(cell string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(cell)
}

// Number writes a figure with about three significant digits, without an exponent;
// what is not a number becomes a dash.
func Number(f float64) string {
	switch a := math.Abs(f); {
	case math.IsNaN(f) || math.IsInf(f, 0):
		return "–"
	case a == 0:
		return "0"
	case a >= 99.95:
		return group(fmt.Sprintf("%.0f", f))
	case a >= 9.995:
		return fmt.Sprintf("%.1f", f)
	case a >= 0.0995:
		return fmt.Sprintf("%.2f", f)
	}
	return fmt.Sprintf("%.3f", f)
}

// group parts thousands by commas.
func group(digits string) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// Times writes a ratio, such as "2.51 ×".
func Times(ratio float64) string {
	if math.IsNaN(ratio) || math.IsInf(ratio, 0) {
		return "–"
	}
	return Number(ratio) + " ×"
}

// Percent writes a share of 0 to 1, such as "12.5 %".
func Percent(share float64) string {
	if math.IsNaN(share) {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*share)
}

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

// Bars says how many bars are met, and lists those that are not, with what was measured.
func Bars(bars []Bar) string {
	var missed strings.Builder
	met := 0
	for _, b := range bars {
		bound, got := "≥ ", Number(b.Got)
		if b.AtMost {
			bound = "≤ "
		}
		if math.IsNaN(b.Got) {
			got = "not measured"
		}
		if b.Met() {
			met++
		} else {
			fmt.Fprintf(&missed, "- %s: %s, must be %s\n", b.What, got, bound+Number(b.Bound))
		}
	}
	if met == len(bars) {
		return fmt.Sprintf("All %d bars are met.\n", met)
	}
	return fmt.Sprintf("%d of %d bars are met, and not these:\n\n%s", met, len(bars), missed.String())
}

// Text is a section while it is written: prose, tables, and bars at its end. The zero value is
// empty.
type Text struct {
	b strings.Builder
	// Bars are those that were set.
	Bars []Bar
}

// Say writes prose or a table.
func (t *Text) Say(format string, args ...any) { fmt.Fprintf(&t.b, format, args...) }

// AtLeast sets a bar that the figure must reach.
func (t *Text) AtLeast(bound, got float64, what string, args ...any) {
	t.Bars = append(t.Bars, Bar{What: fmt.Sprintf(what, args...), Bound: bound, Got: got})
}

// AtMost sets a bar that the figure must not exceed.
func (t *Text) AtMost(bound, got float64, what string, args ...any) {
	t.Bars = append(t.Bars, Bar{What: fmt.Sprintf(what, args...), Bound: bound, Got: got, AtMost: true})
}

// String is the text, followed by what became of the bars, if there are any.
func (t *Text) String() string {
	if len(t.Bars) == 0 {
		return t.b.String()
	}
	return t.b.String() + "\n" + Bars(t.Bars)
}

// Median returns the value in the middle, or the mean of the two in the middle.
// Of no values it is NaN.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// Quantile returns the smallest of the values that at least the share q of them
// does not exceed; q is 0 to 1. What is not a number is left out; of no values
// the quantile is NaN.
func Quantile(values []float64, q float64) float64 {
	sorted := slices.DeleteFunc(slices.Sorted(slices.Values(values)), math.IsNaN)
	if len(sorted) == 0 {
		return math.NaN()
	}
	i := int(math.Ceil(q*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// MedianOf is [Median] of one figure of each item.
func MedianOf[T any](items []T, figure func(T) float64) float64 {
	values := make([]float64, len(items))
	for i, item := range items {
		values[i] = figure(item)
	}
	return Median(values)
}

// Spread is how far values lie apart: the largest over the smallest. It is NaN
// if there are none or the smallest is not positive.
func Spread(values []float64) float64 {
	if len(values) == 0 || slices.Min(values) <= 0 {
		return math.NaN()
	}
	return slices.Max(values) / slices.Min(values)
}

// Ratio is a over b, or NaN where that says nothing: b zero, or either unknown.
func Ratio(a, b float64) float64 {
	if b == 0 || math.IsNaN(a) || math.IsNaN(b) {
		return math.NaN()
	}
	return a / b
}

// Least returns the smallest of the items' figures that is a number, or NaN.
func Least[T any](items []T, figure func(T) float64) float64 {
	least := math.NaN()
	for _, item := range items {
		if f := figure(item); math.IsNaN(least) || f < least {
			least = f
		}
	}
	return least
}
