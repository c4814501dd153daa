package insight

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/race"
)

func unlimited(int) bool { return true }

// zipf draws from 0 to n-1, with the probability of i proportional to (i+1)^-s. The one of
// math/rand/v2 adds an offset to i.
type zipf struct{ sums []float64 }

func newZipf(s float64, n int) *zipf {
	z := &zipf{make([]float64, n)}
	sum := 0.0
	for i := range n {
		sum += math.Pow(float64(i+1), -s)
		z.sums[i] = sum
	}
	return z
}

func (z *zipf) draw(r *rand.Rand) int {
	return sort.SearchFloat64s(z.sums, r.Float64()*z.sums[len(z.sums)-1])
}

// checkBounds compares every count of a sketch with the true one.
func checkBounds(t *testing.T, s *sketch, seed maphash.Seed, truth map[string]int64) {
	t.Helper()
	m := int64(len(s.entries))
	var sum int64
	listed := make(map[string]bool)
	for i := range s.entries {
		e := &s.entries[i]
		is := truth[string(e.key)]
		if e.count-e.error > is || is > e.count {
			t.Fatalf("%q has %d, and the sketch says %d with an error of %d", e.key, is, e.count, e.error)
		}
		if e.error > s.total/m {
			t.Fatalf("the error %d of %q is more than %d/%d", e.error, e.key, s.total, m)
		}
		if place, _ := s.find(e.hash); maphash.Bytes(seed, e.key) != e.hash || place != i {
			t.Fatalf("%q is not found where it is", e.key)
		}
		sum += e.count
		listed[string(e.key)] = true
	}
	if taken := len(slices.DeleteFunc(slices.Clone(s.index), func(i uint16) bool { return i == 0 })); taken != len(s.entries) {
		t.Fatalf("the index has %d of %d keys", taken, len(s.entries))
	}
	if sum != s.total {
		t.Fatalf("the counts add up to %d, and the total is %d", sum, s.total)
	}
	absent := s.absent()
	for key, is := range truth {
		if !listed[key] && is > absent {
			t.Fatalf("%q has %d and is not listed, and absent ones have at most %d", key, is, absent)
		}
	}
}

func TestSketchBounds(t *testing.T) {
	t.Parallel()
	for trial := range uint64(60) {
		random := rand.New(rand.NewPCG(trial, 1))
		seed := maphash.MakeSeed()
		s := &sketch{most: 1 + random.IntN(60), room: 1 << 20}
		truth := make(map[string]int64)
		keys := newZipf(random.Float64()*1.5, 1+random.IntN(500))
		// Some trials run out of memory in the middle.
		left := 1 << 20
		if trial%3 == 0 {
			left = 2000 + random.IntN(3000)
		}
		lend := func(n int) bool {
			if n > left {
				return false
			}
			left -= n
			return true
		}
		s.room = 1 << 20
		for range 3000 {
			key := fmt.Sprint(keys.draw(random))
			weight := 1 + random.Int64N(5)
			s.add(maphash.String(seed, key), []byte(key), weight, weight, 0, lend)
			truth[key] += weight
		}
		for i := range s.entries {
			if s.entries[i].cut {
				s.entries[i].key = nil
			}
		}
		if slices.ContainsFunc(s.entries, func(e entry) bool { return e.key == nil }) {
			continue // A key was cut for want of memory: it has no name to look up.
		}
		checkBounds(t, s, seed, truth)
		s.reset()
		s.add(7, []byte("x"), 2, 2, 0, lend)
		if place, _ := s.find(7); s.total != 2 || len(s.entries) != 1 || place != 0 || s.absent() != 0 {
			t.Fatalf("after reset there is %+v", s)
		}
	}
}

// TestSketchWorstCase has a stream that makes every new key evict one.
func TestSketchWorstCase(t *testing.T) {
	t.Parallel()
	seed := maphash.MakeSeed()
	s := &sketch{most: bounds[byUse].most, room: bounds[byUse].room}
	truth := make(map[string]int64)
	for i := range 20_000 {
		key := fmt.Sprint(i % 1000)
		s.add(maphash.String(seed, key), []byte(key), 1, 1, 0, unlimited)
		truth[key]++
	}
	checkBounds(t, s, seed, truth)
}

func TestSketchRecall(t *testing.T) {
	t.Parallel()
	const keys = 1_000_000
	random := rand.New(rand.NewPCG(7, 11))
	z := newZipf(1.1, keys)
	seed := maphash.MakeSeed()
	for _, view := range []int{byUse, byDenied} {
		s := &sketch{most: bounds[view].most, room: bounds[view].room}
		truth := make(map[string]int64)
		for range race.Fewer(2_000_000) {
			key := fmt.Sprintf("client-%d", z.draw(random))
			s.add(maphash.String(seed, key), []byte(key), 1, 1, 0, unlimited)
			truth[key]++
		}
		checkBounds(t, s, seed, truth)
		all := make([]string, 0, len(truth))
		for key := range truth {
			all = append(all, key)
		}
		slices.SortFunc(all, func(a, b string) int { return cmp.Compare(truth[b], truth[a]) })
		largest := s.sorted()[:20]
		for _, key := range all[:20] {
			if !slices.ContainsFunc(largest, func(e entry) bool { return string(e.key) == key }) {
				t.Errorf("view %d: %q is one of the 20 largest, with %d, and is not found", view, key, truth[key])
			}
		}
	}
}

// TestSketchLongKeys: long keys fill the room for names, and leave no other key without one. Keys that
// are cut are told apart all the same.
func TestSketchLongKeys(t *testing.T) {
	t.Parallel()
	for view, b := range bounds {
		s := &sketch{most: b.most, room: b.room}
		lent, times := 0, 0
		lend := func(n int) bool {
			if lent += n; n < 0 {
				times++
			}
			return true
		}
		for step := range 3 {
			names := make(map[uint64]string)
			for i := range uint64(3 * b.most) {
				// Each step is full of long keys first, and short ones come last.
				name := fmt.Sprintf("%d-%d", step, i)
				if i < uint64(2*b.most) {
					name += strings.Repeat("long", 250)
				}
				names[i] = name
				s.add(i, []byte(name), 1, 1, 0, lend)
			}
			held, whole := 0, 0
			for _, e := range s.entries {
				held += cap(e.key)
				name := names[e.hash]
				if len(e.key) < min(8, len(name)) || !strings.HasPrefix(name, string(e.key)) || e.cut != (len(e.key) < len(name)) {
					t.Fatalf("view %d, step %d: a key of %d bytes is %q, cut: %v", view, step, len(name), e.key, e.cut)
				}
				if !e.cut {
					whole++
				}
			}
			if held+s.room != b.room || lent != held+sketchBytes(b.most) {
				t.Errorf("view %d, step %d: names take %d bytes, %d of %d are left, and %d were lent", view, step, held, s.room, b.room, lent-sketchBytes(b.most))
			}
			if whole != b.most {
				t.Errorf("view %d, step %d: %d of %d short keys have their whole name", view, step, whole, b.most)
			}
			s.reset()
		}
		if times == 0 || times > 30 {
			t.Errorf("view %d: names were cut %d times", view, times)
		}
	}
}

// TestClosedStepOfLongKeys: in a past step, too, every key keeps a name when others are long.
func TestClosedStepOfLongKeys(t *testing.T) {
	t.Parallel()
	s := &sketch{most: 8, room: 4096}
	names := []string{strings.Repeat("long", 230), "a", "client-7", strings.Repeat("x", 60), strings.Repeat("y", 2000)}
	for i, name := range names {
		s.add(uint64(i), []byte(name), int64(10-i), 1, 0, func(int) bool { return true })
	}
	closed := s.close(8, closedRoom)
	size := 0
	for i, k := range closed.keys {
		size += len(k.key)
		if short := len(names[i]) < 100; k.key == "" || !strings.HasPrefix(names[i], k.key) || k.cut == short || short && k.key != names[i] {
			t.Errorf("key %d of %d bytes is %q, cut: %v", i, len(names[i]), k.key, k.cut)
		}
	}
	if len(closed.keys) != len(names) || size > closedRoom || size < closedRoom-2 {
		t.Errorf("%d keys take %d bytes of %d", len(closed.keys), size, closedRoom)
	}
}

// TestSketchOfLargeCosts: counts stay where no sum of them overflows, however much requests cost.
func TestSketchOfLargeCosts(t *testing.T) {
	s := sketch{most: 1, room: 16}
	for range 3000 {
		s.add(7, []byte("k"), 1<<53-1, 1<<53-1, 0, func(int) bool { return true })
	}
	if e := &s.entries[0]; s.total != mostCounted || e.count != mostCounted || e.minute != mostInMinute {
		t.Errorf("the total is %d, the count %d and that of the minute %d", s.total, e.count, e.minute)
	}
}
