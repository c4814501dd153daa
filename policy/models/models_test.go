package models

import (
	"math/big"
	"math/rand/v2"
	"testing"
)

// Money is exact, and rounded up once for a request.
func TestPriceIsExact(t *testing.T) {
	t.Parallel()
	for range 20_000 {
		amount := func(most int64) int64 { return rand.Int64N(max(1, most>>rand.IntN(40))) + 1 } //nolint:gosec // for a test
		m := Model{Priced: true, Input: amount(MaxPrice), CachedInput: amount(MaxPrice), CacheWrite: amount(MaxPrice), Output: amount(MaxPrice)}
		u := Usage{CachedInput: amount(MaxTokens / 4), CacheWrite: amount(MaxTokens / 4), Output: amount(MaxTokens)}
		u.Input = u.CachedInput + u.CacheWrite + amount(MaxTokens/4)
		unit := []int64{1, 10, 1000, MicroUnits}[rand.IntN(4)] //nolint:gosec // for a test
		sum := new(big.Int)
		for _, part := range [][2]int64{
			{u.Input - u.CachedInput - u.CacheWrite, m.Input}, {u.CachedInput, m.CachedInput}, {u.CacheWrite, m.CacheWrite}, {u.Output, m.Output},
		} {
			sum.Add(sum, new(big.Int).Mul(big.NewInt(part[0]), big.NewInt(part[1])))
		}
		divisor := big.NewInt(MicroUnits * unit)
		want, rest := new(big.Int).DivMod(sum, divisor, new(big.Int))
		if rest.Sign() > 0 {
			want.Add(want, big.NewInt(1))
		}
		if got := m.price(&u, unit); big.NewInt(got).Cmp(want) != 0 {
			t.Fatalf("%+v at %+v in units of %d costs %d, want %v", u, m, unit, got, want)
		}
	}
}
