package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/internal/layer"
)

const (
	// idleKey is how long a key without requests stays watched.
	idleKey = 2 * time.Second
	// sweepPause is the minimum time between two sweeps over all keys.
	sweepPause = 5 * time.Millisecond
	// returnsAtOnce is how many batches one call gives back. returnsWaiting is how many batches may
	// wait for a call.
	returnsAtOnce  = headgate.MaxChecks
	returnsWaiting = 1 << 10
)

// keeper gives unused units back to the store. One goroutine makes one call at a time.
type keeper struct {
	lease   *Layer
	cancel  context.CancelFunc
	ended   sync.WaitGroup
	failure error // of the call that was under way when the goroutine ended; read it after ended
	returns chan leftover
	roused  chan struct{}
	next    atomic.Int64 // when to sweep next, in ns since Layer.start
	over    atomic.Bool  // nothing is given back any more

	// These belong to the goroutine and, once it has ended, to rest.
	parts   [][]headgate.Check // what each call gives back; a call for each part of a rule
	sending []leftover         // the batches that these calls give back
}

// leftover is the unused rest of a batch. Its key no longer counts it as held.
type leftover struct {
	key   *hotKey
	era   uint64
	batch batch
	back  int64 // the largest number of units that one of the calls gives back
}

func (k *keeper) start(l *Layer) {
	k.lease = l
	k.returns, k.roused = make(chan leftover, returnsWaiting), make(chan struct{}, 1)
	k.next.Store(int64(idleKey))
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel = cancel
	k.ended.Go(func() { k.run(ctx) })
}

// due makes the keeper sweep at the given time or earlier.
func (k *keeper) due(at time.Duration) {
	for {
		next := k.next.Load()
		if int64(at) >= next {
			return
		}
		if k.next.CompareAndSwap(next, int64(at)) {
			break
		}
	}
	select {
	case k.roused <- struct{}{}:
	default:
	}
}

// giveBack queues the rest of a batch to be given back. It does not wait: if the queue is full or
// the layer was closed, the units stay in use. The key's shard is locked.
func (k *keeper) giveBack(key *hotKey, b *batch) {
	if b.left <= 0 {
		return
	}
	rest := leftover{key: key, era: key.era, batch: *b}
	b.left = 0
	if !k.over.Load() {
		select {
		case k.returns <- rest:
			key.returning += rest.batch.left
			return
		default:
		}
	}
	k.lease.counts.lost.Add(rest.batch.left)
}

func (k *keeper) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-k.returns:
			// ctx does not stop a call, because the units of an interrupted refund are lost.
			if err := k.send(k.lease.calls, r); ctx.Err() != nil {
				k.failure = err
			} // Any other error is counted in Stats.Lost.
			continue
		case <-k.roused:
		case <-timer.C:
		}
		now := k.lease.now()
		if now.mono >= time.Duration(k.next.Load()) {
			k.next.Store(int64(now.mono + idleKey))
			k.sweep(now, false)
		}
		timer.Reset(max(sweepPause, time.Duration(k.next.Load())-now.mono))
	}
}

// sweep ends the batches whose time is over, or all of them, and forgets keys without requests.
// When half of the queue is full, it leaves the rest for later.
func (k *keeper) sweep(now instant, all bool) {
	for i := range k.lease.shards {
		s := &k.lease.shards[i]
		s.mu.Lock()
		for name, key := range s.keys {
			if len(k.returns) > returnsWaiting/2 {
				s.mu.Unlock()
				k.due(now.mono)
				return
			}
			if all {
				for _, b := range key.batches {
					b.end = now
				}
			}
			k.lease.retire(key, now)
			for _, b := range key.batches {
				k.due(b.end.mono)
			}
			cold := key.rate*key.plan.hold.Seconds() < float64(hotTakes*key.cost)/4
			if len(key.batches) == 0 && key.filling == nil && key.returning == 0 && (cold || now.mono-key.sampled >= idleKey) {
				delete(s.keys, name)
			}
		}
		s.mu.Unlock()
	}
}

// send gives back a batch together with as many batches of the queue as fit into one call.
func (k *keeper) send(ctx context.Context, first leftover) error {
	errs := k.add(ctx, first)
	for range returnsAtOnce - 1 {
		select {
		case r := <-k.returns:
			errs = errors.Join(errs, k.add(ctx, r))
		default:
			return errors.Join(errs, k.flush(ctx))
		}
	}
	return errors.Join(errs, k.flush(ctx))
}

// add adds a batch to the calls, unless its key has been reset since.
func (k *keeper) add(ctx context.Context, r leftover) error {
	var err error
	for i := range k.sending {
		if k.sending[i].key == r.key { // A call may have a key only once.
			err = k.flush(ctx)
			break
		}
	}
	key := r.key
	s, _ := k.lease.shard(key.name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.era != key.era {
		key.returning -= r.batch.left
		return err
	}
	for n, part := range key.plan.returns {
		c := key.check
		c.Rule, c.Cost, c.At = part.rule, r.batch.left, r.batch.at
		if part.bucket >= 0 {
			l := &key.plan.strict.Limits()[part.bucket]
			c.Cost, c.At = key.own[part.bucket].giveBack(l, r.batch.at, r.batch.left, k.lease.now().mono)
		}
		if c.Cost == 0 {
			continue
		}
		r.back = max(r.back, c.Cost)
		for len(k.parts) <= n {
			k.parts = append(k.parts, nil)
		}
		k.parts[n] = append(k.parts[n], c)
	}
	k.lease.counts.refilled.Add(r.batch.left - r.back)
	k.sending = append(k.sending, r)
	return err
}

// flush makes the calls. A call that failed may have been carried out, so it is not repeated, and
// its units may stay in use.
func (k *keeper) flush(ctx context.Context) error {
	var errs error
	failed := 0 // a bit for each call
	for n, checks := range k.parts {
		if len(checks) == 0 {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, layer.CallWithin)
		_, err := k.lease.inner.Take(ctx, headgate.OpRefund, checks, nil)
		cancel()
		if err != nil {
			errs, failed = errors.Join(errs, err), failed|1<<n
		}
		clear(checks)
		k.parts[n] = checks[:0]
	}
	lost := int64(0)
	for _, r := range k.sending {
		if failed&(1<<len(r.key.plan.returns)-1) != 0 {
			lost += r.back
		} else {
			k.lease.counts.returned.Add(r.back)
		}
		s, _ := k.lease.shard(r.key.name)
		s.mu.Lock()
		r.key.returning -= r.batch.left
		s.mu.Unlock()
	}
	clear(k.sending)
	k.sending = k.sending[:0]
	if errs != nil {
		k.lease.counts.lost.Add(lost)
		return fmt.Errorf("giving back %d units: %w", lost, errs)
	}
	return nil
}

// stop ends the goroutine. A call that is under way ends by itself, or with Layer.calls.
func (k *keeper) stop() {
	k.cancel()
	k.ended.Wait()
}

// rest gives back everything that is held. Call it after stop. Units of requests that end later are
// counted as lost.
func (k *keeper) rest(ctx context.Context) error {
	errs := k.failure
	for more := true; more; {
		k.sweep(k.lease.now(), true)
		select {
		case r := <-k.returns:
			errs = errors.Join(errs, k.send(ctx, r))
		default:
			more = false
		}
	}
	k.over.Store(true)
	k.lease.awaitShards()
	for len(k.returns) > 0 {
		errs = errors.Join(errs, k.send(ctx, <-k.returns))
	}
	return errs
}
