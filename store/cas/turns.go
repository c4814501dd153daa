package cas

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/sleep"
)

// turns lets calls wait for one another in lanes. Each lane in use has a goroutine, which
// ends when no call waits in it.
type turns struct {
	store   *Store
	running sync.WaitGroup

	mu      sync.Mutex // guards all below, and the lanes
	lanes   []lane
	pending int // calls without an answer
	closed  bool
}

type lane struct {
	queue []*call
	busy  bool
}

// call is one request that waits for its turn or has it.
type call struct {
	names    []string // of the values that it needs, all different
	deadline time.Time
	// decide is called with the values of names, again if the attempt must be
	// repeated. It must not change what its caller can see before done is closed.
	decide func(*batch) error
	err    error
	done   chan struct{}
	state  atomic.Int32
}

// The states of a call. A call is only decided if its caller has not given it up, so that a
// caller that gives up before is never charged.
const (
	waiting int32 = iota
	decided
	givenUp
)

// begin reports whether the call may be decided now: its caller still waits for it, and
// has time left.
func (c *call) begin(now time.Time) bool {
	if now.Before(c.deadline) {
		return c.state.CompareAndSwap(waiting, decided)
	}
	c.state.CompareAndSwap(waiting, givenUp)
	c.err = fmt.Errorf("%w: %w before it was decided: nothing was charged", headgate.ErrUnavailable, context.DeadlineExceeded)
	return false
}

const (
	// maxTurn is how many calls one attempt has at most, and about how many values.
	maxTurn = 64
	// firstPause is how long a turn waits after its first attempt was overtaken. The pause
	// grows with each attempt, up to lastPause.
	firstPause = 200 * time.Microsecond
	lastPause  = 20 * time.Millisecond
)

func (t *turns) init(s *Store) {
	t.store, t.lanes = s, make([]lane, s.settings.lanes)
}

// do waits for a turn and returns the error of decide.
func (t *turns) do(ctx context.Context, names []string, decide func(*batch) error) error {
	ctx, cancel := context.WithTimeout(ctx, t.store.settings.timeout)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w before it began: nothing was charged", headgate.ErrUnavailable, err)
	}
	c := &call{names: names, decide: decide, done: make(chan struct{})}
	c.deadline, _ = ctx.Deadline()
	l, err := t.join(c)
	if err != nil {
		return err
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
	}
	if t.leave(l, c) {
		return fmt.Errorf("%w: %w while others had their turn: nothing was charged", headgate.ErrUnavailable, ctx.Err())
	}
	if c.state.Swap(givenUp) != decided {
		return fmt.Errorf("%w: %w before it was decided: nothing was charged", headgate.ErrUnavailable, ctx.Err())
	}
	select {
	case <-c.done: // at the last moment
		return c.err
	default:
	}
	return fmt.Errorf("%w: %w after it was decided: whether it counts is unknown", headgate.ErrUnavailable, ctx.Err())
}

// join puts a call into its lane.
func (t *turns) join(c *call) (*lane, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.closed:
		return nil, fmt.Errorf("%w: the store is closed", headgate.ErrUnavailable)
	case t.pending >= t.store.settings.maxPending:
		return nil, fmt.Errorf("%w: %d calls wait for it already: nothing was charged", headgate.ErrUnavailable, t.pending)
	}
	t.pending++
	l := &t.lanes[hash(c.names[0])%uint64(len(t.lanes))]
	l.queue = append(l.queue, c)
	if !l.busy {
		l.busy = true
		t.running.Go(func() { t.work(l) })
	}
	return l, nil
}

// leave takes a call back, and reports whether it had no turn yet.
func (t *turns) leave(l *lane, c *call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(l.queue, c)
	if i < 0 {
		return false
	}
	l.queue = slices.Delete(l.queue, i, i+1)
	t.pending--
	return true
}

// work runs turns until no call waits.
func (t *turns) work(l *lane) {
	for {
		calls := t.next(l)
		if calls == nil {
			return
		}
		err := t.run(calls)
		t.mu.Lock()
		t.pending -= len(calls)
		t.mu.Unlock()
		for _, c := range calls {
			if err != nil {
				c.err = err
			}
			close(c.done)
		}
	}
}

// next takes the calls of the next turn out of the queue: those of a single key if an attempt
// cannot have more, and otherwise as many as there are, up to a bound.
func (t *turns) next(l *lane) []*call {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(l.queue) == 0 {
		l.busy, l.queue = false, nil
		return nil
	}
	most, values := t.store.backend.MaxKeys(), 0
	var calls []*call
	left := l.queue[:0]
	for _, c := range l.queue {
		switch {
		case len(calls) == 0,
			most == 1 && len(calls) < maxTurn && c.names[0] == calls[0].names[0],
			most > 1 && len(calls) < maxTurn && values+len(c.names) <= min(most, 2*maxTurn):
			calls = append(calls, c)
			values += len(c.names)
		default:
			left = append(left, c)
		}
	}
	clear(l.queue[len(left):])
	l.queue = left
	return calls
}

// run carries out calls in one attempt, which it repeats when it is overtaken.
func (t *turns) run(calls []*call) error {
	last := calls[0].deadline
	for _, c := range calls[1:] {
		if c.deadline.After(last) {
			last = c.deadline
		}
	}
	// The context is no caller's own: if that caller gave up, the others would lose their turn.
	ctx, cancel := context.WithDeadline(context.Background(), last)
	defer cancel()
	b := &batch{places: make(map[string]int), maxValue: t.store.backend.MaxValue()}
	var names []string
	for _, c := range calls {
		for _, name := range c.names {
			if _, ok := b.places[name]; !ok {
				b.places[name] = len(names)
				names = append(names, name)
			}
		}
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		done, err := t.attempt(ctx, b, names, calls)
		if err != nil {
			return unavailable(err)
		}
		if done {
			return nil
		}
		for _, c := range calls { // nothing was written
			c.state.CompareAndSwap(decided, waiting)
		}
		if !sleep.For(ctx, rand.N(pause)) {
			return unavailable(errOvertaken)
		}
	}
}

var errOvertaken = errors.New("others changed the counters again and again: nothing was charged")

// attempt decides the calls on the values that it reads, and reports whether the changes were
// written.
func (t *turns) attempt(ctx context.Context, b *batch, names []string, calls []*call) (bool, error) {
	a, err := t.store.backend.Begin(ctx, names)
	if err != nil {
		return false, fmt.Errorf("%w: nothing was charged", err)
	}
	ended := false
	defer func() {
		if !ended {
			a.Cancel()
		}
	}()
	if b.now = headgate.Instant(a.Now()); t.store.settings.clock != nil {
		b.now = headgate.Instant(t.store.settings.clock())
	}
	b.own, b.skew = b.now, t.store.settings.skew.Microseconds()
	b.cells = make([]cell, len(names))
	for i := range b.cells {
		b.cells[i].raw = a.Value(i)
	}
	now := time.Now()
	for _, c := range calls {
		if c.begin(now) {
			c.err = c.decide(b)
		}
	}
	changes := b.changes()
	ended = true
	return a.Commit(ctx, changes)
}

func (t *turns) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.running.Wait()
}

// hash is 64-bit FNV-1a.
func hash(s string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 0x100000001b3
	}
	return h
}
