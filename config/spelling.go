package config

import "strings"

// closest returns which of the words was probably meant: one that begins with
// what was written, or differs from it by one letter in three. It returns "" if
// none does.
func closest(written string, words []string) string {
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
