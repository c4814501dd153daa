package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The parts of the document that are written. Each stands between the lines <!-- NAME --> and
// <!-- /NAME -->.
const (
	faultsPart  = "chaos"
	pausesPart  = "pauses"
	regionsPart = "regions"
)

// WriteFaults returns the document with the results of [Run] in the place of those before, and a
// paragraph on how they were measured above them. What was measured of other topologies stays.
// WritePauses does so with the results of [RunOutside], and other stores.
func WriteFaults(document, how string, results []Result) (string, error) {
	var names []string
	for _, topology := range Topologies() {
		names = append(names, string(topology))
	}
	return write(document, faultsPart, how, table(results), names)
}

// WritePauses is explained at [WriteFaults].
func WritePauses(document, how string, results []Outside) (string, error) {
	return write(document, pausesPart, how, pauses(results), OutsideStores())
}

// WriteRegions does so with those of [RunRegions].
func WriteRegions(document, how string, r *Regions) (string, error) {
	percent := func(part float64) string { return fmt.Sprintf("%.1f %%", 100*part) }
	var b strings.Builder
	b.WriteString("| | |\n|---|---:|\n")
	for _, row := range [][2]string{
		{"admitted beyond a limit in any time, of " + fmt.Sprint(r.Admitted) + " admissions", fmt.Sprintf("%.0f", r.Over)},
		{"of a load of 0.8 times the limit, 90, 9 and 1 % of it in the regions: denied", percent(r.Early)},
		{"of the limit used, a load of twice the limit, divided so", percent(r.Used)},
		{"of the limit used, each region asked for all of it", percent(r.Even)},
		{"demand moves to another region: 90 % of the limit used again after", fmt.Sprintf("%.0f s", r.Moved.Seconds())},
		{"calls to the home, all regions", fmt.Sprintf("%.1f a second", r.Calls)},
		{"the same, three times as many requests", fmt.Sprintf("%.1f a second", r.CallsMore)},
		{"the usual design: beyond the limit, each region asked for all of it", percent(r.Usual)},
		{"the usual design, cut off", percent(r.UsualCut)},
	} {
		fmt.Fprintf(&b, "| %s | %s |\n", row[0], row[1])
	}
	return write(document, regionsPart, how, b.String(), nil)
}

// write puts the table between the lines of its part, with those rows of the one before whose first cell is
// among names and none of its own. names are in the order of the rows.
func write(document, part, how, table string, names []string) (string, error) {
	first, last := "<!-- "+part+" -->\n", "<!-- /"+part+" -->\n"
	head, rest, begins := strings.Cut(document, first)
	before, tail, ends := strings.Cut(rest, last)
	if !begins || !ends {
		return "", fmt.Errorf("the document has not the lines %q and %q, in this order", strings.TrimSpace(first), strings.TrimSpace(last))
	}
	rank := func(row string) int {
		return slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(row, "| "+name+" |") })
	}
	lines := slices.Collect(strings.Lines(table))
	measured := lines
	for row := range strings.Lines(before) {
		if at := rank(row); at >= 0 && !slices.ContainsFunc(measured, func(l string) bool { return rank(l) == at }) {
			lines = append(lines, row)
		}
	}
	slices.SortStableFunc(lines, func(a, b string) int { return rank(a) - rank(b) })
	return head + first + how + "\n\n" + strings.Join(lines, "") + last + tail, nil
}

// table has one row for each fault of a topology: of Redis and Valkey, the worse.
func table(results []Result) string {
	var b strings.Builder
	b.WriteString("| Topology | Fault | Failed, of | Steady after | Longest call | Over |\n|---|---|---:|---:|---:|---:|\n")
	var rows []Result
	for _, r := range results {
		at := slices.IndexFunc(rows, func(one Result) bool { return one.Topology == r.Topology && one.Fault == r.Fault })
		if at < 0 {
			rows = append(rows, r)
			continue
		}
		one := &rows[at]
		if r.Failed*one.Requests > one.Failed*r.Requests {
			one.Failed, one.Requests = r.Failed, r.Requests
		}
		one.Steady, one.Longest = max(one.Steady, r.Steady), max(one.Longest, r.Longest)
		one.Over = max(one.Over, r.Over)
	}
	for i := range rows {
		r := &rows[i]
		fmt.Fprintf(&b, "| %s | %s | %d of %d | %s | %s | %d |\n", r.Topology, r.Fault,
			r.Failed, r.Requests, millis(r.Steady), millis(r.Longest), r.Over)
	}
	return b.String()
}

func pauses(results []Outside) string {
	var b strings.Builder
	b.WriteString("| Store |")
	line := "|---|"
	if len(results) > 0 {
		for _, s := range results[0].Short {
			fmt.Fprintf(&b, " %v |", s.Lasts)
			line += "---:|"
		}
	}
	b.WriteString(" 20s | first answer | goroutines | MiB | a compiler beside |\n" + line + "---:|---:|---:|---:|---:|\n")
	for i := range results {
		r := &results[i]
		fmt.Fprintf(&b, "| %s |", r.Store)
		for _, s := range r.Short {
			fmt.Fprintf(&b, " %s, %s |", ratio(s), millis(s.Slowest))
		}
		fmt.Fprintf(&b, " %s | %s | %d → %d | %d → %d | %.2f %%, %s |\n", ratio(r.Long), millis(r.First),
			r.GoroutinesBefore, r.Goroutines, r.MiBBefore, r.MiB, 100*float64(r.Beside.Unanswered)/float64(max(1, r.Beside.Arrived)), millis(r.Beside.Slowest))
	}
	return b.String()
}

// ratio is how many requests got no decision, of each that came while the store was stopped.
func ratio(s Stop) string {
	if s.Unanswered == 0 {
		return "0"
	}
	return fmt.Sprintf("%.2f", float64(s.Unanswered)/float64(max(1, s.Arrived)))
}

func millis(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
}
