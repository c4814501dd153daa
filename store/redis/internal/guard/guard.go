// Package guard stands between a store and each of its servers. It decides whether a call is sent,
// and learns from how calls end. Without it, calls to a server that is gone or too slow would fill
// the client's queue, and a call that finds the queue full waits without a deadline.
package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/store/redis/internal/refusal"
)

// ErrClosed is the error of calls after the store was closed.
var ErrClosed = errors.New("the store is closed")

// hungError is why a call is not sent to a server that hangs. It is a timeout: the server has
// answered nothing for long. To a breaker that is silence, and not a refusal, and as long as other
// servers answer there is none.
type hungError struct{ name string }

// Error returns the text.
func (e *hungError) Error() string {
	return cmp.Or(e.name, "the server") + " has stopped answering, and is asked now and then only"
}

// Timeout returns true.
func (*hungError) Timeout() bool { return true }

// Options are the settings that the guards of all servers of a store have in common.
type Options struct {
	// Timeout is the deadline of a call.
	Timeout time.Duration
	// Most is how many calls to one server may wait for an answer at a time. It is smaller than the
	// client's queue.
	Most int64
	// Refused, if not nil, is called with the error of every call that fails.
	Refused func(error)
	// Nodes says that there are several servers, the nodes of a cluster. A breaker around the store
	// does not notice that one of them hangs, because the others answer. So the guard of the node
	// must notice.
	Nodes bool
}

// Server is the guard of one server. It is in one of these states:
//
//		          a call ends late,          no call is answered
//		          and many are in flight     for some time
//		┌──────┐ ───────────────▶ ┌─────────┐ ──────────▶ ┌──────┐ ─┐ every probeEvery
//		│ open │                  │ crowded │             │ hung │  │ one call, the probe,
//		└──────┘ ◀─────────────── └─────────┘ ◀────────── └──────┘ ◀┘ is sent
//		          nobody has waited          a call is answered
//		          for some time
//
//	  - Open: every call is sent.
//	  - Crowded: decisions come faster than the server can answer them in time. Some are
//	    sent, and the others wait for their turn; see lane. Refunds and settlements do not wait.
//	  - Hung: calls are refused, except for a probe every probeEvery. The server hangs when the
//	    number of calls in flight and of silent calls together exceeds Most, or when it has
//	    answered nothing for hangsFor; see there. Where a breaker around the store judges the
//	    latter, it is left to it: for all calls to a lone server but those by [Call].
//	  - Closed, from any state: calls are refused for good.
//
// A silent call has ended at its deadline or was cancelled, and the server has answered no call
// since. It still has its place in the client's queue. After an answer, all earlier calls have
// left the queue, and a broken connection empties it. So both reset the number of silent calls.
// But only an answer shows that the server is well.
//
// In any state the connection may be gone. See Unsure.
//
// A Server is safe for concurrent use.
type Server struct {
	name    string // host:port, or "" for the only server or an unknown node
	options *Options

	calls  atomic.Int64 // the calls in flight or waiting for their turn
	silent atomic.Int64 // the silent calls
	closed atomic.Bool

	// All times are in ns since the Unix epoch.
	owed      atomic.Int64 // calls in a row that got no answer
	owedSince atomic.Int64 // when the first of them began
	owedFrom  atomic.Int64 // when the first of them ended
	owedTo    atomic.Int64 // when the last of them ended
	probe     atomic.Int64 // when the next probe may be sent

	failed   atomic.Bool  // the call that ended last had no answer
	answered atomic.Int64 // when a call began that was answered recently

	lane     lane
	refusing refusing
}

const (
	// A server hangs when calls have got no answer for hangsFor, since the first of them began. Between
	// the ends of the first and the last of them must lie hangsSpread: if this process was stopped,
	// or got no processor, all deadlines pass at once.
	hangsFor    = 500 * time.Millisecond
	hangsSpread = 50 * time.Millisecond
	// probeEvery is the time between two probes. Probes are needed because the connection may have
	// been replaced.
	probeEvery = 50 * time.Millisecond
	// idleFor is the time without an answered call after which it is doubtful whether the
	// connection still exists. A connection that goes silent is given up after at least this long.
	idleFor = 250 * time.Millisecond
)

func newServer(name string, options *Options) *Server {
	s := &Server{name: name, options: options}
	s.lane.timeout = options.Timeout
	s.refusing.turn = make(chan struct{}, 1)
	s.refusing.turn <- struct{}{}
	return s
}

// Begin admits a call, or returns the reason for not sending it. After an admitted call, End must
// be called.
func (s *Server) Begin() error { return s.begin(s.options.Nodes) }

// begin is Begin. judges says that nobody else notices that the server hangs.
func (s *Server) begin(judges bool) error {
	if s.closed.Load() {
		return ErrClosed
	}
	calls, silent := s.calls.Add(1), s.silent.Load()
	full, hangs := calls+silent > s.options.Most, judges && s.hangs()
	if !full && !hangs || calls <= s.options.Most && s.probes() {
		return nil
	}
	s.calls.Add(-1)
	if hangs {
		return &hungError{s.name}
	}
	return fmt.Errorf("%d calls have no answer yet, at most %d may wait: the server hangs or is too slow", calls-1+silent, s.options.Most)
}

// hangs reports whether the server has stopped answering.
func (s *Server) hangs() bool {
	to := s.owedTo.Load()
	return s.owed.Load() > 0 && to-s.owedSince.Load() >= int64(hangsFor) && to-s.owedFrom.Load() >= int64(hangsSpread)
}

// probes reports whether it is time for a probe, and if so makes the caller's call the
// probe.
func (s *Server) probes() bool {
	now, next := time.Now().UnixNano(), s.probe.Load()
	return now >= next && s.probe.CompareAndSwap(next, now+int64(probeEvery))
}

// End records the end of a call that began at the given time.
func (s *Server) End(began time.Time, err error) {
	s.calls.Add(-1)
	if err != nil {
		s.fail(began, err)
		return
	}
	// Writes that change nothing would take the cache line from other processors.
	if s.silent.Load() != 0 {
		s.silent.Store(0)
	}
	if s.owed.Load() != 0 {
		s.owed.Store(0)
	}
}

func (s *Server) fail(began time.Time, err error) {
	if s.options.Refused != nil {
		s.options.Refused(err)
	}
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		s.silent.Store(0)
		if refusal.Text(err) != "" {
			s.owed.Store(0)
		}
		return
	}
	s.silent.Add(1)
	if s.options.Nodes && s.name == "" {
		return // It is not known who owes the answer.
	}
	now := time.Now()
	if s.owed.Add(1) == 1 {
		if began.IsZero() {
			began = now
		}
		s.owedSince.Store(began.UnixNano())
		s.owedFrom.Store(now.UnixNano())
	}
	s.owedTo.Store(now.UnixNano())
}

// Enter admits a decision as Begin does, and then waits for its turn. came is when the decision
// arrived, and began is when its call may be sent. If the error is not nil, the call must not be
// sent. Otherwise Leave must be called.
func (s *Server) Enter(ctx context.Context, came time.Time) (began time.Time, err error) {
	if err := s.Begin(); err != nil {
		return came, err
	}
	if began, err = s.lane.enter(ctx, came); err != nil {
		s.calls.Add(-1)
		if !errors.Is(err, ErrClosed) {
			err = fmt.Errorf("more ask than are answered in time; it was not sent: %w", err)
		}
	}
	return began, err
}

// Leave records the end of a decision's call that began at the given time.
func (s *Server) Leave(began time.Time, err error) {
	s.lane.leave(began, err)
	s.End(began, err)
}

// Calls returns how many calls are in flight or wait for their turn.
func (s *Server) Calls() int64 { return s.calls.Load() }

// Unsure reports whether a call that begins at the given time may find that its connection is gone.
// The client then connects within the call and ignores the call's context, which takes more than a
// second if the server hangs. Such a call must be made by [Bounded].
func (s *Server) Unsure(began time.Time) bool {
	return s.failed.Load() || s.options.Nodes && s.name == "" || began.UnixNano()-s.answered.Load() > int64(idleFor)
}

// Heard records the outcome of a call before which Unsure was called. A refusal by the server
// counts as a failure, which only makes the next call more careful.
func (s *Server) Heard(began time.Time, err error) {
	// Writes that change little would take the cache line from other processors.
	if failed := err != nil; s.failed.Load() != failed {
		s.failed.Store(failed)
	}
	if at := began.UnixNano(); err == nil && at-s.answered.Load() > int64(time.Millisecond) {
		s.answered.Store(at)
	}
}

// Close refuses all calls from now on, including those that wait. Closing the client is not enough:
// rueidis opens a closed connection again after the context of a call on it has ended.
func (s *Server) Close() {
	s.closed.Store(true)
	s.lane.end()
}

// Call makes a call that does not wait for its turn, and that no breaker protects: while the server
// hangs, it is refused. It runs in the caller's goroutine unless the connection may be gone.
func Call[T any](ctx context.Context, s *Server, call func() (T, error)) (value T, err error) {
	if err := s.begin(true); err != nil {
		return value, err
	}
	began := time.Now()
	if s.Unsure(began) {
		value, err = Bounded(ctx, call)
	} else {
		value, err = call()
	}
	s.Heard(began, err)
	s.End(began, err)
	return value, err
}

// Do makes a call that is rare enough for a goroutine of its own.
func Do[T any](ctx context.Context, s *Server, call func() (T, error)) (T, error) {
	if err := s.Begin(); err != nil {
		var none T
		return none, err
	}
	began := time.Now()
	value, err := Bounded(ctx, call)
	s.End(began, err)
	return value, err
}

// Bounded makes a call and waits for its end or the end of the context. After the end of the
// context, the call may go on in a separate goroutine. If a guard has admitted the calls,
// Options.Most bounds the number of such goroutines, except for probes.
func Bounded[T any](ctx context.Context, call func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := call()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
