package lease

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/internal/layer"
)

// sickPause is how long no units are taken in advance after a call that failed or that the store
// did not decide. Requests go to the store inside meanwhile.
const sickPause = 100 * time.Millisecond

// fill begins a call that takes more units, if that is worthwhile and no such call is under way. It
// returns a channel that is closed when the call has ended, or nil if there is no call. The key's
// shard is locked.
func (l *Layer) fill(k *hotKey, now instant) <-chan struct{} {
	if k.filling != nil {
		return k.filling
	}
	if now.mono < k.notBefore || l.closed.Load() {
		return nil
	}
	n := k.size(now, max(1, l.options.Nodes()))
	if n < 2*k.cost {
		return nil
	}
	k.filling, k.coming = make(chan struct{}), n
	era := k.era
	l.fills.Go(func() { l.takeInAdvance(k, n, era) })
	return k.filling
}

// size returns how many units to take. It also sets k.most, the number of units that may be held.
// The key's shard is locked.
func (k *hotKey) size(now instant, nodes int64) int64 {
	passed := now.mono - k.sampled
	seen := float64(k.asked) / max(passed, time.Millisecond).Seconds()
	settled := passed >= k.plan.hold/16
	switch {
	case settled:
		k.rate = max(seen, (k.rate+seen)/2)
	case passed >= time.Millisecond && k.asked >= hotTakes*k.cost && seen > k.rate:
		// A sample this short may be a burst.
		k.rate = min(seen, 4*k.rate)
		settled = true
	}
	if settled {
		k.asked, k.sampled = 0, now.mono
	}
	wanted := int64(min(k.rate*k.plan.hold.Seconds()/fillPart, headgate.MaxCount))
	k.most = k.remaining / (roomPart * nodes)
	return min(wanted, k.most-k.left-k.returning)
}

// takeInAdvance makes the call that takes units.
func (l *Layer) takeInAdvance(k *hotKey, n int64, era uint64) {
	ctx, cancel := context.WithTimeout(l.calls, layer.CallWithin)
	defer cancel()
	c := k.check // never changed, so it needs no lock
	c.Cost = n
	sent := l.now()
	decisions, err := l.inner.Take(ctx, headgate.OpTake, []headgate.Check{c}, nil)
	now := l.now()

	s, _ := l.shard(k.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		close(k.filling)
		k.filling, k.coming = nil, 0
	}()
	switch {
	case err != nil || len(decisions) == 0 || decisions[0].Source != headgate.SourceStore:
		// The store, or the layer that decided instead, may have charged the units. They are not
		// given back, because they may not have been charged.
		k.notBefore = now.mono + sickPause
		if !errors.Is(err, layer.ErrNotAsked) {
			l.counts.lost.Add(n)
		}
		return
	case k.era != era:
		return // The store may have charged the units before the reset.
	}
	k.remaining = leastLeft(decisions)
	if !headgate.NewVerdict(decisions).Allowed {
		return
	}
	l.counts.leases.Add(1)
	l.counts.taken.Add(n)
	k.charged(decisions, n, now)
	limits := k.name.rule.Limits()
	span := k.plan.usable(decisions)
	for i := range decisions {
		decisions[i].Rule, decisions[i].Limit = k.name.rule, &limits[i]
	}
	b := &batch{left: n, at: decisions[0].At, sent: sent.mono, end: sent.add(span)}
	if b.end.reached(now) {
		// A window is about to end, or the call took too long.
		k.notBefore = now.mono + k.plan.hold/16
	}
	k.batches, k.left = append(k.batches, b), k.left+n
	k.decisions, k.decidedAt, k.low = decisions, now.mono, n/lowPart
	l.keeper.due(b.end.mono)
}
