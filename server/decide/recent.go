package decide

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"
)

// PermitKey names the permits of one key under one rule.
type PermitKey struct{ Rule, Key string }

// maxRecentKeys is the maximum number of remembered keys.
const maxRecentKeys = 1024

// recentKeys remembers the keys whose permits callers have acquired or renewed lately, because a
// store cannot list such keys without reading everything that it has. A key is remembered for as
// long as a permit of its rule lasts without a renewal. After that time nobody holds the permit, or
// another process has renewed it.
type recentKeys struct {
	mu    sync.Mutex // guards what follows
	until map[PermitKey]time.Time
	swept time.Time
	// missed is the time until which a key that was not remembered may have permits.
	missed time.Time
}

// sweepEvery is the minimum time between searches of a full table for expired keys.
const sweepEvery = time.Second

// note remembers a key for the duration term, unless there are too many keys.
func (r *recentKeys) note(rule, key string, term time.Duration) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	name := PermitKey{rule, key}
	if _, known := r.until[name]; !known {
		if len(r.until) >= maxRecentKeys && now.Sub(r.swept) >= sweepEvery {
			r.sweep(now)
		}
		if len(r.until) >= maxRecentKeys {
			if until := now.Add(term); until.After(r.missed) {
				r.missed = until
			}
			return
		}
		if r.until == nil {
			r.until = make(map[PermitKey]time.Time)
		}
		name.Key = strings.Clone(key) // It may share memory with a larger buffer.
	}
	r.until[name] = now.Add(term)
}

func (r *recentKeys) sweep(now time.Time) {
	r.swept = now
	for name, until := range r.until {
		if now.After(until) {
			delete(r.until, name)
		}
	}
}

// Recent returns the keys whose permits callers of this process have acquired or renewed, for as
// long as such permits may last. They are ordered by rule and key. There are at most 1024, and all
// says whether none is missing. A nil Permits has none.
func (p *Permits) Recent() (list []PermitKey, all bool) {
	if p == nil {
		return nil, true
	}
	r, now := &p.recent, time.Now()
	r.mu.Lock()
	r.sweep(now)
	for name := range r.until {
		list = append(list, name)
	}
	all = now.After(r.missed)
	r.mu.Unlock()
	slices.SortFunc(list, func(a, b PermitKey) int {
		return cmp.Or(strings.Compare(a.Rule, b.Rule), strings.Compare(a.Key, b.Key))
	})
	return list, all
}
