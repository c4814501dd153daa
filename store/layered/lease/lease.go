package lease

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/layered/internal/layer"
)

// DefaultMaxKeys is the default of [Options].MaxKeys.
const DefaultMaxKeys = 1 << 12

// Options change a [Layer]. The zero Options are good for a node that has the store for itself.
type Options struct {
	// Nodes returns how many nodes share the store now. For each key, a node holds at most 1/(2 ×
	// Nodes) of what the store has left. The function must be quick and safe for concurrent use.
	// Nil means one node.
	Nodes func() int64
	// MaxKeys is the number of pairs of rule and key for which units are held at a time. The store
	// decides all others. Zero means DefaultMaxKeys.
	MaxKeys int
}

// Layer takes units in advance and decides requests with them. Make one with [New]. It is
// safe for concurrent use.
type Layer struct {
	inner   headgate.Store
	options Options
	start   time.Time // what times are counted from
	seed    maphash.Seed
	plans   *layer.Derived[*plan]
	warm    warmth
	shards  [64]keyShard
	pool    sync.Pool // of *scratch
	counts  counts

	closed  atomic.Bool
	fills   sync.WaitGroup
	calls   context.Context // for the calls in the background
	abandon context.CancelFunc
	keeper  keeper
}

// New returns a layer around a store. Close it when it is no longer needed.
func New(inner headgate.Store, options Options) (*Layer, error) {
	o := options
	o.MaxKeys = cmp.Or(o.MaxKeys, DefaultMaxKeys)
	if o.Nodes == nil {
		o.Nodes = func() int64 { return 1 }
	}
	var problems headgate.Problems
	if inner == nil {
		problems.Add("store", "it needs a store")
	}
	if o.MaxKeys < 0 {
		problems.Add("max_keys", "max keys is %d, must be 1 or more", o.MaxKeys)
	}
	if err := problems.Err("lease"); err != nil {
		return nil, err
	}
	l := &Layer{inner: inner, options: o, start: time.Now(), seed: maphash.MakeSeed(), plans: layer.NewDerived(newPlan)}
	l.pool.New = func() any { return new(scratch) }
	l.calls, l.abandon = context.WithCancel(context.Background())
	l.keeper.start(l)
	return l, nil
}

// Store returns the store to ask. It is a [headgate.Ledger] if the store inside is one.
func (l *Layer) Store() headgate.Store {
	if inner, ok := l.inner.(headgate.Ledger); ok {
		return &ledger{outer{l}, inner}
	}
	return outer{l}
}

// Close gives back the units that are held. Later requests are decided by the store inside. An
// error says that not all units could be given back before the context ended; the rest stays in
// use. Closing again does nothing.
func (l *Layer) Close(ctx context.Context) error {
	if l.closed.Swap(true) {
		return nil
	}
	l.awaitShards() // A request that holds a shard's lock may still begin a call; later ones do not.
	stop := context.AfterFunc(ctx, l.abandon)
	l.fills.Wait()
	l.keeper.stop()
	stop()
	l.abandon()
	return l.keeper.rest(ctx)
}

// awaitShards waits until every request that holds the lock of a shard has released it.
func (l *Layer) awaitShards() {
	for i := range l.shards {
		l.shards[i].mu.Lock()
		l.shards[i].mu.Unlock() //nolint:staticcheck // Having held the lock is all that matters.
	}
}

// Stats count what a layer has done since it was made. Keys and Held describe the present moment
// instead.
type Stats struct {
	// Keys is how many pairs of rule and key are watched because they have many requests. Held is
	// how many units are held for them.
	Keys int
	Held int64
	// Leases is how often units were taken in advance, and Taken how many units.
	Leases, Taken int64
	// Served is how many checks found enough held units.
	Served int64
	// Returned is how many unused units were given back. Refilled is how many unused units were not
	// given back because their bucket has refilled them since: they are free already. Lost is how
	// many unused units stay in use, because a call failed, a key was reset, or a request put them
	// back after the layer was closed.
	Returned, Refilled, Lost int64
}

// counts are the counters that no lock guards.
type counts struct{ leases, taken, returned, refilled, lost atomic.Int64 }

// Stats returns the counts. It visits every watched key.
func (l *Layer) Stats() Stats {
	s := Stats{
		Leases: l.counts.leases.Load(), Taken: l.counts.taken.Load(),
		Returned: l.counts.returned.Load(), Refilled: l.counts.refilled.Load(), Lost: l.counts.lost.Load(),
	}
	for i := range l.shards {
		shard := &l.shards[i]
		shard.mu.Lock()
		s.Keys += len(shard.keys)
		s.Served += shard.served
		for _, k := range shard.keys {
			s.Held += k.left
		}
		shard.mu.Unlock()
	}
	return s
}

// instant is a time by both clocks of this node. The monotonic clock does not step, but on some
// systems it stands still while the machine is suspended.
type instant struct {
	mono time.Duration // since Layer.start
	wall int64         // in ns since the Unix epoch
}

func (l *Layer) now() instant {
	t := time.Now()
	return instant{t.Sub(l.start), t.UnixNano()}
}

func (t instant) add(d time.Duration) instant { return instant{t.mono + d, t.wall + int64(d)} }

// reached reports whether t has passed by either clock.
func (t instant) reached(now instant) bool { return now.mono >= t.mono || now.wall >= t.wall }

func anyLeased(checks []headgate.Check) bool {
	for i := range checks {
		if checks[i].Consistency == headgate.Leased {
			return true
		}
	}
	return false
}

// outer is the store inside, with leases in front of it.
type outer struct{ *Layer }

// Take implements [headgate.Store]. If the request is decided from held units, Take does not
// allocate if dst has room.
func (l outer) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if op == headgate.OpReset {
		return l.reset(ctx, checks, dst)
	}
	if !anyLeased(checks) {
		return l.inner.Take(ctx, op, checks, dst)
	}
	if err := store.Validate(op, checks); err != nil {
		return dst, err
	}
	switch {
	case op == headgate.OpPeek:
		return l.peek(ctx, checks, dst)
	case op != headgate.OpTake:
		return l.ask(ctx, op, checks, dst)
	case len(checks) == 1:
		return l.takeOne(ctx, checks, dst)
	}
	return l.takeSeveral(ctx, checks, dst)
}

// takeOne is Take with OpTake for one check.
func (l *Layer) takeOne(ctx context.Context, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	c := &checks[0]
	p := l.plans.Of(c.Rule)
	if p.hold == 0 {
		return l.inner.Take(ctx, headgate.OpTake, checks, dst)
	}
	var a claim
	now := l.now()
	found, watched, fill := l.setAside(&a, p, c, now, true)
	if fill != nil {
		if err := await(ctx, fill); err != nil {
			return dst, err
		}
		now = l.now()
		found, _, _ = l.setAside(&a, p, c, now, false)
	}
	if found {
		return a.append(dst, c, 0, now), nil
	}
	s := l.get()
	defer l.put(s)
	s.add(c, p.strict, 0)
	out, err := l.inner.Take(ctx, headgate.OpTake, s.checks, dst)
	if err != nil {
		return out, err
	}
	s.showAll(out[len(dst):], checks)
	if watched {
		taken, _ := layer.Charged(out[len(dst):])
		l.noteAnswer(c, out[len(dst):], taken != 0)
	}
	return out, nil
}

// await waits for a call that takes units in advance.
func await(ctx context.Context, fill <-chan struct{}) error {
	select {
	case <-fill:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: waiting for a lease: %w", headgate.ErrUnavailable, ctx.Err())
	}
}

// takeSeveral is Take with OpTake for any number of checks. Held units are set aside, and the store
// decides the other checks. If it does not admit them, the units are put back.
func (l *Layer) takeSeveral(ctx context.Context, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	s := l.get()
	defer l.put(s)
	// Wait first: units that are set aside may be admitted only until their batch ends.
	for i := range checks {
		s.held[i] = claim{}
		if fill := l.prepare(&checks[i]); fill != nil {
			if err := await(ctx, fill); err != nil {
				return dst, err
			}
		}
	}
	now := l.now()
	for i := range checks {
		c, enforced := &checks[i], checks[i].Rule
		if c.Consistency == headgate.Leased {
			p := l.plans.Of(c.Rule)
			enforced = p.strict
			if p.hold != 0 {
				if found, _, _ := l.setAside(&s.held[i], p, c, now, false); found {
					continue
				}
			}
		}
		s.add(c, enforced, i)
	}
	admitted := true
	if len(s.checks) > 0 {
		var err error
		if s.decisions, err = l.inner.Take(ctx, headgate.OpTake, s.checks, s.decisions); err != nil {
			l.putBack(s.held[:len(checks)])
			return dst, err
		}
		var taken uint64
		taken, admitted = layer.Charged(s.decisions)
		l.learn(s, checks, taken)
	}
	if !admitted {
		l.putBack(s.held[:len(checks)])
	}
	rest := s.decisions
	for i := range checks {
		if s.held[i].key != nil {
			dst = s.held[i].append(dst, &checks[i], i, now)
		} else {
			dst, rest = s.show(dst, rest, checks, i)
		}
	}
	return dst, nil
}

// ask makes the store carry out op for all checks.
func (l *Layer) ask(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	s := l.get()
	defer l.put(s)
	s.addAll(l, checks)
	out, err := l.inner.Take(ctx, op, s.checks, dst)
	if err == nil {
		s.showAll(out[len(dst):], checks)
	}
	return out, err
}

// learn records how much the store has left for watched keys. taken has a bit for each check that
// the store has charged.
func (l *Layer) learn(s *scratch, checks []headgate.Check, taken uint64) {
	for rest := s.decisions; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Check == rest[0].Check {
			n++
		}
		place := s.places[rest[0].Check]
		if c := &checks[place]; c.Consistency == headgate.Leased {
			if p := l.plans.Of(c.Rule); p.hold != 0 {
				l.noteAnswer(c, rest[:n], taken&(1<<rest[0].Check) != 0)
			}
		}
		rest = rest[n:]
	}
}

// peek asks the store, and adds the units that are held here.
func (l *Layer) peek(ctx context.Context, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	before := len(dst)
	out, err := l.ask(ctx, headgate.OpPeek, checks, dst)
	if err != nil {
		return out, err
	}
	for i := before; i < len(out); i++ {
		d := &out[i]
		c := &checks[d.Check]
		if c.Consistency != headgate.Leased || d.Source != headgate.SourceStore {
			continue
		}
		held := l.heldUnits(c)
		d.Remaining = min(d.Remaining+held, d.Limit.Capacity())
		if !d.Allowed && held >= c.Units() {
			d.Allowed, d.RetryAfter = true, 0
		}
	}
	return out, nil
}

// reset drops the units that are held for the keys, and lets the store reset the keys. Units that
// this node is taking in advance at that moment may be from before the reset, so they are dropped
// too.
func (l *Layer) reset(ctx context.Context, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := store.Validate(headgate.OpReset, checks); err != nil {
		return dst, err
	}
	l.forget(checks)
	out, err := l.ask(ctx, headgate.OpReset, checks, dst)
	l.forget(checks)
	return out, err
}
