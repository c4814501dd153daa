// Package guard stands between a store and each of its servers. It decides whether a call is
// sent, and learns from how calls end. Without it, calls to a server that is too slow or
// gone would fill the client's queue, and whoever then finds no place in the queue waits
// without a deadline.
package guard

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/store/redis/internal/refusal"
)

// ErrClosed is the error of calls after the store was closed.
var ErrClosed = errors.New("the store is closed")

// Options are what the guards of a store's servers have in common.
type Options struct {
	// Timeout is the deadline of a call.
	Timeout time.Duration
	// Most is how many calls to one server may wait for an answer at a time. It is smaller than the
	// client's queue.
	Most int64
	// Refused, if not nil, is called with every error that a call ends with.
	Refused func(error)
	// Nodes says that there are several servers, the nodes of a cluster. If one of them hangs, a
	// breaker around the store does not notice, because the others answer. So the node's guard must
	// notice.
	Nodes bool
}

// Server is the guard of one server. It is in one of these states:
//
//		          a call ends late,          many calls in a row
//		          and many are out           have no answer
//		┌──────┐ ───────────────▶ ┌─────────┐ ──────────▶ ┌──────┐ ─┐ every probeEvery
//		│ open │                  │ crowded │             │ hung │  │ one call, the probe,
//		└──────┘ ◀─────────────── └─────────┘ ◀────────── └──────┘ ◀┘ is sent
//		          nobody has waited          a call is answered
//		          for some time
//
//	  - Open: every call is sent.
//	  - Crowded: so many decisions ask that the server cannot answer all in time. Some are
//	    sent, and the others wait for their turn; see lane. Refunds and settlements do not wait.
//	  - Hung: calls are refused, except for a probe now and then. The server hangs when the
//	    calls on their way and the silent ones together exceed Most. The node of a cluster
//	    also hangs when hangsAt calls in a row had time for an answer and got none, over
//	    hangsFor or longer.
//	  - Closed, from any state: calls are refused for good.
//
// A silent call ended by its deadline, and the server has answered nothing since. It still
// has its place in the client's queue. An answer empties the queue, and so does a broken
// connection; only an answer shows that the server is well.
//
// In any state the connection may be gone. See Unsure.
type Server struct {
	name    string // host:port, or "" for whichever serves
	options *Options

	calls  atomic.Int64 // on their way, or waiting for their turn
	silent atomic.Int64 // the silent calls
	closed atomic.Bool

	owed     atomic.Int64 // calls in a row that had time for an answer and got none
	owedFrom atomic.Int64 // when the first of them ended, in ns
	owedTo   atomic.Int64 // and the last
	probe    atomic.Int64 // when the next probe may be sent, in ns

	failed   atomic.Bool  // the call that ended last had no answer
	answered atomic.Int64 // about when a call was last answered, in ns

	lane lane
}

const (
	// A node is taken to hang when hangsAt calls in a row have got no answer, over hangsFor or
	// longer. A short time is not enough, because many calls can end at once if a process or a node
	// is only late.
	hangsAt  = 128
	hangsFor = 200 * time.Millisecond
	// probeEvery is the time between two probes. The connection may have been replaced.
	probeEvery = 50 * time.Millisecond
	// idleFor is how long nobody has asked when it becomes doubtful that the connection still
	// exists. A connection that goes silent is given up after at least as long.
	idleFor = 250 * time.Millisecond
)

func newServer(name string, options *Options) *Server {
	s := &Server{name: name, options: options}
	s.lane.timeout = options.Timeout
	return s
}

// Begin admits a call, or returns the reason for not sending it. After an admitted call, End must
// be called.
func (s *Server) Begin() error {
	if s.closed.Load() {
		return ErrClosed
	}
	calls, silent := s.calls.Add(1), s.silent.Load()
	full, hangs := calls+silent > s.options.Most, s.hangs()
	if !full && !hangs || calls <= s.options.Most && s.probes() {
		return nil
	}
	s.calls.Add(-1)
	if hangs {
		return fmt.Errorf("%s has stopped answering, and is asked now and then only", s.name)
	}
	return fmt.Errorf("%d calls have no answer yet, at most %d may wait: the server hangs or is too slow", calls-1+silent, s.options.Most)
}

// hangs reports whether the server is a node that has stopped answering.
func (s *Server) hangs() bool {
	return s.owed.Load() >= hangsAt && s.owedTo.Load()-s.owedFrom.Load() >= int64(hangsFor)
}

// probes reports whether it is time for a probe, and if so makes the caller's call the
// probe.
func (s *Server) probes() bool {
	now, next := time.Now().UnixNano(), s.probe.Load()
	return now >= next && s.probe.CompareAndSwap(next, now+int64(probeEvery))
}

// End records how a call has ended that began at the given time.
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
	if now := time.Now(); s.options.Nodes && s.name != "" && now.Sub(began) >= s.options.Timeout/4 {
		s.owedTo.Store(now.UnixNano())
		if s.owed.Add(1) == 1 {
			s.owedFrom.Store(now.UnixNano())
		}
	}
}

// Enter admits a decision as Begin does, and then waits for its turn. It returns the time at which
// the call began. If the error is not nil, waited says that the call was admitted but its turn did
// not come. Otherwise Leave must be called.
func (s *Server) Enter(ctx context.Context, came time.Time) (began time.Time, waited bool, err error) {
	if err := s.Begin(); err != nil {
		return came, false, err
	}
	if began, err = s.lane.enter(ctx, came); err != nil {
		s.calls.Add(-1)
	}
	return began, true, err
}

// Leave records how a decision has ended that began at the given time.
func (s *Server) Leave(began time.Time, err error) {
	s.lane.leave(began, err)
	s.End(began, err)
}

// Calls is how many calls are in flight or wait for their turn.
func (s *Server) Calls() int64 { return s.calls.Load() }

// Unsure reports whether a call may find that its connection is gone. The client then connects
// within the call and ignores the call's context, which takes a second and more if the server
// hangs. Such a call must be made by [Bounded].
func (s *Server) Unsure(ctx context.Context) bool {
	return s.failed.Load() || s.options.Nodes && s.name == "" || about(ctx)-s.answered.Load() > int64(idleFor)
}

// Heard records how a call has ended for which Unsure was called. It counts a refusal by the server
// as a failure, because being careful costs nothing.
func (s *Server) Heard(ctx context.Context, err error) {
	if failed := err != nil; s.failed.Load() != failed {
		s.failed.Store(failed)
	}
	if at := about(ctx); err == nil && s.answered.Load() != at {
		s.answered.Store(at)
	}
}

// about is a time for Unsure and Heard that costs no reading of the clock: calls that begin
// together share a deadline.
func about(ctx context.Context) int64 {
	end, _ := ctx.Deadline()
	return end.UnixNano()
}

// Close refuses all calls from now on, including those that wait. Closing the client is not enough:
// rueidis opens a closed connection again after a call on it has ended with its context.
func (s *Server) Close() {
	s.closed.Store(true)
	s.lane.end()
}

// Call makes a call that does not wait for its turn. It runs in this goroutine, unless the
// connection may be gone.
func Call[T any](ctx context.Context, s *Server, call func() (T, error)) (T, error) {
	if s.Unsure(ctx) {
		value, err := Do(ctx, s, call)
		s.Heard(ctx, err)
		return value, err
	}
	if err := s.Begin(); err != nil {
		var none T
		return none, err
	}
	began := time.Now()
	value, err := call()
	s.Heard(ctx, err)
	s.End(began, err)
	return value, err
}

// Do makes a rare call, always in a separate goroutine.
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

// Bounded makes a call that ends with its context. The call itself may go on for longer, in a
// separate goroutine. There are at most as many of these as there may be calls without an answer.
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
