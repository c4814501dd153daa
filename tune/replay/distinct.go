package replay

import (
	"math"
	"math/bits"
)

// distinct estimates the number of different keys, to within about two percent, in 4 KiB
// (HyperLogLog).
type distinct struct {
	registers []uint8
	sum       uint64 // of 2^-n over the registers, in units of 2^-sumBits
	zeros     int    // how many registers are zero
}

const (
	registers = 1 << 12
	// sumBits is the most with which the sum of all registers at zero fits in 64 bits.
	sumBits = 51
)

func newDistinct() distinct {
	return distinct{registers: make([]uint8, registers), sum: registers << sumBits, zeros: registers}
}

func (d *distinct) add(hash uint64) {
	i := hash >> 52
	n, old := uint8(bits.LeadingZeros64(hash<<12|1<<11))+1, d.registers[i]
	if n <= old {
		return
	}
	d.registers[i] = n
	d.sum += 1<<sumBits>>n - 1<<sumBits>>old
	if old == 0 {
		d.zeros--
	}
}

// reset forgets all keys.
func (d *distinct) reset() {
	clear(d.registers)
	d.sum, d.zeros = registers<<sumBits, registers
}

// count returns the estimate.
func (d *distinct) count() int64 {
	const m = float64(registers)
	estimate := 0.7213 / (1 + 1.079/m) * m * m / math.Ldexp(float64(d.sum), -sumBits)
	if estimate <= 2.5*m && d.zeros > 0 {
		estimate = m * math.Log(m/float64(d.zeros))
	}
	return int64(math.Round(estimate))
}

// peak is the largest number of different keys in any interval of a given length.
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
	p.reset()
	p.end = at - at%p.length + p.length
}
