package report

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"github.com/headgate/headgate/tune/load"
)

//go:embed load.html
var loadText string

var loadPage = template.Must(template.New("load").Funcs(template.FuncMap{
	"group": group, "share": share, "shown": Shown, "rate": rate, "percent": percent, "ms": length, "limit": limitText, "retryAfter": retryAfter,
	"about": func(s string) string { return strings.ReplaceAll(s, "_", "-") },
}).Parse(loadText))

// loadView is what the page shows.
type loadView struct {
	*load.Report
	Style   template.CSS
	Allowed string
	Notes   []string
	Pace    string
	Verdict string
	All     []*load.Measurement // of each rate, if there are several
	Steps   *stepPlot
	Time    *loadTime
}

// LoadHTML writes a load measurement as one file. It contains no script and loads no other file,
// and its Content-Security-Policy forbids both.
func LoadHTML(w io.Writer, r *load.Report) error {
	hash := sha256.Sum256([]byte(style))
	v := loadView{
		Report: r, Notes: loadNotes(r), All: r.Each,
		// It is a constant of this package.
		Style: template.CSS(style), Allowed: "'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'",
	}
	if r.Found != nil {
		v.All, v.Verdict = r.Found.Steps, Verdict(r.Found)
	}
	if r.Measurement != nil {
		v.Pace = pace(r.Measurement)
		v.Time = plotLoad(r.Measurement)
	}
	v.Steps = plotSteps(v.All, r.Found)
	if err := loadPage.Execute(w, v); err != nil {
		return fmt.Errorf("headgate: report: %w", err)
	}
	return nil
}

// scale is from what is shown to the height of a plot: linear, up to the most.
func scale(most float64) func(float64) float64 {
	return func(v float64) float64 { return timeHeight * (1 - min(v/max(most, 1e-9), 1)) }
}

// stepPlot is the plot of latencies against rates.
type stepPlot struct {
	P50, P95 string
	Dots     []stepDot
	X, Y     []tick
}

type stepDot struct {
	X, Y  float64
	Bad   bool
	Title string
}

// plotSteps plots steps in the order of their rates, each once. The plot ends at four times the
// latency of sustained rates, because rates that are far too high would flatten all others.
func plotSteps(all []*load.Measurement, f *load.Found) *stepPlot {
	last := make(map[float64]*load.Measurement)
	for _, m := range all {
		last[m.Rate] = m
	}
	all = slices.DeleteFunc(slices.Clone(all), func(m *load.Measurement) bool { return m.Rate == 0 })
	if len(last) < 2 {
		return nil
	}
	slices.SortStableFunc(all, func(a, b *load.Measurement) int { return cmp.Compare(a.Rate, b.Rate) })
	// If a rate was tried several times, the last try counts.
	all = slices.DeleteFunc(all, func(m *load.Measurement) bool { return m != last[m.Rate] })
	bad := func(m *load.Measurement) bool { return f != nil && f.Refused > 0 && m.Rate >= f.Refused }
	fastest, most, top := all[len(all)-1].Rate, 0.0, 0.0
	for _, m := range all {
		top = max(top, m.Latency.P95)
		if !bad(m) {
			most = max(most, m.Latency.P95)
		}
	}
	if most *= 4; most == 0 || most > top {
		most = top
	}
	y, p := scale(most), new(stepPlot)
	var p50, p95 strings.Builder
	for _, m := range all {
		x := timeWidth * m.Rate / fastest
		fmt.Fprintf(&p50, "%.1f,%.1f ", x, y(m.Latency.P50))
		fmt.Fprintf(&p95, "%.1f,%.1f ", x, y(m.Latency.P95))
		p.Dots = append(p.Dots, stepDot{x, y(m.Latency.P95), bad(m), LoadLine(m)})
	}
	p.P50, p.P95 = p50.String(), p95.String()
	for _, part := range []float64{0.5, 1} {
		p.Y = append(p.Y, tick{y(most * part), length(most * part)})
	}
	for i := range 6 {
		at := float64(i) / 5
		p.X = append(p.X, tick{timeWidth * at, rate(fastest * at)})
	}
	return p
}

// loadTime are the plots of a measurement over time.
type loadTime struct {
	Bars           []loadBar
	P50, P95, Max  string
	Y, LatencyY, X []tick
	Rows           []loadRow
}

type loadBar struct {
	Title string
	Parts []loadPart
}

// loadPart is one kind of answers in a stretch of time.
type loadPart struct {
	bar
	Class string
}

type loadRow struct {
	load.Point
	From float64
}

func plotLoad(m *load.Measurement) *loadTime {
	points := m.Over.Points
	if len(points) < 2 {
		return nil
	}
	most, slowest := int64(1), 0.0
	for i := range points {
		most, slowest = max(most, points[i].Scheduled), max(slowest, points[i].Max)
	}
	t, y := new(loadTime), scale(slowest)
	wide := timeWidth / float64(len(points))
	var p50, p95, highest strings.Builder
	for i, p := range points {
		x, gap, below := float64(i)*wide, min(1, wide/5), timeHeight
		from := float64(i) * m.Over.StretchMS
		b := loadBar{Title: fmt.Sprintf("from %s: %s served, %s limited, %s failed", length(from), group(p.Served), group(p.Limited), group(p.Failed))}
		for _, part := range []struct {
			n     int64
			class string
		}{{p.Served, "all"}, {p.Limited, "limited"}, {p.Failed, "denied"}} {
			if part.n > 0 {
				high := timeHeight * float64(part.n) / float64(most)
				below -= high
				b.Parts = append(b.Parts, loadPart{bar{x, below, wide - gap, high}, part.class})
			}
		}
		t.Bars = append(t.Bars, b)
		t.Rows = append(t.Rows, loadRow{p, from})
		middle := x + wide/2
		fmt.Fprintf(&p50, "%.1f,%.1f ", middle, y(p.P50))
		fmt.Fprintf(&p95, "%.1f,%.1f ", middle, y(p.P95))
		fmt.Fprintf(&highest, "%.1f,%.1f ", middle, y(p.Max))
	}
	t.P50, t.P95, t.Max = p50.String(), p95.String(), highest.String()
	for _, part := range []float64{0.5, 1} {
		t.Y = append(t.Y, tick{timeHeight * (1 - part), group(int64(float64(most) * part))})
		t.LatencyY = append(t.LatencyY, tick{y(slowest * part), length(slowest * part)})
	}
	for i := range 6 {
		at := float64(i) / 5
		t.X = append(t.X, tick{timeWidth * at, length(at * m.Over.StretchMS * float64(len(points)))})
	}
	return t
}
