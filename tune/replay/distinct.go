package replay

import (
	"math"
	"math/bits"
)

// distinct counts how many different keys there are, within two percent, in 4 KiB
// (HyperLogLog).
type distinct struct{ registers []uint8 }

const registers = 1 << 12

func newDistinct() distinct { return distinct{make([]uint8, registers)} }

func (d *distinct) add(hash uint64) {
	i := hash >> 52
	if n := uint8(bits.LeadingZeros64(hash<<12|1<<11)) + 1; n > d.registers[i] {
		d.registers[i] = n
	}
}

// count is the estimate.
func (d *distinct) count() int64 {
	sum, zeros := 0.0, 0
	for _, n := range d.registers {
		sum += math.Ldexp(1, -int(n))
		if n == 0 {
			zeros++
		}
	}
	const m = float64(registers)
	estimate := 0.7213 / (1 + 1.079/m) * m * m / sum
	if estimate <= 2.5*m && zeros > 0 {
		estimate = m * math.Log(m/float64(zeros))
	}
	return int64(math.Round(estimate))
}

// peak is the largest number of different keys in any stretch of time of a given length.
type peak struct {
	distinct
	length, end int64 // in microseconds
	most        int64
}

// add counts a key at a time. Times do not go back.
func (p *peak) add(hash uint64, at int64) {
	if at >= p.end {
		p.roll(at)
	}
	p.distinct.add(hash)
}

func (p *peak) roll(at int64) {
	p.most = max(p.most, p.count())
	clear(p.registers)
	p.end = at - at%p.length + p.length
}
