package stores

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/async"
	"github.com/headgate/headgate/store/layered/lease"
)

// Span is when the call for a unit began that was admitted, and when it had ended: the unit
// was admitted in between.
type Span struct{ Began, Ended time.Time }

// Node is a store with the consistency that its server's policy asks for.
type Node struct {
	Store       headgate.Store
	Consistency headgate.Consistency
}

// Load is what callers ask of each node and rule.
type Load struct {
	Callers int
	Pause   time.Duration // between the requests of each
	// Length is how long they ask at least: they go on, for two minutes at most, until the
	// limits have been used up once and Enough, if there is one, reports true.
	Length time.Duration
	Enough func() bool
	// MayFail says that calls may fail: else one that does fails the test.
	MayFail bool
}

// Spend has callers of every node take single units of every rule, and returns what was
// admitted of each rule.
func Spend(t testing.TB, nodes []Node, rules []*headgate.Rule, load Load) [][]Span {
	t.Helper()
	admitted := make([][]Span, len(rules))
	var mu sync.Mutex // guards admitted
	var all sync.WaitGroup
	start := time.Now()
	counts := make([]atomic.Int64, len(rules))
	over := func() bool {
		took := time.Since(start)
		if took < load.Length || took > most {
			return took > most
		}
		for i, rule := range rules {
			if counts[i].Load() < rule.Limits()[0].Count*9/10 {
				return false
			}
		}
		return load.Enough == nil || load.Enough()
	}
	for _, node := range nodes {
		for i, rule := range rules {
			checks := []headgate.Check{{Rule: rule, Key: "k", Hints: headgate.Hints{Consistency: node.Consistency}}}
			for range load.Callers {
				all.Go(func() {
					var mine []Span
					for ; !over(); time.Sleep(load.Pause) {
						began := time.Now()
						out, err := node.Store.Take(t.Context(), headgate.OpTake, checks, nil)
						switch {
						case err != nil && !load.MayFail:
							t.Errorf("%s: %v", rule.Name(), err)
							return
						case err == nil && headgate.NewVerdict(out).Allowed:
							mine = append(mine, Span{began, time.Now()})
							counts[i].Add(1)
						}
					}
					mu.Lock()
					defer mu.Unlock()
					admitted[i] = append(admitted[i], mine...)
				})
			}
		}
	}
	Ended(t, "no caller is stuck in a store", Waited(&all))
	return admitted
}

// Excess is the most units by which the limit of a token bucket, a sliding window or a fixed
// window of UTC was exceeded for certain, whenever within its span each was admitted.
func Excess(l *headgate.Limit, spans []Span) int64 {
	// For each time since which, in descending order, those that began later by their ends.
	slices.SortFunc(spans, func(a, b Span) int { return b.Began.Compare(a.Began) })
	worst := int64(math.MinInt64)
	var ends []time.Time
	for _, s := range spans {
		place, _ := slices.BinarySearchFunc(ends, s.Ended, time.Time.Compare)
		ends = slices.Insert(ends, place, s.Ended)
		for i, end := range ends {
			units, took := int64(i+1), end.Sub(s.Began)
			var most int64
			switch l.Algorithm {
			case headgate.TokenBucket:
				most = l.Capacity() + l.Count*int64(took)/int64(l.Period)
			case headgate.FixedWindow:
				if most = l.Count; s.Began.Truncate(l.Period) != end.Truncate(l.Period) {
					continue
				}
			default:
				if most = l.Count; took >= l.Period {
					continue
				}
			}
			worst = max(worst, units-most)
		}
	}
	return max(0, worst)
}

// Layers puts a layer of that consistency, Leased or Async, around each store, as many nodes
// that share their limits, and returns the nodes and a function that tells how many requests
// they have decided without the stores. The layers are closed when the test ends.
func Layers(t testing.TB, consistency headgate.Consistency, all ...headgate.Store) (nodes []Node, served func() int64) {
	t.Helper()
	var counts []func() int64
	for _, store := range all {
		var closing func(context.Context) error
		switch consistency {
		case headgate.Leased:
			layer, err := lease.New(store, lease.Options{Nodes: func() int64 { return int64(len(all)) }})
			if err != nil {
				t.Fatal(err)
			}
			nodes = append(nodes, Node{layer.Store(), consistency})
			counts, closing = append(counts, func() int64 { return layer.Stats().Served }), layer.Close
		case headgate.Async:
			layer, err := async.New(store, async.Options{})
			if err != nil {
				t.Fatal(err)
			}
			nodes = append(nodes, Node{layer.Store(), consistency})
			counts, closing = append(counts, func() int64 { return layer.Stats().Local }), layer.Close
		default:
			t.Fatalf("there is no layer for %v", consistency)
		}
		t.Cleanup(func() {
			if err := closing(context.Background()); err != nil {
				t.Logf("closing a layer: %v", err)
			}
		})
	}
	return nodes, func() (sum int64) {
		for _, count := range counts {
			sum += count()
		}
		return sum
	}
}

// AsyncExcess is by how much so many nodes may exceed a limit that is async while they hear of
// each other, as docs/consistency.md has it.
func AsyncExcess(l *headgate.Limit, nodes int64) int64 {
	most := float64(nodes) * async.DefaultPart * float64(l.Capacity())
	if l.Algorithm == headgate.TokenBucket {
		stale := 3 * async.DefaultInterval
		most += float64(1+nodes) * float64(l.Count) * stale.Seconds() / l.Period.Seconds()
	}
	return int64(math.Ceil(most))
}

// Brisk are limits of 500 units in a period, of each algorithm that [Excess] knows: they are
// used up and come back while a test lasts.
func Brisk(period time.Duration) []*headgate.Rule {
	return []*headgate.Rule{
		headgate.MustRule("brisk.bucket", headgate.Per(500, period)),
		headgate.MustRule("brisk.sliding", headgate.Sliding(500, period)),
		headgate.MustRule("brisk.fixed", headgate.Limit{Algorithm: headgate.FixedWindow, Count: 500, Period: period}),
	}
}

// Within holds what was admitted of each rule to its limit and what it may be exceeded by,
// and to having been used up at least once.
func Within(t testing.TB, rules []*headgate.Rule, admitted [][]Span, over func(*headgate.Limit) int64) {
	t.Helper()
	for i, rule := range rules {
		l := &rule.Limits()[0]
		excess, most := Excess(l, admitted[i]), over(l)
		t.Logf("%s: %d units were admitted, %d too many at once, at most %d may be", rule.Name(), len(admitted[i]), excess, most)
		if excess > most {
			t.Errorf("%s: %d units too many were admitted, at most %d may be", rule.Name(), excess, most)
		}
		if int64(len(admitted[i])) < l.Count*9/10 {
			t.Errorf("%s: %d units were admitted, and the limit is %d", rule.Name(), len(admitted[i]), l.Count)
		}
	}
}
