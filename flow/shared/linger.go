package shared

import (
	"slices"
	"time"

	"github.com/headgate/headgate/flow"
)

const (
	// Leases linger only while at most 1/lingerPart of the limit is in use.
	lingerPart = 4
	// reuseFor is how long a lease may be reused after it was granted. Then the store is asked
	// again, and its answer says how much room there is.
	reuseFor = 100 * time.Millisecond
)

// linger keeps the lease of a permit that is given back for the next request, and reports whether
// it did. The gate is locked.
func (g *Gate) linger(h *holding) bool {
	now := time.Now()
	until := now.Add(g.config.Linger)
	if g.config.Linger == 0 || !h.entry.roomy || g.closed || until.After(h.at.Add(reuseFor)) || until.After(h.endsAt()) {
		return false
	}
	idle := &holding{gate: g, entry: h.entry, cost: h.cost, grant: h.grant, state: leaving}
	idle.end.Store(h.end.Load())
	idle.entry.users++
	idle.entry.idle = append(idle.entry.idle, idle)
	g.schedule(idle, until)
	return true
}

// reuse returns a permit on a lingering lease, if there is one that suits the request.
func (g *Gate) reuse(e *entry, r *flow.Request) (flow.Permit, bool) {
	if g.config.Linger == 0 {
		return flow.Permit{}, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	limit, now := g.limitFor(r), time.Now()
	for _, idle := range slices.Backward(e.idle) {
		if idle.cost == r.Units() && idle.limit == limit && now.Before(idle.endsAt()) {
			g.forgo(idle)
			g.unschedule(idle)
			g.stats.Reused++
			return g.hold(e, idle.cost, &idle.grant, idle.endsAt()), true
		}
	}
	return flow.Permit{}, false
}

// forgo removes a lease from those that linger, if it is one of them, because it is about to be
// released or reused. The gate is locked.
func (g *Gate) forgo(h *holding) {
	if h.entry == nil {
		return
	}
	if i := slices.Index(h.entry.idle, h); i >= 0 {
		h.entry.idle = slices.Delete(h.entry.idle, i, i+1)
		g.leaveLocked(h.entry)
	}
}

// crowded is called when the store has not granted a request. It releases all lingering leases of
// the key. None lingers again until an answer of the store says that there is room.
func (g *Gate) crowded(e *entry) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e.roomy = false
	now := time.Now()
	for _, idle := range e.idle {
		g.schedule(idle, now)
	}
}
