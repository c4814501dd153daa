package concurrency

import (
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// shards is how many locks the keys are spread over. A lock is held for a look
// into a map, so that a few times the number of processors is enough.
const shards = 64

// Keyed bounds how much is in progress for each key. Of a key for which nothing
// is in progress it keeps nothing, so that its memory is bounded by what is. It
// is safe for concurrent use; make one with [NewKeyed].
type Keyed struct {
	limit  atomic.Int64
	seed   maphash.Seed
	shards [shards]shard
}

// shard is some of the keys.
type shard struct {
	mu    sync.Mutex // guards inUse
	inUse map[string]int
	// The shards' locks stand on cache lines of their own.
	_ [48]byte
}

// NewKeyed returns a bound of limit permits for each key. It panics if that is
// less than one: a mistake in the program.
func NewKeyed(limit int) *Keyed {
	k := &Keyed{seed: maphash.MakeSeed()}
	k.SetLimit(limit)
	for i := range k.shards {
		k.shards[i].inUse = make(map[string]int)
	}
	return k
}

// Limit is how many permits each key has.
func (k *Keyed) Limit() int { return int(k.limit.Load()) }

// SetLimit changes how many permits each key has. Permits that are taken stay so: of
// a key that has more of them than that there is none until enough are given back.
// It panics if the limit is less than one.
func (k *Keyed) SetLimit(limit int) {
	if limit < 1 {
		panic(fmt.Sprintf("concurrency: the limit is %d, must be at least 1", limit))
	}
	k.limit.Store(int64(limit))
}

// Acquire takes a permit of the key at once, or reports false if all are taken.
// The empty key is a key like any other.
func (k *Keyed) Acquire(key string) (Permit, bool) {
	s := k.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.inUse[key]
	if n >= k.Limit() {
		return Permit{}, false
	}
	s.inUse[key] = n + 1
	return Permit{k, key}, true
}

// InUse is how many permits of the key are taken.
func (k *Keyed) InUse(key string) int {
	s := k.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inUse[key]
}

// Keys is for how many keys something is in progress.
func (k *Keyed) Keys() int {
	n := 0
	for i := range k.shards {
		s := &k.shards[i]
		s.mu.Lock()
		n += len(s.inUse)
		s.mu.Unlock()
	}
	return n
}

func (k *Keyed) shard(key string) *shard {
	return &k.shards[maphash.String(k.seed, key)%shards]
}

// Permit is the right to have one thing in progress. It belongs to whoever took
// it and must not be copied after that; it is not safe for concurrent use. The
// zero Permit is one that was given back.
type Permit struct {
	of  *Keyed
	key string
}

// Release gives the permit back. Releasing again does nothing.
func (p *Permit) Release() {
	if p.of == nil {
		return
	}
	s := p.of.shard(p.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.inUse[p.key]; n > 1 {
		s.inUse[p.key] = n - 1
	} else {
		delete(s.inUse, p.key)
	}
	*p = Permit{}
}
