package postgres

import (
	"math"
	"slices"
)

func sorted(all []int64) []int64 {
	slices.Sort(all)
	return slices.Compact(all)
}

// after returns the first text that sorts after all texts with the prefix.
func after(prefix string) []byte {
	b := []byte(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < math.MaxUint8 {
			b[i]++
			return b[:i+1]
		}
	}
	return nil
}
