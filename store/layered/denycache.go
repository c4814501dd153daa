package layered

import (
	"context"
	"errors"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// DenyCacheOptions change a deny cache. The zero value is good for a server.
type DenyCacheOptions struct {
	// All has every denial remembered that says when to come again. Without it only
	// those of a [headgate.Penalty] are.
	All bool
	// Trust is how long a denial is believed without asking the store again:
	// another process may have reset the key. Zero means DefaultTrust.
	Trust time.Duration
	// MaxEntries is how many keys are remembered. Zero means DefaultMaxEntries.
	MaxEntries int
}

// The defaults of [DenyCacheOptions].
const (
	DefaultTrust      = 10 * time.Second
	DefaultMaxEntries = 1 << 16
)

// DenyCache returns a store that remembers denials in this process, so that a key
// that is blocked costs the given store nothing but one call for each Trust. The
// keys that a refund, a reset or a settlement of this process names are forgotten.
//
// An answer from memory has the decisions of the check that denies alone, with
// [headgate.SourceCache]; their times are as of now and what remains is as it was.
// Requests with an id and peeks are always answered by the store. It is a
// [headgate.Ledger] if the given store is one, and safe for concurrent use.
func DenyCache(store headgate.Store, o DenyCacheOptions) headgate.Store {
	if o.Trust <= 0 {
		o.Trust = DefaultTrust
	}
	if o.MaxEntries <= 0 {
		o.MaxEntries = DefaultMaxEntries
	}
	c := &denyCache{store: store, options: o, seed: maphash.MakeSeed(), start: time.Now()}
	c.most = max(1, o.MaxEntries/len(c.shards))
	if ledger, ok := store.(headgate.Ledger); ok {
		return &denyCacheLedger{c, ledger}
	}
	return c
}

type denyCache struct {
	store   headgate.Store
	options DenyCacheOptions
	seed    maphash.Seed
	start   time.Time // what times are counted from
	most    int       // entries in a shard
	count   atomic.Int64
	shards  [64]denyShard
}

type denyShard struct {
	mu      sync.Mutex // guards entries
	entries map[denied]denial
}

// denied names a key by its rule as it is now: other limits are another rule.
type denied struct {
	rule *headgate.Rule
	key  string
}

type denial struct {
	cost      int64 // and all above it
	at, until time.Duration
	decisions []headgate.Decision
}

// Take implements [headgate.Store].
func (c *denyCache) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	switch op {
	case headgate.OpTake:
	case headgate.OpPeek:
		return c.store.Take(ctx, op, checks, dst)
	default:
		out, err := c.store.Take(ctx, op, checks, dst)
		c.forget(checks)
		return out, err
	}
	if c.count.Load() > 0 && headgate.Validate(op, checks) == nil {
		if out, found := c.recall(checks, dst); found {
			return out, nil
		}
	}
	before := len(dst)
	out, err := c.store.Take(ctx, op, checks, dst)
	if err == nil {
		c.remember(checks, out[before:])
	}
	return out, err
}

func (c *denyCache) shard(key string) *denyShard {
	return &c.shards[maphash.String(c.seed, key)%uint64(len(c.shards))]
}

// recall appends the decisions of the checks that are sure to deny.
func (c *denyCache) recall(checks []headgate.Check, dst []headgate.Decision) (_ []headgate.Decision, found bool) {
	now := time.Since(c.start)
	for i := range checks {
		k := &checks[i]
		if k.Shadow {
			continue
		}
		s := c.shard(k.Key)
		s.mu.Lock()
		e, ok := s.entries[denied{k.Rule, k.Key}]
		s.mu.Unlock()
		if !ok || now >= e.until || k.Units() < e.cost {
			continue
		}
		found = true
		passed := now - e.at
		for _, d := range e.decisions {
			d.Check, d.Source = i, headgate.SourceCache
			d.At += passed.Microseconds()
			if d.RetryAfter > 0 {
				d.RetryAfter = max(0, d.RetryAfter-passed)
			}
			d.ResetAfter = max(0, d.ResetAfter-passed)
			dst = append(dst, d)
		}
	}
	return dst, found
}

// remember keeps the denials among the decisions.
func (c *denyCache) remember(checks []headgate.Check, decisions []headgate.Decision) {
	for i := range decisions {
		d := &decisions[i]
		if d.Allowed || d.Shadow || d.RetryAfter <= 0 || d.Source != headgate.SourceStore ||
			!c.options.All && d.Limit.Algorithm != headgate.Penalty {
			continue
		}
		k := &checks[d.Check]
		now := time.Since(c.start)
		e := denial{cost: k.Units(), at: now, until: now + min(d.RetryAfter, c.options.Trust)}
		if d.Limit.Algorithm == headgate.Penalty {
			e.cost = 1
		}
		for _, other := range decisions {
			if other.Check == d.Check {
				e.decisions = append(e.decisions, other)
			}
		}
		c.keep(denied{k.Rule, k.Key}, e)
	}
}

func (c *denyCache) keep(name denied, e denial) {
	s := c.shard(name.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries == nil {
		s.entries = make(map[denied]denial)
	}
	before := len(s.entries)
	if _, known := s.entries[name]; !known {
		if before >= c.most {
			s.drop(e.at)
		}
		// The caller's text may be part of something large, such as the body of a
		// request, that would stay in memory with it.
		name.key = strings.Clone(name.key)
	}
	s.entries[name] = e
	c.count.Add(int64(len(s.entries) - before))
}

// drop makes room: some entry that has ended, or the one of a few that ends first.
func (s *denyShard) drop(now time.Duration) {
	var worst denied
	var until time.Duration
	looked := 0
	for name, e := range s.entries {
		if looked == 0 || e.until < until {
			worst, until = name, e.until
		}
		if looked++; until <= now || looked == 8 {
			break
		}
	}
	delete(s.entries, worst)
}

func (c *denyCache) forget(checks []headgate.Check) {
	if c.count.Load() == 0 {
		return
	}
	for i := range checks {
		k := &checks[i]
		s := c.shard(k.Key)
		s.mu.Lock()
		before := len(s.entries)
		delete(s.entries, denied{k.Rule, k.Key})
		c.count.Add(int64(len(s.entries) - before))
		s.mu.Unlock()
	}
}

// denyCacheLedger is a deny cache around a ledger.
type denyCacheLedger struct {
	*denyCache
	ledger headgate.Ledger
}

func (c *denyCacheLedger) TakeOnce(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	return c.ledger.TakeOnce(ctx, terms, checks, dst)
}

func (c *denyCacheLedger) Reserve(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	return c.ledger.Reserve(ctx, terms, checks, dst)
}

func (c *denyCacheLedger) Recall(ctx context.Context, id string) (headgate.Reservation, error) {
	return c.ledger.Recall(ctx, id)
}

func (c *denyCacheLedger) Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	out, err := c.ledger.Settle(ctx, r, units, dst)
	if !errors.Is(err, headgate.ErrConflict) {
		c.forget(r.Checks)
	}
	return out, err
}
