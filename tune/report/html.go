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
	"time"

	"github.com/headgate/headgate/tune/load"
	"github.com/headgate/headgate/tune/replay"
)

//go:embed page.css
var style string

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"counted": counted, "group": group, "share": share, "shown": Shown, "bytes": bytes, "stamp": stamp, "span": span,
	"add":   func(a, b int64) int64 { return a + b },
	"ms":    func(n int64) string { return span(time.Duration(n) * time.Millisecond) },
	"join":  func(list []string) string { return strings.Join(list, ", ") },
	"exact": func(t time.Time) string { return t.Format("2006-01-02 15:04:05.000") },
}).Parse(pageText))

// view is what the page shows.
type view struct {
	*replay.Result
	Policy string
	// Style is the page's own style sheet. Allowed is the source in the Content-Security-Policy
	// that permits it and nothing else.
	Style   template.CSS
	Allowed string
	Time    *timePlot
	Curves  []curvePlot
	Notes   []string
}

// HTML writes a result as one file. It contains no script and loads no other file, and its
// Content-Security-Policy forbids both. policy is the name of the policy that was replayed.
func HTML(w io.Writer, r *replay.Result, policy string) error {
	hash := sha256.Sum256([]byte(style))
	v := view{
		Result: r, Policy: policy, Notes: Notes(r), Time: plotTime(r), Curves: plotCurves(r),
		// It is a constant of this package.
		Style: template.CSS(style), Allowed: "'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'",
	}
	if err := page.Execute(w, v); err != nil {
		return fmt.Errorf("headgate: report: %w", err)
	}
	return nil
}

// ClientsSeen64 and ClientsDenied64 are counts like the others.
func (v view) ClientsSeen64() int64   { return int64(v.ClientsSeen) }
func (v view) ClientsDenied64() int64 { return int64(v.ClientsDenied) }

// Hit returns the clients that had requests denied, the worst first.
func (v view) Hit() (all []replay.Client) {
	for i := range v.Clients {
		if c := &v.Clients[i]; c.Denied > 0 || c.Bunched > 0 {
			all = append(all, *c)
		}
	}
	return all
}

// bar is a rectangle of a plot.
type bar struct{ X, Y, W, H float64 }

// column is a stretch of time in the plot: the requests, and of them those that are denied.
type column struct {
	All, Denied bar
	Title       string
	Point       replay.Point
	From        time.Time
}

// tick is a line across a plot, with its label.
type tick struct {
	At    float64
	Label string
}

// timePlot is the plot of what happened over time.
type timePlot struct {
	Columns []column
	Y, X    []tick
}

// The size of plots, in the units of their view boxes.
const (
	timeWidth, timeHeight   = 900.0, 180.0
	curveWidth, curveHeight = 400.0, 150.0
)

func plotTime(r *replay.Result) *timePlot {
	points, per := squeeze(r.Over.Points, 120)
	if len(points) < 2 {
		return nil
	}
	most := int64(1)
	for _, p := range points {
		most = max(most, p.Requests)
	}
	t := new(timePlot)
	wide := timeWidth / float64(len(points))
	step := time.Duration(r.Over.StretchesMS*int64(per)) * time.Millisecond
	for i, p := range points {
		height := timeHeight * float64(p.Requests) / float64(most)
		// A denied part stays visible, however small it is.
		denied := timeHeight * float64(p.Denied) / float64(most)
		if p.Denied > 0 {
			denied = max(denied, 2)
		}
		x, gap := float64(i)*wide, min(1, wide/5)
		from := r.Over.From.Add(time.Duration(i) * step)
		t.Columns = append(t.Columns, column{
			All:    bar{x, timeHeight - height, wide - gap, height},
			Denied: bar{x, timeHeight - denied, wide - gap, denied},
			Title:  fmt.Sprintf("%s: %s requests, %s denied", stamp(from), group(p.Requests), group(p.Denied)),
			Point:  p, From: from,
		})
	}
	for _, part := range []float64{0.5, 1} {
		t.Y = append(t.Y, tick{timeHeight * (1 - part), group(int64(float64(most) * part))})
	}
	layout := "02 Jan 15:04"
	if step < time.Minute {
		layout = "15:04:05"
	}
	const labels = 5
	for i := range labels {
		n := i * (len(points) - 1) / (labels - 1)
		t.X = append(t.X, tick{float64(n) * wide, r.Over.From.Add(time.Duration(n) * step).Format(layout)})
	}
	return t
}

// curvePlot is the plot of the share that a rule denies, against its limits.
type curvePlot struct {
	Rule, Line string
	Requests   int64
	Points     []curvePoint
	Y          []tick
}

type curvePoint struct {
	X, Y         float64
	Factor, Text string
	Now          bool
}

func plotCurves(r *replay.Result) (all []curvePlot) {
	for i := range r.Rules {
		rule := &r.Rules[i]
		if len(rule.Curve) == 0 {
			continue
		}
		most := 0.0
		for _, p := range rule.Curve {
			most = max(most, p.Share)
		}
		if most == 0 {
			continue // There is nothing to see, and the table says so.
		}
		c := curvePlot{Rule: rule.Rule, Requests: rule.CurveRequests}
		var line strings.Builder
		for j, p := range rule.Curve {
			x := curveWidth * (float64(j) + 0.5) / float64(len(rule.Curve))
			y := curveHeight * (1 - p.Share/most)
			fmt.Fprintf(&line, "%.1f,%.1f ", x, y)
			c.Points = append(c.Points, curvePoint{x, y, fmt.Sprintf("×%g", p.Factor), share(p.Denied, rule.CurveRequests), p.Factor == 1})
		}
		c.Line = line.String()
		for _, part := range []float64{0.5, 1} {
			c.Y = append(c.Y, tick{curveHeight * (1 - part), share(int64(most*part*float64(rule.CurveRequests)), rule.CurveRequests)})
		}
		all = append(all, c)
	}
	return all
}

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
