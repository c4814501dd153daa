package policy

import "github.com/headgate/headgate"

// Footprint is about how much memory the counters of one rule take in Redis.
type Footprint struct {
	Rule string `json:"rule"`
	// Bytes is what one key takes at most: that of a client who uses all that
	// its limits admit. Clients who have been away for the longest period take
	// nothing.
	Bytes int64 `json:"bytes_per_key"`
	// One says that there is one key for all requests.
	One bool `json:"one_key"`
}

// PerMillion is the memory, in bytes, of a million clients at once.
func (f Footprint) PerMillion() int64 {
	if f.One {
		return f.Bytes
	}
	return f.Bytes * 1_000_000
}

// What the parts of a key take in Redis 7, in bytes. The overhead was measured
// over many keys with an expiry; values of 16 characters are a guess.
const (
	keyOverhead  = 120
	prefixBytes  = 3
	addressBytes = 18
	valueBytes   = 16
	slotBytes    = 23
	logHead      = 13
	logEntry     = 6
	// longEntry is that of a log with costs above longCost.
	longEntry = 11
	longCost  = 8
)

// Footprints estimates, for each rule, what its counters take in Redis.
func Footprints(s *Set) []Footprint {
	all := make([]Footprint, len(s.rules))
	for i := range s.rules {
		r := &s.rules[i]
		name := int64(prefixBytes + len(r.Name) + 1)
		for j := range s.compiled[i].parts {
			p := &s.compiled[i].parts[j]
			if j > 0 {
				name++
			}
			switch {
			case p.secret:
				name += int64(hashLength)
			case p.address:
				name += addressBytes
			default:
				name += valueBytes
			}
		}
		if r.Direct {
			name += valueBytes
		}
		var most int64
		r.eachLimits(func(_, _ string, limits *headgate.Rule) {
			most = max(most, counterBytes(limits.Limits(), r))
		})
		all[i] = Footprint{r.Name, keyOverhead + name + most, !r.Direct && len(r.Per) == 0}
	}
	return all
}

// counterBytes is the size of the value that holds the state of the limits. All
// sliding windows share a log, which is as long as the longest one needs.
func counterBytes(limits []headgate.Limit, r *Rule) int64 {
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
	if r.factor() > longCost || r.Costs != nil {
		entry = longEntry
	}
	// What is appended to has as much room again.
	return size + 2*(logHead+entry*(longest.Count/r.factor()))
}
