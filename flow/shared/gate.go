package shared

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/internal/waiting"
	"github.com/headgate/headgate/store"
)

// Gate has permits by key that several processes share. It is a [flow.Gate] and safe for concurrent
// use. Make one with [New].
type Gate struct {
	config  Config
	permits store.Permits
	seed    maphash.Seed
	start   time.Time      // the zero of the times in holdings
	closing chan struct{}  // closed by Close
	working sync.WaitGroup // the heartbeat and its calls
	// troubled is true if the store did not answer the last call.
	troubled atomic.Bool

	mu      sync.Mutex // guards what follows, and the entries
	entries map[string]*entry
	events  events // holdings whose leases are to be renewed or released
	beating bool
	wake    chan struct{} // holds one value if the heartbeat is to look again
	calls   int           // calls of the heartbeat that are under way
	asking  int           // calls of Acquire that have not returned
	held    int           // permits that have not been given back
	closed  bool          // the gate admits nothing any more
	over    bool          // the gate is closed, and nobody holds or waits for anything
	drained chan struct{} // closed when over becomes true
	average time.Duration // how long a permit is held on average
	stats   Stats
}

// entry is one key in use.
type entry struct {
	key   string
	users int   // calls and permits of this process that use the entry
	inUse int64 // units of this process's permits
	// places is how many callers have a place in the store's line, or may ask for one.
	places int
	line   *waiting.Line // callers that wait in this process; nil until the first one
	// freed holds one value after something was given back in this process.
	freed chan struct{}
	// roomy says whether the store's last answer allows leases to linger. Lingering leases are in
	// idle, and each of them uses the entry.
	roomy bool
	idle  []*holding
}

// Stats is a snapshot of a gate. It counts this process only.
type Stats struct {
	flow.Stats
	// Leases is how many leases are held. Renewed is how many renewals there were since the gate
	// was made.
	Leases  int64
	Renewed uint64
	// Reused counts the permits that were given on a lease that had lingered.
	Reused uint64
	// Failed counts calls to the store that returned an error. Local counts the permits that were
	// given, or kept, without a lease because of that.
	Failed, Local uint64
	// Lost counts leases that were lost.
	Lost uint64
}

// New returns a gate over the permits of a store; see [store.PermitsOf]. The error is a
// [*headgate.InvalidError]. Close the gate when it is no longer needed.
func New(permits store.Permits, config Config) (*Gate, error) {
	if permits == nil {
		return nil, headgate.Invalid(fmt.Sprintf("shared permits %q", config.Name), "store", "there is no store")
	}
	if err := config.prepare(); err != nil {
		return nil, err
	}
	return &Gate{
		config: config, permits: permits, seed: maphash.MakeSeed(), start: time.Now(),
		closing: make(chan struct{}), drained: make(chan struct{}), wake: make(chan struct{}, 1),
		entries: make(map[string]*entry),
	}, nil
}

// Acquire implements [flow.Gate]. Without a queue, it is TryAcquire, as it also is for work that
// has a permit of the gate for another key.
func (g *Gate) Acquire(ctx context.Context, r flow.Request) (flow.Permit, error) {
	return g.take(ctx, &r, g.config.Queue > 0)
}

// TryAcquire implements [flow.Gate].
func (g *Gate) TryAcquire(ctx context.Context, r flow.Request) (flow.Permit, error) {
	return g.take(ctx, &r, false)
}

func (g *Gate) take(ctx context.Context, r *flow.Request, wait bool) (flow.Permit, error) {
	if err := r.Validate(); err != nil {
		return flow.Permit{}, err
	}
	if n := len(g.config.Prefix) + len(r.Key); n > headgate.MaxKey {
		return flow.Permit{}, headgate.Invalid("request", "key",
			"the key has %d bytes with the gate's prefix, must have at most %d", n, headgate.MaxKey)
	}
	if outer, ok := ctx.Value(g).(*binding); ok {
		inside, free := outer.permits(r.Key)
		if free {
			return flow.Permit{}, nil
		}
		wait = wait && !inside
	}
	if err := ctx.Err(); err != nil {
		return flow.Permit{}, flow.Ended(ctx, g.config.Name)
	}
	if limit := g.limitFor(r); r.Units() > limit {
		return flow.Permit{}, g.refuse(r, flow.ReasonTooLarge, store.PermitAnswer{}, &store.TooLargeError{Cost: r.Units(), Limit: limit})
	}
	e, err := g.enter(r)
	if err != nil {
		return flow.Permit{}, err
	}
	defer g.leave(e)
	if p, ok := g.reuse(e, r); ok {
		return p, nil
	}
	a := attempt{g: g, e: e, r: r, ctx: ctx}
	if !wait {
		return a.once()
	}
	if g.config.MaxWait > 0 {
		a.until = time.Now().Add(g.config.MaxWait)
	}
	return a.wait()
}

// limitFor returns the limit for a request: its own, or that of the gate.
func (g *Gate) limitFor(r *flow.Request) int64 {
	if r.Limit != 0 {
		return r.Limit
	}
	return g.config.Limit
}

// enter returns the entry of a key, and makes one if there is none.
func (g *Gate) enter(r *flow.Request) (*entry, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, fmt.Errorf("flow: gate %q: %w", g.config.Name, ErrClosed)
	}
	e := g.entries[r.Key]
	if e == nil {
		if len(g.entries) >= g.config.MaxKeys {
			return nil, g.refuseLocked(r, flow.ReasonKeys, store.PermitAnswer{}, nil)
		}
		e = &entry{key: r.Key, freed: make(chan struct{}, 1)}
		g.entries[r.Key] = e
	}
	e.users++
	g.asking++
	return e, nil
}

// leave drops the entry if nobody uses it.
func (g *Gate) leave(e *entry) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leaveLocked(e)
	g.asking--
	g.drain()
}

// drain sets over if a gate that was closed is no longer in use. The gate is locked.
func (g *Gate) drain() {
	if g.closed && !g.over && g.held == 0 && g.asking == 0 {
		g.over = true
		close(g.drained)
	}
}

func (g *Gate) leaveLocked(e *entry) {
	if e.users--; e.users == 0 {
		delete(g.entries, e.key)
	}
}

// name returns a new name for a holder.
func (g *Gate) name() string {
	if g.config.Owner == "" {
		return rand.Text()
	}
	return g.config.Owner + "/" + rand.Text()
}

// Uses adds the keys that are in use by this process to a list.
func (g *Gate) Uses(to *flow.Uses) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range g.entries {
		use := flow.Use{Key: e.key, InUse: e.inUse, Waiting: int64(e.places)}
		if e.line != nil {
			use.Waiting += int64(e.line.Len())
		}
		to.Add(use)
	}
}

// Stats returns a snapshot.
func (g *Gate) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.stats
	s.Limit, s.Keys = g.config.Limit, int64(len(g.entries))
	for _, e := range g.entries {
		s.InUse += e.inUse
		s.Waiting += int64(e.places)
		if e.line != nil {
			s.Waiting += int64(e.line.Len())
		}
	}
	return s
}

// Close refuses new requests and those that wait, and waits until all permits were given back. If
// ctx ends earlier, the remaining permits are lost: their contexts end, and their leases are no
// longer renewed. Close returns after everything that the gate has started has ended. The error
// wraps the context's cause.
func (g *Gate) Close(ctx context.Context) error {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		close(g.closing)
		for _, e := range g.entries {
			g.turnAway(e)
		}
		g.drain()
	}
	g.mu.Unlock()
	var err error
	select {
	case <-g.drained:
	case <-ctx.Done():
		err = fmt.Errorf("flow: gate %q: closing it while permits are held: %w", g.config.Name, context.Cause(ctx))
	}
	g.mu.Lock()
	if !g.over {
		g.over = true
		close(g.drained)
	}
	var lost losses
	var leftover []store.Lease
	for _, h := range slices.Clone(g.events) {
		if h.state == leased {
			lost.add(g.lose(h, ErrClosed))
			continue
		}
		leftover = append(leftover, h.lease)
		g.unschedule(h)
	}
	g.kick()
	g.mu.Unlock()
	lost.notify()
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWithin)
	defer cancel()
	for _, l := range leftover {
		// If this release fails, the lease ends by itself.
		_, _ = g.permits.Release(within, l.Key, l.Holder, l.Epoch)
	}
	g.working.Wait()
	return err
}

// refuse counts a rejection and returns it.
func (g *Gate) refuse(r *flow.Request, reason flow.Reason, a store.PermitAnswer, cause error) *flow.Rejection {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refuseLocked(r, reason, a, cause)
}

func (g *Gate) refuseLocked(r *flow.Request, reason flow.Reason, a store.PermitAnswer, cause error) *flow.Rejection {
	is := &flow.Rejection{
		Gate: g.config.Name, Reason: reason, Retry: true, Limit: cmp.Or(a.Limit, g.limitFor(r)),
		InUse: a.InUse, Waiting: int64(a.Line), Cause: cause,
	}
	if reason == flow.ReasonTooLarge {
		is.RetryAfter, is.Retry = headgate.Never, false
	} else if g.average > 0 {
		// This assumes that permits end evenly, and that all waiters are served first.
		d := time.Duration(float64(g.average) * float64(r.Units()+is.Waiting) / float64(is.Limit))
		is.RetryAfter = min(max(d.Round(time.Millisecond), time.Millisecond), maxRetryAfter)
	}
	g.stats.Rejected[reason]++
	return is
}

// maxRetryAfter bounds RetryAfter, which is only an estimate.
const maxRetryAfter = time.Minute

// failed decides about a request for which the store has returned an error.
func (a *attempt) failed(err error) (flow.Permit, error) {
	g := a.g
	if large, ok := errors.AsType[*store.TooLargeError](err); ok {
		return flow.Permit{}, g.refuse(a.r, flow.ReasonTooLarge, store.PermitAnswer{Limit: large.Limit}, large)
	}
	if errors.Is(err, headgate.ErrInvalid) {
		return flow.Permit{}, fmt.Errorf("flow: gate %q: %w", g.config.Name, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stats.Failed++
	switch g.config.OnError {
	case headgate.OnErrorAllow:
		return g.hold(a.e, a.r.Units(), nil, time.Time{}), nil
	case headgate.OnErrorLocal:
		if a.e.inUse+a.r.Units() <= g.config.Share {
			return g.hold(a.e, a.r.Units(), nil, time.Time{}), nil
		}
		return flow.Permit{}, g.refuseLocked(a.r, flow.ReasonBusy, store.PermitAnswer{InUse: a.e.inUse}, err)
	}
	return flow.Permit{}, fmt.Errorf("flow: gate %q: asking its store: %w", g.config.Name, err)
}
