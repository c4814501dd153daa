package redis

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// lane is the way of decisions to one server. The client's queue is first come, first
// served: when more ask than are answered in time, each would be sent when its time is
// nearly over, and the server would do all of its work for callers who are gone. So when
// calls end without an answer because of their deadlines, no more are on their way from
// then on than are answered well before, and the others wait here. The one who waits
// longest is next, or the last who came when that one would be too late. Who is overtaken
// gets his error by his own deadline or before, and was not charged.
//
// Until calls end without an answer nobody waits, and a call costs a look at the clock when
// it comes and one when it leaves.
type lane struct {
	timeout time.Duration // of a call

	calls   atomic.Int64 // on their way
	crowded atomic.Bool  // whether calls may have to wait

	mu      sync.Mutex    // guards what follows
	most    int64         // calls on their way, while it is crowded
	lowered time.Time     // when most was last made less
	silent  int64         // calls that ended by their deadline since one was answered
	took    time.Duration // by the last call, or what is slow if that is less
	fastest time.Duration // answer of late, of those that were looked at
	since   time.Time     // when that was
	waiting list.List     // of *waiter, in the order in which they came
	calm    int64         // calls that have ended since somebody waited
	fair    int64         // answers that were neither slow nor fast while somebody waited
	over    bool
}

// leastCalls is how many calls are on their way at least before others must wait.
const leastCalls = 16

// fastestFor is for how many deadlines the fastest answer is remembered.
const fastestFor = 256

// crowdedFor is for how many deadlines nothing must have been too slow until whoever comes
// and finds nobody waiting need not wait either: those who asked may be long gone.
const crowdedFor = 64

// clusterLanes is how many lanes there are to the nodes of a cluster. Where it has more
// primaries, some share one.
const clusterLanes = 64

// lane is the way to the server that has a key, as of the last few seconds.
func (s *Store) lane(key string, now time.Time) *lane {
	at := 0
	if s.clustered != nil {
		if p := s.placesAt(now); p != nil && p.slots != nil {
			at = int(p.slots[slotOf(key)]) % len(s.lanes)
		}
	}
	return &s.lanes[at]
}

// waiter is a decision that waits for its turn.
type waiter struct {
	until time.Time     // when its caller gives up
	turn  chan struct{} // closed when it may go, or is not to go any more
	err   error         // why it is not
	goes  bool          // it counts as on its way
}

// enter returns when a call may go that came then, or why it may not. One that goes began
// when it says, and must leave.
func (l *lane) enter(ctx context.Context, came time.Time) (began time.Time, err error) {
	if !l.crowded.Load() {
		l.calls.Add(1)
		return came, nil
	}
	l.mu.Lock()
	if l.over {
		l.mu.Unlock()
		return came, errClosed
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

// leave notes how a call that began then has ended.
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
		// Where the way has become longer, answers are never fast again for a while.
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

// part is the time that the way takes by itself, and a part of what is left from there to
// the deadline: with a half of that a call is slow, with a quarter there is room for more.
func (l *lane) part(of time.Duration) time.Duration { return l.fastest + (l.timeout-l.fastest)/of }

// room reports whether a call may be sent. Those that their deadlines have ended are
// still in the client's queue until one behind them is answered.
func (l *lane) room() bool {
	calls := l.calls.Load()
	return calls < leastCalls || calls+l.silent < l.most
}

// next lets those go for whom there is room, and refuses who would be too late.
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

// overtaken is the error of a decision that was not sent because more asked than were
// answered in time. There can be many, so that nothing is formatted for them.
type overtaken struct {
	op    headgate.Op
	ended error // the context's end, or the store's
}

// Error says what happened.
func (e *overtaken) Error() string {
	why := e.ended
	if !errors.Is(why, errClosed) {
		why = fmt.Errorf("more ask than are answered in time; it was not sent: %w", why)
	}
	return unavailable(e.op.String(), why).Error()
}

// Unwrap returns what it is.
func (e *overtaken) Unwrap() []error { return []error{headgate.ErrUnavailable, e.ended} }

// end refuses whoever waits and whoever comes.
func (l *lane) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.crowded.Store(true)
	for place := l.waiting.Front(); place != nil; place = place.Next() {
		w := place.Value.(*waiter)
		w.err = errClosed
		close(w.turn)
	}
	l.waiting.Init()
}
