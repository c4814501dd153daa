// Package tally counts calls by what became of them, and how long they took.
//
// # Basics
//
// A counter and a histogram of Prometheus cost a decision from memory about a tenth of its time:
// each has locks or loops that are shared by all cores. A [Tally] has one set of counters for each
// core instead, and [Tally.Read] adds them up when somebody looks.
//
//	call := t.Begin()
//	... // the call
//	call.End(kind, took)
package tally

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// bounds are those of the histograms: from 10 µs, where a memory store is busy, to 1 s, where no
// caller waits any longer.
var bounds = [...]time.Duration{
	10 * time.Microsecond, 25 * time.Microsecond, 50 * time.Microsecond,
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second,
}

// Tally counts calls of several kinds. It is safe for concurrent use; make one with [New].
type Tally struct {
	kinds  int
	shares []*share
	lent   sync.Pool // of *share: a core gets the one again that it has used last
}

// share is what one core counts. Others may use it too, so all of it is atomic.
type share struct {
	underWay atomic.Int64
	kinds    []kind
	_        [64]byte // the next share is on another cache line
}

// kind has what is known of the calls of one kind.
type kind struct {
	// calls are those that took up to the bound with the same index, but longer than the one
	// before it. The last ones took longer than all bounds.
	calls [len(bounds) + 1]atomic.Uint64
	took  atomic.Int64 // all calls together, in nanoseconds
}

// New returns a tally for calls of so many kinds, which are numbered from 0.
func New(kinds int) *Tally {
	t := &Tally{kinds: kinds, shares: make([]*share, runtime.GOMAXPROCS(0))}
	for i := range t.shares {
		t.shares[i] = &share{kinds: make([]kind, kinds)}
	}
	var next atomic.Uint32
	t.lent.New = func() any { return t.shares[int(next.Add(1))%len(t.shares)] }
	return t
}

// Call is a call that is under way.
type Call struct {
	t *Tally
	s *share
}

// Begin counts a call as under way. Its caller ends it with End or Drop.
func (t *Tally) Begin() Call {
	s := t.lent.Get().(*share)
	s.underWay.Add(1)
	return Call{t, s}
}

// End counts the call under its kind.
func (c Call) End(kind int, took time.Duration) {
	c.s.add(kind, took)
	c.Drop()
}

// Drop ends a call that is not to be counted.
func (c Call) Drop() {
	c.s.underWay.Add(-1)
	c.t.lent.Put(c.s)
}

// Add counts a call that has begun and ended.
func (t *Tally) Add(kind int, took time.Duration) {
	s := t.lent.Get().(*share)
	s.add(kind, took)
	t.lent.Put(s)
}

func (s *share) add(kind int, took time.Duration) {
	k, i := &s.kinds[kind], 0
	for i < len(bounds) && took > bounds[i] {
		i++
	}
	k.calls[i].Add(1)
	k.took.Add(int64(took))
}

// Kind is what is known of the calls of one kind.
type Kind struct {
	// Calls is how many there were, and Took how long all of them took together.
	Calls uint64
	Took  time.Duration
	// Within has for each bound of a histogram, in seconds, how many calls took no longer.
	Within map[float64]uint64
}

// Read returns what was counted under each kind, and how many calls are under way. Calls that end
// meanwhile may be in some of the numbers only.
func (t *Tally) Read() (kinds []Kind, underWay int64) {
	kinds = make([]Kind, t.kinds)
	for i := range kinds {
		kinds[i].Within = make(map[float64]uint64, len(bounds))
	}
	for _, s := range t.shares {
		underWay += s.underWay.Load()
		for i := range kinds {
			k, of := &kinds[i], &s.kinds[i]
			k.Took += time.Duration(of.took.Load())
			calls := uint64(0)
			for b := range of.calls {
				calls += of.calls[b].Load()
				if b < len(bounds) {
					k.Within[bounds[b].Seconds()] += calls
				}
			}
			k.Calls += calls
		}
	}
	return kinds, underWay
}

// Add adds the calls of another kind.
func (k *Kind) Add(other Kind) {
	k.Calls += other.Calls
	k.Took += other.Took
	if k.Within == nil {
		k.Within = make(map[float64]uint64, len(bounds))
	}
	for bound, calls := range other.Within {
		k.Within[bound] += calls
	}
}
