// Package footprint estimates how much memory the counters of a policy take in Redis.
package footprint

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// Footprint is about how much memory the counters of one rule take in Redis.
type Footprint struct {
	Rule string `json:"rule"`
	// Bytes is what one key takes at most: that of a client who uses all that its limits
	// admit. The key of a client who was away for the longest period takes nothing.
	Bytes int64 `json:"bytes_per_key"`
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
)

// Of estimates the footprint of each rule of the set.
func Of(s *policy.Set) []Footprint {
	rules := s.Rules()
	all := make([]Footprint, len(rules))
	for i := range rules {
		r := &rules[i]
		size := int64(keyOverhead+prefixBytes+len(r.Name)+1) + keyBytes(s, r) + largest(r)
		all[i] = Footprint{r.Name, size, !r.Direct && len(r.Per) == 0}
	}
	return all
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
