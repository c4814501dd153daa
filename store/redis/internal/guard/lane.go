package guard

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// lane makes decisions wait while a server is crowded. The client's queue is first come,
// first served. If more callers ask than the server can answer in time, each call would be
// sent when its time is nearly over, and the server would do all of its work for callers who
// have gone. So once calls end by their deadlines without an answer, the lane bounds how many
// calls are on their way, such that those are answered well before their deadlines. The other
// calls wait here. The call that has waited longest is sent next, unless it would be too late;
// then the newest call is sent. A call that is not sent ends with an error at its deadline or
// before, and is not charged.
//
// Until a call ends without an answer, nobody waits, and a call costs one look at the clock
// when it comes and one when it leaves.
type lane struct {
	timeout time.Duration // of a call

	calls   atomic.Int64 // calls on their way
	crowded atomic.Bool  // whether calls may have to wait

	mu      sync.Mutex    // guards what follows
	most    int64         // how many calls may be on their way while the server is crowded
	lowered time.Time     // when most was last lowered
	silent  int64         // calls that ended by their deadlines since the last answer
	took    time.Duration // how long the last call took, at most as long as a slow one
	fastest time.Duration // the fastest answer of late, of the calls that were looked at
	since   time.Time     // when the fastest answer came
	waiting list.List     // of *waiter, in the order in which they came
	calm    int64         // calls that have ended since somebody last waited
	fair    int64         // answers in time that were not slow, while somebody waited
	over    bool          // the store was closed
}

// leastCalls is how many calls may be in flight in any case.
const leastCalls = 16

// fastestFor is how long the fastest answer is remembered, in multiples of a call's timeout.
const fastestFor = 256

// crowdedFor is how long no call must have been too slow, in multiples of a call's timeout, until a
// call that finds nobody waiting need not wait either. The callers who crowded the server may have
// gone long ago.
const crowdedFor = 64

// waiter is a decision that waits for its turn.
type waiter struct {
	until time.Time     // when its caller gives up
	turn  chan struct{} // closed when the decision may be sent, or will never be
	err   error         // why it will never be sent
	goes  bool          // it may be sent, and counts as on its way
}

// enter waits until a call that came at the given time may be sent, and returns the time at which
// that was. The error says that the call must not be sent. Otherwise leave must be called.
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
	if l.crowded.Load() && l.waiting.Len() == 0 && !l.room() && came.Sub(l.lowered) > crowdedFor*l.timeout {
		l.crowded.Store(false)
	}
	if !l.crowded.Load() || l.waiting.Len() == 0 && l.room() {
		l.calls.Add(1)
		l.mu.Unlock()
		return came, nil
	}
	w := &waiter{turn: make(chan struct{})}
	w.until, _ = ctx.Deadline()
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
	if w.goes { // too late
		l.calls.Add(-1)
		l.next(time.Now())
	} else if w.err == nil {
		l.waiting.Remove(place)
	}
	return came, ctx.Err()
}

// leave records how a call has ended that began at the given time.
func (l *lane) leave(began time.Time, err error) {
	calls := l.calls.Add(-1) + 1
	now := time.Now()
	took := now.Sub(began)
	if took <= l.timeout/2 && !l.crowded.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return
	}
	ended := errors.Is(err, context.DeadlineExceeded)
	if l.silent++; !ended && !errors.Is(err, context.Canceled) {
		l.silent = 0
	}
	if err == nil && (took < l.fastest || now.Sub(l.since) > fastestFor*l.timeout) {
		l.fastest, l.since = took, now
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
	case late && now.Sub(l.lowered) > l.timeout/2:
		l.most, l.lowered = max(leastCalls, l.most/2), now
	case err == nil && took <= slow && l.waiting.Len() > 0:
		// If the way to the server has become longer, no answer is fast until the fastest
		// one is forgotten. So slower answers raise the bound too, but more seldom.
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

// part is fastest + (timeout - fastest) / of. A call that takes longer than part(2) is slow.
// One that takes less than part(4) shows that there is room for more calls.
func (l *lane) part(of time.Duration) time.Duration { return l.fastest + (l.timeout-l.fastest)/of }

// room reports whether one more call may be sent. Silent calls count, because they stand in
// the client's queue until a later call is answered.
func (l *lane) room() bool {
	calls := l.calls.Load()
	return calls < leastCalls || calls+l.silent < l.most
}

// next lets waiting calls be sent while there is room, and refuses those that would be too late.
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
