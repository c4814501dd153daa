package regions

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/layered/internal/layer"
)

// The defaults and bounds of [Options].
const (
	DefaultLease = 10 * time.Second
	MinLease     = time.Second
	MaxLease     = 10 * time.Minute
	DefaultFloor = 2
	MaxRegions   = 16
)

const (
	// beats is how often within a lease a region asks the home.
	beats = 10
	// rest is how often it says so if nothing has changed: every part of a lease, one in so many.
	rest = 4
	// grace is the part of a lease for which the home counts it longer: one in so many.
	grace = 10
	// drift is how much clocks may differ in speed: by one part in so many.
	drift = 64
	// boards is how many documents the keys are spread over.
	boards = 8
	// maxKeys is how many keys a process watches. Those beyond have the region's own units.
	maxKeys = 10_000
)

// Store is the region's own store.
type Store interface {
	headgate.Store
	store.Documents
}

// Options configure a [Layer]. All regions must have the same Regions, Lease and Floor: those that
// differ are lent nothing.
type Options struct {
	// Region is this region, and Regions are all, 2 to MaxRegions names with this one.
	Region  string
	Regions []string
	// Store is this region's store. The layer keeps documents there, and looks at counters.
	Store Store
	// Home keeps what is lent. It may be far away.
	Home Home
	// Lease is how long a region uses what is lent to it without hearing from the home: whole
	// milliseconds from MinLease to MaxLease. Zero means DefaultLease.
	Lease time.Duration
	// Floor is the percentage of each limit that is each region's own and never lent. All together
	// have 100 at most.
	Floor int
	// Changed is called when the region is cut off, with the error, and with nil when it is not any
	// more. It must be quick. It may be nil.
	Changed func(error)
}

// Home keeps what is lent to regions.
type Home = store.Documents

// Validate returns a [*headgate.InvalidError] with each mistake in the options but missing stores.
func (o *Options) Validate() error { return o.withDefaults().check().Err("regions") }

func (o *Options) withDefaults() *Options {
	d := *o
	if d.Lease == 0 {
		d.Lease = DefaultLease
	}
	return &d
}

// counted is how long the home counts a lease.
func (o *Options) counted() time.Duration { return o.Lease + o.Lease/grace }

func (o *Options) check() (problems headgate.Problems) {
	if n := len(o.Regions); n < 2 || n > MaxRegions {
		problems.Add("regions", "there are %d regions, must be 2 to %d", n, MaxRegions)
	}
	for i, name := range o.Regions {
		if name == "" || len(name) > 64 || strings.ContainsAny(name, ", ") {
			problems.Add("regions", "the region %q has %d bytes, must have 1 to 64 without spaces and commas", name, len(name))
		}
		if slices.Contains(o.Regions[:i], name) {
			problems.Add("regions", "the region %q is there twice", name)
		}
	}
	if !slices.Contains(o.Regions, o.Region) {
		problems.Add("region", "the region %q is not among %s", o.Region, strings.Join(o.Regions, ", "))
	}
	if o.Lease < MinLease || o.Lease > MaxLease || o.Lease%time.Millisecond != 0 {
		problems.Add("lease", "the lease is %v, must be whole milliseconds from %v to %v", o.Lease, MinLease, MaxLease)
	}
	if o.Floor < 0 || o.Floor*len(o.Regions) > 100 {
		problems.Add("floor", "the floor is %d percent for each of %d regions, must be 0 to 100 for all together", o.Floor, len(o.Regions))
	}
	return problems
}

// settings is what the regions must agree on.
func (o *Options) settings() string {
	sum := sha256.Sum256(fmt.Append(nil, slices.Sorted(slices.Values(o.Regions)), o.Lease, o.Floor))
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// Layer enforces this region's share of the limits of checks with [headgate.Global]. Make one with
// [New]. It is safe for concurrent use.
type Layer struct {
	inner     headgate.Store
	options   Options
	settings  string
	began     time.Time
	since     atomic.Int64 // when this process began, on the region's clock; zero: not known
	self      string
	boards    [boards]shard
	keys      atomic.Int64
	counts    counts
	cut       atomic.Pointer[error]
	stop      context.CancelFunc
	stopped   sync.WaitGroup
	scratches layer.Scratches[*key]
}

type counts struct{ home, failed, late, untracked, floors atomic.Int64 }

// Stats tell what a layer does and has done.
type Stats struct {
	// Keys is how many keys are watched by this process, and Lent how many have units that are lent.
	Keys, Lent int64
	// Cut is why this region's leader could not ask the home last; nil if it could.
	Cut error
	// Home is how many calls to the home this process has made, and Failed how many attempts to be
	// lent something failed.
	Home, Failed int64
	// Floor is how many decisions were made with the region's own units after a lease had ended.
	// Late is how many answers came too late to be used. Untracked is how many checks had a key that
	// is not watched, because too many are.
	Floor, Late, Untracked int64
}

// New returns a layer around inner, which decides by options.Store. Close it when it is no longer
// needed. The error is a [*headgate.InvalidError] with each mistake in the options. It reads which
// settings the region had before; if the region's store does not answer within a second, it goes on.
func New(inner headgate.Store, o Options) (*Layer, error) {
	o = *o.withDefaults()
	problems := o.check()
	if inner == nil || o.Store == nil || o.Home == nil {
		problems.Add("store", "it needs a store, the region's store and a home")
	}
	if err := problems.Err("regions"); err != nil {
		return nil, err
	}
	l := &Layer{inner: inner, options: o, settings: o.settings(), began: time.Now(), self: newName()}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	for i := range l.boards {
		s := &l.boards[i]
		s.layer, s.number = l, i
		s.keys, s.leads = map[layer.Counter]*key{}, map[string]*lead{}
		s.floors.Store(newFloors(&l.options, l.options.division(), nil))
		l.stopped.Go(func() { s.begin(ctx) })
	}
	l.stopped.Wait()
	for i := range l.boards {
		l.stopped.Go(func() { l.boards[i].run(ctx) })
	}
	return l, nil
}

// Store returns the store to ask: a [headgate.Ledger] if the one inside is one.
func (l *Layer) Store() headgate.Store {
	if inner, ok := l.inner.(headgate.Ledger); ok {
		return &ledger{outer{l}, inner}
	}
	return outer{l}
}

// Close ends the talk with the home. What is lent to the region is used by its other processes, or
// ends. Closing again does nothing.
func (l *Layer) Close(context.Context) error {
	l.stop()
	l.stopped.Wait()
	return nil
}

// Stats returns the counts.
func (l *Layer) Stats() Stats {
	s := Stats{
		Keys: l.keys.Load(), Home: l.counts.home.Load(), Failed: l.counts.failed.Load(),
		Floor: l.counts.floors.Load(), Late: l.counts.late.Load(), Untracked: l.counts.untracked.Load(),
	}
	if err := l.cut.Load(); err != nil {
		s.Cut = *err
	}
	for i := range l.boards {
		s.Lent += l.boards[i].lending()
	}
	return s
}

// Share is what the regions have of one limit of a key.
type Share struct {
	Rule, Key string
	Limit     headgate.Limit
	// Demand is how many units a second this region is asked for.
	Demand float64
	// Own is how many units are always this region's, and Lent are those that each region has beyond,
	// as this region has heard last. Since is for how long it has had any itself.
	Own   int64
	Lent  map[string]int64
	Since time.Duration
}

// Shares returns the shares of the keys for which this process asks the home. Another process of the
// region may ask for others.
func (l *Layer) Shares() []Share {
	var all []Share
	for i := range l.boards {
		s := &l.boards[i]
		s.mu.Lock()
		if l.now() < s.until {
			all = append(all, s.shares...)
		}
		s.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b Share) int {
		return cmp.Or(cmp.Compare(b.Demand, a.Demand), strings.Compare(a.Rule, b.Rule), strings.Compare(a.Key, b.Key))
	})
	return all
}

// now is how long the layer has been there.
func (l *Layer) now() time.Duration { return time.Since(l.began) }

// key is a key of a rule that this process was asked about.
type key struct {
	id    string
	key   string
	rule  atomic.Pointer[headgate.Rule] // as it was asked about last
	asked atomic.Int64                  // units, since they were last told
	local atomic.Pointer[local]
	tight atomic.Bool // little was left
	idle  int         // beats without a request
}

// find returns the key of a check, or nil if too many are watched.
func (s *shard) find(counter layer.Counter, c *headgate.Check) *key {
	l := s.layer
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keys[counter]
	if k == nil {
		if l.keys.Load() >= maxKeys {
			l.counts.untracked.Add(1)
			return nil
		}
		l.keys.Add(1)
		counter = counter.Own()
		k = &key{id: idOf(c.Rule.Name(), counter.Key), key: counter.Key}
		s.keys[counter] = k
	}
	return k
}

// mostAsked is how many units a key is asked for at most until that is told. So no sum overflows, whoever
// asks for how much.
const mostAsked = 1 << 60

// ask notes that requests ask for units.
func (k *key) ask(units int64) {
	if k.asked.Add(units) > mostAsked {
		k.asked.Store(mostAsked)
	}
}

// idOf names a subject to the home, which is told no keys.
func idOf(rule, key string) string {
	sum := sha256.Sum256([]byte(rule + "\x00" + key))
	return base64.RawURLEncoding.EncodeToString(sum[:15])
}

// poolOf names a limit of a subject to the home.
func poolOf(id string, l *headgate.Limit) string { return id + strconv.FormatUint(l.Slot(), 36) }

// here makes a check one of this region, and returns its key and until when it may be used; zero is
// always.
func (l *Layer) here(op headgate.Op, c *headgate.Check) (*key, time.Duration) {
	counter := layer.CounterOf(c)
	s := &l.boards[counter.Hash()%boards]
	k := s.find(counter, c)
	var loc *local
	if k == nil {
		loc = s.floors.Load().rules.Of(c.Rule)
	} else {
		demand := op == headgate.OpTake || op == headgate.OpCharge
		if demand {
			k.ask(c.Units())
		}
		loc = k.local.Load()
		if now := l.now(); loc == nil || loc.of != c.Rule || loc.until != 0 && now >= loc.until {
			loc = s.derive(k, c.Rule, now, demand)
		}
	}
	c.Rule = loc.rule
	if loc.none && op <= headgate.OpPeek {
		c.Cost = headgate.MaxCount // More than anything that is lent.
	}
	return k, loc.until
}

// decide has inner decide copies of checks for this region, and puts the caller's rules into its
// decisions.
func (l *Layer) decide(op headgate.Op, checks []headgate.Check, dst []headgate.Decision, inner func([]headgate.Check) ([]headgate.Decision, error)) ([]headgate.Decision, error) {
	if !anyGlobal(checks) || store.Validate(op, checks) != nil {
		return inner(checks)
	}
	s := l.scratches.Get()
	defer l.scratches.Put(s)
	s.Checks = append(s.Checks, checks...)
	var end time.Duration // of what is lent; zero if nothing is
	for i := range s.Checks {
		k, until := (*key)(nil), time.Duration(0)
		if c := &s.Checks[i]; c.Scope == headgate.Global {
			k, until = l.here(op, c)
		}
		s.Parts = append(s.Parts, k)
		if op <= headgate.OpPeek && until != 0 && (end == 0 || until < end) {
			end = until
		}
	}
	out, err := inner(s.Checks)
	if err == nil && end != 0 && l.now() > end+l.options.Lease/grace {
		l.counts.late.Add(1)
		err = fmt.Errorf("%w: the answer came after this region's share had ended", headgate.ErrUnavailable)
	}
	if err != nil {
		return dst, err
	}
	l.back(s.Parts, out[len(dst):], checks)
	return out, nil
}

// back puts the caller's rules into decisions about them. A denial here may end as soon as more is
// lent.
func (l *Layer) back(keys []*key, decisions []headgate.Decision, checks []headgate.Check) {
	at := 0
	for i := range decisions {
		d := &decisions[i]
		if at++; i == 0 || decisions[i-1].Check != d.Check {
			at = 0
		}
		c := &checks[d.Check]
		if c.Scope != headgate.Global {
			continue
		}
		if k := keys[d.Check]; k != nil && d.Limit != nil && (!d.Allowed || 2*d.Remaining <= d.Limit.Capacity()) && !k.tight.Load() {
			k.tight.Store(true)
		}
		d.Rule = c.Rule
		if limits := c.Rule.Limits(); at < len(limits) {
			d.Limit = &limits[at]
			switch {
			case d.Allowed:
			case c.Units() > d.Limit.Capacity():
				d.RetryAfter = headgate.Never
			case d.RetryAfter == headgate.Never || d.RetryAfter > l.options.Lease:
				d.RetryAfter = l.options.Lease
			}
		}
	}
}

func anyGlobal(checks []headgate.Check) bool {
	for i := range checks {
		if checks[i].Scope == headgate.Global {
			return true
		}
	}
	return false
}

// outer is the store inside with shares.
type outer struct{ *Layer }

// Take implements [headgate.Store].
func (l outer) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	return l.decide(op, checks, dst, func(here []headgate.Check) ([]headgate.Decision, error) {
		return l.inner.Take(ctx, op, here, dst)
	})
}

// ledger is a ledger with shares in front of it. A request is settled in the region that charged it.
// The ledger inside keeps the checks.
type ledger struct {
	outer
	inner headgate.Ledger
}

var _ headgate.Ledger = (*ledger)(nil)

// TakeOnce implements [headgate.Ledger].
func (l *ledger) TakeOnce(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	return l.decide(headgate.OpTake, checks, dst, func(here []headgate.Check) ([]headgate.Decision, error) {
		return l.inner.TakeOnce(ctx, terms, slices.Clone(here), dst)
	})
}

// Reserve implements [headgate.Ledger]. The checks of the reservation have the rules that the caller
// knows.
func (l *ledger) Reserve(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) (made headgate.Reservation, out []headgate.Decision, err error) {
	out, err = l.decide(headgate.OpTake, checks, dst, func(here []headgate.Check) (out []headgate.Decision, err error) {
		made, out, err = l.inner.Reserve(ctx, terms, slices.Clone(here), dst)
		for i := range made.Checks {
			for j := range here {
				if c := &here[j]; c.Rule == made.Checks[i].Rule && c.Key == made.Checks[i].Key {
					made.Checks[i].Rule = checks[j].Rule
				}
			}
		}
		return out, err
	})
	if err != nil {
		return headgate.Reservation{}, out, err
	}
	return made, out, nil
}

// Recall implements [headgate.Ledger]. The checks have the rules that this region enforced.
func (l *ledger) Recall(ctx context.Context, id string) (headgate.Reservation, error) {
	return l.inner.Recall(ctx, id)
}

// Settle implements [headgate.Ledger].
func (l *ledger) Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	return l.decide(headgate.OpRefund, r.Checks, dst, func(here []headgate.Check) ([]headgate.Decision, error) {
		asked := r
		asked.Checks = slices.Clone(here)
		return l.inner.Settle(ctx, asked, units, dst)
	})
}

// errOlder says that this process has settings that are not in force any more.
var errOlder = errors.New("regions, lease or floor were changed, and this process began before with others; it uses the region's own units until it is started again")
