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

// maxRecentKeys bounds how many keys are remembered.
const maxRecentKeys = 1024

// recentKeys are the keys that callers have acquired or renewed permits of. A key is
// remembered for as long as a permit of its rule may last without being renewed: after that
// time nobody holds it, or somebody has renewed it elsewhere. A store cannot list the keys
// that it keeps permits of without reading all that it has.
type recentKeys struct {
	mu    sync.Mutex // guards what follows
	until map[PermitKey]time.Time
	swept time.Time
	// missed is until when a key that was left out may be in use.
	missed time.Time
}

// sweepEvery bounds how often a full table is searched for keys that are over.
const sweepEvery = time.Second

// note remembers a key for a while. If there are too many, it is left out.
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
		name.Key = strings.Clone(key) // It may be part of a buffer of the caller.
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

// Recent are the keys that callers of this process have acquired or renewed permits of, as
// long as such a permit may last, in the order of rules and keys: at most 1024, and whether
// those are all. A nil Permits has none.
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
