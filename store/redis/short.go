package redis

import (
	"encoding/binary"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// short is a call of one of the short scripts, which decide one check in the simple cases. In all
// other cases they answer statusOther and do nothing, and take.lua decides.
type short struct {
	script   *rueidis.Lua // nil: there is none for the rule
	key      string
	args     []string
	describe func(reply, *headgate.Check, []headgate.Decision) ([]headgate.Decision, error)
}

// smallCost is the largest cost that the log records as that many entries of one unit.
const smallCost = 8

// shape says which of the short scripts can decide a check. batch.lua uses the same numbers.
type shape uint8

const (
	shapeOther   shape = iota // none; take.lua decides
	shapeBucket               // bucket.lua
	shapeBuckets              // buckets.lua
	shapeWindows              // window.lua
)

// shapeOf returns a check's shape, by the algorithms of its rule.
func shapeOf(c *headgate.Check) shape {
	limits := c.Rule.Limits()
	buckets, windows := 0, 0
	for i := range limits {
		switch limits[i].Algorithm {
		case headgate.TokenBucket, headgate.LeakyBucket:
			if algorithm.MarkOf(&limits[i]) == 0 {
				return shapeOther
			}
			buckets++
		case headgate.SlidingWindow:
			windows++
		}
	}
	switch {
	case buckets == 1 && len(limits) == 1:
		return shapeBucket
	case buckets == len(limits):
		return shapeBuckets
	case windows == len(limits) && c.Units() <= smallCost:
		return shapeWindows
	}
	return shapeOther
}

// short returns the call of the short script for a check. The script is nil if there is none.
func (s *Store) short(c *headgate.Check) short {
	switch shapeOf(c) {
	case shapeBucket:
		return s.shortBucket(c)
	case shapeBuckets:
		return s.shortBuckets(c)
	case shapeWindows:
		return s.shortWindow(c)
	}
	return short{}
}

// describe reads the answer of the script.
func (s shape) describe(r reply, c *headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if s == shapeWindows {
		return describeWindows(r, c, dst)
	}
	return describeBuckets(r, c, dst)
}

// cut returns the key and the arguments, which are the parts of b that end at the given offsets. If
// the store has a clock of its own, the time is the last argument; see [Clock].
func (s *Store) cut(b []byte, ends ...int) (key string, args []string) {
	if s.clock != nil {
		b = appendInt(b, s.clock())
		ends = append(ends, len(b))
	}
	all := string(b)
	args = make([]string, len(ends)-1)
	for i := range args {
		args[i] = all[ends[i]:ends[i+1]]
	}
	return all[:ends[0]], args
}

// shortBucket makes the arguments of bucket.lua: the value's layout; capacity I4,
// num I4, den I7, mark I4, cost I4.
func (s *Store) shortBucket(c *headgate.Check) short {
	l := &c.Rule.Limits()[0]
	b := appendKey(make([]byte, 0, 128), s.prefix, c)
	key := len(b)
	b = appendLayout(b, c.Rule.Limits())
	layout := len(b)
	b = binary.BigEndian.AppendUint32(appendBucket(b, l), uint32(c.Units()))
	call := short{script: s.bucket, describe: describeBuckets}
	call.key, call.args = s.cut(b, key, layout, len(b))
	return call
}

// shortBuckets makes the arguments of buckets.lua: the value's layout; capacity I4,
// num I4, den I7, mark I4 of each; the cost.
func (s *Store) shortBuckets(c *headgate.Check) short {
	limits := c.Rule.Limits()
	b := appendKey(make([]byte, 0, 384), s.prefix, c)
	key := len(b)
	b = appendLayout(b, limits)
	layout := len(b)
	for i := range limits {
		b = appendBucket(b, &limits[i])
	}
	spec := len(b)
	b = appendInt(b, c.Units())
	call := short{script: s.buckets, describe: describeBuckets}
	call.key, call.args = s.cut(b, key, layout, spec, len(b))
	return call
}

// appendLayout writes the number of a rule's slots and their names.
func appendLayout(b []byte, limits []headgate.Limit) []byte {
	b = append(b, byte(len(limits)))
	for i := range limits {
		b = binary.BigEndian.AppendUint64(b, limits[i].Slot())
	}
	return b
}

func appendBucket(b []byte, l *headgate.Limit) []byte {
	num, den := l.Rate()
	b = binary.BigEndian.AppendUint32(b, uint32(l.Capacity()))
	b = binary.BigEndian.AppendUint32(b, uint32(num))
	return binary.BigEndian.AppendUint32(appendUint56(b, den), algorithm.MarkOf(l))
}

// describeBuckets reads the answer of bucket.lua and buckets.lua: the value before the call, or
// nothing if there was no value.
func describeBuckets(r reply, c *headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	limits := c.Rule.Limits()
	states := ""
	if layout := 1 + 8*len(limits); len(r.text) == layout+stateBytes*len(limits) {
		states = r.text[layout:]
	}
	for i := range limits {
		l := &limits[i]
		var before algorithm.Counter
		if states != "" {
			// The script answers only if no list of limits with another rate shares the counter.
			before.State, _ = algorithm.Plain(l, readState(states[i*stateBytes:]))
			before, _ = before.Advance(l, r.now)
		}
		dst = append(dst, headgate.Decision{Rule: c.Rule, Shadow: c.Shadow})
		describe(&dst[len(dst)-1], l, headgate.OpTake, before, c, r.now, r.status == statusAdmitted)
	}
	return dst, nil
}

// shortWindow makes the arguments of window.lua: count I4 and period I7 of each
// window, the longest first; the cost.
func (s *Store) shortWindow(c *headgate.Check) short {
	b := appendKey(make([]byte, 0, 192), s.prefix, c)
	key := len(b)
	b = appendWindows(b, c.Rule.Limits())
	spec := len(b)
	b = appendInt(b, c.Units())
	call := short{script: s.window, describe: describeWindows}
	call.key, call.args = s.cut(b, key, spec, len(b))
	return call
}

func appendWindows(b []byte, limits []headgate.Limit) []byte {
	first := longestWindow(limits)
	for i := range limits {
		l := &limits[(first+i)%len(limits)]
		b = appendUint56(binary.BigEndian.AppendUint32(b, uint32(l.Count)), l.Micros())
	}
	return b
}

func longestWindow(limits []headgate.Limit) int {
	longest := 0
	for i := range limits {
		if limits[i].Period > limits[longest].Period {
			longest = i
		}
	}
	return longest
}

// describeWindows reads the answer of window.lua. It has the windows in the order in which
// shortWindow sent them.
func describeWindows(r reply, c *headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	limits := c.Rule.Limits()
	if len(r.text) != len(limits)*factsBytes {
		return dst, r.misread(len(limits) * factsBytes)
	}
	first := longestWindow(limits)
	for i := range limits {
		place := (i - first + len(limits)) % len(limits)
		facts := readFacts(r.text[place*factsBytes:], r.now)
		d := headgate.Decision{Rule: c.Rule, Shadow: c.Shadow}
		facts.Describe(&d, &limits[i], r.now, c.Units(), r.status == statusAdmitted)
		dst = append(dst, d)
	}
	return dst, nil
}
