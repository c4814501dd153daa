// Package report shows the result of a replay: as text for a terminal, and as one HTML file that
// loads nothing else.
//
// # Basics
//
//	err := report.Text(os.Stdout, result)
//	err := report.HTML(file, result, "proposed.yaml")
//
// # Caveats
//
// Names of clients and lines of logs come from strangers. Both reports show them in a form that
// terminals and browsers treat as plain text.
package report

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate/tune/replay"
)

// columns is how many characters a plot over time has.
const columns = 60

// Text writes a result for people. The error is that of w.
func Text(w io.Writer, r *replay.Result) error {
	out := bufio.NewWriter(w)
	summary(out, r)
	overTime(out, r)
	rules(out, r)
	curves(out, r)
	clients(out, r)
	against(out, r)
	for _, note := range Notes(r) {
		fmt.Fprintf(out, "\n%s\n", note)
	}
	return out.Flush()
}

// counted is a number of things, such as "1 client" or "1,753 clients".
func counted(n int64, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return group(n) + " " + thing
}

func summary(w io.Writer, r *replay.Result) {
	fmt.Fprintf(w, "%s of %s", counted(r.Requests, "request"), counted(int64(r.ClientsSeen), "client"))
	if r.Requests > 0 {
		fmt.Fprintf(w, ", %s to %s (%s)", stamp(r.From), stamp(r.To), span(r.To.Sub(r.From)))
	}
	fmt.Fprintln(w)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(name string, n, whole int64, note string) {
		fmt.Fprintf(table, "  %s\t%s\t%s\t  %s\n", name, group(n), share(n, whole), note)
	}
	line("admitted", r.Admitted, r.Requests, "")
	note := ""
	if i := r.Interval; i.Seconds && i.Bunched != i.Spread {
		note = fmt.Sprintf("%s if the requests of each second come at once: the log's times are whole seconds", group(i.Bunched))
	}
	line("denied", r.Denied, r.Requests, note)
	if r.Delayed > 0 {
		line("delayed", r.Delayed, r.Requests, fmt.Sprintf("by %v on average, %v at most", time.Duration(r.MeanDelayMS)*time.Millisecond, time.Duration(r.LongestDelayMS)*time.Millisecond))
	}
	if m := r.Models; m.Calls > 0 {
		line("calls of models", m.Calls, r.Requests, fmt.Sprintf("with %s tokens of input and %s of output, for %.6g by the policy's prices", group(m.InputTokens), group(m.OutputTokens), m.Money))
	}
	if r.Robots > 0 {
		line("of robots", r.Robots, r.Requests, fmt.Sprintf("%s of them denied; they say that they are robots", group(r.RobotsDenied)))
	}
	if r.Limited > 0 {
		line("429 in the log", r.Limited, r.Requests, "")
	}
	if r.Unreadable > 0 {
		line("unreadable", r.Unreadable, r.Lines, "")
	}
	flush(table)
	for _, s := range r.Samples {
		fmt.Fprintf(w, "  %s:%d: %s", Shown(s.File), s.Line, s.Reason)
		if s.Text != "" {
			fmt.Fprintf(w, ": %s", Shown(s.Text))
		}
		fmt.Fprintln(w)
	}
}

// flush writes a table. What it writes, it hands to a buffer, which keeps the error.
func flush(t *tabwriter.Writer) { _ = t.Flush() }

// blocks are the eighths of a character, from below.
var blocks = []rune(" ▁▂▃▄▅▆▇█")

// spark draws numbers as a line of blocks.
func spark(values []int64) string {
	most := int64(0)
	for _, v := range values {
		most = max(most, v)
	}
	var b strings.Builder
	for _, v := range values {
		i := 0
		if v > 0 {
			i = 1 + int(v*7/most)
		}
		b.WriteRune(blocks[i])
	}
	return b.String()
}

// squeeze adds up adjacent points so that at most n are left. It also returns how many points were
// added up to one.
func squeeze(points []replay.Point, n int) ([]replay.Point, int) {
	per := max(1, (len(points)+n-1)/n)
	var out []replay.Point
	for i := 0; i < len(points); i += per {
		var sum replay.Point
		for _, p := range points[i:min(i+per, len(points))] {
			sum.Requests, sum.Denied, sum.Limited = sum.Requests+p.Requests, sum.Denied+p.Denied, sum.Limited+p.Limited
		}
		out = append(out, sum)
	}
	return out, per
}

func overTime(w io.Writer, r *replay.Result) {
	points, per := squeeze(r.Over.Points, columns)
	if len(points) < 2 {
		return
	}
	rows := []struct {
		name string
		of   func(replay.Point) int64
	}{
		{"requests", func(p replay.Point) int64 { return p.Requests }},
		{"denied", func(p replay.Point) int64 { return p.Denied }},
		{"429 in log", func(p replay.Point) int64 { return p.Limited }},
	}
	fmt.Fprintf(w, "\nOVER TIME, %s a column\n", span(time.Duration(r.Over.StretchesMS)*time.Millisecond*time.Duration(per)))
	for _, row := range rows {
		values, most := make([]int64, len(points)), int64(0)
		for i, p := range points {
			values[i] = row.of(p)
			most = max(most, values[i])
		}
		if most > 0 || row.name == "denied" {
			fmt.Fprintf(w, "  %-10s |%s| at most %s\n", row.name, spark(values), group(most))
		}
	}
}

func rules(w io.Writer, r *replay.Result) {
	if len(r.Rules)+len(r.DeniedBy) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "RULE\tREQUESTS\tDENIED\t\tDELAYED\tKEYS\tIN REDIS\tLIMITS")
	for i := range r.Rules {
		one := &r.Rules[i]
		denied := group(one.Denied)
		if one.Bunched != one.Denied {
			denied += " – " + group(one.Bunched)
		}
		of := one.Denied
		if one.Shadow > 0 {
			denied, of = fmt.Sprintf("%s in shadow", group(one.Shadow)), one.Shadow
		}
		limits := strings.Join(one.Limits, ", ")
		if len(one.Tiers) > 0 {
			limits = ""
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", one.Rule, group(one.Requests), denied, share(of, one.Requests), group(one.Delayed), group(one.Keys), bytes(one.RedisBytes), limits)
		for _, tier := range one.Tiers {
			if tier.Requests > 0 {
				fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t\t\t\t\n", Shown(tier.Tier), group(tier.Requests), group(tier.Denied+tier.Shadow), share(tier.Denied+tier.Shadow, tier.Requests))
			}
		}
	}
	for _, l := range r.DeniedBy {
		fmt.Fprintf(t, "%s\t\t%s\t%s\t\t\t\t\n", Shown(l.By), group(l.Denied), share(l.Denied, r.Requests))
	}
	flush(t)
}

func curves(w io.Writer, r *replay.Result) {
	some := false
	for i := range r.Rules {
		some = some || len(r.Rules[i].Curve) > 0
	}
	if !some {
		return
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	first := true
	tried := int64(0)
	for i := range r.Rules {
		one := &r.Rules[i]
		if len(one.Curve) == 0 {
			continue
		}
		if tried = max(tried, one.CurveRequests); first {
			fmt.Fprint(t, "DENIED WITH LIMITS")
			for _, p := range one.Curve {
				fmt.Fprintf(t, "\t×%g", p.Factor)
			}
			fmt.Fprintln(t)
			first = false
		}
		fmt.Fprint(t, one.Rule)
		for _, p := range one.Curve {
			fmt.Fprintf(t, "\t%s", share(p.Denied, one.CurveRequests))
		}
		fmt.Fprintln(t)
	}
	flush(t)
	fmt.Fprintf(w, "  each rule by itself, with the first %s requests that it binds\n", group(tried))
}

func clients(w io.Writer, r *replay.Result) {
	if r.ClientsDenied == 0 && r.Interval.Most() == 0 {
		fmt.Fprintln(w, "\nNo client would have been denied anything.")
		return
	}
	fmt.Fprintf(w, "\n%s of %s clients would have been denied something (%s).\n\n", group(int64(r.ClientsDenied)), group(int64(r.ClientsSeen)), share(int64(r.ClientsDenied), int64(r.ClientsSeen)))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CLIENT\tREQUESTS\tDENIED\t\tFIRST AT\tBY\t")
	for i := range r.Clients {
		c := &r.Clients[i]
		if c.Denied == 0 && c.Bunched == 0 {
			break
		}
		denied, first, by, what := group(c.Denied), "", Shown(c.Rule), ""
		if c.Bunched != c.Denied {
			denied += " – " + group(c.Bunched)
		}
		if c.FirstDenied != nil {
			first = stamp(*c.FirstDenied)
		}
		if c.Tier != "" {
			by += " " + Shown(c.Tier)
		}
		if c.Rule == "" {
			by = ""
		}
		if c.Robot {
			what = "robot"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", Shown(c.Client), group(c.Requests), denied, share(c.Denied, c.Requests), first, by, what)
	}
	flush(t)
}

func against(w io.Writer, r *replay.Result) {
	a := r.Against
	if a == nil {
		return
	}
	fmt.Fprintf(w, "\nAGAINST THE RULES IN FORCE, which deny %s: %s newly denied, %s newly admitted\n", group(a.Denied), group(a.NewlyDenied), group(a.NewlyAdmitted))
	if len(a.Rules) > 0 {
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "  RULE\tNEWLY DENIED\tNEWLY ADMITTED")
		for _, d := range a.Rules {
			fmt.Fprintf(t, "  %s\t%s\t%s\n", Shown(d.Rule), group(d.NewlyDenied), group(d.NewlyAdmitted))
		}
		flush(t)
	}
	const few = 10
	for i, d := range a.Requests {
		if i == few {
			fmt.Fprintf(w, "  … %s more; --json lists as many as --differences says\n", group(a.NewlyDenied+a.NewlyAdmitted-few))
			break
		}
		sign := "+"
		if d.Denied {
			sign = "-"
		}
		fmt.Fprintf(w, "  %s %s  %s  %s %s  (%s)\n", sign, d.Time.Format("2006-01-02 15:04:05.000"), Shown(d.Client), Shown(d.Method), Shown(d.Path), Shown(d.Rule))
	}
}

// Notes are what a reader of the result must know to believe it.
func Notes(r *replay.Result) (notes []string) {
	if r.Requests == 0 {
		return []string{"The log has no requests that were counted."}
	}
	for _, w := range r.Warnings {
		notes = append(notes, "WARNING: "+safe(w))
	}
	if r.Limited > 0 {
		notes = append(notes, fmt.Sprintf("The server answered %s of these requests with 429 already. A client that was limited sends less than it wants, or the same request again: what it would do under other limits is not in this log.", share(r.Limited, r.Requests)))
	}
	if r.Models.Calls > 0 {
		notes = append(notes, "Rules that count tokens or money charge what the log says was used. A server first reserves the most that a call may use, which no log shows, so it denies sooner.")
	}
	if n := r.Models.Unknown; n > 0 {
		notes = append(notes, fmt.Sprintf("%s of models without tokens in the log, such as those that were refused: rules that count tokens or money do not bind them here.", counted(n, "call")))
	}
	if r.Unclear > 0 {
		notes = append(notes, fmt.Sprintf("%s requests have a path that servers read in different ways. The doors refuse them with 400; here they count as the route \"unmatched\".", group(r.Unclear)))
	}
	if r.Late > 0 {
		notes = append(notes, fmt.Sprintf("%s lines came too late to be sorted, and count as if they had come with the line before; --slack says how far lines may be out of order.", group(r.Late)))
	}
	if r.ClientsBeyond > 0 {
		notes = append(notes, fmt.Sprintf("%s requests came from clients beyond the first %s, which are not told apart here. Decisions do not depend on that.", group(r.ClientsBeyond), group(replay.MaxClients)))
	}
	if r.Shared > 0 {
		notes = append(notes, fmt.Sprintf("%s decisions were made on counters that keys share for want of memory: they are stricter than the rules.", group(int64(r.Shared))))
	}
	for _, p := range r.Problems {
		notes = append(notes, "A route in the policy binds no request: "+Shown(p))
	}
	return notes
}

// longest is how many bytes of a text from strangers are shown.
const longest = 100

// Shown returns a text from strangers in a form that is safe for a terminal, cut if it is very
// long.
func Shown(s string) string {
	if s == "" {
		return `""`
	}
	if len(s) > longest {
		return strings.ToValidUTF8(Shown(s[:longest]), "") + "…"
	}
	if quoted := strconv.Quote(s); quoted[1:len(quoted)-1] != s {
		return quoted
	}
	return s
}

// safe returns a sentence that may have texts from strangers in it, without what a terminal obeys.
func safe(s string) string {
	return strings.Map(func(c rune) rune {
		if strconv.IsPrint(c) {
			return c
		}
		return '?'
	}, s)
}

// group formats a number with separators between thousands.
func group(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// share is a part in percent.
func share(part, whole int64) string {
	if whole == 0 {
		return ""
	}
	percent := float64(part) * 100 / float64(whole)
	switch {
	case part == 0:
		return "0 %"
	case percent < 0.01:
		return "< 0.01 %"
	case percent < 1:
		return strconv.FormatFloat(percent, 'f', 2, 64) + " %"
	}
	return strconv.FormatFloat(percent, 'f', 1, 64) + " %"
}

// bytes writes an amount of memory.
func bytes(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.0f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// span writes a length of time in its two largest units.
func span(d time.Duration) string {
	switch days := int64(d / (24 * time.Hour)); {
	case days > 0:
		return strings.TrimSuffix(fmt.Sprintf("%dd%dh", days, int64(d/time.Hour)%24), "0h")
	case d >= time.Hour:
		return strings.TrimSuffix(fmt.Sprintf("%dh%dm", int64(d/time.Hour), int64(d/time.Minute)%60), "0m")
	}
	return d.Round(time.Millisecond).String()
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }
