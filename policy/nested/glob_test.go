package nested

import (
	"math/rand/v2"
	"testing"
)

// slowMatch tries every length for every star.
func slowMatch(pattern, text string) bool {
	switch {
	case pattern == "":
		return text == ""
	case pattern[:1] != Star:
		return text != "" && text[0] == pattern[0] && slowMatch(pattern[1:], text[1:])
	}
	for i := range len(text) + 1 {
		if slowMatch(pattern[1:], text[i:]) {
			return true
		}
	}
	return false
}

// TestGlob holds globs against the definition, for patterns and texts at random, and what is
// said of two patterns against all texts that came up.
func TestGlob(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 17))
	random := func(letters string) string {
		b := make([]byte, r.IntN(7))
		for i := range b {
			b[i] = letters[r.IntN(len(letters))]
		}
		return string(b)
	}
	texts := make([]string, 300)
	for i := range texts {
		texts[i] = random("ab")
	}
	matched, covered, apart := 0, 0, 0
	for range 500 {
		a, b := random("ab**"), random("ab**")
		one, two := newGlob(a), newGlob(b)
		for _, text := range texts {
			in, alsoIn := slowMatch(a, text), slowMatch(b, text)
			if one.matches(text) != in {
				t.Fatalf("%q matches %q: %t", a, text, !in)
			}
			if alsoIn && !in && one.covers(two) {
				t.Fatalf("%q is said to cover %q, and does not match %q", a, b, text)
			}
			if in && alsoIn && one.apart(two) {
				t.Fatalf("%q and %q both match %q", a, b, text)
			}
			if in {
				matched++
			}
		}
		if one.covers(two) {
			covered++
		}
		if one.apart(two) {
			apart++
		}
	}
	if matched < 1000 || covered < 20 || apart < 50 {
		t.Errorf("%d matched, %d covered, %d apart", matched, covered, apart)
	}
}
