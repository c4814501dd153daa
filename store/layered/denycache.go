package layered

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate"
)

// DenyCacheOptions change a deny cache. The zero value is good for a server.
type DenyCacheOptions struct {
	// All has every denial remembered that says when to come again, for checks whose
	// DenyCache does not say. Without it only the blocks of a [headgate.Penalty] are.
	All bool
	// Trust is how long a denial is believed without asking the store again: units
	// may have come back in a way that this process has not heard of. Zero means
	// DefaultTrust. Denials of checks that are counted by leases are believed for
	// LeasedTrust at most: other processes return units without a word.
	Trust time.Duration
	// MaxEntries is how many keys are remembered. Zero means DefaultMaxEntries.
	MaxEntries int
	// Bus tells the other processes which keys are to be forgotten, and this one
	// what they say. Without it they find out when Trust is over.
	Bus Bus
}

// The defaults of [DenyCacheOptions].
const (
	DefaultTrust      = 10 * time.Second
	DefaultMaxEntries = 1 << 16
)

// LeasedTrust bounds how long a denial of a check with [headgate.Leased] is believed.
const LeasedTrust = time.Second

// Denials remembers what a store has denied, so that a key that is denied costs it
// nothing but one call for each Trust. What it remembers of a key is forgotten when
// this process takes, gives back, settles or resets units of it, and with a [Bus] when
// any process that shares the bus gives back or resets some.
//
// Only what the store itself has decided is remembered, and not by which request
// but for the same rule, key and cost. A rule that was changed is another rule. An
// answer from memory has the decisions of the checks that deny alone, with
// [headgate.SourceCache]; their times are as of now and what remains is as it was. A
// request may be told so while another check of it would have it wait for longer.
//
// A block by a penalty answers requests of every cost. Of rules with a penalty nothing
// else is remembered, since the penalty counts denials; for the same reason the store is
// asked if another rule of the request has a penalty, unless a block denies it.
//
// Requests with an id and peeks are always answered by the store. Denials are safe
// for concurrent use.
type Denials struct {
	store   headgate.Store
	options DenyCacheOptions
	table   denyTable
	news    news
}

// NewDenials returns a memory of the store's denials. Close it when it is no longer
// needed; without a bus there is nothing to close.
func NewDenials(store headgate.Store, o DenyCacheOptions) *Denials {
	if o.Trust <= 0 {
		o.Trust = DefaultTrust
	}
	if o.MaxEntries <= 0 {
		o.MaxEntries = DefaultMaxEntries
	}
	d := &Denials{store: store, options: o}
	d.table.open(o.MaxEntries)
	d.news.open(o.Bus, &d.table)
	return d
}

// Store returns the store with the memory in front of it: a [headgate.Ledger] if the
// store is one.
func (d *Denials) Store() headgate.Store {
	if ledger, ok := d.store.(headgate.Ledger); ok {
		return &denyCacheLedger{denyCache{d}, ledger}
	}
	return denyCache{d}
}

// Close ends the connection to the bus, after a last message if some is due. The
// store goes on, and trusts what it remembers for Trust.
func (d *Denials) Close() { d.news.close() }

// DenialsStatus is what became of a memory of denials so far.
type DenialsStatus struct {
	// Keys is how many are remembered, with those whose time is over.
	Keys int64
	// Published is how many keys the other processes were told to forget, and Dropped
	// how many they were not, because the bus was too slow or did not answer.
	Published, Dropped int64
	// Received is how many messages came, this process's own among them, and Unknown
	// how many of them could not be read.
	Received, Unknown int64
	// Listening says whether messages arrive now. There is no bus if it is false and
	// Error is nil.
	Listening bool
	// Error is why messages did not arrive or could not be sent the last time.
	Error error
}

// Status returns what became of it so far.
func (d *Denials) Status() DenialsStatus {
	s := d.news.status()
	s.Keys = d.table.count.Load()
	return s
}

// remembers is what of a check may be remembered.
type remembers uint8

const (
	nothing remembers = iota
	blocks            // denials by a penalty, whatever the cost
	denials           // all that say when to come again, for their cost
)

// of says what may be remembered of a check.
func (d *Denials) of(c *headgate.Check) remembers {
	switch {
	case c.Shadow, c.Rule == nil, c.DenyCache == headgate.DenyCacheOff:
		return nothing
	case penalizes(c.Rule):
		return blocks
	case c.DenyCache != headgate.DenyCacheOn && !d.options.All:
		return nothing
	case c.Consistency != headgate.Strict && c.Consistency != headgate.Leased:
		return nothing // it is not the store that denies
	}
	return denials
}

func penalizes(r *headgate.Rule) bool {
	limits := r.Limits()
	for i := range limits {
		if limits[i].Algorithm == headgate.Penalty {
			return true
		}
	}
	return false
}

// glance is what is known of a check before the store is asked.
type glance struct {
	check int
	what  remembers
	name  uint64     // of the key; see keyName
	age   generation // of what is remembered of it
	known bool       // something is
}

// fewGlances is how many need no memory of their own.
const fewGlances = 8

// glance appends the checks of which something may be remembered.
func (d *Denials) glance(checks []headgate.Check, dst []glance) []glance {
	for i := range checks {
		c := &checks[i]
		what := d.of(c)
		if what == nothing {
			continue
		}
		name := keyName(c.Rule, c.Key)
		dst = append(dst, glance{check: i, what: what, name: name, age: d.table.generation(name)})
	}
	return dst
}

// recall appends the decisions of the checks that are sure to deny.
func (d *Denials) recall(checks []headgate.Check, glances []glance, now time.Duration, dst []headgate.Decision) (_ []headgate.Decision, found bool) {
	before, blocked := len(dst), false
	for i := range glances {
		g := &glances[i]
		c := &checks[g.check]
		e, ok := d.table.find(g, c, now)
		if !ok {
			continue
		}
		blocked = blocked || e.blocked
		same, passed := e.cost == c.Units(), (now - e.told).Truncate(time.Microsecond)
		for _, one := range e.decisions {
			if !same && one.Limit.Algorithm != headgate.Penalty {
				continue // it is of another cost
			}
			one.Check, one.Source = g.check, headgate.SourceCache
			one.At += passed.Microseconds()
			one.Delay = max(0, one.Delay-passed)
			if one.RetryAfter > 0 {
				one.RetryAfter -= passed
			}
			if one.ResetAfter -= passed; one.ResetAfter <= 0 {
				one.ResetAfter, one.Remaining = 0, one.Limit.Capacity()
			}
			dst = append(dst, one)
		}
	}
	if len(dst) == before {
		return dst, false
	}
	if !blocked {
		for i := range checks {
			if penalizes(checks[i].Rule) {
				return dst[:before], false
			}
		}
	}
	return dst, true
}

// note remembers the denials among the decisions.
func (d *Denials) note(checks []headgate.Check, glances []glance, decisions []headgate.Decision, asked time.Duration) {
	for i := range glances {
		g := &glances[i]
		first := 0
		for first < len(decisions) && decisions[first].Check != g.check {
			first++
		}
		last := first
		for last < len(decisions) && decisions[last].Check == g.check {
			last++
		}
		d.remember(&checks[g.check], g, decisions[first:last], asked)
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

// remember keeps what the store said of one check, if that denies.
func (d *Denials) remember(c *headgate.Check, g *glance, decisions []headgate.Decision, asked time.Duration) {
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
			// A limit that has let go before the others no longer denies.
			wait = one.RetryAfter
		}
		blocked = blocked || one.Limit.Algorithm == headgate.Penalty
	}
	if wait == 0 || !blocked && (never || g.what != denials) {
		return
	}
	trust := d.options.Trust
	if c.Consistency == headgate.Leased {
		trust = min(trust, LeasedTrust)
	}
	// The store has decided at some time since it was asked: the denial is believed from
	// the first moment at which that may have been, so that it never outlasts the
	// store's, and its times are told from the last, so that nobody comes too early.
	d.table.keep(g, c, denial{
		cost: c.Units(), blocked: blocked, told: d.table.now(), until: asked + min(wait, trust),
		decisions: append([]headgate.Decision(nil), decisions...),
	})
}

// freed forgets a key of which units came back, here and in every other process. The
// others are always told: only they know whether they remember a denial. This process may
// have none of their rules, and what it recalls of a reservation has no DenyCache.
func (d *Denials) freed(c *headgate.Check) {
	if c.Rule == nil {
		return
	}
	name := keyName(c.Rule, c.Key)
	d.table.forget(name)
	d.news.tell(name)
}

// charged forgets what is remembered here of keys that were charged. What was denied
// still is, but by other numbers. Glances are those of the checks, if there are any.
func (d *Denials) charged(checks []headgate.Check, glances []glance) {
	if d.table.count.Load() == 0 {
		return
	}
	for i := range checks {
		c := &checks[i]
		switch {
		case len(glances) > 0 && glances[0].check == i:
			if glances[0].known {
				d.table.drop(glances[0].name)
			}
			glances = glances[1:]
		case c.Rule != nil && (c.Shadow || c.DenyCache == headgate.DenyCacheOff || d.of(c) != nothing):
			d.table.drop(keyName(c.Rule, c.Key))
		}
	}
}

// denyCache is a store with a memory in front of it.
type denyCache struct{ *Denials }

// Take implements [headgate.Store].
func (s denyCache) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	switch op {
	case headgate.OpTake:
		return s.take(ctx, checks, dst)
	case headgate.OpPeek:
		return s.store.Take(ctx, op, checks, dst)
	}
	out, err := s.store.Take(ctx, op, checks, dst)
	switch {
	case op == headgate.OpCharge:
		s.charged(checks, nil)
	case !errors.Is(err, headgate.ErrInvalid): // one that failed otherwise may have counted
		for i := range checks {
			s.freed(&checks[i])
		}
	}
	return out, err
}

// take answers from memory, if that is sure to deny, and else remembers what the store
// says.
func (s denyCache) take(ctx context.Context, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	var room [fewGlances]glance
	glances := s.glance(checks, room[:0])
	var asked time.Duration
	if len(glances) > 0 {
		asked = s.table.now()
		if s.table.count.Load() > 0 && ctx.Err() == nil && headgate.Validate(headgate.OpTake, checks) == nil {
			if out, found := s.recall(checks, glances, asked, dst); found {
				return out, nil
			}
		}
	}
	before := len(dst)
	out, err := s.store.Take(ctx, headgate.OpTake, checks, dst)
	switch {
	case err != nil:
	case admits(out[before:]):
		s.charged(checks, glances)
	default:
		s.note(checks, glances, out[before:], asked)
	}
	return out, err
}

// denyCacheLedger is a ledger with a memory in front of it.
type denyCacheLedger struct {
	denyCache
	ledger headgate.Ledger
}

func (s *denyCacheLedger) TakeOnce(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	before := len(dst)
	out, err := s.ledger.TakeOnce(ctx, terms, checks, dst)
	if err != nil || admits(out[before:]) {
		s.charged(checks, nil)
	}
	return out, err
}

func (s *denyCacheLedger) Reserve(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	before := len(dst)
	r, out, err := s.ledger.Reserve(ctx, terms, checks, dst)
	if err != nil || admits(out[before:]) {
		s.charged(checks, nil)
	}
	return r, out, err
}

func (s *denyCacheLedger) Recall(ctx context.Context, id string) (headgate.Reservation, error) {
	return s.ledger.Recall(ctx, id)
}

// Settle implements [headgate.Ledger].
func (s *denyCacheLedger) Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	out, err := s.ledger.Settle(ctx, r, units, dst)
	if errors.Is(err, headgate.ErrConflict) || errors.Is(err, headgate.ErrInvalid) {
		return out, err
	}
	s.charged(r.Checks, nil)
	for i := range r.Checks {
		if i < len(units) && units[i] < r.Checks[i].Units() {
			s.freed(&r.Checks[i])
		}
	}
	return out, err
}
