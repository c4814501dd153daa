package muldiv

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// TestAgainstBig holds both to package math/big, most often near the bounds of each number.
func TestAgainstBig(t *testing.T) {
	random := func() int64 {
		n := rand.Int64() >> rand.IntN(63)
		if rand.IntN(4) == 0 {
			n = math.MaxInt64 - n
		}
		return n
	}
	for range 100_000 {
		a, b, c, most := random(), random(), max(1, random()), random()
		down, rest := new(big.Int).QuoRem(new(big.Int).Mul(big.NewInt(a), big.NewInt(b)), big.NewInt(c), new(big.Int))
		up := new(big.Int).Add(down, big.NewInt(int64(rest.Sign())))
		for _, tt := range []struct {
			name string
			got  int64
			want *big.Int
		}{{"Down", Down(a, b, c, most), down}, {"Up", Up(a, b, c, most), up}} {
			want := most
			if tt.want.IsInt64() {
				want = min(want, tt.want.Int64())
			}
			if tt.got != want {
				t.Fatalf("%s(%d, %d, %d, %d) is %d, want %d", tt.name, a, b, c, most, tt.got, want)
			}
		}
	}
}
