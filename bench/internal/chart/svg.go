package chart

import (
	"bytes"
	"fmt"
	"html"
	"strings"
)

// bar is a figure of a contender.
type bar struct {
	name  string
	value float64
}

// group is bars that are compared with each other.
type group struct {
	title string
	bars  []bar
}

// drawing is a chart of horizontal bars, all on one scale.
type drawing struct {
	title  string
	format func(float64) string
	groups []group
}

// Places and lengths, in pixels.
const (
	width   = 720
	names   = 340 // where bars begin
	figures = 90  // what is left free for figures behind them
	line    = 22
	thick   = 14
	apart   = 8 // between groups
	top     = 34
)

// style has colours for light and for dark pages. The background is that of the page.
const style = `text{font:13px system-ui,sans-serif;fill:#1f2328}.title{font-weight:600}.group{font-weight:600;fill:#59636e}` +
	`.bar{fill:#afb8c1}.ours{fill:#0969da}.name{font-size:11px}.curve{fill:none;stroke:#818b98;stroke-width:2}.curve.ours{stroke:#0969da}.second{stroke-dasharray:5 3}.axis{stroke:#818b98;opacity:.4}` +
	`@media (prefers-color-scheme:dark){text{fill:#f0f6fc}.group{fill:#9198a1}.bar{fill:#59636e}.ours{fill:#4493f8}.curve.ours{stroke:#4493f8}}`

// begin begins a chart that is so high, with its title, and told for whoever does not see it.
func begin(title, told string, height int) *bytes.Buffer {
	b := new(bytes.Buffer)
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="t d">`+"\n", width, height)
	fmt.Fprintf(b, "<title id=\"t\">%s</title>\n<desc id=\"d\">%s</desc>\n<style>%s</style>\n", html.EscapeString(title), html.EscapeString(told), style)
	fmt.Fprintf(b, `<text class="title" x="0" y="18">%s</text>`+"\n", html.EscapeString(title))
	return b
}

// svg draws it. All words and figures are text, and the description tells all of them to
// whoever does not see the bars.
func (d *drawing) svg() []byte {
	most, height := 0.0, top
	var told []string
	for _, g := range d.groups {
		height += line*(len(g.bars)+1) + apart
		var figures []string
		for _, b := range g.bars {
			most = max(most, b.value)
			figures = append(figures, b.name+" "+d.format(b.value))
		}
		told = append(told, strings.ToUpper(g.title[:1])+g.title[1:]+": "+strings.Join(figures, "; ")+".")
	}
	b := begin(d.title, strings.Join(told, " "), height)
	y := top
	for _, g := range d.groups {
		y += apart
		fmt.Fprintf(b, `<text class="group" x="0" y="%d">%s</text>`+"\n", y+thick-2, html.EscapeString(g.title))
		y += line
		for _, one := range g.bars {
			class := "bar"
			if strings.HasPrefix(one.name, "Headgate") {
				class = "ours"
			}
			long := one.value / most * (width - names - figures)
			fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, names-8, y+thick-2, html.EscapeString(one.name))
			fmt.Fprintf(b, `<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>`, class, names, y, long, thick)
			fmt.Fprintf(b, `<text x="%.1f" y="%d">%s</text>`+"\n", names+long+6, y+thick-2, html.EscapeString(d.format(one.value)))
			y += line
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
