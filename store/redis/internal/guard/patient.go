package guard

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/store/redis/internal/refusal"
)

// A server that restarts refuses calls for a moment, and so do servers while one takes the place of
// another. Such a refusal is waited for as a server is that is stopped for a moment: calls that have
// charged nothing are made again. While they wait, one of them at a time asks.

// refusing is that a server refuses calls which would be made again.
type refusing struct {
	waited atomic.Bool   // since is not zero
	turn   chan struct{} // has a value while no call is about to ask

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
// call is made once, until one is answered that writes: a replica answers the others. of returns the server.
func Patient[T any](ctx context.Context, of func() *Server, writes bool, call func() (T, error)) (T, error) {
	value, err := call()
	for err != nil && passes(err) {
		r := &of().refusing
		if !r.wait(ctx) {
			return value, err
		}
		if value, err = call(); err == nil && writes {
			r.end() // Another server may have answered.
		}
	}
	if err == nil && writes {
		of().refusing.end()
	}
	return value, err
}

// wait waits until a call may be made again. It returns false if that is not to be.
func (r *refusing) wait(ctx context.Context) bool {
	r.mu.Lock()
	now := time.Now()
	if r.since.IsZero() {
		r.since, r.over, r.pause = now, make(chan struct{}), leastPause
		r.waited.Store(true)
	}
	over, left := r.over, hangsFor-now.Sub(r.since)
	r.mu.Unlock()
	if left <= 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	select {
	case <-over:
		return true
	case <-r.turn:
	case <-ctx.Done():
		return false
	}
	defer func() { r.turn <- struct{}{} }()
	r.mu.Lock()
	pause := r.pause
	r.pause = min(2*pause, mostPause)
	r.mu.Unlock()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-over:
	case <-timer.C:
	case <-ctx.Done():
		return false
	}
	return true
}

// end ends the wait, because the server answers.
func (r *refusing) end() {
	if !r.waited.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.since.IsZero() {
		r.since = time.Time{}
		r.waited.Store(false)
		close(r.over)
	}
}
