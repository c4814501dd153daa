package denycache

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/internal/layer"
)

// tableKeys makes checks of one rule, and the hashes of their counters.
func tableKeys(n int) (checks []headgate.Check, hashes []uint64) {
	rule := headgate.MustRule("r", headgate.PerHour(1))
	for i := range n {
		c := headgate.Check{Rule: rule, Key: fmt.Sprintf("key %d", i)}
		checks, hashes = append(checks, c), append(hashes, layer.CounterOf(&c).Hash())
	}
	return checks, hashes
}

func newTable(keys int) *table {
	t := new(table)
	t.init(keys)
	return t
}

func (t *table) finds(hash uint64, c *headgate.Check) bool {
	_, _, ok := t.find(hash, c, 0)
	return ok
}

// TestTable: in a random history, the table remembers the keys that it is told to keep, except for
// answers that are older than a forgetting of the key. Every key that is remembered has its marks,
// and few of those that nobody ever kept have them.
func TestTable(t *testing.T) {
	const keys, steps = 3000, 40_000
	checks, hashes := tableKeys(2 * keys) // the second half is never kept
	random := rand.New(rand.NewPCG(1, 2))
	held := newTable(DefaultMaxKeys)
	want := make(map[int]bool)
	forgotten := make(map[int]int) // the step at which a key was forgotten
	asked, askedAt := held.moment(), 0
	late, falsely := 0, 0
	for step := 1; step <= steps; step++ {
		i := random.IntN(keys)
		switch p := random.IntN(1000); {
		case p < 550:
			// The store may have been asked some time ago.
			if p%8 == 0 {
				asked, askedAt = held.moment(), step
			}
			held.keep(hashes[i], &checks[i], asked, denial{cost: 1, until: time.Hour})
			switch {
			case forgotten[i] <= askedAt:
				// Another key of the same kind may have been forgotten since.
				if p%8 == 0 || held.finds(hashes[i], &checks[i]) {
					want[i] = true
				}
			case !want[i]:
				late++
			}
		case p < 700:
			held.drop(hashes[i])
			delete(want, i)
		case p < 999:
			held.forget(hashes[i])
			delete(want, i)
			forgotten[i] = step
		default:
			held.forgetAll()
			clear(want)
			for i := range keys {
				forgotten[i] = step
			}
		}
		for _, i := range []int{i, random.IntN(keys)} {
			has, finds := held.has(hashes[i]), held.finds(hashes[i], &checks[i])
			if finds != want[i] || finds && !has {
				t.Fatalf("step %d: key %d is remembered: %t, has its marks: %t; want it remembered: %t", step, i, finds, has, want[i])
			}
		}
		if held.has(hashes[keys+i]) {
			falsely++
		}
		if got := held.count.Load(); got != int64(len(want)) {
			t.Fatalf("step %d: %d keys are counted, want %d", step, got, len(want))
		}
	}
	if late < 100 {
		t.Errorf("%d answers came late, too few to say anything", late)
	}
	if share := float64(falsely) / steps; share > 0.01 {
		t.Errorf("%.1f %% of the keys that nobody kept have marks", 100*share)
	}
}

// TestTableAtItsBound: the table never holds more keys than it may, and their marks stay while the
// keys change.
func TestTableAtItsBound(t *testing.T) {
	const most, keys = 1 << 10, 1 << 14
	checks, hashes := tableKeys(keys)
	held := newTable(most)
	asked := held.moment()
	for i := range keys {
		held.keep(hashes[i], &checks[i], asked, denial{cost: 1, until: time.Hour})
		if !held.has(hashes[i]) {
			t.Fatalf("key %d has no marks", i)
		}
		if got := held.count.Load(); got > most {
			t.Fatalf("%d keys are remembered, at most %d may be", got, most)
		}
	}
	marked, found := 0, 0
	for i := range keys {
		has, finds := held.has(hashes[i]), held.finds(hashes[i], &checks[i])
		if finds && !has {
			t.Errorf("key %d is remembered without its marks", i)
		}
		if has {
			marked++
		}
		if finds {
			found++
		}
	}
	if int64(found) != held.count.Load() || marked > 2*found {
		t.Errorf("%d keys are remembered, %d counted, %d have marks", found, held.count.Load(), marked)
	}
}

// TestTableForgetsForGood: whatever other calls do at the same time, an answer that the store gave
// before a key was forgotten is not remembered afterwards.
func TestTableForgetsForGood(t *testing.T) {
	const keys, rounds = 64, 300
	checks, hashes := tableKeys(keys)
	held := newTable(DefaultMaxKeys)
	for range rounds {
		asked := held.moment()
		var all sync.WaitGroup
		all.Go(func() {
			for i := range keys {
				held.keep(hashes[i], &checks[i], asked, denial{cost: 1, until: time.Hour})
			}
		})
		all.Go(func() {
			for i := range keys {
				held.forget(hashes[i])
			}
		})
		all.Go(func() {
			for i := range keys {
				held.has(hashes[i])
				held.drop(hashes[keys-1-i])
			}
		})
		all.Wait()
		for i := range keys {
			if held.finds(hashes[i], &checks[i]) {
				t.Fatalf("key %d is remembered by an answer from before it was forgotten", i)
			}
		}
		if n := held.count.Load(); n != 0 {
			t.Fatalf("%d keys are counted", n)
		}
	}
}
