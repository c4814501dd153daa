package fallback

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/sleep"
	"github.com/headgate/headgate/store/layered/internal/layer"
)

const (
	// firstRetry is the time between the first two probes; it doubles up to
	// Options.MaxRetry.
	firstRetry = 20 * time.Millisecond
	// payEvery is the time between two rounds of charging debts.
	payEvery = 20 * time.Millisecond
)

// keeper does in the background what no request should wait for. It counts the nodes, probes a
// primary that does not answer, and charges debts when it answers again. It makes one call at
// a time.
type keeper struct {
	fallback *Layer
	roused   chan struct{} // the breaker has opened
	cancel   context.CancelFunc
	ended    sync.WaitGroup
	last     context.Context // of what is said at the end
	abandon  context.CancelFunc

	nodesError atomic.Pointer[error]

	// Only the goroutine uses the fields below.
	nextBeat   time.Time
	retry      time.Duration // grows until the breaker is closed again
	fewerSince time.Time     // since when fewer nodes are counted than before; zero if not
	learnUntil time.Time
	probed     []headgate.Decision
}

func (k *keeper) start(f *Layer) {
	k.fallback, k.roused, k.retry = f, make(chan struct{}, 1), firstRetry
	ctx, cancel := context.WithCancel(context.Background())
	k.beat(ctx)
	k.nextBeat = time.Now().Add(sleep.Jittered(f.options.Beat))
	k.cancel = cancel
	k.last, k.abandon = context.WithCancel(context.WithoutCancel(ctx))
	k.ended.Go(func() { k.run(ctx) })
}

// stop ends the goroutine. The calls that it makes at the end are bounded by the context.
func (k *keeper) stop(ctx context.Context) {
	k.cancel()
	stop := context.AfterFunc(ctx, k.abandon)
	defer stop()
	k.ended.Wait()
	k.abandon()
}

// rouse makes the keeper look at the breaker. It does not wait.
func (k *keeper) rouse() {
	select {
	case k.roused <- struct{}{}:
	default:
	}
}

func (k *keeper) run(ctx context.Context) {
	defer k.leave(k.last)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.roused:
			timer.Reset(rand.N(k.retry))
		case <-timer.C:
			timer.Reset(k.step(ctx))
		}
	}
}

// step does what the state of the breaker demands, and returns the time until the next step.
func (k *keeper) step(ctx context.Context) time.Duration {
	b := &k.fallback.breaker
	word := b.word.Load()
	switch stateOf(word) {
	case Open:
		well, wait := k.probe(ctx), sleep.Jittered(k.retry)
		// The pause keeps doubling until the breaker is closed: a primary that comes and goes
		// is not back.
		k.retry = min(2*k.retry, k.fallback.options.MaxRetry)
		if !well {
			return wait
		}
		// This comes before the first request: the primary may have lost its data.
		k.beat(ctx)
		k.nextBeat = time.Now().Add(sleep.Jittered(k.fallback.options.Beat))
		b.change(word, HalfOpen, nil)
		return payEvery
	case HalfOpen:
		if b.now()-b.began.Load() >= int64(b.ramp) {
			b.change(word, Closed, nil)
		}
		_, _ = k.pay(ctx)
		return payEvery
	}
	k.retry = firstRetry
	if !time.Now().Before(k.nextBeat) {
		k.beat(ctx)
		k.nextBeat = time.Now().Add(sleep.Jittered(k.fallback.options.Beat))
	}
	if k.learnUntil.Before(time.Now()) && k.fallback.learning.Load() {
		k.learn()
		k.fallback.announce()
	}
	wait := time.Until(k.nextBeat)
	if k.fallback.learning.Load() {
		wait = min(wait, time.Until(k.learnUntil))
	}
	wait = max(wait, time.Millisecond)
	if next, more := k.pay(ctx); more {
		wait = min(wait, next)
	}
	return wait
}

// probeRule is the rule that probes charge. It admits them at any rate, and the store soon
// forgets its counter.
var probeRule = headgate.MustRule("headgate.probe", headgate.PerSecond(1_000_000))

// probe reports whether the primary can do what requests need: read and write. A primary that
// has become a read-only replica is not back.
func (k *keeper) probe(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, layer.CallWithin)
	defer cancel()
	var err error
	k.probed, err = k.fallback.inner.Take(ctx, headgate.OpTake, []headgate.Check{{Rule: probeRule, Key: k.fallback.options.Node}}, k.probed[:0])
	k.fallback.counts.probes.Add(1)
	if err != nil {
		k.fallback.counts.probesFailed.Add(1)
	}
	return err == nil
}

// leave charges the debts that can be charged at once, and tells the other nodes that this one
// is gone.
func (k *keeper) leave(ctx context.Context) {
	if stateOf(k.fallback.breaker.word.Load()) == Open {
		return // Nobody would answer.
	}
	ctx, cancel := context.WithTimeout(ctx, layer.CallWithin)
	defer cancel()
	// Debts that are not due yet are lost. They are owed to long windows, by keys for which
	// the short windows had no room.
	for next, more := k.pay(ctx); more && next <= payEvery && ctx.Err() == nil; next, more = k.pay(ctx) {
		time.Sleep(payEvery)
	}
	if members := k.fallback.options.Members; members != nil {
		// If this call fails, the others notice after a few beats.
		_, _, _ = members.Members(ctx, k.fallback.options.Node, 0)
	}
}
