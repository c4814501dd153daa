package redis

import (
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis/internal/guard"
)

// TestCombinerConsiders: sharing begins when many are in flight, goes on while there
// are nearly as many, and ends when there have been few for some calls.
func TestCombinerConsiders(t *testing.T) {
	s := &Store{guards: guard.New(guard.Options{Most: 1 << 10})}
	c := newCombiner(s, 32)
	defer c.end()
	if c.pays(30) {
		t.Error("31 in flight share calls")
	}
	if !c.pays(31) || !c.pays(0) {
		t.Error("32 in flight do not share calls, or not for long")
	}
	calls := func(n int64) {
		one := s.guards.Any()
		for one.Calls() > n {
			one.End(time.Now(), nil)
		}
		for one.Calls() < n {
			if err := one.Begin(); err != nil {
				t.Fatal(err)
			}
		}
		for range calmBatches {
			c.consider()
		}
	}
	if calls(24); !c.pays(0) {
		t.Error("24 in flight have stopped sharing")
	}
	if calls(23); c.pays(0) {
		t.Error("23 in flight go on sharing")
	}
	var none *combiner
	if none.pays(1 << 20) {
		t.Error("where there is no sharing, it pays")
	}
}

// TestRoom: a server far away has room for more calls, and one that is busy has none. What was learnt
// is forgotten, and a clock that steps teaches nothing.
func TestRoom(t *testing.T) {
	c := newCombiner(&Store{guards: guard.New(guard.Options{Most: 1 << 10})}, 8)
	defer c.end()
	at := headgate.Instant(1 << 50)
	hear := func(n int, took time.Duration, work int, micros headgate.Instant) int64 {
		for range n {
			c.heard(&flight{took: took, work: work, at: at})
			at += micros
		}
		return c.room.Load()
	}
	if got := hear(2, 2400*time.Microsecond, 10, 20); got != 300 {
		t.Errorf("there is room for %d, want 300: of 600 µs, 2 for each", got)
	}
	at -= 1_000_000
	if got := hear(1, 2400*time.Microsecond, 10, 20); got < 290 || got > 310 {
		t.Errorf("after a step of the clock there is room for %d, want about 300", got)
	}
	if least := c.least(); least != c.room.Load() || !c.pays(least) {
		t.Errorf("sharing pays from %d calls on, where there is room for %d", least, c.room.Load())
	}
	// Two calls are in flight, and the server works on one of them all the time.
	const work = batchWork + callWork
	if got := hear(1000, 4*work*time.Microsecond, work, 2*work); got >= work {
		t.Errorf("beside a call of %d to a busy server there is room for %d", work, got)
	}
	if got := hear(2000, 10*time.Millisecond, 10, 5_000); got < 125 {
		t.Errorf("when the server is far away, and asked seldom, there is room for %d", got)
	}
}

// TestBoard: requests leave in their order, no more at a time than the server may work at,
// and without those whom nobody waits for.
func TestBoard(t *testing.T) {
	c := newCombiner(&Store{guards: guard.New(guard.Options{Most: 1 << 10})}, 1)
	defer c.end()
	var want []*request
	for i := range 600 {
		s := &request{work: 1 + i%5, done: make(chan struct{}, 1)}
		if i%7 == 0 {
			s.left.Store(true)
		} else {
			want = append(want, s)
		}
		c.waiting = append(c.waiting, s)
	}
	c.runs = 1
	var f flight
	for calls := 0; ; calls++ {
		c.board(&f)
		batch := f.batch
		if len(batch) == 0 {
			if len(want) != 0 || len(c.waiting) != 0 || c.runs != 0 {
				t.Errorf("%d requests were left behind, %d wait, %d goroutines make calls", len(want), len(c.waiting), c.runs)
			}
			if calls < 600*3*6/7/batchWork {
				t.Errorf("there were only %d calls", calls)
			}
			return
		}
		work := 0
		for i, s := range batch {
			if work += s.work; i >= len(want) || s != want[i] {
				t.Fatalf("call %d: request %d is not the one whose turn it is", calls, i)
			}
		}
		if work > batchWork {
			t.Errorf("call %d has %d of work", calls, work)
		}
		want = want[len(batch):]
	}
}

// TestBoardWhenLate: while all can be answered in time they leave in their order. When the
// first has little time left, the last leave first, among themselves in their order, and
// those who are gone leave no trace.
func TestBoardWhenLate(t *testing.T) {
	store := &Store{guards: guard.New(guard.Options{Most: 1 << 10})}
	store.deadlines.Timeout = time.Minute
	for _, late := range []bool{false, true} {
		c := newCombiner(store, 1)
		defer c.end()
		first := time.Now().Add(time.Hour)
		if late {
			first = time.Now().Add(store.deadlines.Timeout / 8)
		}
		var all []*request
		for i := range 3 * batchWork {
			s := &request{work: 1, until: first.Add(time.Duration(i) * time.Minute), done: make(chan struct{}, 1)}
			s.left.Store(i%3 == 1)
			all = append(all, s)
		}
		c.waiting, c.runs = append([]*request(nil), all...), 1
		want := slices.DeleteFunc(all, func(s *request) bool { return s.left.Load() })
		var f flight
		c.board(&f)
		got := f.batch
		rest := want[batchWork:]
		if want = want[:batchWork]; late {
			want, rest = rest, want
		}
		if !slices.Equal(got, want) || !slices.Equal(c.waiting, rest) {
			t.Errorf("late %t: %d requests leave and %d wait, want %d and %d, or they are others", late, len(got), len(c.waiting), len(want), len(rest))
		}
	}
}
