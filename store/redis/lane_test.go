package redis

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
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
		err := l.enter(ctx)
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
		began := time.Now()
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
	for _, takes := range []time.Duration{time.Millisecond, laneTimeout * 3 / 4} {
		bubbletest.Test(t, func(t *testing.T) {
			l := newLaneTest(t)
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

// TestLaneRecovers: a server that can answer some of those who ask goes on to answer them
// in time, whatever the others do; when it answers all again, nobody waits any more.
func TestLaneRecovers(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		l := newLaneTest(t)
		// The server answers one call after the other, in their order, and does not
		// know who is gone.
		const each = 100 * time.Microsecond
		var free time.Time
		var mu sync.Mutex
		var answered, failed atomic.Int64
		ask := func(pause time.Duration, until time.Time) {
			for time.Now().Before(until) {
				ctx, cancel := context.WithTimeout(context.Background(), laneTimeout)
				err := l.enter(ctx)
				if err == nil {
					began := time.Now()
					mu.Lock()
					if free.Before(began) {
						free = began
					}
					free = free.Add(each)
					wait := free.Sub(began)
					mu.Unlock()
					select {
					case <-time.After(wait):
					case <-ctx.Done():
						err = ctx.Err()
					}
					l.leave(began, err)
				}
				cancel()
				if err == nil {
					answered.Add(1)
				} else {
					failed.Add(1)
				}
				time.Sleep(pause)
			}
		}
		round := func(callers int, pause, lasts time.Duration) {
			until := time.Now().Add(lasts)
			for range callers {
				l.all.Go(func() { ask(pause, until) })
				time.Sleep(pause / time.Duration(callers))
			}
			l.all.Wait()
		}
		round(1000, 10*time.Millisecond, time.Second/2)
		if n := answered.Load(); n < 3000 || failed.Load() == 0 {
			t.Errorf("of 5,000 calls that the server can answer meanwhile %d were answered in time, and %d failed", n, failed.Load())
		}
		if l.waiting.Len() != 0 || l.calls.Load() != 0 {
			t.Errorf("%d wait and %d are on their way, of nobody", l.waiting.Len(), l.calls.Load())
		}
		failed.Store(0)
		round(50, 10*time.Millisecond, time.Second)
		if l.crowded.Load() || failed.Load() != 0 {
			t.Errorf("while there is time for all: crowded %t, %d failed", l.crowded.Load(), failed.Load())
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
			if !errors.Is(err, errClosed) {
				t.Errorf("%d: got %v", n, err)
			}
		}
		l.all.Wait()
		if n := l.calls.Load(); n != 0 {
			t.Errorf("%d are on their way", n)
		}
	})
}

// TestOvertaken: the error says what happened, and is what callers look for.
func TestOvertaken(t *testing.T) {
	for ended, want := range map[error]string{
		context.DeadlineExceeded: "headgate: store unavailable: redis: take: more ask than are answered in time; it was not sent: context deadline exceeded",
		errClosed:                "headgate: store unavailable: redis: take: the store is closed",
	} {
		err := error(&overtaken{headgate.OpTake, ended})
		if !errors.Is(err, headgate.ErrUnavailable) || !errors.Is(err, ended) || err.Error() != want {
			t.Errorf("got %v", err)
		}
	}
}
