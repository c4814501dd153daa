package memory

import (
	"context"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/internal/prefetch"
	"github.com/headgate/headgate/store"
)

// view is what callers who have not locked a shard see of it. A shard with another table has a new
// one.
type view struct {
	entries []entry
	sweepAt atomic.Int64 // see shard
}

// prefetch asks for the memory in which the search for hash begins. With many keys, a decision
// mostly waits for the memory of its counter, which is in no cache. So a caller prefetches that
// memory as soon as the hash is known, and it arrives while the clock is read.
func (v *view) prefetch(hash uint64) {
	prefetch.At(uintptr(unsafe.Pointer(&v.entries[home(hash, uint64(len(v.entries)))])))
}

// findOpen returns the entry of hash if it may be an open one of the given count, or nil.
func (v *view) findOpen(hash uint64, count int64) *entry {
	i := home(hash, uint64(len(v.entries)))
	for {
		e := &v.entries[i]
		switch atomic.LoadUint64(&e.hash) {
		case hash:
			if int64(atomic.LoadUint32(&e.count)) == count {
				return e
			}
			return nil
		case 0:
			return nil
		}
		if i++; i == uint64(len(v.entries)) {
			i = 0
		}
	}
}

// fewEntries is the size of a table that is likely to be in the processor's cache.
const fewEntries = 64

// TakeSingle implements [store.Single]. It takes units from a bucket whose entry is open without the
// lock, and leaves other checks to takeLocked.
//
// The clock is read before the Word is replaced. A denial must not come from an old reading of the
// clock, so it holds only if the Word has not changed since before the clock was read. An admission
// at an old reading harms nobody: what others have taken since counts as in use for longer than it
// is.
func (s *Store) TakeSingle(_ context.Context, rule *headgate.Rule, key string, cost int64) (allowed bool, remaining int64, retry, reset, delay time.Duration, at headgate.Instant, err error) {
	if !store.ValidSingle(rule, key, cost) {
		err = store.ValidateSingle(rule, key, cost)
		return
	}
	l := &rule.Limits()[0]
	s.catchUp()
	hash := s.hash(rule, key)
	if !s.hasWord(l) {
		return s.takeLocked(rule, key, cost, hash)
	}
	own, v := counterOf(hash, l.Slot()), s.views[hash>>(64-shardBits)].Load()
	var e *entry
	seen := uint64(held) // the word before the clock was read, if known
	if len(v.entries) <= fewEntries {
		if e = v.findOpen(own, l.Count); e == nil {
			return s.takeLocked(rule, key, cost, hash)
		}
		seen = atomic.LoadUint64(&e.word)
	} else {
		v.prefetch(own)
	}
	var now headgate.Instant
	if s.clock == nil {
		now = s.own.now() // the compiler does not inline read
	} else {
		now = s.read()
	}
	w := seen
	if e == nil {
		if e = v.findOpen(own, l.Count); e != nil {
			w = atomic.LoadUint64(&e.word)
		}
	}
	if e == nil || now >= headgate.Instant(v.sweepAt.Load()) {
		return s.takeLocked(rule, key, cost, hash)
	}
	cost = max(cost, 1)
	draw, ok := algorithm.DrawFrom(l, algorithm.Micros(now-s.origin), cost)
	for ok && w&held == 0 {
		after, fits := draw.Take(algorithm.Word(w))
		if fits {
			// The first attempt expects the word that was read before the clock. To read it again
			// first would fetch it from another core's cache twice: once to read it, once to write
			// it. A failed exchange has fetched it for writing, so the next one mostly succeeds.
			if !atomic.CompareAndSwapUint64(&e.word, w, uint64(after)) {
				w = atomic.LoadUint64(&e.word)
				continue
			}
		} else if current := atomic.LoadUint64(&e.word); w != seen || w != current {
			seen, w, now = current, current, s.read()
			draw, ok = algorithm.DrawFrom(l, algorithm.Micros(now-s.origin), cost)
			continue
		}
		// Whatever can wait is done after the exchange, which fails less often the sooner it comes.
		remaining, retry, reset, delay = draw.Describe(l, algorithm.Word(w), cost, fits)
		return fits, remaining, retry, reset, delay, s.own.wall.Load().shown(now), nil
	}
	return s.takeLocked(rule, key, cost, hash)
}

// takeLocked is TakeSingle for a check that needs the lock. It has a function of its own so that
// TakeSingle needs no room for a Check and a Decision, which would have to be cleared.
func (s *Store) takeLocked(rule *headgate.Rule, key string, cost int64, hash uint64) (allowed bool, remaining int64, retry, reset, delay time.Duration, at headgate.Instant, err error) {
	var d headgate.Decision
	s.takeSlow(&headgate.Check{Rule: rule, Key: key, Cost: cost}, hash, &d)
	return d.Allowed, d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay, d.At, nil
}
