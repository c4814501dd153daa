package report

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

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
