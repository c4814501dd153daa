package target

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// shared is a client whose calls share connections, and are counted for gathering, except those of
// DoMulti, which are rare. With pipe, they share one connection, however many there are at a time, and
// the calls of the Client in it each take a connection for themselves.
type shared struct {
	rueidis.Client
	calls *atomic.Int64
	pipe  bool
}

// Do implements [rueidis.Client].
func (s shared) Do(ctx context.Context, command rueidis.Completed) rueidis.RedisResult {
	if s.pipe {
		command = command.ToPipe()
	}
	s.calls.Add(1)
	defer s.calls.Add(-1)
	return s.Client.Do(ctx, command)
}

// DoMulti implements [rueidis.Client].
func (s shared) DoMulti(ctx context.Context, commands ...rueidis.Completed) []rueidis.RedisResult {
	if s.pipe {
		for i := range commands {
			commands[i] = commands[i].ToPipe()
		}
	}
	return s.Client.DoMulti(ctx, commands...)
}

// Nodes implements [rueidis.Client].
func (s shared) Nodes() map[string]rueidis.Client {
	nodes := s.Client.Nodes()
	for name, node := range nodes {
		nodes[name] = shared{node, s.calls, s.pipe}
	}
	return nodes
}

// gathering makes calls leave together. rueidis has one goroutine that writes, and wakes it for the
// first call that waits. That goroutine runs at once, before the other callers whose answers have
// arrived together, so each of their calls would leave in a write of its own. A write is half of a
// call's CPU time in this process. So the writer lets the others run first: their calls are the next
// write.
//
// Where the processors are busy with other work, the writer has to wait for that. So it waits for at
// most about a 64th of the time.
type gathering struct {
	calls *atomic.Int64 // the calls in flight on shared connections
	from  time.Time     // when the writer may wait again
}

const (
	// gatherFrom is how many calls must be in flight for gathering. With few, mostly nobody else is about
	// to write: with two, gathering costs a tenth of the throughput.
	gatherFrom = 8
	// gatherWithin is how long the other callers usually take at most.
	gatherWithin = 500 * time.Microsecond
)

// wait lets other goroutines run if they are likely to make calls. Only the goroutine that writes
// may call it.
func (g *gathering) wait() {
	if g.calls.Load() < gatherFrom {
		return
	}
	began := time.Now()
	if began.Before(g.from) {
		return
	}
	runtime.Gosched()
	if took := time.Since(began); took > gatherWithin {
		g.from = began.Add(64 * took)
	}
}
