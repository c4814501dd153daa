package report

import (
	"fmt"
	"math"
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

// group parts thousands by a thin space.
func group(digits string) string {
	sign := ""
	if strings.HasPrefix(digits, "-") {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "\u2009" + digits[i:]
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
