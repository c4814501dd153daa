package async

import (
	"context"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/internal/layer"
)

// scratch is memory for one request that later requests reuse.
type scratch struct {
	parts     []part              // of each check of the request
	checks    []headgate.Check    // what the store is asked
	local     []headgate.Decision // what was decided from memory
	decisions []headgate.Decision // what the store has decided
}

// part is the state of one check of a request.
type part struct {
	hash     uint64
	entry    *entry // nil if nothing is known, or the check is strict
	async    bool
	outcome  outcome
	held     int64 // units that are set aside until the request is decided
	carried  int64 // units of earlier requests that are reported together with this one
	resets   uint32
	from, to int // its decisions among the local ones
}

func (a *Layer) getScratch() *scratch {
	s, _ := a.pool.Get().(*scratch)
	s.parts, s.checks = s.parts[:0], s.checks[:0]
	s.local, s.decisions = s.local[:0], s.decisions[:0]
	return s
}

// putScratch returns the scratch to the pool. It removes the request's keys first, so that the pool
// does not keep them alive.
func (a *Layer) putScratch(s *scratch) {
	clear(s.checks)
	clear(s.parts)
	a.pool.Put(s)
}

// takeSeveral decides a request of which some checks are decided from memory. It decides these
// first and sets their units aside. Then the store decides the others. All checks are charged or
// none.
func (a *Layer) takeSeveral(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	s := a.getScratch()
	defer a.putScratch(s)
	refused, penalized := false, false
	for i := range checks {
		penalized = penalized || op == headgate.OpTake && layer.Penalizes(checks[i].Rule)
	}
	for i := range checks {
		s.parts = append(s.parts, part{})
		p := &s.parts[i]
		if p.async = countsAsync(&checks[i]); p.async {
			a.fromMemory(op, &checks[i], i, p, s, penalized)
			refused = refused || p.outcome == deny && !checks[i].Shadow
		}
	}
	if refused {
		a.settleLocal(op, checks, s, false)
		return append(dst, s.local...), nil
	}
	if op == headgate.OpRefund {
		if err := a.lookUp(ctx, checks, s); err != nil {
			a.settleLocal(op, checks, s, false)
			return dst, err
		}
	}
	for i := range checks {
		if p := &s.parts[i]; p.outcome == askStore {
			s.checks = append(s.checks, checks[i])
			a.carryUnreported(op, &s.checks[len(s.checks)-1], p)
		}
	}
	admitted := true
	began := a.now()
	if len(s.checks) > 0 {
		var err error
		if s.decisions, err = a.inner.Take(ctx, op, s.checks, s.decisions); err != nil {
			a.undo(op, checks, s)
			return dst, err
		}
		if op == headgate.OpTake {
			_, admitted = layer.Charged(s.decisions)
		}
	}
	a.settleLocal(op, checks, s, admitted)
	a.giveBackLater(checks, s)
	return a.merge(op, checks, dst, s, admitted, began), nil
}

// fromMemory decides a check from memory if it can, and sets its units aside. penalized says that a
// rule of the request has a penalty. Then fromMemory leaves denials to the store, because the
// penalty has to count them.
func (a *Layer) fromMemory(op headgate.Op, c *headgate.Check, place int, p *part, s *scratch, penalized bool) {
	p.hash = a.hash(c)
	shard := a.shard(p.hash)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	e := shard.find(c, a.options.Part)
	if e == nil && op == headgate.OpRefund {
		e = a.entryFor(shard, c)
	}
	if e == nil || shard.closed {
		return
	}
	now := a.now()
	p.entry, p.resets = e, e.resets
	e.onError = c.OnError
	if op == headgate.OpRefund {
		a.refundFromMemory(c, e, p, now)
		if p.outcome == refundLater && now >= e.goodUntil {
			return
		}
	} else if p.outcome = e.decide(c.Units(), &a.options, now); p.outcome == admit && op == headgate.OpTake {
		p.held = c.Units()
		e.pending += p.held
	}
	if p.outcome == deny && penalized {
		p.outcome = askStore
	}
	if p.outcome == askStore {
		return
	}
	shard.local++
	e.asked = true
	p.from = len(s.local)
	held := p.held
	if op == headgate.OpRefund {
		held = 0
	}
	s.local = e.describe(s.local, c, place, p.held > 0, held, &a.options, now, a.untilNext(now))
	p.to = len(s.local)
}

// carryUnreported adds the key's unreported units to a check that goes to the store, so that the
// store's answer takes them into account.
func (a *Layer) carryUnreported(op headgate.Op, c *headgate.Check, p *part) {
	if !p.async {
		return
	}
	shard := a.shard(p.hash)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	shard.asked++
	e := p.entry
	if e == nil || op != headgate.OpTake {
		return
	}
	p.held = c.Units()
	e.pending += p.held
	// After a failed call the store may already have counted them.
	if more := e.unreported; more > 0 && !e.callFailed && p.held+more <= e.capacity() {
		p.carried = more
		e.unreported -= more
		e.pending += more
		c.Cost = p.held + more
	}
}

// capacity is the largest cost that fits all limits of the key.
func (e *entry) capacity() int64 {
	least := int64(headgate.MaxCount)
	limits := e.rule.Limits()
	for i := range limits {
		least = min(least, limits[i].Capacity())
	}
	return least
}

// settleLocal books or returns the units that were set aside for the checks decided from memory. If
// done is false, the request was not admitted or the refund was not made, so nothing has changed.
func (a *Layer) settleLocal(op headgate.Op, checks []headgate.Check, s *scratch, done bool) {
	for i := range s.parts {
		p := &s.parts[i]
		if p.outcome == askStore || p.held == 0 {
			continue
		}
		shard := a.shard(p.hash)
		shard.mu.Lock()
		p.entry.pending -= p.held
		if done == (op == headgate.OpTake) {
			p.entry.unreported += p.held
		}
		shard.mu.Unlock()
		for j := p.from; j < p.to && !done; j++ {
			d := &s.local[j]
			d.Remaining = min(d.Remaining+checks[i].Units(), d.Limit.Capacity())
		}
	}
}

// undo restores the state from before the request, because the store has not decided.
func (a *Layer) undo(op headgate.Op, checks []headgate.Check, s *scratch) {
	a.settleLocal(op, checks, s, false)
	for i := range s.parts {
		p := &s.parts[i]
		if p.entry == nil || p.outcome != askStore {
			continue
		}
		shard := a.shard(p.hash)
		shard.mu.Lock()
		e := p.entry
		e.pending -= p.held + p.carried
		e.callFailed = true
		if e.resets == p.resets {
			e.unreported += p.carried
		}
		shard.mu.Unlock()
	}
}

// merge learns from the store's decisions, and appends all decisions in the order of the checks.
func (a *Layer) merge(op headgate.Op, checks []headgate.Check, dst []headgate.Decision, s *scratch, admitted bool, began time.Duration) []headgate.Decision {
	now := a.now()
	rest := s.decisions
	asked := 0
	for i := range s.parts {
		p := &s.parts[i]
		if p.outcome != askStore {
			dst = append(dst, s.local[p.from:p.to]...)
			continue
		}
		n, fits := 0, true
		for n < len(rest) && rest[n].Check == asked {
			fits = fits && rest[n].Allowed
			n++
		}
		own := rest[:n]
		rest = rest[n:]
		asked++
		if p.async && (p.entry != nil || a.askedLately(p.hash)) {
			a.settleAsked(op, &checks[i], p, own, admitted && fits && op == headgate.OpTake, began, now)
		}
		for j := range own {
			own[j].Check = i
		}
		dst = append(dst, own...)
	}
	return dst
}

// settleAsked handles the store's answer about one check. It learns from the answer, books or
// returns the units that were pending, and removes the effect of the carried units from the
// decisions.
func (a *Layer) settleAsked(op headgate.Op, c *headgate.Check, p *part, decisions []headgate.Decision, charged bool, began, now time.Duration) {
	shard := a.shard(p.hash)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	e := p.entry
	unheard := nobodyCounts(decisions)
	charged = charged && !unheard
	units := int64(0)
	if charged {
		units = c.Units() + p.carried
	}
	if e != nil {
		e.pending -= p.held + p.carried
		e.callFailed = e.callFailed || unheard
		if e.resets != p.resets {
			return
		}
		if !charged {
			e.unreported += p.carried
		}
	} else if e = a.entryFor(shard, c); e == nil {
		return
	}
	if op != headgate.OpRefund {
		e.learn(decisions, c.Units(), units, &a.options, a.options.pause(), began, now)
	}
	if charged {
		return
	}
	for i := range decisions {
		d := &decisions[i]
		d.Remaining = max(0, d.Remaining-e.unreported)
		if d.RetryAfter > 0 {
			d.RetryAfter = max(d.RetryAfter, a.options.pause())
		}
		if op == headgate.OpPeek && d.Allowed && d.Remaining < c.Units() {
			d.Allowed, d.RetryAfter = false, max(a.untilNext(now), time.Microsecond)
		}
	}
}
