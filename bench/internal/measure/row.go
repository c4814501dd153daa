package measure

import (
	"slices"

	"github.com/headgate/headgate/bench/internal/report"
)

// Role is the part of a row in the comparison.
type Role uint8

const (
	// Other is shown for comparison.
	Other Role = iota
	// Ours is Headgate, and held to a bar.
	Ours
	// Floor is the least that a right answer can cost, or what Headgate is compared with.
	Floor
)

// Row is one line of a table: a contender, or a way to ask, with its samples.
type Row struct {
	// Name and Note go into the text. The note says what a decision is here.
	Name, Note string
	Role       Role
	// Samples are those of each condition, one a round.
	Samples map[int][]Sample
}

// Add keeps a sample.
func (r *Row) Add(condition int, s Sample) {
	if r.Samples == nil {
		r.Samples = make(map[int][]Sample)
	}
	r.Samples[condition] = append(r.Samples[condition], s)
}

// Median is that of a figure. It is NaN if there is no sample.
func (r *Row) Median(condition int, figure Figure) float64 {
	return report.MedianOf(r.Samples[condition], figure)
}

// Over is the ratio of a figure to that of another row: the median of the ratios within each
// round.
func (r *Row) Over(base *Row, condition int, figure Figure) float64 {
	ours, theirs := r.Samples[condition], base.Samples[condition]
	ratios := make([]float64, min(len(ours), len(theirs)))
	for i := range ratios {
		ratios[i] = report.Ratio(figure(ours[i]), figure(theirs[i]))
	}
	return report.Median(ratios)
}

// Under is the rows with a condition in front of their names, for a table that shows several.
func (rows Rows) Under(condition string) Rows {
	under := slices.Clone(rows)
	for i := range under {
		under[i].Name = condition + ", " + under[i].Name
	}
	return under
}

// Named is the row of that name. Without one it has no samples, so that its figures are NaN.
func (rows Rows) Named(name string) *Row {
	return rows.first(func(r *Row) bool { return r.Name == name })
}

// Floor is the first row of that role, as [Rows.Named] has it.
func (rows Rows) Floor() *Row { return rows.first(func(r *Row) bool { return r.Role == Floor }) }

func (rows Rows) first(is func(*Row) bool) *Row {
	for i := range rows {
		if is(&rows[i]) {
			return &rows[i]
		}
	}
	return new(Row)
}

// Column is a column of a table: what it is called, and what it says of a row.
type Column struct {
	Name string
	Cell func(r *Row) string
}

// Median is a column with the medians of a figure.
func Median(name string, condition int, figure Figure) Column {
	return Column{name, func(r *Row) string { return report.Number(r.Median(condition, figure)) }}
}

// Over is a column with the ratios to a row, of each round.
func Over(name string, base *Row, condition int, figure Figure) Column {
	return Column{name, func(r *Row) string { return report.Times(r.Over(base, condition, figure)) }}
}

// Ratio is a column with the ratios of the medians to that of a row.
func Ratio(name string, base *Row, condition int, figure Figure) Column {
	return Column{name, func(r *Row) string {
		return report.Times(report.Ratio(r.Median(condition, figure), base.Median(condition, figure)))
	}}
}

// Table has a line for each row.
func (rows Rows) Table(columns ...Column) *report.Table {
	t := &report.Table{Columns: []string{""}}
	for _, c := range columns {
		t.Columns = append(t.Columns, c.Name)
	}
	for i := range rows {
		cells := []string{rows[i].Name}
		for _, c := range columns {
			cells = append(cells, c.Cell(&rows[i]))
		}
		t.Add(cells...)
	}
	return t
}

// Notes writes what each row is.
func (rows Rows) Notes(t *report.Text) {
	for i := range rows {
		t.Say("- **%s**: %s.\n", rows[i].Name, rows[i].Note)
	}
}
