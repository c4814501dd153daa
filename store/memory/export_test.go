package memory

import (
	"sync/atomic"

	"github.com/headgate/headgate"
)

// SteadyClock is Clock for a clock that never steps back, as the store's own.
func SteadyClock(micros func() int64) Option {
	return func(s *settings) { s.clock, s.steady = micros, true }
}

// Open returns how many entries of the store are open.
func Open(s *Store) (n int) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for j := range sh.table.entries {
			if e := &sh.table.entries[j]; e.hash != 0 && e.asWord() && atomic.LoadUint64(&e.word)&held == 0 {
				n++
			}
		}
		sh.mu.Unlock()
	}
	return n
}

// Last returns the time of the latest decision that has locked a shard.
func Last(s *Store) (last headgate.Instant) {
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		last = max(last, sh.last)
		sh.mu.Unlock()
	}
	return last
}
