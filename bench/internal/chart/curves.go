package chart

import (
	"fmt"
	"html"
	"slices"
	"strings"
	"unicode/utf8"
)

// panel is curves over the same sizes. It has a scale of its own, from zero on.
type panel struct {
	title  string
	sizes  []string
	curves []curve
}

// curve is the figures of a row, one for each size.
type curve struct {
	name   string
	values []float64
	ours   bool // it is Headgate's
}

// Places and lengths of panels, in pixels. Two stand beside each other.
const (
	beside     = 24 // between them
	wide, high = (width - beside) / 2, 220
	left       = 40 // where curves begin
	plot       = 110
	swatch     = 18
)

// panel returns the rows of a table as curves over its columns. In a table without peers all are Headgate's.
func (t *table) panel(title string, peers bool) (panel, error) {
	p := panel{title: title, sizes: t.columns[1:]}
	for _, row := range t.rows {
		c := curve{name: row[0], ours: !peers || strings.HasPrefix(row[0], "Headgate")}
		for i, cell := range row[1:] {
			v, err := number(cell)
			if err != nil {
				return p, fmt.Errorf("chart: %s, %s: %w", row[0], p.sizes[i], err)
			}
			c.values = append(c.values, v)
		}
		p.curves = append(p.curves, c)
	}
	return p, nil
}

// panels draws them, two in a row.
func panels(title string, all []panel) []byte {
	var told []string
	for _, p := range all {
		for _, c := range p.curves {
			var figures []string
			for i, v := range c.values {
				figures = append(figures, p.sizes[i]+": "+short(v))
			}
			told = append(told, p.title+", "+c.name+": "+strings.Join(figures, "; ")+".")
		}
	}
	b := begin(title, strings.Join(told, " "), top+high*((len(all)+1)/2))
	for i, p := range all {
		fmt.Fprintf(b, `<g transform="translate(%d,%d)">`+"\n", i%2*(wide+beside), top+i/2*high)
		p.draw(func(format string, args ...any) { fmt.Fprintf(b, format+"\n", args...) })
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// draw writes the title, the axes, the curves, and what they are called.
func (p *panel) draw(write func(format string, args ...any)) {
	const to = 30 + plot
	most := 0.0
	for _, c := range p.curves {
		most = max(most, slices.Max(c.values))
	}
	x := func(i int) float64 {
		return left + swatch + float64(i)*(wide-left-2*swatch)/float64(max(len(p.sizes)-1, 1))
	}
	y := func(v float64) float64 { return to - v/most*plot }
	write(`<text class="group" x="0" y="14">%s</text>`, html.EscapeString(p.title))
	for _, v := range []float64{0, most / 2, most} {
		write(`<line class="axis" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`, left, wide, y(v), y(v), left-6, y(v)+4, short(v))
	}
	for i, size := range p.sizes {
		size = strings.NewReplacer(",000,000", "M", ",000", "k").Replace(size)
		write(`<text x="%.1f" y="%d" text-anchor="middle">%s</text>`, x(i), to+18, html.EscapeString(size))
	}
	seen := make(map[bool]int) // how many are ours, and others'
	at, under := 0.0, float64(to+38)
	for _, c := range p.curves {
		class := "curve"
		if c.ours {
			class += " ours"
		}
		if seen[c.ours]++; seen[c.ours] > 1 {
			class += " second"
		}
		var points []string
		for i, v := range c.values {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(i), y(v)))
		}
		long := swatch + 20 + 6*float64(utf8.RuneCountInString(c.name))
		if at+long > wide {
			at, under = 0, under+16
		}
		write(`<polyline class="%s" points="%s"/>`, class, strings.Join(points, " "))
		write(`<line class="%s" x1="%.0f" x2="%.0f" y1="%.0f" y2="%.0f"/><text class="name" x="%.0f" y="%.0f">%s</text>`,
			class, at, at+swatch, under-4, under-4, at+swatch+4, under, html.EscapeString(c.name))
		at += long
	}
}

// short writes a figure with one to three digits.
func short(v float64) string {
	if v > 0 && v < 10 {
		return fmt.Sprintf("%.1f", v)
	}
	return whole(v)
}
