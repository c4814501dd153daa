package report

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate/tune/load"
)

// LoadText writes what a load generator has measured for people. The error is that of w.
func LoadText(w io.Writer, r *load.Report) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "%s\n", Shown(r.Target))
	if m := r.Measurement; m != nil {
		measured(out, m)
	}
	if r.Found != nil {
		steps(out, r.Found.Steps)
		fmt.Fprintf(out, "\n%s\n", Verdict(r.Found))
	} else {
		steps(out, r.Each)
	}
	if r.Audit != nil {
		audit(out, r.Audit)
	}
	for _, note := range loadNotes(r) {
		fmt.Fprintf(out, "\n%s\n", note)
	}
	return out.Flush()
}

// Verdict says what a search has found.
func Verdict(f *load.Found) string {
	switch {
	case f.Sustainable == 0 && f.Refused == 0:
		return "SUSTAINABLE: not found out."
	case f.Sustainable == 0:
		return fmt.Sprintf("SUSTAINABLE: none; not even %s a second (%s).", rate(f.Refused), strings.Join(f.Because, "; "))
	case f.Late > 0:
		return fmt.Sprintf("SUSTAINABLE: at least %s a second; at %s the sender was too late to tell.", rate(f.Sustainable), rate(f.Late))
	case f.Refused == 0:
		return fmt.Sprintf("SUSTAINABLE: at least %s a second; no higher rate was measured.", rate(f.Sustainable))
	}
	return fmt.Sprintf("SUSTAINABLE: %s a second; %s a second are too many (%s).", rate(f.Sustainable), rate(f.Refused), strings.Join(f.Because, "; "))
}

// rate formats a rate with a suitable number of digits.
func rate(perSecond float64) string {
	if perSecond >= 100 {
		return group(int64(perSecond + 0.5))
	}
	return strconv.FormatFloat(perSecond, 'g', 3, 64)
}

// pace is the rate of a measurement, in words.
func pace(m *load.Measurement) string {
	switch {
	case m.Rate == 0:
		return rate(m.Held) + " a second on average"
	case m.Rate != m.To:
		return fmt.Sprintf("%s to %s a second", rate(m.Rate), rate(m.To))
	}
	return rate(m.Rate) + " a second"
}

// length writes a number of milliseconds.
func length(ms float64) string {
	switch d := time.Duration(ms * float64(time.Millisecond)); {
	case d == 0:
		return "0"
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < 100*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	default:
		return d.Round(time.Millisecond).String()
	}
}

func measured(w io.Writer, m *load.Measurement) {
	fmt.Fprintf(w, "%s for %s: %s scheduled, %s sent\n", pace(m), span(time.Duration(m.DurationMS*float64(time.Millisecond)).Round(10*time.Millisecond)), counted(m.Scheduled, "request"), group(m.Sent))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, counts := range []map[string]int64{m.Status, m.Errors} {
		for _, code := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(t, "  %s\t%s\t%s\t\n", Shown(code), group(counts[code]), share(counts[code], m.Scheduled))
		}
	}
	flush(t)
	fmt.Fprintln(w)
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "LATENCY\tP50\tP90\tP95\tP99\tP99.9\tMAX\t")
	row := func(name string, p load.Percentiles) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", name, length(p.P50), length(p.P90), length(p.P95), length(p.P99), length(p.P999), length(p.Max))
	}
	served := m.ErrorShare < 1 && m.Latency.Max > 0
	if served {
		name := "served"
		if _, late := m.ByClass["timeout"]; late {
			name = "served or timeout" // What was not answered in time counts with the timeout.
		}
		row(name, m.Latency)
	}
	if len(m.ByClass) > 1 || !served {
		for _, class := range slices.Sorted(maps.Keys(m.ByClass)) {
			row(Shown(class), m.ByClass[class])
		}
	}
	if m.Lag.P50 > 0 {
		row("late", m.Lag)
	}
	flush(t)
	loadOverTime(w, m)
	targets(w, m)
	limits(w, m.Limiter)
}

func loadOverTime(w io.Writer, m *load.Measurement) {
	p := m.Over.Points
	if len(p) < 2 {
		return
	}
	fmt.Fprintf(w, "\nOVER TIME, %s a column\n", length(m.Over.StretchMS))
	row := func(name, unit string, of func(*load.Point) float64, show func(float64) string) {
		values, most := make([]int64, len(p)), 0.0
		for i := range p {
			v := of(&p[i])
			values[i], most = int64(v*1000), max(most, v)
		}
		if most > 0 {
			fmt.Fprintf(w, "  %-12s |%s| at most %s%s\n", name, spark(values), show(most), unit)
		}
	}
	whole := func(v float64) string { return group(int64(v)) }
	row("requests", "", func(p *load.Point) float64 { return float64(p.Scheduled) }, whole)
	row("p95", "", func(p *load.Point) float64 { return p.P95 }, length)
	row("limited", "", func(p *load.Point) float64 { return float64(p.Limited) }, whole)
	row("failed", "", func(p *load.Point) float64 { return float64(p.Failed) }, whole)
}

func targets(w io.Writer, m *load.Measurement) {
	if len(m.Targets) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TARGET\tSENT\tSERVED\tP50\tP95\tMAX")
	for i := range m.Targets {
		one := &m.Targets[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", Shown(one.Target), group(one.Sent), group(one.Served), length(one.Latency.P50), length(one.Latency.P95), length(one.Latency.Max))
	}
	flush(t)
}

func limits(w io.Writer, l *load.Limiter) {
	if l == nil {
		return
	}
	fmt.Fprintf(w, "\nLIMITS: %s denied", group(l.Denied))
	if l.RetryAfter > 0 {
		fmt.Fprintf(w, ", %s of them with a Retry-After of %s", group(l.RetryAfter), retryAfter(l))
	}
	fmt.Fprintln(w)
	for _, advertised := range l.Limits {
		fmt.Fprintf(w, "  %s; the least that was left: %s\n", limitText(advertised), group(advertised.Lowest))
	}
}

// retryAfter writes the times that denials said to wait.
func retryAfter(l *load.Limiter) string {
	if l.ShortestMS == l.LongestMS {
		return length(l.ShortestMS)
	}
	return length(l.ShortestMS) + " to " + length(l.LongestMS)
}

func limitText(advertised load.AdvertisedLimit) string {
	text := "a limit whose size no answer says"
	if advertised.Limit >= 0 {
		text = "a limit of " + group(advertised.Limit)
	}
	if advertised.PeriodMS > 0 {
		text += " in " + length(advertised.PeriodMS)
	}
	return text
}

func steps(w io.Writer, all []*load.Measurement) {
	if len(all) < 2 {
		return
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "RATE\tSENT\tP50\tP95\tP99\tMAX\tNOT SERVED\tLATE\t")
	for _, m := range all {
		note := ""
		if !m.Valid {
			note = "  invalid"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", rate(m.Rate), group(m.Sent), length(m.Latency.P50), length(m.Latency.P95), length(m.Latency.P99), length(m.Latency.Max), percent(m.ErrorShare), length(m.Lag.P99), note)
	}
	flush(t)
}

func percent(part float64) string { return share(int64(part*1e6), 1e6) }

func audit(w io.Writer, a *load.Audit) {
	fmt.Fprintln(w, "AUDIT OF THE LIMITER")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range a.Findings {
		fmt.Fprintf(t, "  %s\t%s\t%s\n", strings.ReplaceAll(f.About, "_", "-"), strings.ToUpper(f.Outcome), f.Text)
	}
	if a.Dialect != nil {
		fmt.Fprintf(t, "  said in\t\t%s\n", strings.Join(a.Dialect, ", "))
	}
	flush(t)
}

// loadNotes are what a reader must know to believe a report.
func loadNotes(r *load.Report) (notes []string) {
	m := r.Measurement
	if m == nil {
		return nil
	}
	if m.Interrupted {
		notes = append(notes, "It was interrupted: these are the requests up to then.")
	}
	for _, why := range m.Invalid {
		notes = append(notes, "INVALID: "+why+". The latencies are not only the service's. Something else keeps the processors busy, or the rate is too high for this machine.")
	}
	if m.Waited > 0 {
		notes = append(notes, fmt.Sprintf("%s requests found all connections in use and waited for one, for %s at most. That is part of their latency. A service that can answer more at once needs a higher --connections.", group(m.Waited), length(m.WaitedMax)))
	}
	if unsent := m.Scheduled - m.Sent; unsent > 0 && !m.Interrupted {
		notes = append(notes, fmt.Sprintf("%s requests were not sent, since no connection was free before the timeout. They count as timeouts.", group(unsent)))
	}
	if m.Stopped {
		notes = append(notes, "It was ended early, since what is expected could not hold any more.")
	}
	return notes
}

// LoadLine says in one line how a measurement goes or went.
func LoadLine(m *load.Measurement) string {
	text := fmt.Sprintf("%s, %s sent, p50 %s, p95 %s, max %s", pace(m), group(m.Sent), length(m.Latency.P50), length(m.Latency.P95), length(m.Latency.Max))
	if m.ErrorShare > 0 {
		text += ", not served " + percent(m.ErrorShare)
	}
	if !m.Valid && m.Invalid != nil {
		text += ", invalid"
	}
	return text
}

// LoadLive shows in a few lines how a measurement goes.
func LoadLive(m *load.Measurement) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s, %s, %s sent\n", pace(m), span(time.Duration(m.DurationMS*float64(time.Millisecond)).Round(time.Second)), group(m.Sent))
	for _, counts := range []map[string]int64{m.Status, m.Errors} {
		for _, code := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(&b, "  %s %s", Shown(code), group(counts[code]))
		}
	}
	fmt.Fprintf(&b, "\n  p50 %s  p95 %s  p99 %s  max %s\n", length(m.Latency.P50), length(m.Latency.P95), length(m.Latency.P99), length(m.Latency.Max))
	values := make([]int64, len(m.Over.Points))
	for i := range m.Over.Points {
		values[i] = int64(m.Over.Points[i].P95 * 1000)
	}
	fmt.Fprintf(&b, "  p95 |%s|\n", spark(values))
	return b.String()
}
