package permits

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/internal/waiting"
)

// Config says how much may be in progress.
type Config struct {
	// Name appears in rejections and errors.
	Name string
	// Limit is how many permits there are for each key, 1 to headgate.MaxPermits.
	Limit int64
	// Shared makes all requests use one set of permits, whatever their keys. The queue then serves
	// requests without a tenant in turn by their keys.
	Shared bool
	// Queue is how many requests may wait for each key, or for all keys together if Shared is set.
	// Zero means that no request waits.
	Queue int
	// MaxWait is how long a request may wait. Zero means as long as its context lasts.
	MaxWait time.Duration
	// MaxKeys is how many keys may be in use at a time. Zero means DefaultMaxKeys.
	MaxKeys int
}

// DefaultMaxKeys is used if Config.MaxKeys is zero.
const DefaultMaxKeys = 1 << 20

func (c *Config) validate() error {
	var problems headgate.Problems
	if c.Limit < 1 || c.Limit > headgate.MaxPermits {
		problems.Add("limit", "the limit is %d, must be 1 to %d", c.Limit, headgate.MaxPermits)
	}
	if c.Queue < 0 {
		problems.Add("queue", "the queue is %d, must be 0 or more", c.Queue)
	}
	if c.MaxWait < 0 {
		problems.Add("max_wait", "the longest wait is %v, must be 0 or more", c.MaxWait)
	}
	if c.MaxKeys < 0 {
		problems.Add("max_keys", "the number of keys is %d, must be 1 or more, or 0 for %d", c.MaxKeys, DefaultMaxKeys)
	}
	return problems.Err(fmt.Sprintf("permits %q", c.Name))
}

// Gate has permits by key. It is a [flow.Gate], safe for concurrent use; make one
// with [New].
type Gate struct {
	config  Config
	limit   atomic.Int64
	queue   atomic.Int64
	maxWait atomic.Int64 // nanoseconds
	keys    atomic.Int64 // the number of keys in use
	held    atomic.Int64 // how long a permit is held on average, in nanoseconds
	seed    maphash.Seed
	shards  []shard // one, or a power of two
	// shared is the entry of a gate without keys.
	shared *entry
}

// New returns a gate. The error is a [*headgate.InvalidError].
func New(config Config) (*Gate, error) {
	if config.MaxKeys == 0 {
		config.MaxKeys = DefaultMaxKeys
	}
	if err := config.validate(); err != nil {
		return nil, err
	}
	g := &Gate{config: config, seed: maphash.MakeSeed()}
	g.limit.Store(config.Limit)
	g.queue.Store(int64(config.Queue))
	g.maxWait.Store(int64(config.MaxWait))
	n := shards
	if config.Shared {
		n = 1
	}
	g.shards = make([]shard, n)
	for i := range g.shards {
		g.shards[i].of = g
	}
	if config.Shared {
		g.shared = &entry{}
	}
	return g, nil
}

// Limit returns how many permits each key has, or all keys together if they share them.
func (g *Gate) Limit() int64 { return g.limit.Load() }

// SetLimit changes how many permits there are. Permits that are held stay valid: if more are held
// than the new limit, no request is admitted until enough are given back. Waiting requests that
// cost more than the new limit are refused. If the error, a [*headgate.InvalidError], is not nil,
// nothing has changed.
func (g *Gate) SetLimit(limit int64) error {
	c := g.config
	c.Limit = limit
	if err := c.validate(); err != nil {
		return err
	}
	g.limit.Store(limit)
	for i := range g.shards {
		g.shards[i].resized()
	}
	return nil
}

// SetQueue changes how many requests may wait for each key and for how long, as Queue and MaxWait
// of [Config] say. Requests that wait already go on waiting. If the error, a
// [*headgate.InvalidError], is not nil, nothing has changed.
func (g *Gate) SetQueue(queue int, maxWait time.Duration) error {
	c := g.config
	c.Queue, c.MaxWait = queue, maxWait
	if err := c.validate(); err != nil {
		return err
	}
	g.queue.Store(int64(queue))
	g.maxWait.Store(int64(maxWait))
	return nil
}

// limitFor returns the limit for a request: its own, or that of the gate.
func (g *Gate) limitFor(r *flow.Request) int64 {
	if r.Limit != 0 {
		return r.Limit
	}
	return g.limit.Load()
}

// Acquire implements [flow.Gate]. Without a queue it is TryAcquire.
func (g *Gate) Acquire(ctx context.Context, r flow.Request) (flow.Permit, error) {
	return g.take(ctx, &r, g.queue.Load() > 0)
}

// TryAcquire implements [flow.Gate].
func (g *Gate) TryAcquire(ctx context.Context, r flow.Request) (flow.Permit, error) {
	return g.take(ctx, &r, false)
}

func (g *Gate) take(ctx context.Context, r *flow.Request, wait bool) (flow.Permit, error) {
	if err := r.Validate(); err != nil {
		return flow.Permit{}, err
	}
	if g.config.Shared {
		r.Limit = 0
	}
	if outer, ok := ctx.Value(g).(*binding); ok {
		inside, free := outer.permits(r.Key, g.config.Shared)
		if free {
			return flow.Permit{}, nil
		}
		wait = wait && !inside
	}
	if !wait {
		return g.shard(r.Key).try(r)
	}
	if err := ctx.Err(); err != nil {
		return flow.Permit{}, flow.Ended(ctx, g.config.Name)
	}
	return g.wait(ctx, r)
}

// wait takes a permit now, or when it is the request's turn.
func (g *Gate) wait(ctx context.Context, r *flow.Request) (flow.Permit, error) {
	s := g.shard(r.Key)
	p, w, err := s.join(r, maphash.String(g.seed, r.Flow()))
	if w == nil {
		return p, err
	}
	switch end := w.Wait(ctx, time.Duration(g.maxWait.Load())); end {
	case waiting.Settled:
		p, err = w.Permit, w.Err
	default:
		if !s.withdraw(w, end) {
			// The waiter was settled at the same moment.
			w.Consume()
		}
		p, err = w.Permit, w.Err
		if end == waiting.Canceled {
			p.Done(flow.Unused)
			p, err = flow.Permit{}, flow.Ended(ctx, g.config.Name)
		}
	}
	s.recycle(w)
	return p, err
}

// Keys returns the number of keys for which work is in progress or waits.
func (g *Gate) Keys() int { return int(g.keys.Load()) }

// InUse returns how many permits of the key are in use.
func (g *Gate) InUse(key string) int64 {
	s := g.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.find(key); e != nil {
		return e.inUse
	}
	return 0
}

// Uses adds the keys that are in use, or waited for, to a list. The shards of the keys are
// looked at one after the other.
func (g *Gate) Uses(to *flow.Uses) {
	for i := range g.shards {
		g.shards[i].uses(to)
	}
}

// Stats returns a snapshot. It visits the shards of the keys one after the other.
func (g *Gate) Stats() flow.Stats {
	sum := flow.Stats{Limit: g.Limit(), Keys: g.keys.Load()}
	for i := range g.shards {
		g.shards[i].addTo(&sum)
	}
	return sum
}

func (g *Gate) shard(key string) *shard {
	if g.shared != nil {
		return &g.shards[0]
	}
	return &g.shards[maphash.String(g.seed, key)%shards]
}

// binding is what a context knows about the gate's permits.
type binding struct {
	permit flow.Permit
	key    string
	outer  *binding
}

// permits reports whether the context holds a permit, and whether a request for the
// key is part of what it was given for.
func (b *binding) permits(key string, shared bool) (inside, free bool) {
	for ; b != nil; b = b.outer {
		if b.permit.Held() {
			inside = true
			if shared || b.key == key {
				return true, true
			}
		}
	}
	return inside, false
}

// retryAfter estimates when a request of the given cost will fit. It assumes that permits end
// evenly, given how long they are held on average, and that all waiters are served first. Zero
// means not known.
func (g *Gate) retryAfter(cost int64, waiting int, limit int64) time.Duration {
	held := float64(g.held.Load())
	if held == 0 {
		return 0
	}
	d := time.Duration(held * float64(cost+int64(waiting)) / float64(limit))
	return min(max(d.Round(time.Millisecond), time.Millisecond), maxRetryAfter)
}

// maxRetryAfter bounds retryAfter, which is only an estimate.
const maxRetryAfter = time.Minute

// One permit in timed is timed, because reading the clock costs as much as the rest of taking a
// permit.
const timed = 16

// learn updates the average time for which permits are held.
func (g *Gate) learn(held time.Duration) {
	before := g.held.Load()
	after := before + (int64(held)-before)/8
	if before == 0 {
		after = int64(held)
	}
	// If another goroutine has updated the average meanwhile, this value is lost. An average can
	// bear that.
	g.held.CompareAndSwap(before, max(after, 1))
}
