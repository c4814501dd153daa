package report

import (
	"fmt"
	"strings"
)

// Text is a section while it is written: prose, tables, and bars at its end. The zero value is
// empty.
type Text struct {
	b strings.Builder
	// Bars are those that were set.
	Bars []Bar
}

// Say writes prose or a table.
func (t *Text) Say(format string, args ...any) { fmt.Fprintf(&t.b, format, args...) }

// AtLeast sets a bar that the figure must reach.
func (t *Text) AtLeast(bound, got float64, what string, args ...any) {
	t.Bars = append(t.Bars, Bar{What: fmt.Sprintf(what, args...), Bound: bound, Got: got})
}

// AtMost sets a bar that the figure must not exceed.
func (t *Text) AtMost(bound, got float64, what string, args ...any) {
	t.Bars = append(t.Bars, Bar{What: fmt.Sprintf(what, args...), Bound: bound, Got: got, AtMost: true})
}

// String is the text, followed by the table of the bars, if there are any.
func (t *Text) String() string {
	if len(t.Bars) == 0 {
		return t.b.String()
	}
	return t.b.String() + "\n" + Bars(t.Bars)
}
