package nested

import "strings"

// Star in a value or a key stands for any text, and for none.
const Star = "*"

// glob is a text with stars, as the parts between the stars. A text without a star has one part.
type glob []string

func newGlob(text string) glob { return strings.Split(text, Star) }

// starred reports whether there is a star in it.
func (g glob) starred() bool { return len(g) > 1 }

// text is the glob as it is written.
func (g glob) text() string { return strings.Join(g, Star) }

// prefix returns the beginning before the only star, if that stands at the end.
func (g glob) prefix() (text string, ok bool) {
	if len(g) == 2 && g[1] == "" {
		return g[0], true
	}
	return "", false
}

// matches reports whether the glob matches the text. It takes the first place for each part between
// two stars, which leaves the most text for the parts that follow.
func (g glob) matches(text string) bool {
	last := len(g) - 1
	if last == 0 {
		return text == g[0]
	}
	text, ok := strings.CutPrefix(text, g[0])
	if !ok {
		return false
	}
	for _, part := range g[1:last] {
		if _, text, ok = strings.Cut(text, part); !ok {
			return false
		}
	}
	return strings.HasSuffix(text, g[last])
}

// covers reports whether this glob matches everything that the other one matches. No part contains
// a star, so a star of the other one can only meet a star.
func (g glob) covers(other glob) bool { return g.matches(other.text()) }

// apart reports whether no text can match both, as far as their beginnings and ends show.
func (g glob) apart(other glob) bool {
	if !g.starred() || !other.starred() {
		return !g.matches(other.text()) && !other.matches(g.text())
	}
	begin, end := other[0], other[len(other)-1]
	theirs, last := g[0], g[len(g)-1]
	return !strings.HasPrefix(begin, theirs) && !strings.HasPrefix(theirs, begin) ||
		!strings.HasSuffix(end, last) && !strings.HasSuffix(last, end)
}
