package replay

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestDistinct holds the estimate against the number of keys, and what is kept with each key
// against the registers.
func TestDistinct(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, keys := range []int{0, 1, 10, 1000, 20_000, 300_000} {
		d := newDistinct()
		for range 2 { // also after a reset
			d.reset()
			for range keys {
				hash := rng.Uint64()
				d.add(hash)
				d.add(hash)
			}
			sum, zeros := 0.0, 0
			for _, n := range d.registers {
				sum += math.Ldexp(1, -int(n))
				if n == 0 {
					zeros++
				}
			}
			if got := math.Ldexp(float64(d.sum), -sumBits); math.Abs(got-sum) > 1e-9*sum || d.zeros != zeros {
				t.Errorf("%d keys: the sum is %v with %d zeros, want %v with %d", keys, got, d.zeros, sum, zeros)
			}
			if got := float64(d.count()); math.Abs(got-float64(keys)) > 0.08*float64(keys) {
				t.Errorf("%d keys are estimated as %v", keys, got)
			}
		}
	}
}
