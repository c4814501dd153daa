package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store/layered/internal/layer"
)

const (
	// idleKey is how long a key without requests stays watched.
	idleKey = 2 * time.Second
	// sweepPause is the minimum time between two sweeps over all keys.
	sweepPause = 5 * time.Millisecond
	// waitingPerKey bounds how many batches wait to be given back, as a multiple of
	// Options.MaxKeys.
	waitingPerKey = 4
)

// returns gives unused units back to the store. One goroutine makes one call at a time.
type returns struct {
	lease   *Layer
	cancel  context.CancelFunc
	ended   sync.WaitGroup
	failure error // of calls that ended after Close was called; read it after ended
	wake    chan struct{}
	next    atomic.Int64 // when to sweep next, in ns since Layer.start

	mu      sync.Mutex // guards what follows; a shard may be locked before it
	waiting []leftover
	over    bool // nothing is given back any more
}

// leftover is the unused rest of a batch. Its key no longer counts it as held.
type leftover struct {
	key   *hotKey
	era   uint64
	batch batch
	back  int64 // the largest number of units that one of the calls gives back
	lost  bool  // one of the calls has failed
}

func (r *returns) start(l *Layer) {
	r.lease, r.wake = l, make(chan struct{}, 1)
	r.next.Store(int64(idleKey))
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.ended.Go(func() { r.run(ctx) })
}

// due makes the goroutine sweep at the given time or earlier.
func (r *returns) due(at time.Duration) {
	for {
		next := r.next.Load()
		if int64(at) >= next {
			return
		}
		if r.next.CompareAndSwap(next, int64(at)) {
			r.wakeUp()
			return
		}
	}
}

func (r *returns) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// add queues the rest of a batch to be given back. It does not wait: if too many are queued or the
// layer was closed, the units stay in use. The key's shard is locked.
func (r *returns) add(k *hotKey, b batch) {
	if b.left <= 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || len(r.waiting) >= waitingPerKey*r.lease.options.MaxKeys {
		r.lease.counts.lost.Add(b.left)
		return
	}
	k.returning += b.left
	r.waiting = append(r.waiting, leftover{key: k, era: k.era, batch: b})
	r.wakeUp()
}

func (r *returns) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-timer.C:
		}
		now := r.lease.now()
		// ctx does not stop a call, because the units of an interrupted refund are lost.
		calls := r.lease.calls
		var err error
		if now.mono >= time.Duration(r.next.Load()) {
			r.next.Store(int64(now.mono + idleKey))
			err = r.sweep(calls, now, false)
		} else {
			err = r.giveBack(calls)
		}
		if r.lease.closed.Load() {
			r.failure = errors.Join(r.failure, err)
		} // Any other error is counted in Stats.Lost.
		timer.Reset(max(sweepPause, time.Duration(r.next.Load())-now.mono))
	}
}

// sweep ends the batches whose time is over, or all of them, gives back what waits, and forgets keys
// without requests.
func (r *returns) sweep(ctx context.Context, now instant, all bool) (errs error) {
	for i := range r.lease.shards {
		s := &r.lease.shards[i]
		s.mu.Lock()
		for name, k := range s.keys {
			for _, b := range k.batches {
				if all {
					b.end = now
				}
			}
			r.lease.retire(k, now)
			for _, b := range k.batches {
				r.due(b.end.mono)
			}
			cold := k.rate*k.plan.hold.Seconds() < float64(hotTakes*k.cost)/4
			if len(k.batches) == 0 && k.filling == nil && k.returning == 0 && (cold || now.mono-k.sampled >= idleKey) {
				delete(s.keys, name)
			}
		}
		s.mu.Unlock()
		r.mu.Lock()
		full := len(r.waiting) >= headgate.MaxChecks
		r.mu.Unlock()
		if full {
			errs = errors.Join(errs, r.giveBack(ctx))
		}
	}
	return errors.Join(errs, r.giveBack(ctx))
}

// giveBack gives back what waits. A call may have a key only once.
func (r *returns) giveBack(ctx context.Context) (errs error) {
	for {
		r.mu.Lock()
		n, keys := 0, make(map[layer.Counter]bool)
		for ; n < min(len(r.waiting), headgate.MaxChecks); n++ {
			at := layer.CounterOf(&r.waiting[n].key.check)
			if keys[at] {
				break
			}
			keys[at] = true
		}
		some := r.waiting[:n:n]
		if r.waiting = r.waiting[n:]; len(r.waiting) == 0 {
			r.waiting = nil
		}
		r.mu.Unlock()
		if n == 0 {
			return errs
		}
		errs = errors.Join(errs, r.refund(ctx, some))
	}
}

// refund gives batches back, with a call for each part of their rules. A call that failed may have
// been carried out, so it is not repeated, and its units may stay in use.
func (r *returns) refund(ctx context.Context, some []leftover) (errs error) {
	more := true
	for n := 0; more; n++ {
		more = false
		var checks []headgate.Check
		var of []*leftover
		for i := range some {
			b := &some[i]
			if n >= len(b.key.plan.returns) {
				continue
			}
			more = true
			if c := r.part(b, b.key.plan.returns[n]); c.Cost > 0 {
				checks, of = append(checks, c), append(of, b)
			}
		}
		if len(checks) == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, layer.CallWithin)
		_, err := r.lease.inner.Take(ctx, headgate.OpRefund, checks, nil)
		cancel()
		for i, b := range of {
			b.back = max(b.back, checks[i].Cost)
			b.lost = b.lost || err != nil
		}
		errs = errors.Join(errs, err)
	}
	lost, counts := int64(0), &r.lease.counts
	for i := range some {
		b := &some[i]
		if b.lost {
			lost += b.back
		} else {
			counts.returned.Add(b.back)
		}
		b.key.shard.mu.Lock()
		b.key.returning -= b.batch.left
		if b.era == b.key.era {
			counts.refilled.Add(b.batch.left - b.back)
		}
		b.key.shard.mu.Unlock()
	}
	counts.lost.Add(lost)
	if errs != nil {
		return fmt.Errorf("giving back %d units: %w", lost, errs)
	}
	return nil
}

// part returns the check that gives back a batch under a part of its rule. It has no cost if there is
// nothing to give back, or if the key was reset.
func (r *returns) part(b *leftover, part portion) headgate.Check {
	k := b.key
	k.shard.mu.Lock()
	defer k.shard.mu.Unlock()
	c := k.check
	if c.Rule = part.rule; b.era != k.era {
		return c
	}
	c.Cost, c.At = b.batch.left, b.batch.at
	if part.bucket >= 0 {
		l := &k.plan.strict.Limits()[part.bucket]
		c.Cost, c.At = k.own[part.bucket].giveBack(l, b.batch.at, b.batch.left, r.lease.now().mono)
	}
	return c
}

// stop ends the goroutine. A call that is under way ends by itself, or with Layer.calls.
func (r *returns) stop() error {
	r.cancel()
	r.ended.Wait()
	return r.failure
}

// all gives back everything that is held. Call it after stop. Units of requests that end later are
// counted as lost.
func (r *returns) all(ctx context.Context) error {
	err := r.sweep(ctx, r.lease.now(), true)
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	return errors.Join(err, r.giveBack(ctx))
}

// ownUse is what this node alone has in use in a bucket: what it has charged, less what has been
// refilled since and what it has given back. The store has at least as much in use, because other
// nodes only add to it, and give back no more than they have in use themselves.
//
// It tells how many units of an unused lease may be given back. If those units had never been
// charged, the bucket would have been full for a part of the time, and would have refilled nothing
// then. Units that were refilled meanwhile are free already. They must not be given back, because
// others may have used them. So:
//
//	given back = min(unused, minimum in use since the charge)
//
// Refunds by callers may go through any node, so they are not included. The bucket can then get
// units back twice, but only units that such a refund may give back twice on its own.
type ownUse struct {
	state   algorithm.State  // at the time of the last event
	at      headgate.Instant // the time of the last event, on the store's clock
	updated time.Duration    // the same time, on this node's clock
	lows    []low            // both at and units ascend
}

// low says that from the previous entry's time on, no fewer than units were in use; at is the time
// at which so few were.
type low struct {
	at    headgate.Instant
	units int64
}

// mostLows bounds ownUse.lows.
const mostLows = 16

// advance brings the state up to a time on the store's clock.
func (u *ownUse) advance(l *headgate.Limit, at headgate.Instant) {
	u.state = algorithm.Advance(l, u.state, at)
	u.at = at
}

// atLeast returns how many units are in use, rounded down.
func (u *ownUse) atLeast() int64 {
	used := u.state.Used
	if u.at > u.state.Stamp {
		used-- // A part of the last unit has been refilled.
	}
	return max(0, used)
}

// fell records that only units were in use at a time. If there are too many records, the first two
// become one, with the smaller number of units.
func (u *ownUse) fell(at headgate.Instant, units int64) {
	n := len(u.lows)
	if n > 0 {
		at = max(at, u.lows[n-1].at)
	}
	for ; n > 0 && u.lows[n-1].units >= units; n-- {
		u.lows = u.lows[:n-1]
	}
	if len(u.lows) == mostLows {
		u.lows[1].units = u.lows[0].units
		u.lows = append(u.lows[:0], u.lows[1:]...)
	}
	u.lows = append(u.lows, low{at, units})
}

// charged records units that the store has charged. If the store then has less in use than this
// node alone, the key was reset, or units that this node has admitted were given back; ownUse is
// lowered accordingly.
func (u *ownUse) charged(l *headgate.Limit, d *headgate.Decision, units int64, now time.Duration) {
	u.advance(l, d.At)
	if others := u.state.Used - max(0, l.Capacity()-d.Remaining-units); others > 0 {
		u.state = algorithm.Refund(l, u.state, d.At, others, 0, 0)
	}
	u.fell(d.At, u.atLeast())
	u.state = algorithm.Charge(l, u.state, d.At, units)
	u.updated = now
}

// giveBack removes those of the unused units that are still in use, and returns their number. The
// units were charged at the given time. Their refund must name the returned time, at which this
// node's units alone would have filled the bucket. Then the store gives back no more than this node
// has in use when the refund arrives.
func (u *ownUse) giveBack(l *headgate.Limit, charged headgate.Instant, unused int64, now time.Duration) (units int64, at headgate.Instant) {
	if passed := now - u.updated; passed > 0 {
		u.advance(l, u.at+headgate.Instant(passed.Microseconds()))
		u.updated = now
	}
	units = min(unused, u.state.Used)
	for i := range u.lows {
		if u.lows[i].at > charged {
			units = min(units, u.lows[i].units)
			break
		}
	}
	if units == 0 {
		return 0, 0
	}
	at = u.state.Stamp - headgate.Instant(fillTime(l, l.Capacity()-u.state.Used))
	if at <= 0 {
		return 0, 0 // The bucket takes longer to fill than the time since 1970.
	}
	u.state = algorithm.Refund(l, u.state, u.at, units, 0, 0)
	u.fell(u.at+1, u.atLeast())
	return units, at
}
