package shared

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/internal/waiting"
	"github.com/headgate/headgate/store"
)

const (
	// maxPlaces is how many callers of a process may stand in the store's line for a key; others
	// wait in the process. It is large enough to take permits as soon as they become free, and
	// small enough that repeated requests do not load the store.
	maxPlaces = 8
	// keepPlace is the longest time for which the store keeps a place for a caller that does not
	// ask again. During that time, a process that has crashed blocks the callers behind it. So the
	// place of a caller that asks often is kept only for keepAsks of its pauses, but at least for
	// keepFirst.
	keepPlace = 2 * time.Second
	keepFirst = 500 * time.Millisecond
	keepAsks  = 8
	// askFirst is how long the first caller of the line waits on average before it asks again. If
	// permits are held for less than four times that, it asks more often, down to a pause of
	// askSoonest. askLast is the longest pause of callers further back.
	askFirst   = 20 * time.Millisecond
	askSoonest = 2 * time.Millisecond
	askLast    = 500 * time.Millisecond
	// callWithin bounds each call to the store. The store itself has a shorter deadline.
	callWithin = 5 * time.Second
	// queues is how many queues each class of a key's line has.
	queues = 16
)

// attempt is one call of Acquire or TryAcquire that needs a permit.
type attempt struct {
	g     *Gate
	e     *entry
	r     *flow.Request
	ctx   context.Context //nolint:containedctx // the attempt lasts as long as the call it belongs to
	until time.Time       // when to stop waiting; zero means never

	holder string
}

// once tries to get a permit without waiting.
func (a *attempt) once() (flow.Permit, error) {
	p, answer, err := a.ask(0)
	switch {
	case err != nil:
		a.forget()
		return a.failed(err)
	case p.Held():
		return p, nil
	}
	return flow.Permit{}, a.g.refuse(a.r, flow.ReasonBusy, answer, nil)
}

// ask asks the store, and repeats the request if there is no answer. The holder's name tells the
// store that it is the same request. A permit that holds nothing means a refusal.
func (a *attempt) ask(wait time.Duration) (flow.Permit, store.PermitAnswer, error) {
	g := a.g
	if a.holder == "" {
		a.holder = g.name()
	}
	for try := 1; ; try++ {
		p, answer, err := a.call(wait)
		switch {
		case err == nil:
			g.troubled.Store(false)
		case try == tries || !errors.Is(err, headgate.ErrUnavailable) || a.ctx.Err() != nil:
			g.troubled.Store(true)
		case !g.troubled.Load():
			time.Sleep(tryAfter/2 + rand.N(tryAfter))
			continue
		}
		return p, answer, err
	}
}

const (
	// A store that answered the last request is asked up to tries times, about tryAfter apart.
	tries    = 3
	tryAfter = 5 * time.Millisecond
)

// call makes one call to the store.
func (a *attempt) call(wait time.Duration) (flow.Permit, store.PermitAnswer, error) {
	g := a.g
	// The store may grant a permit even if its caller gives up, so the call does not end with the
	// context.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), callWithin)
	defer cancel()
	began := time.Now()
	answer, err := g.permits.Acquire(ctx, store.PermitRequest{
		Key: g.config.Prefix + a.r.Key, Holder: a.holder, Cost: a.r.Units(), Limit: g.limitFor(a.r),
		TTL: g.config.TTL, Queue: g.config.Queue, Wait: wait,
	})
	if err != nil || !answer.Granted() && !answer.Unleased {
		g.crowded(a.e)
		return flow.Permit{}, answer, err
	}
	if !answer.Granted() {
		g.crowded(a.e)
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.hold(a.e, a.r.Units(), nil, time.Time{}), answer, nil
	}
	end := began.Add(answer.Lease.Remaining - g.margin(&answer.Lease))
	if !time.Now().Before(end) {
		return flow.Permit{}, answer, fmt.Errorf("the answer took %v, and the lease is for %v: %w",
			time.Since(began).Round(time.Millisecond), g.ttl(&answer.Lease), ErrEnded)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	limit := g.limitFor(a.r)
	a.e.roomy = answer.Line == 0 && answer.InUse <= cmp.Or(answer.Limit, limit)/lingerPart
	return g.hold(a.e, a.r.Units(), &grant{answer.Lease, limit, time.Now()}, end), answer, nil
}

// forget gives back what the store may have granted, or the place in its line. The caller returns
// without knowing which of them it has.
func (a *attempt) forget() {
	if a.holder == "" {
		return
	}
	g := a.g
	h := &holding{gate: g, grant: grant{lease: store.Lease{Key: g.config.Prefix + a.r.Key, Holder: a.holder}}, state: leaving}
	g.mu.Lock()
	defer g.mu.Unlock()
	h.setEnd(time.Now().Add(g.config.TTL))
	g.schedule(h, time.Now())
}

// wait takes a permit now, or when it is the caller's turn.
func (a *attempt) wait() (flow.Permit, error) {
	g := a.g
	queued, err := a.queue()
	if err != nil {
		return flow.Permit{}, err
	}
	placed := queued // the caller counts in entry.places
	defer func() {
		if placed {
			g.next(a.e)
		}
	}()
	lastHeard := time.Now()
	pause := askLast
	for {
		keep := min(max(keepAsks*pause, keepFirst), keepPlace)
		last := !a.until.IsZero() && !time.Now().Before(a.until)
		if last {
			keep = 0
		}
		p, answer, err := a.ask(keep)
		switch {
		case err != nil && (!placed || last || time.Since(lastHeard) > keepPlace):
			a.forget()
			return a.failed(err)
		case err != nil:
			answer.Ahead = 1 // the position is not known; with 1 it asks again soon
		case p.Held() && a.ctx.Err() != nil:
			p.Done(flow.Unused)
			return flow.Permit{}, flow.Ended(a.ctx, g.config.Name)
		case p.Held():
			return p, nil
		case last:
			return flow.Permit{}, g.refuse(a.r, flow.ReasonWaited, answer, nil)
		case !answer.Waiting:
			return flow.Permit{}, g.refuse(a.r, flow.ReasonQueueFull, answer, nil)
		default:
			lastHeard = time.Now()
		}
		if !placed {
			placed = true
			g.mu.Lock()
			a.e.places++
			g.mu.Unlock()
		}
		pause = min(g.askAfter()*time.Duration(answer.Ahead+1), askLast)
		if err := a.pause(pause); err != nil {
			a.forget()
			return flow.Permit{}, err
		}
	}
}

// pause waits for a random time around d, or until a permit was given back in this process.
func (a *attempt) pause(d time.Duration) error {
	d = d/2 + rand.N(d)
	if !a.until.IsZero() {
		d = min(d, max(time.Until(a.until), 0))
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-a.e.freed:
	case <-a.g.closing:
		return fmt.Errorf("flow: gate %q: %w", a.g.config.Name, ErrClosed)
	case <-a.ctx.Done():
		return flow.Ended(a.ctx, a.g.config.Name)
	}
	return nil
}

// askAfter returns the pause of the first caller of the line.
func (g *Gate) askAfter() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.average == 0 {
		return askFirst
	}
	return min(max(g.average/4, askSoonest), askFirst)
}

// queue waits in this process while maxPlaces callers have a place in the store's line. It reports
// whether the caller is now counted among them.
func (a *attempt) queue() (bool, error) {
	g, e := a.g, a.e
	g.mu.Lock()
	if e.places < maxPlaces && (e.line == nil || e.line.Len() == 0) {
		g.mu.Unlock()
		return false, nil
	}
	if e.line == nil {
		e.line = waiting.New(g.config.Queue, queues)
	}
	w := waiting.NewWaiter()
	w.Reset(*a.r, 0)
	displaced, ok := e.line.Push(w, maphash.String(g.seed, a.r.Flow()))
	if !ok {
		defer g.mu.Unlock()
		return false, g.refuseLocked(a.r, flow.ReasonQueueFull, store.PermitAnswer{InUse: e.inUse, Line: e.line.Len()}, nil)
	}
	if displaced != nil {
		displaced.Settle(flow.Permit{}, g.refuseLocked(&displaced.Request, flow.ReasonDisplaced, store.PermitAnswer{InUse: e.inUse, Line: e.line.Len()}, nil))
	}
	g.mu.Unlock()
	within := time.Duration(0)
	if !a.until.IsZero() {
		within = max(time.Until(a.until), 1)
	}
	end := w.Wait(a.ctx, within)
	if end == waiting.Settled {
		return w.Err == nil, w.Err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.InLine() {
		e.line.Remove(w)
		if end == waiting.TimedOut {
			return false, g.refuseLocked(a.r, flow.ReasonWaited, store.PermitAnswer{InUse: e.inUse, Line: e.line.Len()}, nil)
		}
		return false, flow.Ended(a.ctx, g.config.Name)
	}
	// The waiter was settled at the same moment.
	w.Consume()
	if end == waiting.Canceled && w.Err == nil {
		g.nextLocked(e)
		return false, flow.Ended(a.ctx, g.config.Name)
	}
	return w.Err == nil, w.Err
}

// next passes the turn of a caller that has left the store's line to one that waits in this
// process.
func (g *Gate) next(e *entry) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nextLocked(e)
}

func (g *Gate) nextLocked(e *entry) {
	e.places--
	if e.line == nil || e.places >= maxPlaces {
		return
	}
	if w := e.line.Fitting(0, g.config.Limit); w != nil {
		e.line.Take(w)
		e.places++
		w.Settle(flow.Permit{}, nil)
	}
}

// turnAway refuses all callers that wait in this process, because the gate is closed.
func (g *Gate) turnAway(e *entry) {
	for e.line != nil && e.line.Len() > 0 {
		w := e.line.Fitting(0, g.config.Limit)
		e.line.Remove(w)
		w.Settle(flow.Permit{}, fmt.Errorf("flow: gate %q: %w", g.config.Name, ErrClosed))
	}
}
