package tally_test

import (
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/tally"
)

func TestRead(t *testing.T) {
	t.Parallel()
	c := tally.New(2)
	for _, took := range []time.Duration{-1, 0, 10 * time.Microsecond, 10*time.Microsecond + 1, time.Second, time.Hour} {
		c.Add(1, took)
	}
	waiting := c.Begin()
	c.Begin().Drop()
	kinds, underWay := c.Read()
	if want := time.Hour + time.Second + 20*time.Microsecond; underWay != 1 || kinds[1].Took != want {
		t.Errorf("%d are under way; together they took %v, not %v", underWay, kinds[1].Took, want)
	}
	within := func(k tally.Kind, want ...uint64) {
		t.Helper()
		for i, bound := range []float64{10e-6, 25e-6, 0.5, 1} {
			if k.Within[bound] != want[i] {
				t.Errorf("within %v s: %d, not %d", bound, k.Within[bound], want[i])
			}
		}
	}
	within(kinds[1], 3, 4, 4, 5)
	if kinds[0].Calls != 0 || kinds[1].Calls != 6 {
		t.Errorf("%+v", kinds)
	}
	waiting.End(0, time.Millisecond)
	if kinds, underWay = c.Read(); underWay != 0 || kinds[0].Calls != 1 {
		t.Errorf("%d are under way, %+v", underWay, kinds)
	}
	var both tally.Kind
	both.Add(kinds[0])
	both.Add(kinds[1])
	if within(both, 3, 4, 5, 6); both.Calls != 7 || both.Took != kinds[0].Took+kinds[1].Took {
		t.Errorf("%+v", both)
	}
}

// TestTogether: nothing is lost, whoever counts meanwhile, and no more calls are under way
// than there are callers.
func TestTogether(t *testing.T) {
	t.Parallel()
	const callers, each = 32, 500
	c := tally.New(2)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for range each {
				c.Begin().End(i%2, time.Duration(i)*time.Microsecond)
				if _, underWay := c.Read(); underWay < 0 || underWay > callers {
					t.Errorf("%d calls are under way", underWay)
				}
			}
		})
	}
	all.Wait()
	kinds, underWay := c.Read()
	if underWay != 0 || kinds[0].Calls != callers/2*each || kinds[1].Calls != callers/2*each {
		t.Errorf("%d under way, %+v", underWay, kinds)
	}
	if want := each * callers / 2 * (callers - 1) * time.Microsecond; kinds[0].Took+kinds[1].Took != want {
		t.Errorf("together they took %v, not %v", kinds[0].Took+kinds[1].Took, want)
	}
}

// TestNothingAllocated: to count costs no memory.
func TestNothingAllocated(t *testing.T) {
	c := tally.New(1)
	c.Add(0, 0)
	if n := testing.AllocsPerRun(100, func() { c.Add(0, time.Millisecond) }); n > 0 {
		t.Errorf("%v objects are allocated for each call", n)
	}
}

func BenchmarkAdd(b *testing.B) {
	c := tally.New(4)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c.Add(1, time.Microsecond)
		}
	})
}
