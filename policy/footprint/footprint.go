// Package footprint estimates how much memory the counters and the permits of a policy take in
// Redis.
package footprint

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// Footprint is an estimate of the memory that the counters and permits of one rule take in Redis,
// in bytes.
type Footprint struct {
	Rule string `json:"rule"`
	// Bytes is the most that one key takes, Permits included: the memory for a client who uses all
	// that the limits admit. The key of a client who has sent nothing for the longest period takes
	// no memory.
	Bytes int64 `json:"bytes_per_key"`
	// Permits is the part of Bytes that the permits of one key take if all of them are held, each
	// by a holder of its own. It is 0 unless the rule bounds what is in progress over all
	// processes: bounds in each process take no memory in Redis. A holder that waits takes about as
	// much as one that has a permit.
	Permits int64 `json:"permits_bytes_per_key,omitempty"`
	// One says that the rule has one key for all requests.
	One bool `json:"one_key"`
}

// PerMillion returns the memory, in bytes, for a million clients at the same time.
func (f Footprint) PerMillion() int64 {
	if f.One {
		return f.Bytes
	}
	return f.Bytes * 1_000_000
}

// The sizes of the parts of a key in Redis 7, in bytes. The overhead was measured with many keys
// that have an expiry. valueBytes is a guess at the length of a value.
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
	// Permits take permitPrefix + the name of the key + permitsBytes, and permitBytes for each
	// lease. Up to fewPermits, Redis keeps them in a listpack. With more, their header (30 bytes,
	// and a byte for each permit) is longer than the 64 bytes that hash-max-listpack-value allows
	// by default, and Redis keeps them in a hash table. There a lease takes manyBytes, which
	// includes its byte in the header. Measured in Redis 7.0 with holders of 40 characters: 200
	// bytes for 1, 856 for 10, 1624 for 20, 2648 for 30, 5984 for 50, 11760 for 100 and 113648 for
	// 1000.
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

// permitsOf returns the size of all permits of a key. name is the length of the name of the rule's
// counters.
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

// keyBytes returns the length of a key by which the rule counts.
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

// largest returns the size of the largest counter that a list of the rule's limits makes.
func largest(r *policy.Rule) int64 {
	most := int64(0)
	for limits := range r.EachLimits() {
		most = max(most, counterBytes(limits.Limits(), r))
	}
	return most
}

// counterBytes returns the size of the value that holds the state of the limits. All sliding
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
	// Redis doubles the memory of a string when something is appended to it.
	return size + 2*(logHead+entry*(longest.Count/r.Factor()))
}
