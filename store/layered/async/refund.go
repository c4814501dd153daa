package async

import (
	"context"
	"time"

	"github.com/headgate/headgate"
)

// A refund may arrive at a different node from the one that admitted the units, and before that
// node has reported them. The store would then have nothing to give back. So a node keeps a refund
// until every node has had the time to report, and sends it with its own reports.
const (
	// returnAfter is the minimum number of intervals for which a refund is kept.
	returnAfter = 2
	// mostReturns is how many separate refunds of one key are kept.
	mostReturns = 8
)

// keptRefund is units to give back.
type keptRefund struct {
	units int64
	at    headgate.Instant // when they were charged, on the store's clock
	due   time.Duration
	// current has a bit for each fixed window of the rule that began before the units were
	// charged and has not ended.
	current uint64
}

// giveBack keeps a refund. Refunds of the same fixed windows that are due at the same time are
// merged into one, with the earliest of their charge times. If a key has too many refunds, others
// are merged too.
func (e *entry) giveBack(back keptRefund) {
	if back.units == 0 {
		return
	}
	full := len(e.refunds) >= mostReturns
	for i := len(e.refunds) - 1; i >= 0; i-- {
		one := &e.refunds[i]
		if one.current == back.current && (one.due == back.due || full) || full && i == 0 {
			one.units = min(one.units+back.units, headgate.MaxCount)
			one.at, one.due, one.current = min(one.at, back.at), max(one.due, back.due), one.current&back.current
			return
		}
	}
	e.refunds = append(e.refunds, back)
}

// current returns the bits of the fixed windows in which units were charged at a time, if those
// windows have not ended; see [keptRefund].
func (e *entry) current(at headgate.Instant) (bits uint64) {
	limits := e.rule.Limits()
	for i := range limits {
		if l := &limits[i]; l.Algorithm == headgate.FixedWindow && at >= e.limits[i].ends-headgate.Instant(l.Micros()) {
			bits |= 1 << i
		}
	}
	return bits
}

// dueReturn removes and returns the first refund if it is due. With last, it does so even if the
// refund is not due.
func (e *entry) dueReturn(now time.Duration, last bool) (_ keptRefund, due bool) {
	if len(e.refunds) == 0 || !last && now < e.refunds[0].due {
		return keptRefund{}, false
	}
	back := e.refunds[0]
	e.refunds = append(e.refunds[:0], e.refunds[1:]...)
	return back, true
}

// refundFromMemory takes the units back at once if the store does not know of them. Otherwise it
// marks the refund to be sent later. The key's shard is locked.
func (a *Layer) refundFromMemory(c *headgate.Check, e *entry, p *part, now time.Duration) {
	p.outcome = refundLater
	units := c.Units()
	if now < e.goodUntil && e.unreported >= units && (c.At == 0 || c.At > e.storeTime) {
		p.outcome, p.held = admit, units
		e.unreported -= units
		e.pending += units
	}
}

// lookUp asks the store about the keys of refunds that are sent later, if their state is not known
// here.
func (a *Layer) lookUp(ctx context.Context, checks []headgate.Check, s *scratch) error {
	for i := range s.parts {
		p := &s.parts[i]
		if p.outcome != refundLater || p.to > p.from {
			continue
		}
		p.from = len(s.local)
		began := a.now()
		var err error
		if s.local, err = a.inner.Take(ctx, headgate.OpPeek, checks[i:i+1], s.local); err != nil {
			return err
		}
		p.to = len(s.local)
		for j := p.from; j < p.to; j++ {
			d := &s.local[j]
			d.Check, d.Allowed, d.RetryAfter = i, true, 0
		}
		shard := a.shard(p.hash)
		shard.mu.Lock()
		if p.entry.resets == p.resets {
			p.entry.learn(s.local[p.from:p.to], checks[i].Units(), 0, &a.options, 0, began, a.now())
		}
		shard.mu.Unlock()
	}
	return nil
}

// giveBackLater keeps the refunds of a request until they are due.
func (a *Layer) giveBackLater(checks []headgate.Check, s *scratch) {
	for i := range s.parts {
		p := &s.parts[i]
		if p.outcome != refundLater {
			continue
		}
		c := &checks[i]
		back := keptRefund{units: c.Units(), at: c.At}
		if back.at == 0 {
			back.at = s.local[p.from].At
		}
		interval := a.options.Interval
		if slidesOnly(c.Rule) {
			// In the log, the units have the time at which they were reported, not admitted.
			back.at += headgate.Instant((returnAfter * interval).Microseconds())
		}
		// All refunds of one interval are due together.
		back.due = (a.now()/interval + 1 + returnAfter) * interval
		shard := a.shard(p.hash)
		shard.mu.Lock()
		// If the key was forgotten meanwhile and there is no room for it, the units stay in use.
		if e := a.entryFor(shard, c); e != nil && (e != p.entry || e.resets == p.resets) {
			back.current = e.current(back.at)
			e.giveBack(back)
		}
		shard.mu.Unlock()
	}
}

// slidesOnly reports whether all limits of a rule are sliding windows.
func slidesOnly(r *headgate.Rule) bool {
	limits := r.Limits()
	for i := range limits {
		if limits[i].Algorithm != headgate.SlidingWindow {
			return false
		}
	}
	return true
}
