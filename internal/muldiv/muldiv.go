// Package muldiv divides products of two numbers, which may have more than 64 bits.
package muldiv

import "math/bits"

// Down returns ⌊a·b/c⌋, or most if that is less, for a, b and most ≥ 0 and c > 0.
func Down(a, b, c, most int64) int64 {
	return divide(a, b, 0, c, most)
}

// Up returns ⌈a·b/c⌉, or most if that is less, for a, b and most ≥ 0 and c > 0.
func Up(a, b, c, most int64) int64 {
	return divide(a, b, c-1, c, most)
}

func divide(a, b, more, c, most int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	lo, carry := bits.Add64(lo, uint64(more), 0)
	if hi += carry; hi >= uint64(c) {
		return most
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, uint64(most)))
}
