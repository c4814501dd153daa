package denycache

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/layered/internal/layer"
)

// Options change a [Layer]. The zero Options are good for a server.
type Options struct {
	// All is the default for checks whose DenyCache says nothing. With it, every denial that
	// has a RetryAfter is remembered; without it, only the blocks of a [headgate.Penalty] are.
	All bool
	// Trust is how long a denial is believed without asking the store again, since units may
	// come back without this process hearing of it. Zero means DefaultTrust. For checks that
	// are counted by leases it is at most LeasedTrust: other processes give back leased units
	// without telling anybody.
	Trust time.Duration
	// MaxKeys is how many keys are remembered. Zero means DefaultMaxKeys.
	MaxKeys int
	// Bus tells the other processes which keys to forget, and brings what they tell. Without
	// it a process believes a denial until Trust is over.
	Bus Bus
}

// The defaults of [Options].
const (
	DefaultTrust   = 10 * time.Second
	DefaultMaxKeys = 1 << 16
)

// LeasedTrust bounds how long a denial of a check with [headgate.Leased] is believed.
const LeasedTrust = time.Second

// Layer remembers the denials of the store inside. Make one with [New]. It is safe for
// concurrent use.
type Layer struct {
	inner   headgate.Store
	options Options
	table   table
	peers   peers
}

// New returns a layer around a store. Close it when it is no longer needed.
func New(inner headgate.Store, options Options) (*Layer, error) {
	o := options
	o.Trust, o.MaxKeys = cmp.Or(o.Trust, DefaultTrust), cmp.Or(o.MaxKeys, DefaultMaxKeys)
	var problems headgate.Problems
	if inner == nil {
		problems.Add("store", "it needs a store")
	}
	if o.Trust < 0 {
		problems.Add("trust", "trust is %v, must be above 0", o.Trust)
	}
	if o.MaxKeys < 0 {
		problems.Add("max_keys", "max keys is %d, must be 1 or more", o.MaxKeys)
	}
	if err := problems.Err("deny cache"); err != nil {
		return nil, err
	}
	d := &Layer{inner: inner, options: o}
	d.table.init(o.MaxKeys)
	d.peers.start(o.Bus, &d.table)
	return d, nil
}

// Store returns the store to ask: a [headgate.Ledger] if the one inside is one.
func (d *Layer) Store() headgate.Store {
	if inner, ok := d.inner.(headgate.Ledger); ok {
		return &ledger{outer{d}, inner}
	}
	return outer{d}
}

// Close ends the connection to the bus, after a last message if there are keys to tell. An
// error says that the context ended before that. The store can still be used, and believes
// what it remembers for [Options.Trust]. Closing again does nothing.
func (d *Layer) Close(ctx context.Context) error { return d.peers.close(ctx) }

// Stats are counts since the layer was made, except Keys, Listening and Error, which say how
// things are now.
type Stats struct {
	// Keys is how many keys are remembered, including those whose denials have ended.
	Keys int64
	// Published is how many keys the other processes were told to forget. Dropped is how
	// many they were not told of, because the bus was too slow or did not answer.
	Published, Dropped int64
	// Received is how many messages came, including this process's own, and Unknown how many
	// of them could not be read.
	Received, Unknown int64
	// Listening says whether messages arrive. If it is false and Error is nil, there is no
	// bus.
	Listening bool
	// Error is the last error of listening or sending.
	Error error
}

// Stats returns the layer's counts.
func (d *Layer) Stats() Stats {
	s := d.peers.stats()
	s.Keys = d.table.count.Load()
	return s
}

// remembers says which denials of a check may be remembered.
type remembers uint8

const (
	nothing remembers = iota
	blocks            // denials by a penalty, whatever the cost
	denials           // all that say when to come again, for their cost
)

// rememberable returns which denials of a check may be remembered.
func (d *Layer) rememberable(c *headgate.Check) remembers {
	switch {
	case c.Shadow, c.Rule == nil, c.DenyCache == headgate.DenyCacheOff:
		return nothing
	case layer.Penalizes(c.Rule):
		return blocks
	case c.DenyCache != headgate.DenyCacheOn && !d.options.All:
		return nothing
	case c.Consistency != headgate.Strict && c.Consistency != headgate.Leased:
		return nothing // it is not the store that denies
	}
	return denials
}

// recall appends the decisions of the checks that are certain to be denied. known has a bit for each
// check of whose counter something is remembered. These may be checks whose own denials are not, such
// as those in shadow: they charge the same counters.
func (d *Layer) recall(ctx context.Context, checks []headgate.Check, now time.Duration, dst []headgate.Decision) (_ []headgate.Decision, known uint64, found bool) {
	if d.table.count.Load() == 0 {
		return dst, 0, false // There is no need to hash the keys.
	}
	before, blocked := len(dst), false
	for i := range checks {
		c := &checks[i]
		what := d.rememberable(c)
		if c.Rule == nil || what == nothing && !c.Shadow && c.DenyCache != headgate.DenyCacheOff {
			continue
		}
		hash := layer.CounterOf(c).Hash()
		if !d.table.has(hash) {
			continue
		}
		e, there, denied := d.table.find(hash, c, now)
		if there {
			known |= 1 << i
		}
		if !denied || what == nothing {
			continue
		}
		blocked = blocked || e.blocked
		same, passed := e.cost == c.Units(), (now - e.decidedAt).Truncate(time.Microsecond)
		for _, d := range e.decisions {
			if !same && d.Limit.Algorithm != headgate.Penalty {
				continue // it is of another cost
			}
			d.Check, d.Source = i, headgate.SourceCache
			d.At += headgate.Instant(passed.Microseconds())
			d.Delay = max(0, d.Delay-passed)
			if d.RetryAfter > 0 {
				d.RetryAfter -= passed
			}
			if d.ResetAfter -= passed; d.ResetAfter <= 0 {
				d.ResetAfter, d.Remaining = 0, d.Limit.Capacity()
			}
			dst = append(dst, d)
		}
	}
	if len(dst) == before || ctx.Err() != nil || store.Validate(headgate.OpTake, checks) != nil {
		return dst[:before], known, false
	}
	if !blocked && slices.ContainsFunc(checks, func(c headgate.Check) bool { return layer.Penalizes(c.Rule) }) {
		return dst[:before], known, false
	}
	return dst, known, true
}

// rememberDenials remembers the denials among the decisions of a call.
func (d *Layer) rememberDenials(checks []headgate.Check, decisions []headgate.Decision, asked moment) {
	for len(decisions) > 0 {
		var own []headgate.Decision
		c := &checks[decisions[0].Check]
		own, decisions = layer.Of(decisions[0].Check, decisions)
		d.rememberCheck(c, own, asked)
	}
}

func admits(decisions []headgate.Decision) bool {
	for i := range decisions {
		if !decisions[i].Allowed && !decisions[i].Shadow {
			return false
		}
	}
	return true
}

// rememberCheck remembers the store's decisions on one check if they deny it.
func (d *Layer) rememberCheck(c *headgate.Check, decisions []headgate.Decision, asked moment) {
	what := d.rememberable(c)
	if what == nothing {
		return
	}
	wait, never, blocked := time.Duration(0), false, false
	for i := range decisions {
		one := &decisions[i]
		switch {
		case one.Source != headgate.SourceStore:
			return
		case one.Allowed:
			continue
		case one.RetryAfter <= 0:
			never = true
			continue
		case wait == 0 || one.RetryAfter < wait:
			// Limits with a shorter wait no longer deny by then.
			wait = one.RetryAfter
		}
		blocked = blocked || one.Limit.Algorithm == headgate.Penalty
	}
	if wait == 0 || !blocked && (never || what != denials) {
		return
	}
	trust := d.options.Trust
	if c.Consistency == headgate.Leased {
		trust = min(trust, LeasedTrust)
	}
	// The store decided at some time between the call and its answer. The denial ends as if
	// the store had decided at the call, so that it never outlasts the store's own. The waits
	// that callers are told count from the answer, so that nobody comes too early.
	d.table.keep(layer.CounterOf(c).Hash(), c, asked, denial{
		cost: c.Units(), blocked: blocked, decidedAt: d.table.now(), until: asked.at + min(wait, trust),
		decisions: append([]headgate.Decision(nil), decisions...),
	})
}

// forgetFreed forgets a key of which units came back, here and in every other process. The
// others are always told, because only they know whether they remember a denial: this process
// may not have their rules, and a reservation that it recalls says nothing of DenyCache.
func (d *Layer) forgetFreed(c *headgate.Check) {
	if c.Rule == nil {
		return
	}
	hash := layer.CounterOf(c).Hash()
	d.table.forget(hash)
	d.peers.publish(hash)
}

// forgetCharged forgets the denials of keys that were charged, in this process only: of those checks
// that have a bit. Such a key is still denied, but the numbers have changed.
func (d *Layer) forgetCharged(checks []headgate.Check, bits uint64) {
	if d.table.count.Load() == 0 {
		return
	}
	for i := range checks {
		if bits&(1<<i) != 0 && checks[i].Rule != nil {
			d.table.drop(layer.CounterOf(&checks[i]).Hash())
		}
	}
}

// all has a bit for each check.
const all = ^uint64(0)

// outer is the store inside, with a memory of denials in front of it.
type outer struct{ *Layer }

// Take implements [headgate.Store].
func (s outer) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	switch op {
	case headgate.OpTake:
		return s.take(ctx, checks, dst)
	case headgate.OpPeek:
		return s.inner.Take(ctx, op, checks, dst)
	}
	out, err := s.inner.Take(ctx, op, checks, dst)
	switch {
	case op == headgate.OpCharge:
		s.forgetCharged(checks, all)
	case !errors.Is(err, headgate.ErrInvalid): // one that failed otherwise may have counted
		for i := range checks {
			s.forgetFreed(&checks[i])
		}
	}
	return out, err
}

// take answers from memory if the request is certain to be denied. Otherwise it asks the store
// and remembers what it denies.
func (s outer) take(ctx context.Context, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	may := false
	for i := range checks {
		may = may || s.rememberable(&checks[i]) != nothing
	}
	var asked moment
	if may {
		asked = s.table.moment()
	}
	dst, known, found := s.recall(ctx, checks, asked.at, dst)
	if found {
		return dst, nil
	}
	before := len(dst)
	out, err := s.inner.Take(ctx, headgate.OpTake, checks, dst)
	switch {
	case err != nil:
	case admits(out[before:]):
		s.forgetCharged(checks, known)
	case may:
		s.rememberDenials(checks, out[before:], asked)
	}
	return out, err
}

// ledger is a ledger with a memory in front of it.
type ledger struct {
	outer
	inner headgate.Ledger
}

func (s *ledger) TakeOnce(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	before := len(dst)
	out, err := s.inner.TakeOnce(ctx, terms, checks, dst)
	if err != nil || admits(out[before:]) {
		s.forgetCharged(checks, all)
	}
	return out, err
}

func (s *ledger) Reserve(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	before := len(dst)
	r, out, err := s.inner.Reserve(ctx, terms, checks, dst)
	if err != nil || admits(out[before:]) {
		s.forgetCharged(checks, all)
	}
	return r, out, err
}

func (s *ledger) Recall(ctx context.Context, id string) (headgate.Reservation, error) {
	return s.inner.Recall(ctx, id)
}

// Settle implements [headgate.Ledger].
func (s *ledger) Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	out, err := s.inner.Settle(ctx, r, units, dst)
	if errors.Is(err, headgate.ErrConflict) || errors.Is(err, headgate.ErrInvalid) {
		return out, err
	}
	s.forgetCharged(r.Checks, all)
	for i := range r.Checks {
		if i < len(units) && units[i] < r.Checks[i].Units() {
			s.forgetFreed(&r.Checks[i])
		}
	}
	return out, err
}
