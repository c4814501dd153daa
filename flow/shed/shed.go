package shed

import (
	"context"
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/internal/waiting"
)

const (
	// queues is how many queues each class has.
	queues = 64
	// lookAgain is the shortest time after which a new request makes the gate ask the gate behind
	// for its waiters. The gate behind may have become free without a permit having been given back
	// here.
	lookAgain = time.Millisecond
	// spare is how many unused values of each kind are kept.
	spare = 1024
)

// Gate is a queue in front of a gate. It is a [flow.Gate], safe for concurrent use;
// make one with [New].
type Gate struct {
	inner  flow.Gate
	config Config
	seed   maphash.Seed
	epoch  time.Time

	sampling sync.Mutex    // held while signals are read
	sampled  atomic.Int64  // when signals were read last, in nanoseconds since epoch
	pressure atomic.Uint64 // in millionths

	mu       sync.Mutex // guards what follows
	random   *rand.Rand
	line     *waiting.Line
	turn     time.Duration // the average time between two waiters that are served
	asked    time.Duration // when the gate behind was last asked for the waiters
	servedAt time.Duration // when a waiter was last served while others waited
	work     time.Duration // the average duration of successes
	spread   time.Duration // their mean deviation from it
	inUse    int64
	admitted uint64
	rejected [flow.Reasons]uint64
	done     [flow.Outcomes]uint64
	waiters  []*waiting.Waiter // for reuse
	unused   []*taking         // likewise
	last     *flow.Rejection   // returned again while its numbers are still true
}

// taking is what the gate keeps for a permit.
type taking struct {
	flow.Slot
	of     *Gate
	permit flow.Permit
	cost   int64
	began  time.Duration
	waited bool
}

// New returns a gate with a queue in front of the given gate. The error is a
// [*headgate.InvalidError].
func New(gate flow.Gate, config Config) (*Gate, error) {
	if err := config.fill(); err != nil {
		return nil, err
	}
	return &Gate{
		inner: gate, config: config, seed: maphash.MakeSeed(), epoch: time.Now(),
		random: rand.New(rand.NewPCG(config.Seed, 0)), line: waiting.New(config.Queue, queues),
	}, nil
}

// Acquire implements [flow.Gate].
func (g *Gate) Acquire(ctx context.Context, r flow.Request) (flow.Permit, error) {
	return g.take(ctx, &r, true)
}

// TryAcquire implements [flow.Gate].
func (g *Gate) TryAcquire(ctx context.Context, r flow.Request) (flow.Permit, error) {
	return g.take(ctx, &r, false)
}

func (g *Gate) take(ctx context.Context, r *flow.Request, wait bool) (flow.Permit, error) {
	if err := r.Validate(); err != nil {
		return flow.Permit{}, err
	}
	if outer, ok := ctx.Value(g).(flow.Permit); ok && outer.Held() {
		return flow.Permit{}, nil
	}
	if ctx.Err() != nil {
		return flow.Permit{}, flow.Ended(ctx, g.config.Name)
	}
	now := time.Since(g.epoch)
	g.sample(now)
	p, w, err := g.join(ctx, r, now, wait)
	if w == nil {
		return p, err
	}
	within, _ := g.maxWait(w.Rank)
	end := w.Wait(ctx, within)
	if end != waiting.Settled && !g.withdraw(w, end) {
		w.Consume()
	}
	p, err = w.Permit, w.Err
	if end == waiting.Canceled {
		p.Done(flow.Unused)
		p, err = flow.Permit{}, flow.Ended(ctx, g.config.Name)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keep(w)
	return p, err
}

// join takes a permit, refuses the request, or puts a waiter in line.
func (g *Gate) join(
	ctx context.Context, r *flow.Request, now time.Duration, mayWait bool,
) (flow.Permit, *waiting.Waiter, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	rank := r.Class.Rank()
	if g.pressed(rank) {
		return flow.Permit{}, nil, g.refuse(flow.ReasonPressure)
	}
	g.sweep(now)
	if now-g.asked >= lookAgain {
		g.serve(now)
	}
	busy := g.line.Best() <= rank
	if !busy {
		inner, err := g.inner.TryAcquire(ctx, *r)
		if err == nil {
			return g.grant(inner, r.Units(), now, false), nil, nil
		}
		if !isBusy(err) {
			return flow.Permit{}, nil, err
		}
	}
	if !mayWait {
		return flow.Permit{}, nil, g.refuse(flow.ReasonBusy)
	}
	hash := maphash.String(g.seed, r.Flow())
	wait := time.Duration(g.line.Ahead(rank, hash)) * g.turn
	if g.line.Stands(rank, hash) {
		wait = 0 // the newest is served first
	}
	if g.late(ctx, now, wait) {
		return flow.Permit{}, nil, g.refuse(flow.ReasonLate)
	}
	w := g.waiter(ctx, r, now)
	displaced, ok := g.line.Push(w, hash)
	if displaced != nil {
		displaced.Settle(flow.Permit{}, g.refuse(flow.ReasonDisplaced))
	}
	if !ok {
		g.keep(w)
		return flow.Permit{}, nil, g.refuse(flow.ReasonQueueFull)
	}
	return flow.Permit{}, w, nil
}

// isBusy reports whether a gate refused a request that it may admit a little later.
func isBusy(err error) bool {
	rejection, ok := errors.AsType[*flow.Rejection](err)
	return ok && rejection.Reason == flow.ReasonBusy
}

// maxWait returns how long requests of a class may wait, usually and in a queue that stands.
func (g *Gate) maxWait(rank int) (usual, short time.Duration) {
	if i := g.config.Interval; rank <= flow.Critical.Rank() {
		return 5 * i / 2, 3 * i / 2
	}
	return g.config.Interval, g.config.Target
}

// late reports whether work that begins after the given wait would probably miss its deadline.
func (g *Gate) late(ctx context.Context, now, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && now+wait+g.ample() > deadline.Sub(g.epoch)
}

// ample returns a time within which nearly all work is done.
func (g *Gate) ample() time.Duration { return g.work + 3*g.spread }

// sweep refuses requests that have waited for too long.
func (g *Gate) sweep(now time.Duration) {
	for rank := range flow.Classes {
		usual, short := g.maxWait(rank)
		for w := g.line.Stale(rank, now, usual, short); w != nil; w = g.line.Stale(rank, now, usual, short) {
			g.line.Remove(w)
			w.Settle(flow.Permit{}, g.refuse(flow.ReasonWaited))
		}
	}
}

// serve asks the gate behind for the waiters whose turn it is.
func (g *Gate) serve(now time.Duration) {
	g.asked = now
	for rank := range flow.Classes {
		_, short := g.maxWait(rank)
		for w := g.line.Turn(rank, headgate.MaxPermits); w != nil; w = g.line.Turn(rank, headgate.MaxPermits) {
			if g.late(w.Context, now, 0) {
				g.line.Remove(w)
				w.Settle(flow.Permit{}, g.refuse(flow.ReasonLate))
				continue
			}
			inner, err := g.inner.TryAcquire(w.Context, w.Request)
			if isBusy(err) {
				return
			}
			if now-w.Since < short {
				g.line.Moved(w, now)
			}
			g.line.Take(w)
			if err != nil {
				w.Settle(flow.Permit{}, err)
				continue
			}
			// The average leaves out the time in which the queue was empty.
			if g.servedAt > 0 {
				g.turn += (now - g.servedAt - g.turn) / 16
			}
			if g.servedAt = now; g.line.Len() == 0 {
				g.servedAt = 0
			}
			w.Settle(g.grant(inner, w.Request.Units(), now, true), nil)
		}
	}
}

// withdraw removes a waiter whose waiting has ended from the line. It returns false if the waiter
// was settled before.
func (g *Gate) withdraw(w *waiting.Waiter, end waiting.End) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !w.InLine() {
		return false
	}
	g.line.Remove(w)
	if end == waiting.TimedOut {
		w.Err = g.refuse(flow.ReasonWaited)
	}
	return true
}

func (g *Gate) grant(inner flow.Permit, cost int64, now time.Duration, waited bool) flow.Permit {
	var t *taking
	if n := len(g.unused); n > 0 {
		t, g.unused = g.unused[n-1], g.unused[:n-1]
	} else {
		t = &taking{of: g}
	}
	t.permit, t.cost, t.began, t.waited = inner, cost, now, waited
	g.admitted++
	g.inUse += cost
	return t.Issue(t)
}

// GiveBack implements [flow.Holder].
func (t *taking) GiveBack(outcome flow.Outcome) {
	g := t.of
	now := time.Since(g.epoch)
	t.permit.Done(g.learn(t, now, outcome))
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inUse -= t.cost
	g.done[outcome]++
	t.permit = flow.Permit{}
	if len(g.unused) < spare {
		g.unused = append(g.unused, t)
	}
	g.sweep(now)
	g.serve(now)
}

// learn updates the averages, and returns the outcome to report to the gate behind. Work that
// waited here and then timed out or was canceled, in less than twice the time in which nearly all work is done,
// says nothing about the gate behind, because the wait used up its time.
func (g *Gate) learn(t *taking, now time.Duration, outcome flow.Outcome) flow.Outcome {
	g.mu.Lock()
	defer g.mu.Unlock()
	took := now - t.began
	switch {
	case outcome == flow.Success && g.work == 0:
		g.work = took
	case outcome == flow.Success:
		g.spread += ((took - g.work).Abs() - g.spread) / 16
		g.work += (took - g.work) / 16
	case (outcome == flow.Overload || outcome == flow.Canceled) && t.waited && took < 2*g.ample():
		return flow.Ignore
	}
	return outcome
}

// Begin implements [flow.Beginner].
func (t *taking) Begin() {
	t.began = time.Since(t.of.epoch)
	t.permit.Begin()
}

// Bind implements [flow.Holder].
func (t *taking) Bind(ctx context.Context, p flow.Permit) context.Context {
	return context.WithValue(t.permit.Context(ctx), t.of, p)
}

// refuse counts a rejection and returns it.
func (g *Gate) refuse(reason flow.Reason) *flow.Rejection {
	is := flow.Rejection{Gate: g.config.Name, Reason: reason, InUse: g.inUse, Waiting: int64(g.line.Len())}
	// The waiters of now must have gone, and the queue must have had time to empty.
	is.RetryAfter = max(g.config.Interval, time.Duration(g.line.Len())*g.turn).Round(10 * time.Millisecond)
	g.rejected[reason]++
	if g.last == nil || *g.last != is {
		g.last = new(flow.Rejection)
		*g.last = is
	}
	return g.last
}

func (g *Gate) waiter(ctx context.Context, r *flow.Request, now time.Duration) *waiting.Waiter {
	var w *waiting.Waiter
	if n := len(g.waiters); n > 0 {
		w, g.waiters = g.waiters[n-1], g.waiters[:n-1]
	} else {
		w = waiting.NewWaiter()
	}
	w.Reset(*r, now)
	w.Context = ctx
	return w
}

// keep stores a waiter for reuse.
func (g *Gate) keep(w *waiting.Waiter) {
	w.Reset(flow.Request{}, 0)
	if len(g.waiters) < spare {
		g.waiters = append(g.waiters, w)
	}
}

// Stats returns a snapshot. Its Limit is zero, because only the gate behind knows it.
func (g *Gate) Stats() flow.Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return flow.Stats{
		InUse: g.inUse, Waiting: int64(g.line.Len()), Admitted: g.admitted, Rejected: g.rejected, Done: g.done,
	}
}
