package redis

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// pending counts the calls that the client's queue still holds: those that wait
// for an answer, and those that gave up waiting on a server that hangs. Who finds
// the queue full would wait without a deadline, so it is never filled.
type pending struct {
	most   int64
	calls  atomic.Int64 // on their way
	silent atomic.Int64 // ended by their deadline since the server last answered
	retry  atomic.Int64 // when to try again with a call although silent is high, in ns
	links  *links       // nil if they are not ours
	closed atomic.Bool
}

// errClosed is what calls are told after the store was closed.
var errClosed = errors.New("the store is closed")

// close refuses all calls from now on. The client alone does not: rueidis takes a closed
// connection up again after a call on it that ended with its context.
func (p *pending) close() { p.closed.Store(true) }

// probeEvery is how often a call is let through to a server that has stopped
// answering: its connection may have been replaced.
const probeEvery = 200 * time.Millisecond

// begin admits a call or refuses it. An admitted one must end.
func (p *pending) begin() error {
	if p.closed.Load() {
		return errClosed
	}
	calls := p.calls.Add(1)
	if silent := p.silent.Load(); calls+silent > p.most {
		if calls > p.most || !p.probe() {
			p.calls.Add(-1)
			return fmt.Errorf("%d calls have no answer yet, at most %d may wait: the server hangs or is too slow", calls-1+silent, p.most)
		}
	}
	return nil
}

// probe reports whether it is time for a call that may find the server well again.
func (p *pending) probe() bool {
	now := time.Now().UnixNano()
	next := p.retry.Load()
	return now >= next && p.retry.CompareAndSwap(next, now+int64(probeEvery))
}

// drop takes back a call that was admitted and not sent.
func (p *pending) drop() { p.calls.Add(-1) }

// end notes how a call ended. With any answer, and with a connection that broke,
// the queue has been emptied.
func (p *pending) end(err error) {
	p.calls.Add(-1)
	p.links.note(err)
	switch {
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		p.silent.Add(1)
	case p.silent.Load() != 0:
		p.silent.Store(0)
	}
}
