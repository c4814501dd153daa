package shared

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/store"
)

// maxCalls bounds how many calls of the heartbeat may be under way.
const maxCalls = 32

// events is a heap of holdings, ordered by the time at which the heartbeat has to look at them.
type events []*holding

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].due.Before(e[j].due) }
func (e events) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].index, e[j].index = i, j
}

func (e *events) Push(x any) {
	h := x.(*holding)
	h.index = len(*e)
	*e = append(*e, h)
}

func (e *events) Pop() any {
	old := *e
	h := old[len(old)-1]
	old[len(old)-1] = nil
	*e = old[:len(old)-1]
	return h
}

// schedule makes the heartbeat look at a holding at the given time, or at the end of its lease if
// that is earlier, unless the gate is over. The gate is locked.
func (g *Gate) schedule(h *holding, at time.Time) {
	if end := h.endsAt(); at.After(end) {
		at = end
	}
	if g.over { // the lease ends by itself
		return
	}
	h.due = at
	if h.queued {
		heap.Fix(&g.events, h.index)
	} else {
		h.queued = true
		heap.Push(&g.events, h)
	}
	if !g.beating {
		g.beating = true
		g.working.Go(g.beat)
	} else if h.index == 0 {
		g.kick()
	}
}

// unschedule removes a holding from the events. The gate is locked.
func (g *Gate) unschedule(h *holding) {
	if h.queued {
		h.queued = false
		heap.Remove(&g.events, h.index)
	}
}

// kick makes the heartbeat look again.
func (g *Gate) kick() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// beat renews leases, and ends the contexts of leases that were not renewed in time. It does not
// wait for the store itself. It returns when there is nothing to look at, or when the gate is over;
// Close handles the rest.
func (g *Gate) beat() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		g.mu.Lock()
		all := g.due(time.Now())
		if len(g.events) == 0 || g.over {
			g.beating = false
			g.mu.Unlock()
			all.notify()
			return
		}
		timer.Reset(time.Until(g.events[0].due))
		g.mu.Unlock()
		all.notify()
		select {
		case <-timer.C:
		case <-g.wake:
		}
	}
}

// due handles all holdings whose time has come. The gate is locked.
func (g *Gate) due(now time.Time) (all losses) {
	for !g.over && len(g.events) > 0 && !g.events[0].due.After(now) {
		h := g.events[0]
		g.forgo(h)
		switch over := !now.Before(h.endsAt()); {
		case over && h.state == leased:
			g.overdue(h, &all)
		case over: // the store has forgotten it by itself
			g.unschedule(h)
		case h.calling:
			g.schedule(h, h.endsAt())
		case g.calls == maxCalls:
			g.schedule(h, now.Add(g.pause()/8))
		default:
			h.calling = true
			g.calls++
			g.schedule(h, h.endsAt())
			if h.state == leaving {
				g.working.Go(func() { g.repeat(h) })
			} else {
				g.working.Go(func() { g.renew(h, now) })
			}
		}
	}
	return all
}

// renew makes one call to renew a lease.
func (g *Gate) renew(h *holding, began time.Time) {
	ctx, cancel := context.WithDeadline(context.Background(), h.endsAt())
	defer cancel()
	got, err := g.permits.Renew(ctx, h.lease.Key, h.lease.Holder, h.lease.Epoch, g.config.TTL)
	var all losses
	defer func() { all.notify() }()
	g.mu.Lock()
	defer g.mu.Unlock()
	h.calling = false
	g.calls--
	if h.state != leased {
		return
	}
	now := time.Now()
	switch {
	case err == nil:
		g.stats.Renewed++
		h.lease.Remaining, h.lease.TTL = got.Remaining, got.TTL
		h.setEnd(began.Add(got.Remaining - g.margin(&got)))
		third := g.ttl(&got) / nextRenewal
		g.schedule(h, now.Add(third-third/8+rand.N(third/8)))
	case errors.Is(err, store.ErrRevoked):
		all.add(g.lose(h, store.ErrRevoked))
	case errors.Is(err, store.ErrNotHeld):
		all.add(g.lose(h, store.ErrNotHeld))
	default:
		g.stats.Failed++
		g.schedule(h, now.Add(g.pause()))
	}
}

// repeat makes another call to give a lease back.
func (g *Gate) repeat(h *holding) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseWithin)
	defer cancel()
	_, err := g.permits.Release(ctx, h.lease.Key, h.lease.Holder, h.lease.Epoch)
	g.mu.Lock()
	defer g.mu.Unlock()
	h.calling = false
	g.calls--
	switch {
	case !h.queued: // the gate was closed
	case err == nil:
		g.unschedule(h)
		g.kick()
	default:
		g.stats.Failed++
		g.schedule(h, time.Now().Add(g.pause()))
	}
}

// pause returns how long the heartbeat waits after a failure.
func (g *Gate) pause() time.Duration {
	d := min(max(g.config.TTL/20, 10*time.Millisecond), time.Second)
	return d/2 + rand.N(d)
}
