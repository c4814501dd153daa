package async

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// failures is the number of calls without an answer after which a round gives up.
const failures = 2

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
func (r *reporter) round(ctx context.Context, last bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.async
	r.first++
	failed := 0
	var failure error
	for i := range a.shards {
		r.collect(&a.shards[(r.first+i)%len(a.shards)], last)
		final := i == len(a.shards)-1
		for kind := range r.batch {
			b := &r.batch[kind]
			for len(b.reports) >= headgate.MaxChecks || final && len(b.reports) > 0 {
				if failed >= failures {
					r.drop(kind)
					break
				}
				if err := r.call(ctx, kind); err != nil {
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
		back, due := e.dueReturn(now, last)
		if due {
			b := &r.batch[returning]
			b.reports = append(b.reports, report{shard: s, entry: e, back: back, resets: e.resets})
			b.checks = append(b.checks, headgate.Check{Rule: e.rule, Key: name.Key, Cost: back.units, At: back.at, Hints: headgate.Hints{OnError: e.onError}})
		}
		report := report{shard: s, entry: e, resets: e.resets}
		kind := looking
		switch {
		case e.unreported > 0:
			kind = charging
			report.units = min(e.unreported, headgate.MaxCount)
			e.unreported -= report.units
			e.pending += report.units
		case e.asked && now < e.goodUntil:
		case now-e.answered >= staleAfter*r.async.options.Interval && e.pending == 0 && len(e.refunds) == 0 && !due:
			delete(s.entries, name)
			continue
		default:
			continue
		}
		e.asked = false
		b := &r.batch[kind]
		b.reports = append(b.reports, report)
		b.checks = append(b.checks, headgate.Check{Rule: e.rule, Key: name.Key, Cost: report.units, Hints: headgate.Hints{OnError: e.onError}})
	}
}

// call makes one call for the first keys of a batch, for as many as fit into a call.
func (r *reporter) call(ctx context.Context, kind int) error {
	a, b := r.async, &r.batch[kind]
	n := min(len(b.reports), headgate.MaxChecks)
	ctx, cancel := context.WithTimeout(ctx, layer.CallWithin)
	defer cancel()
	began := a.now()
	var err error
	b.decisions, err = a.inner.Take(ctx, batchOps[kind], b.checks[:n], b.decisions[:0])
	now := a.now()
	r.made.Add(1)
	rest := b.decisions
	var unheard error
	for i := range b.reports[:n] {
		own := 0
		for err == nil && own < len(rest) && rest[own].Check == i {
			own++
		}
		if errors.Is(err, context.DeadlineExceeded) {
			r.doubtful.Add(b.reports[i].units)
		}
		told := err
		if nobodyCounts(rest[:own]) {
			told, unheard = errUnheard, errUnheard
		}
		b.reports[i].done(rest[:own], told, &a.options, began, now)
		rest = rest[own:]
	}
	b.cut(n)
	if err == nil {
		err = unheard
	}
	if err != nil {
		r.failed.Add(1)
	}
	return err
}

// errUnheard is the error of a report that the fallback layer let pass without charging it.
var errUnheard = fmt.Errorf("%w: nobody counts", headgate.ErrUnavailable)

// done takes over the answer for one key, or the error.
func (p *report) done(decisions []headgate.Decision, err error, o *Options, began, now time.Duration) {
	p.shard.mu.Lock()
	defer p.shard.mu.Unlock()
	e := p.entry
	e.pending -= p.units
	switch {
	case e.resets != p.resets:
	case p.back.units > 0:
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			e.giveBack(p.back)
		}
	case err == nil:
		// A report denies no request, so the next request may ask the store without a pause.
		e.learn(decisions, max(p.units, 1), p.units, o, 0, began, now)
	case errors.Is(err, context.DeadlineExceeded):
		// The store may have charged the units, so they are not reported again. Until the next
		// answer they reduce what this node may admit.
		e.doubtful += p.units
		e.callFailed = true
	default:
		e.unreported += p.units
		e.callFailed = true
	}
}

// cut removes the first n keys from the batch.
func (b *batch) cut(n int) {
	left := copy(b.reports, b.reports[n:])
	clear(b.reports[left:])
	b.reports = b.reports[:left]
	left = copy(b.checks, b.checks[n:])
	clear(b.checks[left:])
	b.checks = b.checks[:left]
}

// drop returns to the entries what was collected for a batch that is not sent in this round.
func (r *reporter) drop(kind int) {
	b := &r.batch[kind]
	for i := range b.reports {
		p := &b.reports[i]
		p.shard.mu.Lock()
		p.entry.pending -= p.units
		if p.entry.resets == p.resets {
			p.entry.unreported += p.units
			p.entry.giveBack(p.back)
		}
		p.shard.mu.Unlock()
	}
	b.cut(len(b.reports))
}

// Close reports what is left, within the context, and then ends the reports. From then on the store
// decides all checks. An error says how many units were not reported and how many were not given
// back, and wraps the store's error. Closing again reports what is still left.
func (a *Layer) Close(ctx context.Context) error {
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
