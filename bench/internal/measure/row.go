package measure

import (
	"fmt"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/headgate/headgate/bench/internal/report"
)

// Sample is one measurement: what was done in a slice of time, and what it cost. What a part does
// not measure stays zero.
type Sample struct {
	// Done is how many decisions, requests or matches there were, and Admitted how many of them
	// were admitted.
	Done, Admitted int
	Elapsed        time.Duration
	// Took is how long each of them took, in nanoseconds.
	Took *hdrhistogram.Histogram
	// Client is the CPU time of this process. Server is that of the server's process, or of the
	// thread of Redis that runs commands.
	Client, Server time.Duration
	// Scripts is the time inside the scripts of Redis, and Calls how often they were called.
	Scripts time.Duration
	Calls   int64
	// Allocs is how many objects this process has allocated, and Bytes how much memory is held.
	Allocs uint64
	Bytes  float64
}

// Figure is one number of a sample.
type Figure func(Sample) float64

// PerSecond is the throughput.
func (s Sample) PerSecond() float64 { return float64(s.Done) / s.Elapsed.Seconds() }

// Nanos is the time that passed for each decision, on all cores together: with two
// cores, half of what each decision took.
func (s Sample) Nanos() float64 { return float64(s.Elapsed.Nanoseconds()) / float64(s.Done) }

// AllocsEach is the number of allocations for each decision.
func (s Sample) AllocsEach() float64 { return float64(s.Allocs) / float64(s.Done) }

// AdmittedShare is the share of the decisions that was admitted, 0 to 1.
func (s Sample) AdmittedShare() float64 { return float64(s.Admitted) / float64(s.Done) }

// BytesEach is the memory for each key.
func (s Sample) BytesEach() float64 { return s.Bytes / float64(s.Done) }

// CallsEach is the number of calls of a script for each decision. One call may carry many.
func (s Sample) CallsEach() float64 { return float64(s.Calls) / float64(s.Done) }

// ClientCPU is the CPU time of this process for each decision, in microseconds. It includes the
// loop that asks.
func (s Sample) ClientCPU() float64 { return s.each(s.Client) }

// ServerCPU is the CPU time of the server for each decision, in microseconds.
func (s Sample) ServerCPU() float64 { return s.each(s.Server) }

// ScriptTime is the time inside scripts for each decision, in microseconds.
func (s Sample) ScriptTime() float64 { return s.each(s.Scripts) }

func (s Sample) each(d time.Duration) float64 {
	return float64(d.Nanoseconds()) / 1000 / float64(s.Done)
}

// P50 is the median of the times, in microseconds.
func (s Sample) P50() float64 { return s.quantile(50) }

// P99 is the time, in microseconds, that 99 % did not exceed.
func (s Sample) P99() float64 { return s.quantile(99) }

// P999 is the time, in microseconds, that 99.9 % did not exceed.
func (s Sample) P999() float64 { return s.quantile(99.9) }

func (s Sample) quantile(q float64) float64 { return float64(s.Took.ValueAtPercentile(q)) / 1000 }

// Millis is a figure in milliseconds that was one in microseconds.
func Millis(micros Figure) Figure { return func(s Sample) float64 { return micros(s) / 1000 } }

// Record counts what took so long.
func (s *Sample) Record(times ...[]time.Duration) error {
	s.Took = Histogram()
	for _, each := range times {
		s.Done += len(each)
		for _, d := range each {
			if err := s.Took.RecordValue(d.Nanoseconds()); err != nil {
				return fmt.Errorf("measure: a decision took %v: %w", d, err)
			}
		}
	}
	return nil
}

// Histogram returns one for times in nanoseconds, from a fraction of a microsecond to longer than
// any call may take, with three digits.
func Histogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(100, int64(time.Minute), 3)
}

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

// Notes writes a paragraph with the notes of the rows that have one.
func (rows Rows) Notes(t *report.Text) {
	before := "\n"
	for i := range rows {
		if rows[i].Note != "" {
			t.Say("%s- **%s**: %s.\n", before, rows[i].Name, rows[i].Note)
			before = ""
		}
	}
}
