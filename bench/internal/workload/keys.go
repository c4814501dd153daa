package workload

import (
	"fmt"
	"math/rand/v2"
	"unsafe"
)

// KeyLen is the length of every key in bytes: about that of an API key's hash
// or of a user's number.
const KeyLen = 16

// NarrowEvery is how many keys there are to one of class [Narrow].
const NarrowEvery = 8

// zipfExponent is as close to the customary 0.99 as math/rand's generator
// comes, which needs more than 1.
const zipfExponent = 1.01

// ClassOf returns the class of the key with number i.
func ClassOf(i int) Class {
	if i%NarrowEvery == NarrowEvery-1 {
		return Narrow
	}
	return Wide
}

// Key returns the key with number i, in memory of its own. Keys of different
// numbers differ.
func Key(i int) string {
	b := make([]byte, 0, KeyLen)
	return string(appendKey(b, i))
}

const hexDigits = "0123456789abcdef"

// appendKey writes a letter for the class and 15 hexadecimal digits. They come
// from a bijection of 60-bit numbers, so that keys look unlike their neighbours
// and never collide.
func appendKey(b []byte, i int) []byte {
	const mask = 1<<60 - 1
	x := uint64(i+1) * 0x9e3779b97f4a7c15 & mask
	x ^= x >> 31
	x = x * 0xbf58476d1ce4e5b9 & mask
	letter := byte('w')
	if ClassOf(i) == Narrow {
		letter = 'n'
	}
	b = append(b, letter)
	for shift := 56; shift >= 0; shift -= 4 {
		b = append(b, hexDigits[x>>shift&15])
	}
	return b
}

// Sequence is a list of keys in the order in which contenders are asked about
// them. It is immutable and safe for concurrent use. It holds no pointers but
// one, so that a garbage collection's cost is that of the contender.
type Sequence struct {
	slab   []byte
	mask   int
	narrow int
}

// At returns the key at place i and its class; places beyond the end begin
// again at the start. The key must not be kept.
func (s *Sequence) At(i int) (Class, string) {
	at := s.slab[(i&s.mask)*KeyLen:][:KeyLen]
	class := Wide
	if at[0] == 'n' {
		class = Narrow
	}
	// The slab is never written again, and outlives every use of the key.
	return class, unsafe.String(&at[0], KeyLen)
}

// Len is the number of places.
func (s *Sequence) Len() int { return s.mask + 1 }

// NarrowShare is the share of places whose key is of class [Narrow], 0 to 1.
func (s *Sequence) NarrowShare() float64 { return float64(s.narrow) / float64(s.Len()) }

// Hot is the sequence that asks about one key only, of the given class.
func Hot(class Class) *Sequence {
	i := 0
	if class == Narrow {
		i = NarrowEvery - 1
	}
	return sequence(1, func() int { return i })
}

// Uniform draws length keys out of the first keys, each as likely as the next.
// The length must be a power of two. The same arguments give the same sequence.
func Uniform(keys, length int, seed uint64) *Sequence {
	r := rand.New(rand.NewPCG(seed, 1))
	return sequence(length, func() int { return r.IntN(keys) })
}

// Zipf draws length keys out of the first keys: the second as often as half the
// first, the third as a third, and so on. The length must be a power of two.
// The same arguments give the same sequence.
func Zipf(keys, length int, seed uint64) *Sequence {
	r := rand.New(rand.NewPCG(seed, 2))
	z := rand.NewZipf(r, zipfExponent, 1, uint64(keys-1))
	// A prime above the number of keys spreads the ranks over the numbers, or
	// the keys asked about most would lie side by side in a contender's memory.
	const prime = 1<<31 - 1
	return sequence(length, func() int { return int(z.Uint64() * prime % uint64(keys)) })
}

func sequence(length int, next func() int) *Sequence {
	if length < 1 || length&(length-1) != 0 {
		panic(fmt.Sprintf("workload: the length of a sequence is %d, must be a power of two", length))
	}
	s := &Sequence{slab: make([]byte, 0, length*KeyLen), mask: length - 1}
	for range length {
		i := next()
		if ClassOf(i) == Narrow {
			s.narrow++
		}
		s.slab = appendKey(s.slab, i)
	}
	return s
}
