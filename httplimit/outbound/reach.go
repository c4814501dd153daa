package outbound

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

const (
	// silence is for how long the store must have answered nobody, while it is asked, to be taken for one that
	// hangs: longer than a fork, or a disk that syncs, keeps a store busy.
	silence = 500 * time.Millisecond
	// A store that is away is asked again after half of the time for which it has been, at most after longestAway.
	longestAway = silence
	// idle is after how long without a call nothing is known of a store that was away.
	idle = 10 * longestAway
)

// reach is the shared store while it answers. Once it has failed or hangs, nobody waits for it any more: one call
// at a time, for which nobody waits either, finds out when it is back. It is safe for concurrent use.
type reach struct {
	store     headgate.Store
	documents store.Documents // nil if it keeps none

	mu      sync.Mutex  // guards what follows
	asks    list.List   // of context.CancelFunc: calls to the store that have not ended
	vain    time.Time   // when the first call began since the store has answered; zero without one
	watch   *time.Timer // looks whether vain is long ago
	watched bool        // watch will do so
	away    error       // why the store is not asked; nil while it is
	next    time.Time   // when it is asked all the same
	used    time.Time   // when somebody wanted to ask last
	probing bool
}

// Take implements [headgate.Store].
func (r *reach) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) (decisions []headgate.Decision, err error) {
	err = r.ask(ctx, checks[0].Key, func(ctx context.Context) (err error) {
		decisions, err = r.store.Take(ctx, op, checks, dst)
		return err
	})
	return decisions, err
}

// ReadDocument implements [store.Documents].
func (r *reach) ReadDocument(ctx context.Context, key string) (d store.Document, err error) {
	err = r.ask(ctx, key, func(ctx context.Context) (err error) {
		d, err = r.documents.ReadDocument(ctx, key)
		return err
	})
	return d, err
}

// WriteDocument implements [store.Documents].
func (r *reach) WriteDocument(ctx context.Context, read store.Document, value []byte, ttl time.Duration) (written bool, err error) {
	err = r.ask(ctx, read.Key, func(ctx context.Context) (err error) {
		written, err = r.documents.WriteDocument(ctx, read, value, ttl)
		return err
	})
	return written, err
}

// ask has f call the store, unless that is away. The call ends when the store turns out to hang.
func (r *reach) ask(ctx context.Context, key string, f func(ctx context.Context) error) error {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	e, err := r.begin(ctx, key, cancel)
	if err != nil {
		return err
	}
	began := time.Now()
	return r.end(e, began, f(within), ctx.Err() != nil)
}

func (r *reach) begin(ctx context.Context, key string, cancel context.CancelFunc) (*list.Element, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Sub(r.used) > idle {
		r.away, r.vain = nil, time.Time{}
	}
	r.used = now
	if r.away != nil {
		if !r.probing && !now.Before(r.next) {
			r.probing = true
			go r.probe(context.WithoutCancel(ctx), key)
		}
		return nil, r.away
	}
	if r.vain.IsZero() {
		r.vain = now
	}
	if !r.watched {
		r.watched = true
		r.watch = time.AfterFunc(r.vain.Add(silence).Sub(now), r.look)
	}
	return r.asks.PushBack(cancel), nil
}

// end takes in what came of a call to the store, and returns its error. left says that its caller did not wait.
func (r *reach) end(e *list.Element, began time.Time, err error, left bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asks.Remove(e)
	switch {
	case err == nil || errors.Is(err, headgate.ErrInvalid):
		r.answers()
	case r.away != nil && !left && errors.Is(err, context.Canceled):
		return r.away
	case r.away == nil && !left && !r.vain.After(began):
		r.lose(err)
	case r.away == nil && r.asks.Len() == 0:
		// The last one to ask has left, or others were answered meanwhile and only its part of the store is away.
		r.vain = time.Time{}
	}
	return err
}

// answers takes in that the store has answered.
func (r *reach) answers() {
	r.away, r.vain = nil, time.Time{}
	if r.asks.Len() > 0 {
		r.vain = time.Now()
	}
}

// lose takes in that the store has not answered.
func (r *reach) lose(err error) {
	now := time.Now()
	lasted := now.Sub(r.vain)
	r.away = fmt.Errorf("%w; the store has answered nothing for %v, so that one call at a time asks it", err, lasted.Round(time.Millisecond))
	r.next = now.Add(min(lasted/2, longestAway))
}

// look ends the calls to the store if it hangs.
func (r *reach) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.watched = r.asks.Len() > 0; !r.watched {
		return
	}
	if left := time.Until(r.vain.Add(silence)); left > 0 {
		r.watch.Reset(left)
		return
	}
	r.watched = false
	if r.away == nil {
		r.lose(headgate.ErrUnavailable)
	}
	for e := r.asks.Front(); e != nil; e = e.Next() {
		e.Value.(context.CancelFunc)()
	}
}

// probe finds out whether the store is back. It charges nothing.
func (r *reach) probe(ctx context.Context, key string) {
	ctx, cancel := context.WithTimeout(ctx, tellWithin)
	defer cancel()
	_, err := r.store.Take(ctx, headgate.OpPeek, []headgate.Check{{Rule: callRule, Key: key}}, nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.probing = false
	switch {
	case r.away == nil:
	case err == nil:
		r.answers()
	default:
		r.lose(err)
	}
}
