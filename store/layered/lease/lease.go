package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
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
	scratch layer.Scratches[claim]
	counts  counts

	closed  atomic.Bool
	fills   sync.WaitGroup
	calls   context.Context // for the calls in the background
	abandon context.CancelFunc
	returns returns
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
	l.calls, l.abandon = context.WithCancel(context.Background())
	l.returns.start(l)
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
	for i := range l.shards { // A request that holds a lock may still begin a call; later ones do not.
		l.shards[i].mu.Lock()
		l.shards[i].mu.Unlock() //nolint:staticcheck // Having held the lock is all that matters.
	}
	stop := context.AfterFunc(ctx, l.abandon)
	l.fills.Wait()
	err := l.returns.stop()
	stop()
	l.abandon()
	return errors.Join(err, l.returns.all(ctx))
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
	if op != headgate.OpReset && !anyLeased(checks) {
		return l.inner.Take(ctx, op, checks, dst)
	}
	if err := store.Validate(op, checks); err != nil {
		return dst, err
	}
	if op == headgate.OpTake {
		return l.take(ctx, checks, dst)
	}
	if op == headgate.OpReset {
		// Units that this node is taking in advance at the moment of the reset may be from before
		// it, so they are dropped too.
		l.forget(checks)
		defer l.forget(checks)
	}
	before := len(dst)
	out, err := l.ask(checks, dst, func(asked []headgate.Check, room []headgate.Decision) ([]headgate.Decision, error) {
		return l.inner.Take(ctx, op, asked, room)
	})
	if err == nil && op == headgate.OpPeek {
		l.addHeld(checks, out[before:])
	}
	return out, err
}

// add adds a check to those for the store, with the rule that the store is to enforce.
func (l *Layer) add(s *layer.Scratch[claim], c *headgate.Check) {
	s.Checks = append(s.Checks, *c)
	if c.Consistency == headgate.Leased {
		s.Checks[len(s.Checks)-1].Rule = l.plans.Of(c.Rule).strict
	}
}

// take is Take with OpTake. Held units are set aside, and the store decides the other checks. If it
// does not admit them, the units are put back.
func (l *Layer) take(ctx context.Context, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	now := l.now()
	var first claim
	waits := l.setAside(&first, &checks[0], now, true) != nil
	if first.batch != nil && len(checks) == 1 {
		return first.append(dst, &checks[0], 0, now), nil
	}
	s := l.scratch.Get()
	defer l.scratch.Put(s)
	s.Parts = append(s.Parts, first)
	for i := range checks[1:] {
		s.Parts = append(s.Parts, claim{})
		waits = l.setAside(&s.Parts[i+1], &checks[i+1], now, true) != nil || waits
	}
	if waits {
		// Units that are set aside may be admitted only until their batch ends.
		l.putBack(s.Parts, true)
		for i := range s.Parts {
			if err := await(ctx, s.Parts[i].fill); err != nil {
				return dst, err
			}
		}
		now = l.now()
		for i := range checks {
			l.setAside(&s.Parts[i], &checks[i], now, false)
		}
	}
	for i := range checks {
		if s.Parts[i].batch == nil {
			l.add(s, &checks[i])
		}
	}
	var charged uint64
	if len(s.Checks) > 0 {
		var err error
		if s.Decisions, err = l.inner.Take(ctx, headgate.OpTake, s.Checks, s.Decisions); err != nil {
			l.putBack(s.Parts, false)
			return dst, err
		}
		var admitted bool
		if charged, admitted = layer.Charged(s.Decisions); !admitted {
			l.putBack(s.Parts, false)
		}
	}
	return l.merge(dst, checks, s, charged, now), nil
}

// await waits for a call that takes units in advance, if there is one.
func await(ctx context.Context, fill <-chan struct{}) error {
	if fill == nil {
		return nil
	}
	select {
	case <-fill:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: waiting for a lease: %w", headgate.ErrUnavailable, ctx.Err())
	}
}

// merge appends all decisions in the order of the checks, and learns from those of the store.
// charged has a bit for each check that the store was asked about and has charged.
func (l *Layer) merge(dst []headgate.Decision, checks []headgate.Check, s *layer.Scratch[claim], charged uint64, now instant) []headgate.Decision {
	rest, asked := s.Decisions, 0
	for i := range checks {
		c, a := &checks[i], &s.Parts[i]
		if a.batch != nil {
			dst = a.append(dst, c, i, now)
			continue
		}
		var own []headgate.Decision
		own, rest = layer.Of(asked, rest)
		if a.key != nil {
			a.key.noteAnswer(l, own, c.Units(), charged&(1<<asked) != 0)
		}
		for j := range own {
			d := &own[j]
			// A layer that decided by another rule names the limits of that rule, which stay.
			if enforced := s.Checks[asked].Rule.Limits(); j < len(enforced) && d.Limit == &enforced[j] {
				d.Limit = &c.Rule.Limits()[j]
			}
			d.Rule, d.Check = c.Rule, i
		}
		dst = append(dst, own...)
		asked++
	}
	return dst
}

// ask lets the store decide all checks in a call that takes no units.
func (l *Layer) ask(checks []headgate.Check, dst []headgate.Decision, call func(asked []headgate.Check, room []headgate.Decision) ([]headgate.Decision, error)) ([]headgate.Decision, error) {
	s := l.scratch.Get()
	defer l.scratch.Put(s)
	s.Parts = slices.Grow(s.Parts, len(checks))[:len(checks)]
	for i := range checks {
		l.add(s, &checks[i])
	}
	var err error
	if s.Decisions, err = call(s.Checks, s.Decisions); err != nil {
		return dst, err
	}
	return l.merge(dst, checks, s, 0, instant{}), nil
}

// addHeld adds the units that are held here to the store's answer to a peek.
func (l *Layer) addHeld(checks []headgate.Check, decisions []headgate.Decision) {
	for i := range decisions {
		d := &decisions[i]
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
}

// ledger is a ledger with leases in front of it. The ledger inside decides the requests that are
// remembered, under the rules that it is to enforce. It also validates them.
type ledger struct {
	outer
	inner headgate.Ledger
}

var _ headgate.Ledger = (*ledger)(nil)

// TakeOnce implements [headgate.Ledger].
func (l *ledger) TakeOnce(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	return l.askLedger(checks, dst, func(asked []headgate.Check, room []headgate.Decision) ([]headgate.Decision, error) {
		return l.inner.TakeOnce(ctx, terms, asked, room)
	})
}

// Reserve implements [headgate.Ledger]. The checks of the reservation have the rules
// that the caller knows.
func (l *ledger) Reserve(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) (r headgate.Reservation, out []headgate.Decision, err error) {
	out, err = l.askLedger(checks, dst, func(asked []headgate.Check, room []headgate.Decision) (out []headgate.Decision, err error) {
		r, out, err = l.inner.Reserve(ctx, terms, asked, room)
		for i := range r.Checks {
			held := &r.Checks[i]
			for j := range asked {
				if c := &asked[j]; c.Rule == held.Rule && c.Key == held.Key {
					held.Rule = checks[j].Rule
				}
			}
		}
		return out, err
	})
	return r, out, err
}

// Recall implements [headgate.Ledger]. The checks have the rules that the store
// enforces.
func (l *ledger) Recall(ctx context.Context, id string) (headgate.Reservation, error) {
	return l.inner.Recall(ctx, id)
}

// Settle implements [headgate.Ledger].
func (l *ledger) Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	return l.askLedger(r.Checks, dst, func(asked []headgate.Check, room []headgate.Decision) ([]headgate.Decision, error) {
		r.Checks = asked
		return l.inner.Settle(ctx, r, units, room)
	})
}

// askLedger is ask for the ledger inside, which may keep the checks. Checks that are not leased or have
// no rule go to it as they are.
func (l *ledger) askLedger(checks []headgate.Check, dst []headgate.Decision, call func(asked []headgate.Check, room []headgate.Decision) ([]headgate.Decision, error)) ([]headgate.Decision, error) {
	if !anyLeased(checks) || slices.ContainsFunc(checks, func(c headgate.Check) bool { return c.Rule == nil }) {
		return call(checks, dst)
	}
	return l.ask(checks, dst, func(asked []headgate.Check, room []headgate.Decision) ([]headgate.Decision, error) {
		return call(slices.Clone(asked), room)
	})
}
