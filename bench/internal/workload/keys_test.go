package workload

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

func TestKeysDiffer(t *testing.T) {
	const n = 200_000
	seen := make(map[string]int, n)
	for i := range n {
		k := Key(i)
		if len(k) != KeyLen {
			t.Fatalf("Key(%d) = %q has %d bytes, want %d", i, k, len(k), KeyLen)
		}
		if j, ok := seen[k]; ok {
			t.Fatalf("Key(%d) and Key(%d) are both %q", i, j, k)
		}
		seen[k] = i
	}
}

func TestSequenceAgreesWithKeysAndClasses(t *testing.T) {
	const keys = 100
	classes := make(map[string]Class, keys)
	for i := range keys {
		classes[Key(i)] = ClassOf(i)
	}
	for name, s := range map[string]*Sequence{"uniform": Uniform(keys, 4096, 7), "zipf": Zipf(keys, 4096, 7)} {
		narrow := 0
		for i := range s.Len() {
			class, key := s.At(i)
			want, ok := classes[key]
			if !ok {
				t.Fatalf("%s: place %d holds %q, which is not among the first %d keys", name, i, key, keys)
			}
			if class != want {
				t.Fatalf("%s: place %d: class of %q is %v, want %v", name, i, key, class, want)
			}
			if class == Narrow {
				narrow++
			}
		}
		if got, want := s.NarrowShare(), float64(narrow)/float64(s.Len()); got != want {
			t.Errorf("%s: NarrowShare is %v, counted %v", name, got, want)
		}
	}
}

func TestSequencesAreDeterministic(t *testing.T) {
	for _, c := range []struct {
		name string
		draw func(seed uint64) *Sequence
	}{
		{"uniform", func(seed uint64) *Sequence { return Uniform(1000, 1024, seed) }},
		{"zipf", func(seed uint64) *Sequence { return Zipf(1000, 1024, seed) }},
	} {
		a, b, other := c.draw(1), c.draw(1), c.draw(2)
		if string(a.slab) != string(b.slab) {
			t.Errorf("%s: the same seed gave two sequences", c.name)
		}
		if string(a.slab) == string(other.slab) {
			t.Errorf("%s: two seeds gave the same sequence", c.name)
		}
	}
}

func TestZipfFollowsItsLaw(t *testing.T) {
	const keys, length = 1000, 1 << 18
	s := Zipf(keys, length, 3)
	counts := map[string]int{}
	for i := range length {
		_, key := s.At(i)
		counts[strings.Clone(key)]++
	}
	sum := 0.0
	for rank := 1; rank <= keys; rank++ {
		sum += math.Pow(float64(rank), -zipfExponent)
	}
	for rank := range 4 {
		key := Key(int(uint64(rank) * (1<<31 - 1) % keys))
		want := length * math.Pow(float64(rank+1), -zipfExponent) / sum
		if got := float64(counts[key]); math.Abs(got-want) > want/20 {
			t.Errorf("rank %d was drawn %v times, want about %.0f", rank+1, got, want)
		}
	}
}

func TestHotHasOneKey(t *testing.T) {
	for _, want := range []Class{Wide, Narrow} {
		s := Hot(want)
		class, first := s.At(0)
		if class != want {
			t.Errorf("class is %v, want %v", class, want)
		}
		if _, later := s.At(12345); later != first {
			t.Errorf("place 12345 holds %q, place 0 %q", later, first)
		}
	}
}

func TestLengthMustBeAPowerOfTwo(t *testing.T) {
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "1000") {
			t.Errorf("panic says %q, want the length 1000 in it", got)
		}
	}()
	Uniform(10, 1000, 1)
}

func ExampleSequence() {
	s := Uniform(1_000_000, 4, 1)
	for i := range s.Len() {
		class, key := s.At(i)
		fmt.Println(class, key[:1], len(key))
	}
	// Output:
	// wide w 16
	// narrow n 16
	// wide w 16
	// narrow n 16
}
