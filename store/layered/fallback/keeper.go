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
	// firstRetry is the time between the first two probes. Later it is a quarter of the time that
	// the primary has been away, up to Options.MaxRetry.
	firstRetry = 20 * time.Millisecond
	// payEvery is the time between two rounds of charging debts.
	payEvery = 20 * time.Millisecond
	// missedBeats is how many beats a node must miss before the others take it for gone.
	missedBeats = 3
)

// keeper does in the background what no request should wait for. It counts the nodes, probes a
// primary that does not answer, and charges debts when it answers again. It makes one call at
// a time. Another goroutine watches whether this process runs.
type keeper struct {
	fallback *Layer
	woken    chan struct{} // the breaker has opened
	cancel   context.CancelFunc
	ended    sync.WaitGroup
	last     context.Context // of what is said at the end
	abandon  context.CancelFunc

	nodesError atomic.Pointer[error]

	// Only the goroutine that makes calls uses the fields below.
	nextBeat   time.Time
	fewerSince time.Time // since when fewer nodes are counted than before; zero if not
	learnUntil time.Time
	probed     []headgate.Decision
}

func (k *keeper) start(f *Layer) {
	k.fallback, k.woken = f, make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(context.Background())
	k.beat(ctx)
	k.cancel = cancel
	k.last, k.abandon = context.WithCancel(context.WithoutCancel(ctx))
	k.ended.Go(func() { k.run(ctx) })
	k.ended.Go(func() { k.watch(ctx) })
}

// watch counts the ticks that this process keeps while the primary answers nothing.
func (k *keeper) watch(ctx context.Context) {
	b := &k.fallback.breaker
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.rowBegan:
		}
		for b.row.Load() > 0 && b.ticksKept.Load() < ticks {
			began := time.Now()
			if !sleep.For(ctx, tick) {
				return
			}
			if time.Since(began) < 2*tick {
				b.ticksKept.Add(1)
			}
		}
	}
}

// stop ends the goroutines. The calls that it makes at the end are bounded by the context.
func (k *keeper) stop(ctx context.Context) {
	k.cancel()
	stop := context.AfterFunc(ctx, k.abandon)
	defer stop()
	k.ended.Wait()
	k.abandon()
}

func (k *keeper) run(ctx context.Context) {
	defer k.leave(k.last)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.woken:
			timer.Reset(rand.N(k.pause()))
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
		next := time.Now().Add(sleep.Jittered(k.pause()))
		if !k.probe(ctx) {
			// While the primary hangs, the next probe begins when the last one ends: the first
			// that finds it well is answered at once.
			return max(time.Until(next), time.Millisecond)
		}
		// This comes before the first request: the primary may have lost its data.
		k.beat(ctx)
		b.close(word, HalfOpen)
		return min(time.Duration(b.rampTime.Load()), payEvery)
	case HalfOpen:
		if b.now()-b.rampBegan.Load() >= b.rampTime.Load() {
			b.close(word, Closed)
		}
		_, _ = k.pay(ctx)
		return min(time.Duration(b.rampTime.Load()), payEvery)
	}
	if !time.Now().Before(k.nextBeat) {
		k.beat(ctx)
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

// pause returns the time between two probes.
func (k *keeper) pause() time.Duration {
	return min(max(k.fallback.breaker.away()/4, firstRetry), k.fallback.options.MaxRetry)
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

// Members is what a store may offer so that the nodes that share it can count each other.
type Members interface {
	// Members records that the node is there for ttl from now, and forgets nodes whose time is
	// over. A ttl of zero records that the node is gone. Members returns how many nodes are
	// there, and for how long the store has had its data: since the first such call, or since
	// it lost the data.
	Members(ctx context.Context, node string, ttl time.Duration) (nodes int64, age time.Duration, err error)
}

// beat counts the nodes, and finds out whether the primary has lost its data.
func (k *keeper) beat(ctx context.Context) {
	f := k.fallback
	defer func() { k.nextBeat = time.Now().Add(sleep.Jittered(f.options.Beat)) }()
	if f.options.Members == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, layer.CallWithin)
	defer cancel()
	nodes, age, err := f.options.Members.Members(ctx, f.options.Node, missedBeats*f.options.Beat)
	if err != nil {
		k.fewerSince = time.Time{}
		if stateOf(f.breaker.word.Load()) == Closed && f.breaker.row.Load() == 0 {
			// Otherwise the store answers nobody, and the breaker says so.
			k.nodesError.Store(&err)
			f.announce()
		}
		return
	}
	k.nodesError.Store(nil)
	k.counted(max(nodes, f.options.Nodes))
	k.learnUntil = time.Now().Add(f.options.Learn - age)
	k.learn()
	f.announce()
}

// counted takes over the number of nodes. More nodes are believed at once. Fewer are believed only
// after that has been the number for as long as every node needs to be counted, because a store
// that was away knows of none at first.
func (k *keeper) counted(nodes int64) {
	was := k.fallback.shares.Load().nodes
	switch now := time.Now(); {
	case nodes >= was:
		k.fewerSince = time.Time{}
	case k.fewerSince.IsZero():
		k.fewerSince = now
	}
	if nodes > was || nodes < was && time.Since(k.fewerSince) >= missedBeats*k.fallback.options.Beat {
		k.fallback.shares.Store(newShares(nodes))
		k.fewerSince = time.Time{}
	}
}

// learn begins or ends the time in which the primary's admissions are not enough.
func (k *keeper) learn() { k.fallback.learning.Store(time.Now().Before(k.learnUntil)) }
