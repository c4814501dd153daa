package memory

import "sync/atomic"

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
