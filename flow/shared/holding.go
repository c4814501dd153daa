package shared

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/store"
)

// holding is what the gate keeps for a permit.
type holding struct {
	flow.Slot
	gate  *Gate
	entry *entry
	cost  int64
	since time.Time
	// end is when the lease counts as lost, as the time since the gate was made. It is read without
	// the lock.
	end atomic.Int64

	// The gate's lock guards the fields below.
	grant
	state   state
	why     error // why the lease was lost, or nil
	cancels []context.CancelCauseFunc
	calling bool      // a call of the heartbeat for it is under way
	due     time.Time // when the heartbeat has to look at it
	index   int       // index in the events, if queued
	queued  bool      // it is in the events
}

// state is the state of a permit's lease.
type state uint8

const (
	local   state = iota // there is no lease, because the store did not answer
	leased               // there is a lease, which is renewed
	lost                 // the store no longer has the lease, or it was not renewed in time
	given                // the permit was given back
	leaving              // the permit was given back, but the store does not know yet
)

func (h *holding) setEnd(t time.Time) { h.end.Store(int64(t.Sub(h.gate.start))) }

// ttl returns for how long a lease was granted: the gate's TTL, or less if a server between the
// gate and the store limits it.
func (g *Gate) ttl(l *store.Lease) time.Duration {
	if l.TTL > 0 && l.TTL < g.config.TTL {
		return l.TTL
	}
	return g.config.TTL
}

// margin returns how long before its end a lease counts as lost. For a shorter TTL, it is shorter
// in proportion.
func (g *Gate) margin(l *store.Lease) time.Duration {
	return time.Duration(float64(g.config.Margin) * (float64(g.ttl(l)) / float64(g.config.TTL)))
}

func (h *holding) endsAt() time.Time { return h.gate.start.Add(time.Duration(h.end.Load())) }

const (
	// A lease is renewed for the first time after TTL / firstRenewal, which is early, so that a
	// lease that cannot be renewed is noticed early. All later renewals come after TTL /
	// nextRenewal.
	firstRenewal = 6
	nextRenewal  = 3
	// releaseWithin bounds how long giving a permit back may take. If the store has not answered by
	// then, the heartbeat repeats the call.
	releaseWithin = time.Second
)

// grant is a lease, the limit under which it was granted, and the time of the grant. A local permit
// has no grant.
type grant struct {
	lease store.Lease
	limit int64
	at    time.Time
}

// hold returns the permit for a lease, or for a nil grant a local permit. The gate is locked.
func (g *Gate) hold(e *entry, cost int64, l *grant, end time.Time) flow.Permit {
	now := time.Now()
	h := &holding{gate: g, entry: e, cost: cost, since: now}
	e.users++
	e.inUse += cost
	g.held++
	g.stats.Admitted++
	if l == nil {
		g.stats.Local++
		return h.Issue(h)
	}
	h.grant, h.state = *l, leased
	h.setEnd(end)
	if g.over { // the gate was closed while the store was asked
		h.state, h.why = lost, h.lostBy(ErrClosed)
		return h.Issue(h)
	}
	g.stats.Leases++
	g.schedule(h, now.Add(min(g.ttl(&h.lease)/firstRenewal, end.Sub(now)/2)))
	return h.Issue(h)
}

// GiveBack implements [flow.Holder]. It returns when the store has confirmed it, or after a second;
// the heartbeat then repeats the call.
func (h *holding) GiveBack(outcome flow.Outcome) {
	g := h.gate
	g.mu.Lock()
	release := h.state == leased || h.state == lost && time.Now().Before(h.endsAt().Add(g.config.Margin))
	if h.state == leased {
		g.stats.Leases--
		release = !g.linger(h)
	}
	h.state = given
	g.unschedule(h)
	cancels := h.cancels
	h.cancels = nil
	g.stats.Done[outcome]++
	if outcome != flow.Unused {
		g.learn(time.Since(h.since))
	}
	g.mu.Unlock()
	for _, cancel := range cancels {
		cancel(nil)
	}
	if release {
		ctx, cancel := context.WithTimeout(context.Background(), releaseWithin)
		_, err := g.permits.Release(ctx, h.lease.Key, h.lease.Holder, h.lease.Epoch)
		cancel()
		if err != nil {
			g.mu.Lock()
			g.stats.Failed++
			again := &holding{gate: g, grant: h.grant, state: leaving}
			again.end.Store(h.end.Load())
			g.schedule(again, time.Now().Add(g.pause()))
			g.mu.Unlock()
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	e := h.entry
	e.inUse -= h.cost
	if e.places > 0 {
		select {
		case e.freed <- struct{}{}:
		default: // a notice is there already
		}
	}
	g.leaveLocked(e)
	g.held--
	g.drain()
}

// learn updates the average time for which permits are held. The gate is locked.
func (g *Gate) learn(held time.Duration) {
	if g.average == 0 {
		g.average = held
	}
	g.average = max(g.average+(held-g.average)/8, 1)
}

// lose records that a lease is lost, and returns whom to notify after the gate was unlocked. The gate
// is locked.
func (g *Gate) lose(h *holding, cause error) loss {
	why := h.lostBy(cause)
	h.state, h.why = lost, why
	g.unschedule(h)
	g.stats.Leases--
	g.stats.Lost++
	cancels := h.cancels
	h.cancels = nil
	return loss{why, cancels, g.config.Lost}
}

func (h *holding) lostBy(cause error) *LostError {
	return &LostError{
		Gate: h.gate.config.Name, Key: h.entry.key, Holder: h.lease.Holder, Epoch: h.lease.Epoch, Cause: cause,
	}
}

// loss is a lost lease, and who has to be notified.
type loss struct {
	why     *LostError
	cancels []context.CancelCauseFunc
	hook    func(*LostError)
}

type losses []loss

func (l *losses) add(one loss) { *l = append(*l, one) }

// notify ends the contexts of permits whose leases were lost. The gate is not locked.
func (l losses) notify() {
	for _, one := range l {
		for _, cancel := range one.cancels {
			cancel(one.why)
		}
		if one.hook != nil {
			one.hook(one.why)
		}
	}
}

// overdue handles a lease that could not be renewed in time: it is lost, or the work goes on
// without a lease if OnError says so. The gate is locked.
func (g *Gate) overdue(h *holding, all *losses) {
	if g.config.OnError == headgate.OnErrorAllow || g.config.OnError == headgate.OnErrorLocal {
		h.state = local
		g.unschedule(h)
		g.stats.Leases--
		g.stats.Local++
		return
	}
	all.add(g.lose(h, ErrEnded))
}

// check notices a lease that has ended while nothing was running, such as when the process was
// stopped. It returns why the permit was lost, or nil.
func (h *holding) check() error {
	g := h.gate
	if time.Since(g.start) < time.Duration(h.end.Load()) {
		return nil
	}
	var all losses
	g.mu.Lock()
	if h.state == leased && !time.Now().Before(h.endsAt()) {
		g.overdue(h, &all)
	}
	why := h.why
	g.mu.Unlock()
	all.notify()
	return why
}
