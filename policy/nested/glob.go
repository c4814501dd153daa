package nested

import "strings"

// Star matches any text in a key or a value, even an empty one.
const Star = "*"

// glob is a text split at its stars. A text without a star has one part.
type glob []string

func newGlob(text string) glob { return strings.Split(text, Star) }

// starred reports whether the glob has a star.
func (g glob) starred() bool { return len(g) > 1 }

// text returns the text from which the glob was made.
func (g glob) text() string { return strings.Join(g, Star) }

// prefix returns the text before the star, if the glob has a single star, at its end.
func (g glob) prefix() (text string, ok bool) {
	if len(g) == 2 && g[1] == "" {
		return g[0], true
	}
	return "", false
}

// matches reports whether the glob matches the text. It takes the first occurrence of each part
// between two stars, which leaves the most text for the parts that follow.
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

// covers reports whether this glob matches everything that the other one matches. It matches the
// other glob's text with its stars: no part of g contains a star, so only a star of g can match a
// star of the other glob.
func (g glob) covers(other glob) bool { return g.matches(other.text()) }

// apart reports whether it is certain that no text matches both globs. If both have stars, it
// compares only their beginnings and their ends.
func (g glob) apart(other glob) bool {
	if !g.starred() || !other.starred() {
		return !g.matches(other.text()) && !other.matches(g.text())
	}
	begin, end := other[0], other[len(other)-1]
	theirs, last := g[0], g[len(g)-1]
	return !strings.HasPrefix(begin, theirs) && !strings.HasPrefix(theirs, begin) ||
		!strings.HasSuffix(end, last) && !strings.HasSuffix(last, end)
}
