package permits

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/internal/waiting"
)

const (
	// shards is how many locks the keys are spread over. A lock is held only for a look-up in a
	// map, so a few times the number of processors is enough.
	shards = 64
	// spare is how many unused values of each kind a shard keeps. The garbage collector gets the
	// rest.
	spare = 1024
)

// shard holds a part of the keys.
type shard struct {
	mu sync.Mutex // guards what follows
	of *Gate

	entries  map[string]*entry
	takings  []*taking         // to be used again
	unused   []*entry          // likewise
	waiters  []*waiting.Waiter // likewise
	waits    int
	taken    int64
	admitted uint64
	rejected [flow.Reasons]uint64
	done     [flow.Outcomes]uint64
	// last is the newest rejection. It is returned again while its numbers are still true.
	last *flow.Rejection

	// The padding keeps the locks of the shards on separate cache lines.
	_ [64]byte
}

// entry is one key in use.
type entry struct {
	key   string
	inUse int64
	line  *waiting.Line // the waiters; nil until the first one comes
}

// taking is what the gate keeps for a permit.
type taking struct {
	flow.Slot
	in    *shard
	entry *entry
	cost  int64
	since time.Time // when the permit was taken, if it is timed
}

// find returns the entry of a key, or nil.
func (s *shard) find(key string) *entry {
	if s.of.shared != nil {
		return s.of.shared
	}
	return s.entries[key]
}

// enter returns the entry of a key, and makes one if there is none. It returns nil if there are too
// many.
func (s *shard) enter(key string) *entry {
	if e := s.find(key); e != nil {
		return e
	}
	if s.of.keys.Add(1) > int64(s.of.config.MaxKeys) {
		s.of.keys.Add(-1)
		return nil
	}
	var e *entry
	if n := len(s.unused); n > 0 {
		e, s.unused = s.unused[n-1], s.unused[:n-1]
		e.key = key
	} else {
		e = &entry{key: key}
	}
	if s.entries == nil {
		s.entries = make(map[string]*entry)
	}
	s.entries[key] = e
	return e
}

// leave drops the entry if nobody uses it.
func (s *shard) leave(e *entry) {
	if e.inUse > 0 || e == s.of.shared || e.line != nil && e.line.Len() > 0 {
		return
	}
	delete(s.entries, e.key)
	s.of.keys.Add(-1)
	e.key, e.line = "", nil
	if len(s.unused) < spare {
		s.unused = append(s.unused, e)
	}
}

// try takes a permit without waiting.
func (s *shard) try(r *flow.Request) (flow.Permit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.enter(r.Key)
	if e == nil {
		return flow.Permit{}, s.refuse(nil, r, flow.ReasonKeys)
	}
	if p, ok := s.direct(e, r); ok {
		return p, nil
	}
	err := s.refuse(e, r, flow.ReasonBusy)
	s.leave(e)
	return flow.Permit{}, err
}

// direct takes a permit if enough are free and no waiter comes first.
func (s *shard) direct(e *entry, r *flow.Request) (flow.Permit, bool) {
	if r.Units() > s.of.limitFor(r)-e.inUse {
		return flow.Permit{}, false
	}
	if e.line != nil && e.line.Best() <= r.Class.Rank() {
		return flow.Permit{}, false
	}
	return s.grant(e, r.Units()), true
}

func (s *shard) grant(e *entry, cost int64) flow.Permit {
	var t *taking
	if n := len(s.takings); n > 0 {
		t, s.takings = s.takings[n-1], s.takings[:n-1]
	} else {
		t = &taking{in: s}
	}
	e.inUse += cost
	s.taken += cost
	t.entry, t.cost = e, cost
	if s.admitted%timed == 0 {
		t.since = time.Now()
	}
	s.admitted++
	return t.Issue(t)
}

// join takes a permit, or puts a waiter in line.
func (s *shard) join(r *flow.Request, hash uint64) (flow.Permit, *waiting.Waiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.enter(r.Key)
	if e == nil {
		return flow.Permit{}, nil, s.refuse(nil, r, flow.ReasonKeys)
	}
	if p, ok := s.direct(e, r); ok {
		return p, nil, nil
	}
	defer s.leave(e)
	if r.Units() > s.of.limitFor(r) {
		return flow.Permit{}, nil, s.refuse(e, r, flow.ReasonTooLarge)
	}
	if e.line == nil {
		e.line = waiting.New(0, s.of.queues())
	}
	e.line.SetMax(int(s.of.queue.Load()))
	w := s.waiter(r)
	displaced, ok := e.line.Push(w, hash)
	if !ok {
		s.keep(w)
		return flow.Permit{}, nil, s.refuse(e, r, flow.ReasonQueueFull)
	}
	s.waits++
	if displaced != nil {
		s.waits--
		displaced.Settle(flow.Permit{}, s.refuse(e, &displaced.Request, flow.ReasonDisplaced))
	}
	// It may be the new waiter's turn at once, because those before it may be too large to fit.
	s.serve(e)
	return flow.Permit{}, w, nil
}

// queues returns how many queues each class of a line has. With a line for each of many keys, few
// are enough.
func (g *Gate) queues() int {
	if g.config.Shared {
		return 64
	}
	return 16
}

// serve gives the free permits of a key to the waiters whose turn it is.
func (s *shard) serve(e *entry) {
	if e.line == nil {
		return
	}
	for e.line.Len() > 0 {
		w := e.line.Fitting(e.inUse, s.of.limit.Load())
		if w == nil {
			return
		}
		e.line.Take(w)
		s.waits--
		w.Settle(s.grant(e, w.Request.Units()), nil)
	}
}

// withdraw removes a waiter whose waiting has ended from the line, and settles it. It returns false
// if the waiter was settled before.
func (s *shard) withdraw(w *waiting.Waiter, end waiting.End) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !w.InLine() {
		return false
	}
	e := s.find(w.Request.Key)
	e.line.Remove(w)
	s.waits--
	if end == waiting.TimedOut {
		w.Err = s.refuse(e, &w.Request, flow.ReasonWaited)
	}
	// Permits that were kept free for w may now be enough for another waiter.
	s.serve(e)
	s.leave(e)
	return true
}

// GiveBack implements [flow.Holder].
func (t *taking) GiveBack(outcome flow.Outcome) {
	s := t.in
	if !t.since.IsZero() {
		if outcome != flow.Unused {
			s.of.learn(time.Since(t.since))
		}
		t.since = time.Time{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := t.entry
	e.inUse -= t.cost
	s.taken -= t.cost
	s.done[outcome]++
	t.entry = nil
	if len(s.takings) < spare {
		s.takings = append(s.takings, t)
	}
	s.serve(e)
	s.leave(e)
}

// Bind implements [flow.Holder].
func (t *taking) Bind(ctx context.Context, p flow.Permit) context.Context {
	g := t.in.of
	outer, _ := ctx.Value(g).(*binding)
	return context.WithValue(ctx, g, &binding{p, t.entry.key, outer})
}

// resized serves waiters after the limit has changed, and refuses those that can no longer fit.
func (s *shard) resized() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of.shared != nil {
		s.refit(s.of.shared)
	}
	for _, e := range s.entries {
		s.refit(e)
	}
}

func (s *shard) refit(e *entry) {
	if e.line == nil {
		return
	}
	for rank := range flow.Classes {
		for w := e.line.Oldest(rank); w != nil; {
			next := e.line.After(w)
			if w.Request.Units() > s.of.limitFor(&w.Request) {
				e.line.Remove(w)
				s.waits--
				w.Settle(flow.Permit{}, s.refuse(e, &w.Request, flow.ReasonTooLarge))
			}
			w = next
		}
	}
	s.serve(e)
	s.leave(e)
}

// refuse counts a rejection and returns it.
func (s *shard) refuse(e *entry, r *flow.Request, reason flow.Reason) *flow.Rejection {
	g := s.of
	is := flow.Rejection{Gate: g.config.Name, Reason: reason, Retry: true, Limit: g.limitFor(r)}
	if e != nil {
		is.InUse = e.inUse
		if e.line != nil {
			is.Waiting = int64(e.line.Len())
		}
	}
	if r.Units() > is.Limit {
		is.Reason, is.RetryAfter, is.Retry = flow.ReasonTooLarge, headgate.Never, false
	} else if e != nil {
		is.RetryAfter = g.retryAfter(r.Units(), int(is.Waiting), is.Limit)
	}
	s.rejected[is.Reason]++
	if s.last == nil || *s.last != is {
		s.last = new(flow.Rejection)
		*s.last = is
	}
	return s.last
}

func (s *shard) waiter(r *flow.Request) *waiting.Waiter {
	var w *waiting.Waiter
	if n := len(s.waiters); n > 0 {
		w, s.waiters = s.waiters[n-1], s.waiters[:n-1]
	} else {
		w = waiting.NewWaiter()
	}
	w.Reset(*r, 0)
	return w
}

// keep stores a waiter for reuse.
func (s *shard) keep(w *waiting.Waiter) {
	w.Reset(flow.Request{}, 0)
	if len(s.waiters) < spare {
		s.waiters = append(s.waiters, w)
	}
}

func (s *shard) recycle(w *waiting.Waiter) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(w)
}

func (s *shard) addTo(sum *flow.Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum.InUse += s.taken
	sum.Waiting += int64(s.waits)
	sum.Admitted += s.admitted
	for i, n := range s.rejected {
		sum.Rejected[i] += n
	}
	for i, n := range s.done {
		sum.Done[i] += n
	}
}

func (s *shard) uses(to *flow.Uses) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add := func(e *entry) {
		use := flow.Use{Key: e.key, InUse: e.inUse}
		if e.line != nil {
			use.Waiting = int64(e.line.Len())
		}
		if use.InUse > 0 || use.Waiting > 0 {
			to.Add(use)
		}
	}
	if s.of.shared != nil && s == &s.of.shards[0] {
		add(s.of.shared)
	}
	for _, e := range s.entries {
		add(e)
	}
}
