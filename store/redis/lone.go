package redis

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/store/redis/internal/refusal"
	"github.com/headgate/headgate/store/redis/internal/target"
)

// lone is a connection for a decision while no other call is in flight. The shared connection has
// one goroutine that writes and another that reads. With many callers that is fast, because one
// system call carries many calls. A single caller gains nothing from it, but has to wait until both
// goroutines have run. On the lone connection, the caller writes and reads by itself.
//
// Only the goroutine of connect makes the connection, so no call waits for that. A call that has no
// answer by its deadline closes the connection, because otherwise the next call would read its
// answer. lone is safe for concurrent use.
type lone struct {
	links  *target.Links
	within time.Duration // bounds connecting
	state  atomic.Int32
	after  atomic.Int64 // when the connection may be made again, in ns since the Unix epoch
	tasks  tasks
	ctx    context.Context // the parent of the contexts for connecting
	cancel context.CancelFunc
}

// The states of the lone connection.
const (
	loneAbsent int32 = iota
	loneConnecting
	loneIdle
	loneBusy // a call is in flight on the connection
)

// loneAgain is the shortest time between a failure of the lone connection and the next attempt to
// make it. In the meantime, calls use the shared connection. So callers whose deadlines are too
// early for the server do not cause a new connection for each call.
const loneAgain = time.Second

func newLone(links *target.Links, within time.Duration) *lone {
	l := &lone{links: links, within: within}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// call runs a script if the connection exists and is idle. If sent is false, no call was made, and
// the caller must use the shared connection.
func (l *lone) call(ctx context.Context, script *rueidis.Lua, keys, args []string) (text string, sent bool, err error) {
	if l == nil {
		return "", false, nil
	}
	if !l.state.CompareAndSwap(loneIdle, loneBusy) {
		if l.state.Load() == loneAbsent {
			l.connect()
		}
		return "", false, nil
	}
	result := script.Exec(ctx, l.links.Alone, keys, args)
	if err := result.NonRedisError(); err != nil {
		l.after.Store(time.Now().Add(loneAgain).UnixNano())
		l.state.Store(loneAbsent)
		switch {
		case errors.Is(err, target.ErrGone):
			return "", false, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			err = context.DeadlineExceeded // the connection's own deadline came first
		}
		return "", true, err
	}
	l.state.Store(loneIdle)
	text, err = result.ToString()
	return text, true, err
}

// connect makes the connection in a goroutine, unless the last failure was less than loneAgain ago.
// It does not wait.
func (l *lone) connect() {
	if time.Now().UnixNano() < l.after.Load() || !l.state.CompareAndSwap(loneAbsent, loneConnecting) {
		return
	}
	begun := l.tasks.start(func() {
		ctx, cancel := context.WithTimeout(target.Lone(l.ctx), l.within)
		defer cancel()
		client := l.links.Alone
		if err := refusal.Answered(client.Do(ctx, client.B().Ping().Build()).Error()); err != nil {
			l.after.Store(time.Now().Add(loneAgain).UnixNano())
			l.state.Store(loneAbsent)
			return
		}
		l.state.Store(loneIdle)
	})
	if !begun {
		l.state.Store(loneAbsent)
	}
}

// end ends the call that is in flight, and waits for connect.
func (l *lone) end() {
	if l == nil {
		return
	}
	l.cancel()
	l.links.HangUp()
	l.tasks.end()
}
