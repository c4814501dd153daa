package async

import (
	"context"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/internal/layer"
)

// scratch is what one request needs and the next can use again.
type scratch struct {
	parts     []part
	checks    []headgate.Check    // for the store
	places    []int               // of those among the checks of the request
	local     []headgate.Decision // made from memory
	decisions []headgate.Decision // made by the store
}

// part is what becomes of one check.
type part struct {
	hash      uint64
	entry     *entry // nil if nothing is known, or the check is strict
	async     bool
	said      outcome
	aside     int64 // units that were set aside until the request is decided
	carried   int64 // units of earlier requests that the store is told of with this one
	forgotten uint32
	from, to  int // its decisions among the local ones
}

func (a *Layer) get() *scratch {
	s, _ := a.pool.Get().(*scratch)
	s.parts, s.checks, s.places = s.parts[:0], s.checks[:0], s.places[:0]
	s.local, s.decisions = s.local[:0], s.decisions[:0]
	return s
}

// put returns the scratch to the pool without the request's keys.
func (a *Layer) put(s *scratch) {
	clear(s.checks)
	clear(s.parts)
	a.pool.Put(s)
}

// several decides a request of which some is decided from memory: that first, setting
// units aside, and then the rest by the store, all or none.
func (a *Layer) several(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	s := a.get()
	defer a.put(s)
	refused, counted := false, false
	for i := range checks {
		counted = counted || op == headgate.OpTake && layer.Penalizes(checks[i].Rule)
	}
	for i := range checks {
		s.parts = append(s.parts, part{})
		p := &s.parts[i]
		if p.async = countsAsync(&checks[i]); p.async {
			a.fromMemory(op, &checks[i], i, p, s, counted)
			refused = refused || p.said == refuse && !checks[i].Shadow
		}
	}
	if refused {
		a.settle(op, checks, s, false)
		return append(dst, s.local...), nil
	}
	if op == headgate.OpRefund {
		if err := a.lookUp(ctx, checks, s); err != nil {
			a.settle(op, checks, s, false)
			return dst, err
		}
	}
	for i := range checks {
		if p := &s.parts[i]; p.said == ask {
			s.checks = append(s.checks, checks[i])
			s.places = append(s.places, i)
			a.carry(op, &s.checks[len(s.checks)-1], p)
		}
	}
	admitted := true
	began := a.now()
	if len(s.checks) > 0 {
		var err error
		if s.decisions, err = a.inner.Take(ctx, op, s.checks, s.decisions); err != nil {
			a.failed(op, checks, s)
			return dst, err
		}
		if op == headgate.OpTake {
			_, admitted = layer.Charged(s.decisions)
		}
	}
	a.settle(op, checks, s, admitted)
	a.giveBackLater(checks, s)
	return a.merge(op, checks, dst, s, admitted, began), nil
}

// fromMemory decides a check from memory, if it can, and sets its units aside. If
// another rule of the request has a penalty, it does not deny: that is to count denials.
func (a *Layer) fromMemory(op headgate.Op, c *headgate.Check, place int, p *part, s *scratch, counted bool) {
	p.hash = a.hash(c)
	shard := a.shard(p.hash)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	e := shard.find(c, a.options.Part)
	if e == nil && op == headgate.OpRefund {
		e = a.make(shard, c)
	}
	if e == nil || shard.closed {
		return
	}
	now := a.now()
	p.entry, p.forgotten = e, e.forgotten
	e.onError = c.OnError
	if op == headgate.OpRefund {
		a.refundFromMemory(c, e, p, now)
		if p.said == later && now >= e.until {
			return
		}
	} else if p.said = e.decide(c.Units(), &a.options, now); p.said == admit && op == headgate.OpTake {
		p.aside = c.Units()
		e.pending += p.aside
	}
	if p.said == refuse && counted {
		p.said = ask
	}
	if p.said == ask {
		return
	}
	shard.local++
	e.wanted = true
	p.from = len(s.local)
	aside := p.aside
	if op == headgate.OpRefund {
		aside = 0
	}
	s.local = e.describe(s.local, c, place, p.aside > 0, aside, &a.options, now, a.untilNext(now))
	p.to = len(s.local)
}

// carry adds to a check that the store is asked for what it does not know of the key
// yet: what it then says is exact.
func (a *Layer) carry(op headgate.Op, c *headgate.Check, p *part) {
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
	p.aside = c.Units()
	e.pending += p.aside
	// After a call that failed the store may know of it.
	if more := e.unreported; more > 0 && !e.failed && p.aside+more <= e.capacity() {
		p.carried = more
		e.unreported -= more
		e.pending += more
		c.Cost = p.aside + more
	}
}

// capacity is the largest cost that all limits can hold.
func (e *entry) capacity() int64 {
	least := int64(headgate.MaxCount)
	limits := e.rule.Limits()
	for i := range limits {
		least = min(least, limits[i].Capacity())
	}
	return least
}

// settle charges or refunds what was set aside of the checks decided from memory, or
// has it as it was.
func (a *Layer) settle(op headgate.Op, checks []headgate.Check, s *scratch, done bool) {
	for i := range s.parts {
		p := &s.parts[i]
		if p.said == ask || p.aside == 0 {
			continue
		}
		shard := a.shard(p.hash)
		shard.mu.Lock()
		p.entry.pending -= p.aside
		if done == (op == headgate.OpTake) {
			p.entry.unreported += p.aside
		}
		shard.mu.Unlock()
		for j := p.from; j < p.to && !done; j++ {
			d := &s.local[j]
			d.Remaining = min(d.Remaining+checks[i].Units(), d.Limit.Capacity())
		}
	}
}

// failed has everything as it was, as the store has not decided.
func (a *Layer) failed(op headgate.Op, checks []headgate.Check, s *scratch) {
	a.settle(op, checks, s, false)
	for i := range s.parts {
		p := &s.parts[i]
		if p.entry == nil || p.said != ask {
			continue
		}
		shard := a.shard(p.hash)
		shard.mu.Lock()
		e := p.entry
		e.pending -= p.aside + p.carried
		e.failed = true
		if e.forgotten == p.forgotten {
			e.unreported += p.carried
		}
		shard.mu.Unlock()
	}
}

// merge takes over what the store has said, and appends all decisions in the order of
// the checks.
func (a *Layer) merge(op headgate.Op, checks []headgate.Check, dst []headgate.Decision, s *scratch, admitted bool, began time.Duration) []headgate.Decision {
	now := a.now()
	rest := s.decisions
	asked := 0
	for i := range s.parts {
		p := &s.parts[i]
		if p.said != ask {
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
		if p.async && (p.entry != nil || a.lately(p.hash)) {
			a.learn(op, &checks[i], p, own, admitted && fits && op == headgate.OpTake, began, now)
		}
		for j := range own {
			own[j].Check = i
		}
		dst = append(dst, own...)
	}
	return dst
}

// learn takes over what the store has said of one check, and has the decisions be
// of that alone.
func (a *Layer) learn(op headgate.Op, c *headgate.Check, p *part, decisions []headgate.Decision, charged bool, began, now time.Duration) {
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
		e.pending -= p.aside + p.carried
		e.failed = e.failed || unheard
		if e.forgotten != p.forgotten {
			return
		}
		if !charged {
			e.unreported += p.carried
		}
	} else if e = a.make(shard, c); e == nil {
		return
	}
	if op != headgate.OpRefund {
		e.answer(decisions, c.Units(), units, &a.options, a.options.pause(), began, now)
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
