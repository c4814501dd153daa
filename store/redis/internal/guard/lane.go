package guard

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// lane makes decisions wait while a server is crowded. The client's queue is first come, first
// served. If decisions come faster than the server can answer, each call would be sent when its
// time is nearly over, and the server would do all of its work for callers that have given up. So
// once calls end at their deadlines without an answer, the lane limits the number of calls in
// flight, so that these are answered well before their deadlines. The other calls wait in the lane.
// The call that has waited longest is sent next, unless its answer would come too late. Then the
// newest call is sent. A call that is not sent ends with an error at its deadline or before, and is
// not charged.
//
// Until a call ends without an answer, no call waits. Then the lane costs a call one reading of the
// clock at its beginning and one at its end.
type lane struct {
	timeout time.Duration // the longest time that a call may take

	calls   atomic.Int64 // the calls in flight
	crowded atomic.Bool  // whether calls may have to wait

	mu      sync.Mutex    // guards what follows
	waits   time.Duration // the shortest time that a caller waits: of those who came while the server was crowded
	most    int64         // how many calls may be in flight while the server is crowded
	lowered time.Time     // when most was last lowered
	silent  int64         // calls that have ended without an answer since the last answer
	took    time.Duration // how long the last call took, at most part(2)
	fastest time.Duration // the fastest recent answer of a call that took the lock
	since   time.Time     // when the fastest answer came
	waiting list.List     // of *waiter, in the order in which they came
	calm    int64         // calls that have ended since a call last waited
	fair    int64         // answers that were not slow while a call waited
	over    bool          // the store was closed
}

// leastCalls is how many calls may always be in flight.
const leastCalls = 16

// leastWaits is how long a caller must wait at least to be taken into account.
const leastWaits = 5 * time.Millisecond

// fastestFor is how long the fastest answer is remembered.
const fastestFor = 4 * time.Second

// crowdedFor is the time since the bound was last lowered after which a call that finds no other
// call waiting need not wait, and the server is no longer crowded. The callers that crowded it may
// have gone long ago.
const crowdedFor = time.Second

// waiter is a decision that waits for its turn.
type waiter struct {
	until time.Time     // the deadline of its caller
	turn  chan struct{} // closed when the decision may be sent, or will never be
	err   error         // why it will never be sent
	goes  bool          // it may be sent, and counts as in flight
}

// enter waits until a call may be sent. came is when the call arrived, and began is when it may be
// sent. If there is an error, the call must not be sent. Otherwise leave must be called.
func (l *lane) enter(ctx context.Context, came time.Time) (began time.Time, err error) {
	if !l.crowded.Load() {
		l.calls.Add(1)
		return came, nil
	}
	l.mu.Lock()
	if l.over {
		l.mu.Unlock()
		return came, ErrClosed
	}
	if l.crowded.Load() && l.waiting.Len() == 0 && !l.room() && came.Sub(l.lowered) > crowdedFor {
		l.crowded.Store(false)
	}
	if !l.crowded.Load() || l.waiting.Len() == 0 && l.room() {
		l.calls.Add(1)
		l.mu.Unlock()
		return came, nil
	}
	w := &waiter{turn: make(chan struct{})}
	w.until, _ = ctx.Deadline()
	l.waits = min(l.waits, max(w.until.Sub(came), leastWaits))
	place := l.waiting.PushBack(w)
	l.calm = 0
	l.mu.Unlock()
	select {
	case <-w.turn:
		return time.Now(), w.err
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.goes { // it may be sent, but its context has ended
		l.calls.Add(-1)
		l.next(time.Now())
	} else if w.err == nil {
		l.waiting.Remove(place)
	}
	return came, ctx.Err()
}

// leave records the end of a call that began at the given time.
func (l *lane) leave(began time.Time, err error) {
	calls := l.calls.Add(-1) + 1
	now := time.Now()
	took := now.Sub(began)
	ended := errors.Is(err, context.DeadlineExceeded) && took >= leastWaits
	if took <= l.timeout/2 && !ended && !l.crowded.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	if l.silent++; !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		l.silent = 0
	}
	if err == nil && (took < l.fastest || now.Sub(l.since) > fastestFor) {
		l.fastest, l.since = took, now
	}
	if !l.crowded.Load() {
		l.waits = l.timeout
		if ended {
			l.waits = min(took, l.timeout)
		}
	}
	slow := l.part(2)
	l.took = min(took, slow)
	switch late := took > slow && calls > leastCalls; {
	case !l.crowded.Load():
		if !late || !ended {
			return
		}
		l.most, l.lowered, l.calm = leastCalls, now, 0
		l.crowded.Store(true)
	case late && now.Sub(l.lowered) > l.waits/2:
		l.most, l.lowered = max(leastCalls, l.most/2), now
	case err == nil && took <= slow && l.waiting.Len() > 0:
		// If the network has become slower, no answer is fast until the fastest one is forgotten.
		// So slower answers raise the bound too, but only every 16th.
		if l.fair++; took < l.part(4) || l.fair%16 == 0 {
			l.most++
		}
	}
	if l.next(now); l.waiting.Len() == 0 {
		if l.calm++; l.calm > 4*l.most {
			l.crowded.Store(false)
		}
	}
}

// part returns fastest + (waits - fastest) / of. A call that takes longer than part(2) is slow. A
// call that takes less than part(4) shows that there is room for more calls.
func (l *lane) part(of time.Duration) time.Duration {
	fastest := min(l.fastest, l.waits)
	return fastest + (l.waits-fastest)/of
}

// room reports whether one more call may be sent. Silent calls count, because they stay in the
// client's queue until a later call is answered.
func (l *lane) room() bool {
	calls := l.calls.Load()
	return calls < leastCalls || calls+l.silent < l.most
}

// next lets calls be sent while there is room, and refuses those whose answers would come too late.
func (l *lane) next(now time.Time) {
	for l.waiting.Len() > 0 && l.room() {
		place := l.waiting.Front()
		if place.Value.(*waiter).until.Sub(now) < l.part(2) {
			place = l.waiting.Back()
		}
		w := l.waiting.Remove(place).(*waiter)
		if w.until.Sub(now) > l.took {
			w.goes = true
			l.calls.Add(1)
		} else {
			w.err = context.DeadlineExceeded
		}
		close(w.turn)
	}
}

// end refuses the calls that wait, and all later ones.
func (l *lane) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.crowded.Store(true)
	for place := l.waiting.Front(); place != nil; place = place.Next() {
		w := place.Value.(*waiter)
		w.err = ErrClosed
		close(w.turn)
	}
	l.waiting.Init()
}
