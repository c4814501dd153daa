// Package footprint estimates how much memory the counters and the permits of a policy take in
// Redis.
package footprint

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// Footprint is about how much memory the counters and permits of one rule take in Redis.
type Footprint struct {
	Rule string `json:"rule"`
	// Bytes is what one key takes at most: that of a client who uses all that its limits
	// admit. The key of a client who was away for the longest period takes nothing.
	// It includes Permits.
	Bytes int64 `json:"bytes_per_key"`
	// Permits is what the permits of one key take, if the rule bounds what is in progress over
	// all processes, and each permit is held by a holder of its own. A holder that waits takes
	// about as much as one that holds. Bounds in each process take nothing in Redis.
	Permits int64 `json:"permits_bytes_per_key,omitempty"`
	// One says that there is one key for all requests.
	One bool `json:"one_key"`
}

// PerMillion is the memory, in bytes, of a million clients at the same time.
func (f Footprint) PerMillion() int64 {
	if f.One {
		return f.Bytes
	}
	return f.Bytes * 1_000_000
}

// The sizes of the parts of a key in Redis 7, in bytes. The overhead was measured over many
// keys with an expiry. Values of 16 characters are a guess.
const (
	keyOverhead  = 120
	prefixBytes  = 3
	addressBytes = 18
	valueBytes   = 16
	slotBytes    = 23
	logHead      = 13
	logEntry     = 6
	// longEntry is the size of an entry in a log with costs above longCost.
	longEntry = 11
	longCost  = 8
	// permitPrefix and permitsBytes are what permits have beside the name of the key, and
	// permitBytes is the size of one lease. A key with more than fewPermits is a table and not
	// a list, where a lease takes manyBytes and the header a byte for each slot. Measured in
	// Redis 7.0 with holders of 40 characters: 200 bytes for 1, 856 for 10, 1624 for 20, 2648
	// for 30, 5984 for 50, 11760 for 100 and 113648 for 1000.
	permitPrefix = 8
	permitsBytes = 80
	permitBytes  = 88
	fewPermits   = 34
	manyBytes    = 120
)

// Of estimates the footprint of each rule of the set.
func Of(s *policy.Set) []Footprint {
	rules := s.Rules()
	all := make([]Footprint, len(rules))
	for i := range rules {
		r := &rules[i]
		name := int64(prefixBytes+len(r.Name)+1) + keyBytes(s, r)
		f := Footprint{Rule: r.Name, Permits: permitsOf(r, name), One: !r.Direct && len(r.Per) == 0}
		f.Bytes = f.Permits
		if counts(r) {
			f.Bytes += keyOverhead + name + largest(r)
		}
		all[i] = f
	}
	return all
}

// counts reports whether the rule has limits, and not only a bound on what is in progress.
func counts(r *policy.Rule) bool {
	for range r.EachLimits() {
		return true
	}
	return false
}

// permitsOf is the size of the permits of a key that has such a name.
func permitsOf(r *policy.Rule, name int64) int64 {
	p := r.InProgress
	if p == nil || !p.Shared {
		return 0
	}
	most := p.Most()
	for i := range r.Overrides {
		most = max(most, r.Overrides[i].InProgress)
	}
	size := permitPrefix + name + permitsBytes
	if most > fewPermits {
		return size + manyBytes*most
	}
	return size + permitBytes*most
}

// keyBytes is the size of a key that the rule counts by.
func keyBytes(s *policy.Set, r *policy.Rule) int64 {
	if r.Direct {
		return valueBytes
	}
	size := max(0, len(r.Per)-1) // separators
	for _, p := range r.Per {
		switch {
		case s.Secret(p.Entry):
			size += len(s.Hash(p.Entry, ""))
		case p.Address():
			size += addressBytes
		default:
			size += valueBytes
		}
	}
	return int64(size)
}

// largest is the size of a counter with those of the rule's limits that take the most.
func largest(r *policy.Rule) int64 {
	most := int64(0)
	for limits := range r.EachLimits() {
		most = max(most, counterBytes(limits.Limits(), r))
	}
	return most
}

// counterBytes is the size of the value that holds the state of the limits. All sliding
// windows share one log, which is as long as the longest window needs.
func counterBytes(limits []headgate.Limit, r *policy.Rule) int64 {
	size := int64(1)
	var longest *headgate.Limit
	for i := range limits {
		l := &limits[i]
		if l.Algorithm != headgate.SlidingWindow {
			size += slotBytes
		} else if longest == nil || l.Micros() > longest.Micros() {
			longest = l
		}
	}
	if longest == nil {
		return size
	}
	entry := int64(logEntry)
	if r.Factor() > longCost || r.Costs != nil {
		entry = longEntry
	}
	// Redis allocates as much room again for a string that is appended to.
	return size + 2*(logHead+entry*(longest.Count/r.Factor()))
}
