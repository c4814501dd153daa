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

// Options are what a [Layer] can be told. The zero Options are good for a
// node that has the store for itself.
type Options struct {
	// Nodes is how many nodes share the store now. What a node holds of a key is at
	// most one part in 2 × Nodes of what the store has left. It must be quick and
	// safe for concurrent use. Nil means one.
	Nodes func() int64
	// MaxKeys is for how many pairs of rule and key units are held at a time; others
	// are decided by the store. Zero means DefaultMaxKeys.
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
	calls   context.Context // of those that nobody waits for
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

// Store returns the store to ask: a [headgate.Ledger] if the one inside is one.
func (l *Layer) Store() headgate.Store {
	if inner, ok := l.inner.(headgate.Ledger); ok {
		return &ledger{outer{l}, inner}
	}
	return outer{l}
}

// Close gives back what is held. What is asked afterwards is decided by the store inside. An error
// says that not all could be given back before the context ended; the rest stays in use. Closing
// again does nothing.
func (l *Layer) Close(ctx context.Context) error {
	if l.closed.Swap(true) {
		return nil
	}
	l.awaitShards() // Whoever is in there may be about to begin a call; nobody is afterwards.
	stop := context.AfterFunc(ctx, l.abandon)
	l.fills.Wait()
	l.keeper.stop()
	stop()
	l.abandon()
	return l.keeper.rest(ctx)
}

// awaitShards waits until everybody has left each shard who was in there.
func (l *Layer) awaitShards() {
	for i := range l.shards {
		l.shards[i].mu.Lock()
		l.shards[i].mu.Unlock() //nolint:staticcheck // It is enough to have had the lock.
	}
}

// Stats are counts since a layer was made, but for Keys and Held, which are of
// now.
type Stats struct {
	// Keys is how many pairs of rule and key are watched because they were asked for
	// often, and Held how many units are held.
	Keys int
	Held int64
	// Leases is how often units were taken in advance, and Taken how many.
	Leases, Taken int64
	// Served is how many requests found units for a check here.
	Served int64
	// Returned is how many unused units were given back, and Refilled how many were not
	// because their bucket has refilled them since: they are free already. Lost is how many
	// stay in use although nobody has used them, because a call failed, a key was reset or a
	// request put them back after the layer was closed.
	Returned, Refilled, Lost int64
}

// counts are what no lock guards.
type counts struct{ leases, taken, returned, refilled, lost atomic.Int64 }

// Stats visits every key that is watched.
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

// instant is a time by both clocks of this node. The monotonic one does not step,
// but on some systems stands still while the machine is suspended.
type instant struct {
	mono time.Duration // since Layer.start
	wall int64         // in ns since the Unix epoch
}

func (l *Layer) now() instant {
	t := time.Now()
	return instant{t.Sub(l.start), t.UnixNano()}
}

func (t instant) add(d time.Duration) instant { return instant{t.mono + d, t.wall + int64(d)} }

// reached reports whether t is over by either clock at now.
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

// Take implements [headgate.Store]. A request that is decided here does not allocate
// if dst has room.
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
	var a aside
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

// takeSeveral is Take with OpTake for any number of checks: units that are held are
// set aside, the store decides the rest, and if it does not admit it they go back.
func (l *Layer) takeSeveral(ctx context.Context, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	s := l.get()
	defer l.put(s)
	// All waiting comes first: what is set aside is as good as admitted.
	for i := range checks {
		s.held[i] = aside{}
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

// ask has the store carry out op for all checks.
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

// learn notes what the store has left of keys that are watched, and which checks it has
// charged, a bit for each.
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

// peek asks the store, and adds what is held here.
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

// reset forgets what is held of the keys, and has the store forget them. What this
// node is just taking in advance may be from before the reset, and is not used.
func (l *Layer) reset(ctx context.Context, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := store.Validate(headgate.OpReset, checks); err != nil {
		return dst, err
	}
	l.forget(checks)
	out, err := l.ask(ctx, headgate.OpReset, checks, dst)
	l.forget(checks)
	return out, err
}
