package flow

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strings"
	"time"

	"github.com/headgate/headgate/flow/simulate"
)

// The measures of a chart: two panels, the limit above the goodput, and names below.
const (
	width, panel, left, right, top, gap = 860.0, 190.0, 50.0, 34.0, 30.0, 46.0
	legend                              = 3
)

var colors = []string{
	"#0b5fff", "#00a3a3", "#d9480f", "#f2a900", "#862e9c", "#c2255c", "#5c940d", "#868e96", "#1098ad", "#212529",
}

// chart draws the limit and the goodput of all contenders over time.
func (p *page) chart(s simulate.Scenario) []byte {
	var b bytes.Buffer
	height := top + 2*panel + gap + 30 + 18*math.Ceil(float64(len(contenders))/legend)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%.0f" height="%.0f" fill="#fff"/>`+"\n", width, height)
	x := func(at time.Duration) float64 {
		return left + (width-left-right)*float64(at)/float64(s.Length)
	}
	// The limit is drawn by its logarithm, from 1 to the highest that is allowed.
	limits := func(v float64) float64 {
		return top + panel*(1-math.Log10(max(v, 1))/math.Log10(highest))
	}
	floor := top + 2*panel + gap
	goods := func(v float64) float64 { return floor - panel*min(v, 1.2)/1.2 }
	title := func(y float64, text string) {
		fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" font-weight="bold">%s</text>`+"\n", left, y, html.EscapeString(text))
	}
	line := func(y float64, text string) {
		fmt.Fprintf(&b, `<line x1="%.0f" x2="%.0f" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="%.0f" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, width-right, y, y, left-6, y+4, text)
	}
	title(top-10, s.Name+": limit")
	for _, v := range []float64{1, 10, 100, 1000} {
		line(limits(v), fmt.Sprintf("%.0f", v))
	}
	title(floor-panel-10, "goodput, as a share of the capacity")
	for _, v := range []float64{0, 0.5, 1} {
		line(goods(v), fmt.Sprintf("%.1f", v))
	}
	for i := range 7 {
		at := s.Length * time.Duration(i) / 6
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle">%v</text>`+"\n", x(at), floor+16, at.Round(time.Second))
	}
	// A point is the mean of so many steps, so that a chart has a few hundred.
	every := max(s.Length/300, time.Second/2).Truncate(100 * time.Millisecond)
	for i, r := range p.results[s.Name] {
		var limit, good []string
		for at := time.Duration(0); at+every <= s.Length; at += every {
			if _, mean, _ := r.Limits(at, at+every); !math.IsNaN(mean) {
				limit = append(limit, fmt.Sprintf("%.1f,%.1f", x(at), limits(mean)))
			}
			good = append(good, fmt.Sprintf("%.1f,%.1f", x(at), goods(r.Goodput(at, at+every))))
		}
		thick := 1.0
		if strings.HasPrefix(r.Subject, "Headgate") {
			thick = 2
		}
		for _, points := range [][]string{limit, good} {
			if len(points) > 0 {
				fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="%.0f" points="%s"/>`+"\n", colors[i], thick, strings.Join(points, " "))
			}
		}
		lx, ly := left+float64(i%legend)*260, floor+40+18*math.Floor(float64(i)/legend)
		fmt.Fprintf(&b, `<rect x="%.0f" y="%.0f" width="14" height="4" fill="%s"/><text x="%.0f" y="%.0f">%s</text>`+"\n",
			lx, ly-6, colors[i], lx+20, ly, html.EscapeString(r.Subject))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
