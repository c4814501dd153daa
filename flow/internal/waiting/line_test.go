package waiting

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/flow"
)

// model is a line that is obvious: all waiters in one list in the order in which they
// came, and nothing kept that can be worked out. Only which queue a waiter is in, and
// how much was served from each, is kept as the line keeps it.
type model struct {
	max     int
	waiters []*Waiter
	queueOf map[*Waiter]*queue
	served  map[*queue]int64
	owner   map[*queue]uint64
	virtual [flow.Classes]int64
}

func (m *model) in(q *queue) []*Waiter {
	var in []*Waiter
	for _, w := range m.waiters {
		if m.queueOf[w] == q {
			in = append(in, w)
		}
	}
	return in
}

// victim is who gives way to a waiter of that rank in that queue, nil if nobody.
func (m *model) victim(rank int, q *queue) *Waiter {
	least := slices.MaxFunc(m.waiters, func(a, b *Waiter) int { return a.Rank - b.Rank }).Rank
	if least < rank {
		return nil
	}
	longest := 0
	for _, w := range m.waiters {
		if w.Rank == least {
			longest = max(longest, len(m.in(m.queueOf[w])))
		}
	}
	if least == rank && longest <= len(m.in(q))+1 {
		return nil
	}
	// Of equally long queues, any will do.
	for _, w := range slices.Backward(m.waiters) {
		if own := m.in(m.queueOf[w]); w.Rank == least && len(own) == longest && own[len(own)-1] == w {
			return w
		}
	}
	panic("nobody is in the longest queue")
}

func (m *model) push(w *Waiter, q *queue, hash uint64) {
	if len(m.in(q)) == 0 {
		if m.owner[q] != hash || m.served[q] < m.virtual[w.Rank] {
			m.served[q] = m.virtual[w.Rank]
		}
		m.owner[q] = hash
	}
	m.waiters = append(m.waiters, w)
	m.queueOf[w] = q
}

func (m *model) remove(w *Waiter) {
	m.waiters = slices.DeleteFunc(m.waiters, func(o *Waiter) bool { return o == w })
}

// ownLimit is the limit that the waiter goes by.
func ownLimit(w *Waiter, limit int64) int64 {
	if w.Request.Limit > 0 {
		return w.Request.Limit
	}
	return limit
}

// turn is who is next of a class among the heads of queues, of those that fit when so
// much is in use.
func (m *model) turn(rank int, used, limit int64) *Waiter {
	var best *Waiter
	for _, w := range m.waiters {
		q := m.queueOf[w]
		if w.Rank != rank || m.in(q)[0] != w || used+w.Request.Units() > ownLimit(w, limit) {
			continue
		}
		if best == nil || m.served[q] < m.served[m.queueOf[best]] {
			best = w // of equals, the one that came first stays
		}
	}
	return best
}

// fitting is who is to be served next, by the rule as the line's comment states it.
func (m *model) fitting(used, limit int64, passed map[*Waiter]int64) *Waiter {
	var blocked []*Waiter
	for rank := range flow.Classes {
		first := m.turn(rank, 0, limit)
		if first != nil && used+first.Request.Units() > ownLimit(first, limit) {
			blocked = append(blocked, first)
		}
		next := m.turn(rank, used, limit)
		if next == nil {
			continue
		}
		for _, w := range blocked {
			if passed[w]+next.Request.Units() > ownLimit(w, limit) {
				return nil
			}
		}
		for _, w := range blocked {
			passed[w] += next.Request.Units()
		}
		return next
	}
	return nil
}

func TestLineAgainstModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		const limit = 8
		longest, queues := 1+random.IntN(12), 1+random.IntN(20)
		l := New(longest, queues)
		m := &model{max: longest, queueOf: map[*Waiter]*queue{}, served: map[*queue]int64{}, owner: map[*queue]uint64{}}
		passed := map[*Waiter]int64{}
		for step := range 300 {
			switch op := random.IntN(10); {
			case op < 5:
				w := NewWaiter()
				w.Reset(flow.Request{
					Class: flow.ClassOfRank(random.IntN(flow.Classes)), Cost: 1 + random.Int64N(limit),
					Limit: max(0, random.Int64N(2*limit)-limit+3),
				}, 0)
				hash := uint64(random.IntN(6)) * 0x1234567
				c := &l.classes[w.Rank]
				if c.queues == nil {
					c.queues = make([]queue, queues)
				}
				q := c.deal(hash)
				var victim *Waiter
				ok := true
				if len(m.waiters) == longest {
					victim = m.victim(w.Rank, q)
					ok = victim != nil
				}
				displaced, pushed := l.Push(w, hash)
				if pushed != ok || (displaced == nil) != (victim == nil) {
					t.Fatalf("seed %d, step %d: Push: %v, %v, want %v, %v", seed, step, displaced, pushed, victim, ok)
				}
				if victim != nil {
					if displaced.Rank != victim.Rank ||
						len(m.in(m.queueOf[displaced])) != len(m.in(m.queueOf[victim])) {
						t.Fatalf("seed %d, step %d: displaced %+v, want one like %+v", seed, step, displaced, victim)
					}
					m.remove(displaced)
				}
				if pushed {
					m.push(w, q, hash)
				}
			case op < 6 && len(m.waiters) > 0:
				w := m.waiters[random.IntN(len(m.waiters))]
				l.Remove(w)
				m.remove(w)
			default:
				used := random.Int64N(limit + 3)
				want := m.fitting(used, limit, passed)
				got := l.Fitting(used, limit)
				if got != want {
					t.Fatalf("seed %d, step %d: Fitting(%d): %+v, want %+v", seed, step, used, got, want)
				}
				if got != nil {
					q := m.queueOf[got]
					m.virtual[got.Rank] = m.served[q]
					m.served[q] += got.Request.Units()
					l.Take(got)
					m.remove(got)
				}
			}
			if l.Len() != len(m.waiters) {
				t.Fatalf("seed %d, step %d: %d wait, want %d", seed, step, l.Len(), len(m.waiters))
			}
			for rank := range flow.Classes {
				var oldest *Waiter
				n := 0
				for _, w := range slices.Backward(m.waiters) {
					if w.Rank == rank {
						oldest = w
						n++
					}
				}
				if l.Oldest(rank) != oldest || l.classes[rank].n != n {
					t.Fatalf("seed %d, step %d: class %d: oldest %p of %d, want %p of %d",
						seed, step, rank, l.Oldest(rank), l.classes[rank].n, oldest, n)
				}
			}
		}
	}
}

// A tenant that is always waiting gets its part beside one who has a thousand times as
// many waiting, and beside one who comes back the moment it was served.
func TestTenantsTakeTurns(t *testing.T) {
	t.Parallel()
	l := New(2000, 64)
	push := func(hash uint64, cost int64) {
		w := NewWaiter()
		w.Reset(flow.Request{Cost: cost}, 0)
		if _, ok := l.Push(w, hash); !ok {
			t.Fatal("the line is full")
		}
	}
	served := map[uint64]int64{}
	for range 1000 {
		push(1, 1)
	}
	push(2, 1)
	push(3, 5)
	for range 600 {
		w := l.Fitting(0, 10)
		l.Take(w)
		served[w.flow] += w.Request.Units()
		if w.flow != 1 {
			push(w.flow, w.Request.Units())
		}
	}
	for hash, n := range served {
		if n < 270 || n > 290 {
			t.Errorf("tenant %d got %d units: %v", hash, n, served)
		}
	}
}

func TestStandingQueue(t *testing.T) {
	t.Parallel()
	l := New(10, 4)
	var all []*Waiter
	for range 3 {
		w := NewWaiter()
		w.Reset(flow.Request{}, 0)
		l.Push(w, 7)
		all = append(all, w)
	}
	rank := flow.Critical.Rank()
	const usual, short = 100 * time.Millisecond, 5 * time.Millisecond
	if w := l.Stale(rank, usual-1, usual, short); w != nil || l.Turn(rank, 1) != all[0] || l.Stands(rank, 7) {
		t.Errorf("a queue that moves: %p is stale, and it is the turn of %p", w, l.Turn(rank, 1))
	}
	l.Moved(all[0], 50*time.Millisecond)
	l.Take(all[0])
	if w := l.Stale(rank, usual, usual, short); w != nil || l.Stands(rank, 7) {
		t.Errorf("a queue that has moved: %p is stale", w)
	}
	if w := l.Stale(rank, usual+50*time.Millisecond, usual, short); w != all[1] || !l.Stands(rank, 7) {
		t.Errorf("a queue that stands: %p is stale, want %p", w, all[1])
	}
	if l.Turn(rank, 1) != all[2] || l.Turn(rank, 0) != nil {
		t.Errorf("it is the turn of %p, want the newest, %p", l.Turn(rank, 1), all[2])
	}
	l.Remove(all[1])
	l.Remove(all[2])
	all[0].Reset(flow.Request{}, time.Second)
	l.Push(all[0], 7)
	if l.Stale(rank, time.Second, usual, short) != nil || l.Stands(rank, 7) {
		t.Error("a queue that was empty still stands")
	}
}
