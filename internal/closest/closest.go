// Package closest finds the word that was probably meant by a misspelt one.
package closest

import "strings"

// Word returns which of the words was probably meant: one that begins with
// what was written, or differs from it by one letter in three. It returns "" if
// none does.
func Word(written string, words []string) string {
	best, bound := "", min(1+len(written)/3, 4)
	for _, w := range words {
		if len(written) >= 3 && strings.HasPrefix(w, written) {
			return w
		}
		if d := distance(written, w, bound); d < bound {
			best, bound = w, d
		}
	}
	return best
}

// Slip returns which of the words differs from the one that was written by no more than a slip
// of the pen: in capital letters, in what joins its parts (api-key and api_key), or by one
// letter, of two if the word has eight or more. Words of fewer than four letters differ from
// too many others by one. It returns "" if the written word is one of the words, or if none
// differs so little.
//
// It is for words that may be right although they are not known. Names that only differ by
// their last letter (zone_a and zone_b) are taken to be meant.
func Slip(written string, words []string) string {
	plain := joined(written)
	best, bound := "", 2+len(written)/8
	for _, w := range words {
		switch other := joined(w); {
		case w == written:
			return ""
		case other == plain:
			best, bound = w, 0
		case min(len(plain), len(other)) < 4 || len(plain) == len(other) && plain[:len(plain)-1] == other[:len(other)-1]:
		default:
			if d := distance(plain, other, bound); d < bound {
				best, bound = w, d
			}
		}
	}
	return best
}

// joined is the word in small letters, without what joins its parts.
func joined(word string) string {
	return strings.NewReplacer("-", "", "_", "", ".", "", ":", "").Replace(strings.ToLower(word))
}

// distance is how many letters must be added, taken away, changed or swapped
// with their neighbour to make b of a; or any number of at least bound, if it is
// not less than that.
func distance(a, b string, bound int) int {
	if len(a)-len(b) >= bound || len(b)-len(a) >= bound {
		return bound
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
