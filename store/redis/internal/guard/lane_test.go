package guard

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/bubbletest"
)

// laneTest is a lane whose calls take as long as the test says.
type laneTest struct {
	*testing.T
	lane

	all   sync.WaitGroup
	mu    sync.Mutex
	went  []int         // who was let go, in their order
	ended map[int]error // how the others ended
}

const laneTimeout = 16 * time.Millisecond

func newLaneTest(t *testing.T) *laneTest {
	return &laneTest{T: t, lane: lane{timeout: laneTimeout}, ended: map[int]error{}}
}

// call makes a call by number n that takes as long once it may go, within the timeout.
func (l *laneTest) call(n int, takes time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), laneTimeout)
	l.all.Go(func() {
		defer cancel()
		began, err := l.enter(ctx, time.Now())
		l.mu.Lock()
		if err == nil {
			l.went = append(l.went, n)
		} else {
			l.ended[n] = err
		}
		l.mu.Unlock()
		if err != nil {
			return
		}
		select {
		case <-time.After(takes):
			l.leave(began, nil)
		case <-ctx.Done():
			l.leave(began, ctx.Err())
		}
	})
	bubbletest.Wait()
}

// crowd has the lane find that answers are slow: more than it then lets go are on their
// way, and none is answered.
func (l *laneTest) crowd() {
	l.Helper()
	for range 2 * leastCalls {
		l.call(0, 2*laneTimeout)
	}
	time.Sleep(laneTimeout)
	bubbletest.Wait()
	if !l.crowded.Load() || l.calls.Load() != 0 || l.most != leastCalls {
		l.Fatalf("crowded %t, %d calls on their way of %d; want true, 0 of %d", l.crowded.Load(), l.calls.Load(), l.most, leastCalls)
	}
	l.went = nil
}

// TestLaneFree: while answers come in time nobody waits, however many ask and however
// long the way is.
func TestLaneFree(t *testing.T) {
	for _, takes := range []time.Duration{time.Millisecond, laneTimeout * 3 / 4, laneTimeout * 15 / 16} {
		bubbletest.Test(t, func(t *testing.T) {
			l := newLaneTest(t)
			l.call(-1, laneTimeout*5/8) // what is slow is known by this
			time.Sleep(laneTimeout)
			l.went = nil
			for range 5 {
				for n := range 500 {
					l.call(n, takes)
				}
				time.Sleep(laneTimeout)
			}
			l.all.Wait()
			if l.crowded.Load() || len(l.went) != 5*500 || l.calls.Load() != 0 {
				t.Errorf("of calls that take %v: crowded %t, %d of %d went, %d are on their way", takes, l.crowded.Load(), len(l.went), 5*500, l.calls.Load())
			}
		})
	}
}

// TestLaneOrder: who waits goes in his order while he has time enough, and the last goes
// first when the first has not. Nobody is sent who would be too late.
func TestLaneOrder(t *testing.T) {
	for _, test := range []struct {
		after, took time.Duration
		want        []int
	}{
		{laneTimeout / 4, time.Millisecond, []int{1, 2, 3}},
		{laneTimeout * 5 / 8, time.Millisecond, []int{3, 2, 1}},
		{laneTimeout * 5 / 8, laneTimeout * 13 / 32, []int{3, 2}},
	} {
		bubbletest.Test(t, func(t *testing.T) {
			l := newLaneTest(t)
			l.crowd()
			l.calls.Store(leastCalls) // of others
			begin := time.Now()
			for n := 1; n <= 3; n++ {
				l.call(n, time.Second)
				time.Sleep(time.Millisecond)
			}
			time.Sleep(test.after - time.Since(begin))
			for range 3 {
				// One of the others ends, and nobody else.
				l.lane.mu.Lock()
				l.calls.Store(leastCalls - 1)
				l.took = test.took
				l.next(time.Now())
				l.lane.mu.Unlock()
				bubbletest.Wait()
			}
			if !slices.Equal(l.went, test.want) || len(l.ended) != 3-len(test.want) {
				t.Errorf("after %v, when a call takes %v: %v went, %d were refused; want %v", test.after, test.took, l.went, len(l.ended), test.want)
			}
			for n, err := range l.ended {
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%d: got %v", n, err)
				}
			}
			l.all.Wait()
		})
	}
}

// laneServer answers one call after the other, in their order, each after a way of its
// own, and does not know who is gone.
type laneServer struct {
	each, way time.Duration
	mu        sync.Mutex
	free      time.Time // nothing is answered before

	answered, failed atomic.Int64
}

// stall has it answer nothing for so long.
func (s *laneServer) stall(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = time.Now().Add(d)
}

// ask makes a call to it by the lane.
func (s *laneServer) ask(l *lane) {
	ctx, cancel := context.WithTimeout(context.Background(), laneTimeout)
	defer cancel()
	began, err := l.enter(ctx, time.Now())
	if err == nil {
		s.mu.Lock()
		if s.free.Before(began) {
			s.free = began
		}
		s.free = s.free.Add(s.each)
		wait := s.free.Sub(began) + s.way
		s.mu.Unlock()
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			err = ctx.Err()
		}
		l.leave(began, err)
	}
	if err == nil {
		s.answered.Add(1)
	} else {
		s.failed.Add(1)
	}
}

// round has so many ask for as long, each with a pause after each call, and counts.
func (s *laneServer) round(l *laneTest, callers int, pause, lasts time.Duration) (answered, failed int64) {
	s.answered.Store(0)
	s.failed.Store(0)
	until := time.Now().Add(lasts)
	for range callers {
		l.all.Go(func() {
			for time.Now().Before(until) {
				s.ask(&l.lane)
				time.Sleep(pause)
			}
		})
		time.Sleep(pause / time.Duration(callers))
	}
	l.all.Wait()
	return s.answered.Load(), s.failed.Load()
}

// TestLaneRecovers: a server that can answer some of those who ask goes on to answer them
// in time, whatever the others do; when it answers all again, nobody waits any more. So it is
// when callers wait for less than a call may take.
func TestLaneRecovers(t *testing.T) {
	for _, timeout := range []time.Duration{laneTimeout, 30 * laneTimeout} {
		bubbletest.Test(t, func(t *testing.T) { recovers(t, timeout) })
	}
}

func recovers(t *testing.T, timeout time.Duration) {
	{
		l := newLaneTest(t)
		l.timeout = timeout
		s := &laneServer{each: 100 * time.Microsecond}
		answered, failed := s.round(l, 1000, 10*time.Millisecond, time.Second/2)
		if answered < 3000 || failed == 0 {
			t.Errorf("of 5,000 calls that the server can answer meanwhile %d were answered in time, and %d failed", answered, failed)
		}
		if l.waiting.Len() != 0 || l.calls.Load() != 0 {
			t.Errorf("%d wait and %d are on their way, of nobody", l.waiting.Len(), l.calls.Load())
		}
		if _, failed = s.round(l, 50, 10*time.Millisecond, time.Second); l.crowded.Load() || failed != 0 {
			t.Errorf("while there is time for all: crowded %t, %d failed", l.crowded.Load(), failed)
		}
	}
}

// TestLaneHiccup: a server that answers nothing for less than a deadline costs nobody his
// answer, and one that does so for longer few more than those who could not have had one.
func TestLaneHiccup(t *testing.T) {
	for _, way := range []time.Duration{laneTimeout / 16, laneTimeout / 4} {
		for stall, most := range map[time.Duration]int64{laneTimeout / 2: 0, 2 * laneTimeout: 3} {
			bubbletest.Test(t, func(t *testing.T) {
				l := newLaneTest(t)
				s := &laneServer{each: time.Microsecond, way: way}
				l.all.Go(func() {
					time.Sleep(3 * laneTimeout)
					s.stall(stall)
				})
				const callers = 300
				if _, failed := s.round(l, callers, laneTimeout/16, 12*laneTimeout); failed > most*callers {
					t.Errorf("%v away, not answering for %v: %d failed of %d who asked", way, stall, failed, callers)
				}
			})
		}
	}
}

// TestLaneFarther: when the servers' way has become longer, as after a failover, but not
// too long, everybody is soon sent again.
func TestLaneFarther(t *testing.T) {
	for way, soon := range map[time.Duration]time.Duration{
		laneTimeout / 3:     50 * laneTimeout,
		laneTimeout * 3 / 4: fastestFor + 100*laneTimeout,
	} {
		bubbletest.Test(t, func(t *testing.T) {
			l := newLaneTest(t)
			s := &laneServer{each: time.Microsecond, way: laneTimeout / 16}
			l.crowd()
			s.round(l, 4, laneTimeout/4, laneTimeout)
			s.way = way
			s.stall(2 * laneTimeout)
			s.round(l, 60, laneTimeout/4, soon)
			if answered, failed := s.round(l, 60, laneTimeout/4, 20*laneTimeout); failed != 0 {
				t.Errorf("%v away: %d were answered in time, and %d failed", way, answered, failed)
			}
		})
	}
}

// TestLaneAfterIdle: those who come long after the last call do not wait for what was
// then, however many they are.
func TestLaneAfterIdle(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		l := newLaneTest(t)
		l.crowd()
		time.Sleep(time.Minute)
		for n := range 1000 {
			l.call(n, laneTimeout/4)
		}
		l.all.Wait()
		if len(l.went) != 1000 || l.crowded.Load() {
			t.Errorf("%d of 1000 went; crowded %t", len(l.went), l.crowded.Load())
		}
	})
}

// TestLaneSilent: calls that nobody waits for any more are in the client's queue until one
// is answered, also those that were cancelled.
func TestLaneSilent(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		l := newLaneTest(t)
		l.crowd()
		before := l.silent
		for n, err := range []error{context.DeadlineExceeded, context.Canceled, errors.Join(context.Canceled)} {
			if _, err := l.enter(t.Context(), time.Now()); err != nil {
				t.Fatal(err)
			}
			if l.leave(time.Now(), err); l.silent != before+int64(n)+1 {
				t.Errorf("after %v: %d are silent, want %d", err, l.silent, before+int64(n)+1)
			}
		}
		if _, err := l.enter(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if l.leave(time.Now(), nil); l.silent != 0 {
			t.Errorf("after an answer %d are silent", l.silent)
		}
	})
}

// TestLaneEnds: whoever waits when the store is closed is told so, and whoever comes.
func TestLaneEnds(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		l := newLaneTest(t)
		l.crowd()
		for range leastCalls {
			l.call(-1, laneTimeout/2)
		}
		for n := range 10 {
			l.call(n, 0)
		}
		l.end()
		l.call(10, 0)
		if len(l.ended) != 11 {
			t.Errorf("%d were told, want 11", len(l.ended))
		}
		for n, err := range l.ended {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("%d: got %v", n, err)
			}
		}
		l.all.Wait()
		if n := l.calls.Load(); n != 0 {
			t.Errorf("%d are on their way", n)
		}
	})
}
