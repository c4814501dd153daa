package policy

import (
	"fmt"
	"maps"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/muldiv"
)

// InProgress bounds how many units of a rule's requests may be in progress at the same time. Each
// key of the rule has its own permits; in a rule without Per, all requests share one set of them. A
// request takes as many permits as it costs under the rule, and holds them until it ends.
type InProgress struct {
	// Limit is how many permits each key has, 1 to headgate.MaxPermits. If there is an Entry, Limit
	// is for all values that are not among Values; zero then means that these have no bound.
	Limit int64
	// Entry and Values give limits by the value of an entry, as a [Tariff] does: 1 to
	// headgate.MaxPermits each.
	Entry  string
	Values map[string]int64
	// Wait is how long a request waits for its permits, up to MaxWait. Zero means that
	// it is refused at once.
	Wait time.Duration
	// Queue is how many requests may wait in one process for the permits of one key, 1 to MaxQueue.
	// Zero means DefaultQueue. It has no meaning without Wait.
	Queue int
	// Shared makes the bound hold for all processes that share a store, instead of for each
	// process.
	Shared bool
	// TTL is how long after a process has died the store frees its permits, MinTTL to MaxTTL. Zero
	// means DefaultTTL. It has no meaning without Shared.
	TTL time.Duration
}

// The bounds and defaults of an [InProgress].
const (
	MaxWait      = 10 * time.Minute
	DefaultQueue = 100
	MaxQueue     = 1_000_000
	DefaultTTL   = 30 * time.Second
	MinTTL       = 100 * time.Millisecond
	MaxTTL       = time.Hour
	// MaxShared is the largest limit, and the largest queue, of a bound that is Shared, because a
	// store reads and writes all permits of a key at once.
	MaxShared = 1000
)

// Waiting is how many requests may wait for each key: Queue with its default applied, and zero
// without Wait.
func (p *InProgress) Waiting() int {
	switch {
	case p.Wait == 0:
		return 0
	case p.Queue == 0:
		return DefaultQueue
	}
	return p.Queue
}

// Term is TTL with its default applied.
func (p *InProgress) Term() time.Duration {
	if p.TTL == 0 {
		return DefaultTTL
	}
	return p.TTL
}

// Most is the largest of the limits, over all values of the entry.
func (p *InProgress) Most() int64 {
	most := p.Limit
	for _, limit := range p.Values {
		most = max(most, limit)
	}
	return most
}

func (p *InProgress) clone() *InProgress {
	if p == nil {
		return nil
	}
	c := *p
	c.Values = maps.Clone(p.Values)
	return &c
}

func (p *InProgress) check(bad func(field, format string, args ...any)) {
	if p.Entry == "" && len(p.Values) == 0 || p.Limit != 0 {
		p.checkPermits("in_progress.limit", "the limit", p.Limit, bad)
	}
	if p.Entry != "" || len(p.Values) > 0 {
		if problem := checkEntryName(p.Entry); problem != "" {
			bad("in_progress", "%s", problem)
		}
		if n := len(p.Values); n > MaxTiers || n == 0 && p.Limit == 0 {
			bad("in_progress", "there are limits for %d values of %q, must be 1 to %d", n, p.Entry, MaxTiers)
		}
		for value, limit := range p.Values {
			if value == "" || len(value) > MaxValue {
				bad("in_progress", "the value %s has %d bytes, must have 1 to %d", Quote(value), len(value), MaxValue)
			}
			p.checkPermits("in_progress", "the limit of "+Quote(value), limit, bad)
		}
	}
	if p.Wait < 0 || p.Wait > MaxWait {
		bad("in_progress.wait", "the wait is %v, must be at most %v and not negative", p.Wait, MaxWait)
	}
	switch {
	case p.Queue < 0 || p.Queue > MaxQueue:
		bad("in_progress.queue", "the queue is %d, must be 1 to %d", p.Queue, MaxQueue)
	case p.Shared && p.Queue > MaxShared:
		bad("in_progress.queue", "the queue is %d, must be 1 to %d where it is shared", p.Queue, MaxShared)
	case p.Queue > 0 && p.Wait == 0:
		bad("in_progress.queue", "the queue is %d, but nobody waits; say for how long, such as wait: 5s", p.Queue)
	}
	switch {
	case p.TTL != 0 && !p.Shared:
		bad("in_progress.ttl", "the ttl is %v, but the permits are of this process, which frees them when it dies; leave it out, or add shared: true", p.TTL)
	case p.TTL != 0 && (p.TTL < MinTTL || p.TTL > MaxTTL):
		bad("in_progress.ttl", "the ttl is %v, must be %v to %v", p.TTL, MinTTL, MaxTTL)
	}
}

func (p *InProgress) checkPermits(field, what string, limit int64, bad func(field, format string, args ...any)) {
	switch {
	case limit < 1 || limit > headgate.MaxPermits:
		bad(field, "%s in progress is %d, must be 1 to %d", what, limit, headgate.MaxPermits)
	case p.Shared && limit > MaxShared:
		bad(field, "%s in progress is %d, must be 1 to %d where it is shared", what, limit, MaxShared)
	}
}

// limit is how many permits there are for the request's key; zero if there is no bound.
func (p *InProgress) limit(d Descriptor) int64 {
	if p.Entry != "" {
		if value, ok := d.Get(p.Entry); ok {
			if limit, ok := p.Values[value]; ok {
				return limit
			}
		}
	}
	return p.Limit
}

// Bound says which permits a request needs under one rule. It is for InProgress what a
// [headgate.Check] is for limits.
type Bound struct {
	// Rule is the rule. It is shared and must not be changed.
	Rule *Rule
	// Key is the key whose permits are needed, Units how many of them the request takes, and Limit
	// how many the key has.
	Key          string
	Units, Limit int64
	// Shadow says that the bound is only measured: if no permits are free, the request goes on
	// without them.
	Shadow bool
	// Old says that the key is hashed under the old hash key; see [OldHashKey].
	Old bool
}

// Shared reports whether one of the bounds is shared by all processes. Such a permit can be lost
// while it is held.
func Shared(bounds []Bound) bool {
	for i := range bounds {
		if bounds[i].Rule.InProgress.Shared {
			return true
		}
	}
	return false
}

// Bounds reports whether some rule of the set bounds what is in progress.
func (s *Set) Bounds() bool { return s.bounds }

// Bound returns the bound of the named rule for a key, as [Set.Check] returns the check. It has the
// errors of Check, and one for a rule without InProgress.
func (s *Set) Bound(name, key string, cost int64) (Bound, error) {
	i, ok := s.names[name]
	if !ok {
		return Bound{}, s.unknown(name)
	}
	r := &s.compiled[i]
	if r.InProgress == nil {
		return Bound{}, r.invalid("", "it does not bound what is in progress; give it in_progress")
	}
	if cost < 0 || cost > headgate.MaxCount {
		return Bound{}, costError(fmt.Sprintf("rule %q", name), cost)
	}
	d, err := s.keyDescriptor(i, key)
	if err != nil {
		return Bound{}, err
	}
	b, binds, err := s.bound(i, d, cost)
	switch {
	case err != nil:
		return Bound{}, err
	case binds:
		return b, nil
	case s.permits(r, d) == 0:
		return Bound{}, r.invalid("", "it has limits by %q, and none for a key of which that is not known; give it one for all others, \"*\", or ask by descriptor", r.InProgress.Entry)
	}
	// The key may hold a secret, so it is not repeated.
	return Bound{}, r.invalid("key", "the key has %d bytes, but the rule binds no request without %s", len(key), r.partNames())
}

// permits is how many permits the rule has for the request's key; zero if it has no bound.
func (s *Set) permits(r *compiled, d Descriptor) int64 {
	if r.more == nil {
		return r.InProgress.limit(d)
	}
	i, found := r.more.overrides.find(d, s.now)
	return r.permitsOf(d, i, found)
}

// permitsOf is permits if it is known which override matches, if any.
func (r *compiled) permitsOf(d Descriptor, override int, found bool) int64 {
	if found && r.Overrides[override].InProgress != 0 {
		return r.Overrides[override].InProgress
	}
	return r.InProgress.limit(d)
}

// bound returns the bound under the i-th rule, whose conditions hold for the request, if there is
// one. If the cost is measured by an entry that is no whole number, the error says so, and the
// request has the highest cost.
func (s *Set) bound(i int32, d Descriptor, cost int64) (b Bound, binds bool, err error) {
	r := &s.compiled[i]
	limit := s.permits(r, d)
	if limit == 0 {
		return b, false, nil
	}
	key, ok := r.key(d, s.hasher)
	if !ok {
		return b, false, nil
	}
	factor, err := r.costs(d)
	if factor == 0 {
		return b, false, nil
	}
	b = Bound{Rule: r.Rule, Key: key, Units: muldiv.Down(max(cost, 1), factor, 1, headgate.MaxPermits), Limit: limit, Shadow: r.shadow(key)}
	return b, true, err
}

// appendBounds appends the bound under the i-th rule, whose conditions hold for the request. While
// the hash key is being changed, shared permits are taken under both keys, because some processes
// may know only one of them.
func (s *Set) appendBounds(dst []Bound, i int32, d Descriptor, cost int64) ([]Bound, error) {
	b, binds, err := s.bound(i, d, cost)
	if !binds {
		return dst, err
	}
	dst = append(dst, b)
	if r := &s.compiled[i]; r.secret && s.old != nil && r.InProgress.Shared {
		if b.Key, binds = r.key(d, s.old); binds {
			b.Shadow, b.Old = r.shadow(b.Key), true
			dst = append(dst, b)
		}
	}
	return dst, err
}
