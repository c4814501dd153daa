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

var replayPage = template.Must(template.New("page").Funcs(template.FuncMap{
	"counted": counted, "group": group, "share": share, "shown": Shown, "bytes": bytes, "stamp": stamp, "span": span,
	"add":   func(a, b int64) int64 { return a + b },
	"ms":    func(n int64) string { return span(time.Duration(n) * time.Millisecond) },
	"join":  func(list []string) string { return strings.Join(list, ", ") },
	"exact": func(t time.Time) string { return t.Format("2006-01-02 15:04:05.000") },
}).Parse(pageText))

// view is what the page shows.
type view struct {
	*replay.Result
	page
	Policy string
	Time   *timePlot
	Curves []curvePlot
	Notes  []string
}

// HTML writes a result as one file. It contains no script and loads no other file, and its
// Content-Security-Policy forbids both. policy is the name of the policy that was replayed.
func HTML(w io.Writer, r *replay.Result, policy string) error {
	return render(w, replayPage, &view{Result: r, page: newPage(), Policy: policy, Notes: Notes(r), Time: plotTime(r), Curves: plotCurves(r)})
}

// page is what all pages have.
type page struct {
	// Style is the page's own style sheet. Allowed is the source in the Content-Security-Policy
	// that permits it and nothing else.
	Style   template.CSS
	Allowed string
}

func newPage() page {
	hash := sha256.Sum256([]byte(style))
	// The style is a constant of this package.
	return page{template.CSS(style), "'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'"}
}

func render(w io.Writer, t *template.Template, v any) error {
	if err := t.Execute(w, v); err != nil {
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

// column is a stretch of time in a plot of bars.
type column struct {
	Title string
	Bars  []bar
}

// bar is a rectangle of a column.
type bar struct {
	Class      string
	X, Y, W, H float64
}

// tick is a line across a plot, with its label.
type tick struct {
	At    float64
	Label string
}

// heights are the ticks at half of a height and at all of it.
func heights(height float64, label func(part float64) string) (ticks []tick) {
	for _, part := range []float64{0.5, 1} {
		ticks = append(ticks, tick{height * (1 - part), label(part)})
	}
	return ticks
}

// widths are the ticks at each fifth of the width.
func widths(label func(part float64) string) (ticks []tick) {
	for i := range 6 {
		part := float64(i) / 5
		ticks = append(ticks, tick{timeWidth * part, label(part)})
	}
	return ticks
}

// line is a line of a plot: the points of an SVG polyline.
type line struct{ strings.Builder }

func (l *line) add(x, y float64) { fmt.Fprintf(l, "%.1f,%.1f ", x, y) }

// timePlot is the plot of what happened over time, and its rows are the numbers.
type timePlot struct {
	Columns []column
	Rows    []timeRow
	Y, X    []tick
}

type timeRow struct {
	replay.Point
	From time.Time
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
		c := column{fmt.Sprintf("%s: %s requests, %s denied", stamp(from), group(p.Requests), group(p.Denied)), []bar{{"all", x, timeHeight - height, wide - gap, height}}}
		if p.Denied > 0 {
			c.Bars = append(c.Bars, bar{"denied", x, timeHeight - denied, wide - gap, denied})
		}
		t.Columns, t.Rows = append(t.Columns, c), append(t.Rows, timeRow{p, from})
	}
	t.Y = heights(timeHeight, func(part float64) string { return group(int64(float64(most) * part)) })
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
		var curve line
		for j, p := range rule.Curve {
			x := curveWidth * (float64(j) + 0.5) / float64(len(rule.Curve))
			y := curveHeight * (1 - p.Share/most)
			curve.add(x, y)
			c.Points = append(c.Points, curvePoint{x, y, fmt.Sprintf("×%g", p.Factor), share(p.Denied, rule.CurveRequests), p.Factor == 1})
		}
		c.Line = curve.String()
		c.Y = heights(curveHeight, func(part float64) string {
			return share(int64(most*part*float64(rule.CurveRequests)), rule.CurveRequests)
		})
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
	page
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
	v := loadView{Report: r, page: newPage(), Notes: loadNotes(r), All: r.Each}
	if r.Found != nil {
		v.All, v.Verdict = r.Found.Steps, Verdict(r.Found)
	}
	if r.Measurement != nil {
		v.Pace = pace(r.Measurement)
		v.Time = plotLoad(r.Measurement)
	}
	v.Steps = plotSteps(v.All, r.Found)
	return render(w, loadPage, &v)
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
	var p50, p95 line
	for _, m := range all {
		x := timeWidth * m.Rate / fastest
		p50.add(x, y(m.Latency.P50))
		p95.add(x, y(m.Latency.P95))
		p.Dots = append(p.Dots, stepDot{x, y(m.Latency.P95), bad(m), LoadLine(m)})
	}
	p.P50, p.P95 = p50.String(), p95.String()
	p.Y = heights(timeHeight, func(part float64) string { return length(most * part) })
	p.X = widths(func(part float64) string { return rate(fastest * part) })
	return p
}

// loadTime are the plots of a measurement over time.
type loadTime struct {
	Columns        []column
	P50, P95, Max  string
	Y, LatencyY, X []tick
	Rows           []loadRow
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
	var p50, p95, highest line
	for i, p := range points {
		x, gap, below := float64(i)*wide, min(1, wide/5), timeHeight
		from := float64(i) * m.Over.StretchMS
		c := column{Title: fmt.Sprintf("from %s: %s served, %s limited, %s failed", length(from), group(p.Served), group(p.Limited), group(p.Failed))}
		for _, part := range []struct {
			n     int64
			class string
		}{{p.Served, "all"}, {p.Limited, "limited"}, {p.Failed, "denied"}} {
			if part.n > 0 {
				high := timeHeight * float64(part.n) / float64(most)
				below -= high
				c.Bars = append(c.Bars, bar{part.class, x, below, wide - gap, high})
			}
		}
		t.Columns, t.Rows = append(t.Columns, c), append(t.Rows, loadRow{p, from})
		middle := x + wide/2
		p50.add(middle, y(p.P50))
		p95.add(middle, y(p.P95))
		highest.add(middle, y(p.Max))
	}
	t.P50, t.P95, t.Max = p50.String(), p95.String(), highest.String()
	t.Y = heights(timeHeight, func(part float64) string { return group(int64(float64(most) * part)) })
	t.LatencyY = heights(timeHeight, func(part float64) string { return length(slowest * part) })
	t.X = widths(func(part float64) string { return length(part * m.Over.StretchMS * float64(len(points))) })
	return t
}
