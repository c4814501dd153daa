package async

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/internal/layer"
)

// reporter tells the store which units were admitted and which are given back, and asks it about
// keys that were decided from memory. One goroutine makes one call at a time.
type reporter struct {
	async        *Layer
	cancel       context.CancelFunc
	ended        sync.WaitGroup
	made, failed atomic.Int64
	doubtful     atomic.Int64

	mu    sync.Mutex // guards what follows; held for a whole round
	first int        // the shard that the last round began with
	batch [3]batch
}

// batch is one call of the reporter.
type batch struct {
	reports   []report
	checks    []headgate.Check
	decisions []headgate.Decision
}

// report is one key of a batch.
type report struct {
	shard  *keyShard
	entry  *entry
	units  int64
	back   keptRefund // in a batch of refunds
	resets uint32
}

// What the batches are for.
const (
	charging = iota
	looking
	returning
)

var batchOps = [...]headgate.Op{charging: headgate.OpCharge, looking: headgate.OpPeek, returning: headgate.OpRefund}

// maxFailures is the number of calls without an answer after which a round gives up.
const maxFailures = 2

func (r *reporter) begin(a *Layer) {
	r.async = a
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.ended.Go(func() { r.run(ctx) })
}

// run reports once in each interval. It begins at a random time, so that nodes that started
// together do not report together.
func (r *reporter) run(ctx context.Context) {
	a := r.async
	timer := time.NewTimer(0)
	defer timer.Stop()
	next := a.now() + rand.N(a.options.Interval)
	for {
		a.next.Store(int64(next))
		timer.Reset(next - a.now())
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		// A context that ends during a call would leave in doubt whether the report has counted.
		_ = r.round(context.WithoutCancel(ctx), false)
		if now := a.now(); next+a.options.Interval > now {
			next += a.options.Interval
		} else { // The process stood still, or the round took too long.
			next = now + a.options.Interval/2
		}
	}
}

// round visits every key once, and sends at most one refund for each. With last, it also sends
// refunds that are not due yet. The error is that of the last call that failed.
func (r *reporter) round(ctx context.Context, last bool) (failure error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.async
	r.first++
	failed := 0
	for i := range a.shards {
		r.collect(&a.shards[(r.first+i)%len(a.shards)], last)
		final := i == len(a.shards)-1
		for kind := range r.batch {
			b := &r.batch[kind]
			for len(b.reports) >= headgate.MaxChecks || final && len(b.reports) > 0 {
				if failed >= maxFailures {
					_ = r.answer(b, len(b.reports), nil, errGivenUp, 0)
				} else if err := r.call(ctx, kind); err != nil {
					failed++
					failure = err
				}
			}
		}
	}
	return failure
}

// collect adds the keys of a shard to the batches, and forgets keys without a request for
// staleAfter intervals. With last, it also adds refunds that are not due yet.
func (r *reporter) collect(s *keyShard, last bool) {
	now := r.async.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, e := range s.entries {
		add := func(kind int, p report, cost int64) {
			p.shard, p.entry, p.resets = s, e, e.resets
			b := &r.batch[kind]
			b.reports = append(b.reports, p)
			b.checks = append(b.checks, headgate.Check{Rule: e.rule, Key: name.Key, Cost: cost, At: p.back.at, Hints: headgate.Hints{OnError: e.onError, Scope: e.scope}})
		}
		back, due := e.dueReturn(now, last)
		if due {
			add(returning, report{back: back}, back.units)
		}
		switch {
		case e.unreported > 0:
			units := min(e.unreported, headgate.MaxCount)
			e.unreported -= units
			e.pending += units
			e.asked = false
			add(charging, report{units: units}, units)
		case e.asked && now < e.goodUntil:
			e.asked = false
			add(looking, report{}, 0)
		case now-e.answered >= staleAfter*r.async.options.Interval && e.pending == 0 && len(e.refunds) == 0 && !due:
			delete(s.entries, name)
		}
	}
}

// call makes one call for the first keys of a batch, for as many as fit into a call.
func (r *reporter) call(ctx context.Context, kind int) error {
	b := &r.batch[kind]
	n := min(len(b.reports), headgate.MaxChecks)
	ctx, cancel := context.WithTimeout(ctx, layer.CallWithin)
	defer cancel()
	began := r.async.now()
	var err error
	b.decisions, err = r.async.inner.Take(ctx, batchOps[kind], b.checks[:n], b.decisions[:0])
	r.made.Add(1)
	if err = r.answer(b, n, b.decisions, err, began); err != nil {
		r.failed.Add(1)
	}
	return err
}

var (
	// errUncounted is the error of a report that the fallback layer let pass without charging it.
	errUncounted = fmt.Errorf("%w: nobody counts", headgate.ErrUnavailable)
	// errGivenUp is the error of a report that was not sent in this round.
	errGivenUp = errors.New("the store has not answered others")
)

// answer takes over the answer for the first n keys of a batch, or the error, and removes them. It
// returns the error of the call, or of a key.
func (r *reporter) answer(b *batch, n int, decisions []headgate.Decision, err error, began time.Duration) error {
	now, failure := r.async.now(), err
	for i := range b.reports[:n] {
		var own []headgate.Decision
		failed := err
		if err == nil {
			if own, decisions = layer.Of(i, decisions); nobodyCounts(own) {
				failed, failure = errUncounted, errUncounted
			}
		}
		r.done(&b.reports[i], own, failed, began, now)
	}
	b.reports, b.checks = slices.Delete(b.reports, 0, n), slices.Delete(b.checks, 0, n)
	return failure
}

// done takes over the answer for one key, or the error.
func (r *reporter) done(p *report, decisions []headgate.Decision, err error, began, now time.Duration) {
	p.shard.mu.Lock()
	defer p.shard.mu.Unlock()
	e := p.entry
	e.pending -= p.units
	uncertain := errors.Is(err, context.DeadlineExceeded)
	if uncertain {
		r.doubtful.Add(p.units)
	}
	switch {
	case e.resets != p.resets:
	case p.back.units > 0:
		if err != nil && !uncertain {
			e.keepRefund(p.back)
		}
	case err == nil:
		// A report denies no request, so the next request may ask the store without a pause.
		e.learn(decisions, max(p.units, 1), p.units, &r.async.options, 0, began, now)
	case uncertain:
		// The store may have charged the units, so they are not reported again. Until the next
		// answer they reduce what this node may admit.
		e.doubtful += p.units
		e.callFailed = true
	default:
		e.unreported += p.units
		e.callFailed = e.callFailed || !errors.Is(err, errGivenUp)
	}
}

// Close reports what is left, within the context, and then ends the reports. From then on the store
// decides all checks. An error says how many units were not reported and how many were not given
// back, and wraps the store's error. Closing again reports what is still left.
func (a *Layer) Close(ctx context.Context) error {
	a.closed.Store(true)
	for i := range a.shards {
		s := &a.shards[i]
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
	}
	a.reporter.cancel()
	a.reporter.ended.Wait()
	// Refunds come last, so that the store knows the units that they give back.
	errs := a.reporter.round(ctx, false)
	for range mostReturns { // A round gives back one refund of each key.
		err := a.reporter.round(ctx, true)
		errs = errors.Join(errs, err)
		if err != nil || a.Stats().Returning == 0 {
			break
		}
	}
	if errs != nil {
		st := a.Stats()
		return fmt.Errorf("async: %d units were not reported, and %d not given back: %w", st.Unreported, st.Returning, errs)
	}
	return nil
}

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

// keepRefund keeps a refund. Refunds of the same fixed windows that are due at the same time are
// merged into one, with the earliest of their charge times. If a key has too many refunds, others
// are merged too.
func (e *entry) keepRefund(back keptRefund) {
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

// currentWindows returns the bits of the fixed windows in which units were charged at a time, if those
// windows have not ended, as the decisions about the rule say; see [keptRefund].
func currentWindows(decisions []headgate.Decision, at headgate.Instant) (bits uint64) {
	for i := range decisions {
		d := &decisions[i]
		begins := d.At + headgate.Instant(d.ResetAfter.Microseconds()-d.Limit.Micros())
		if d.Limit.Algorithm == headgate.FixedWindow && (d.ResetAfter == 0 || at >= begins) {
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

// refund looks up how the limits of the asynchronous checks stand, has the store give back the units
// of the others, and gives back its own.
func (a *Layer) refund(ctx context.Context, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	var own, others []headgate.Check
	var ownPlaces, otherPlaces []int
	for i := range checks {
		if countsAsync(&checks[i]) && !a.closed.Load() {
			own, ownPlaces = append(own, checks[i]), append(ownPlaces, i)
		} else {
			others, otherPlaces = append(others, checks[i]), append(otherPlaces, i)
		}
	}
	var all []headgate.Decision
	var err error
	if len(own) > 0 {
		if all, err = a.decide(ctx, headgate.OpRefund, own, nil); err != nil {
			return dst, err
		}
		place(all, ownPlaces)
	}
	if len(others) > 0 {
		before := len(all)
		if all, err = a.inner.Take(ctx, headgate.OpRefund, others, all); err != nil {
			return dst, err
		}
		place(all[before:], otherPlaces)
	}
	slices.SortStableFunc(all, func(x, y headgate.Decision) int { return x.Check - y.Check })
	for rest := all; len(rest) > 0; {
		i := rest[0].Check
		var decisions []headgate.Decision
		if decisions, rest = layer.Of(i, rest); slices.Contains(ownPlaces, i) {
			a.giveBack(&checks[i], decisions)
		}
	}
	return append(dst, all...), nil
}

// place replaces the places of checks among those that were asked for by those in the request.
func place(decisions []headgate.Decision, places []int) {
	for i := range decisions {
		decisions[i].Check = places[decisions[i].Check]
	}
}

// giveBack takes units back at once if the store does not know of them. Otherwise it keeps the refund
// until it is due. The decisions say how the limits stand.
func (a *Layer) giveBack(c *headgate.Check, decisions []headgate.Decision) {
	for i := range decisions {
		decisions[i].Allowed, decisions[i].RetryAfter = true, 0
	}
	shard := a.shard(a.hash(c))
	shard.mu.Lock()
	defer shard.mu.Unlock()
	// If there is no room for the key, the units stay in use.
	e := a.entryFor(shard, c)
	if e == nil {
		return
	}
	now, units := a.now(), c.Units()
	if now < e.goodUntil && e.unreported >= units && (c.At == 0 || c.At > e.storeTime) {
		e.unreported -= units
		e.describe(decisions[:0:len(decisions)], c, decisions[0].Check, true, 0, &a.options, now, 0)
		return
	}
	back := keptRefund{units: units, at: cmp.Or(c.At, decisions[0].At)}
	interval := a.options.Interval
	if slidesOnly(c.Rule) {
		// In the log, the units have the time at which they were reported, not admitted.
		back.at += headgate.Instant((returnAfter * interval).Microseconds())
	}
	// All refunds of one interval are due together.
	back.due = (now/interval + 1 + returnAfter) * interval
	back.current = currentWindows(decisions, back.at)
	e.keepRefund(back)
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
