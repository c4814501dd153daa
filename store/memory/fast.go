package memory

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
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
	prefetch(uintptr(unsafe.Pointer(&v.entries[home(hash, uint64(len(v.entries)))])))
}

// find returns the entry of hash, or nil if there is none.
func (v *view) find(hash uint64) *entry {
	i := home(hash, uint64(len(v.entries)))
	for {
		e := &v.entries[i]
		switch atomic.LoadUint64(&e.hash) {
		case hash:
			return e
		case 0:
			return nil
		}
		if i++; i == uint64(len(v.entries)) {
			i = 0
		}
	}
}

// findOpen returns the entry of hash if it may be an open one of the given count, or nil.
func (v *view) findOpen(hash uint64, count int64) *entry {
	if e := v.find(hash); e != nil && int64(atomic.LoadUint32(&e.count)) == count {
		return e
	}
	return nil
}

// fewEntries is the size of a table that is likely to be in the processor's cache.
const fewEntries = 64

// takeFast takes units from a limit with Words, without a lock, and returns the decision. hash is
// that of the key under the limit's rule. It has not decided if there is no such counter yet, or its
// entry is not open, or the shard must be swept.
//
// The clock is read before the Word. A denial must not come from an old reading of the clock, so it
// holds only if the Word has not changed since before the clock was read. An admission at an old
// reading harms nobody: what others have taken since counts as in use for longer than it is.
func (s *Store) takeFast(l *headgate.Limit, hash uint64, cost int64) (decided, allowed bool, remaining int64, retry, reset, delay time.Duration, at headgate.Instant) {
	own, v := counterOf(hash, l.Slot()), s.views[hash>>(64-shardBits)].Load()
	var e *entry
	seen := uint64(held) // the word before the clock was read, if known
	if len(v.entries) <= fewEntries {
		if e = v.findOpen(own, l.Count); e == nil {
			return
		}
		seen = atomic.LoadUint64(&e.word)
	} else {
		v.prefetch(own)
	}
	now := s.read()
	if e == nil {
		e = v.findOpen(own, l.Count)
	}
	if e == nil || now >= headgate.Instant(v.sweepAt.Load()) {
		return
	}
	draw, ok := algorithm.DrawFrom(l, algorithm.Micros(now-s.origin), cost)
	for ok {
		w := atomic.LoadUint64(&e.word)
		if w&held != 0 {
			return
		}
		after, fits := draw.Take(algorithm.Word(w))
		if fits {
			if !atomic.CompareAndSwapUint64(&e.word, w, uint64(after)) {
				continue
			}
		} else if w != seen {
			seen, now = w, s.read()
			draw, ok = algorithm.DrawFrom(l, algorithm.Micros(now-s.origin), cost)
			continue
		}
		// Whatever can wait is done after the exchange, which fails less often the sooner it comes.
		remaining, retry, reset, delay = draw.Describe(l, algorithm.Word(w), cost, fits)
		return true, fits, remaining, retry, reset, delay, s.own.wall.Load().shown(now)
	}
	return
}
