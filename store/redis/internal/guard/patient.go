package guard

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/headgate/headgate/store/redis/internal/refusal"
)

// A server that restarts refuses calls for a moment, and so do servers while one takes the place of
// another. Such a refusal is waited for as a server is that is stopped for a moment: calls that have
// charged nothing are made again. While they wait, one of them at a time asks.

// refusing is that a server refuses calls which would be made again.
type refusing struct {
	turn chan struct{} // has a value while nobody asks

	mu    sync.Mutex // guards what follows
	over  chan struct{}
	since time.Time     // when the first call was refused since one was answered; zero if none was
	pause time.Duration // before the next call is made again
}

const (
	// leastPause and mostPause bound the pause before a refused call is made again, which doubles.
	leastPause = 5 * time.Millisecond
	mostPause  = 40 * time.Millisecond
)

// unreached is the error of a call that was not sent, or to a server that refuses it.
type unreached struct{ error }

// Unwrap returns the reason.
func (u unreached) Unwrap() error { return u.error }

// Unreached returns the error of a connection that could not be made, or that was closed because the server
// refuses calls, so that [Patient] knows it.
func Unreached(err error) error { return unreached{err} }

// passes reports whether a call with this error has charged nothing, and may be answered soon.
func passes(err error) bool {
	var unsent unreached
	return errors.As(err, &unsent) || refusal.Is(err, "READONLY", "LOADING", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN")
}

// Patient makes a call, and makes it again while it is refused without having charged anything: until the
// context ends, or the server has refused calls for as long as it would have to be silent to hang. Then each
// call is made once. of returns the server. writes says that no server answers the call that refuses others.
func Patient[T any](ctx context.Context, s *Servers, of func() *Server, writes bool, call func() (T, error)) (T, error) {
	value, err := call()
	for err != nil && passes(err) {
		r := &of().refusing
		again, asks := s.wait(ctx, r)
		if !again {
			break
		}
		value, err = call()
		if asks {
			r.turn <- struct{}{}
		}
		if err == nil {
			s.answered(r)
		}
	}
	if err == nil && writes && s.refused.Load() > 0 {
		s.answered(&of().refusing)
	}
	return value, err
}

// wait waits until a call may be made again. asks says that no other call is, and that the turn is to be
// given back.
func (s *Servers) wait(ctx context.Context, r *refusing) (again, asks bool) {
	r.mu.Lock()
	now := time.Now()
	if r.since.IsZero() {
		r.since, r.over, r.pause = now, make(chan struct{}), leastPause
		s.refused.Add(1)
	}
	over, left := r.over, hangsFor-now.Sub(r.since)
	r.mu.Unlock()
	if left <= 0 {
		return false, false
	}
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	select {
	case <-over:
		return true, false
	case <-r.turn:
	case <-ctx.Done():
		return false, false
	}
	r.mu.Lock()
	pause := r.pause
	r.pause = min(2*pause, mostPause)
	r.mu.Unlock()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-over:
	case <-timer.C:
		return true, true
	case <-ctx.Done():
		r.turn <- struct{}{}
		return false, false
	}
	r.turn <- struct{}{}
	return true, false
}

// answered ends the wait for a server.
func (s *Servers) answered(r *refusing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.since.IsZero() {
		r.since = time.Time{}
		close(r.over)
		s.refused.Add(-1)
	}
}
