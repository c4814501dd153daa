package insight

import (
	"sync"

	"github.com/headgate/headgate"
)

// outcome is the outcome of a check.
type outcome uint8

const (
	wasAllowed   outcome = iota // charged
	wasDenied                   // one of its limits denied the request
	wasShadow                   // one of its limits in shadow would have denied it
	wasUncharged                // another check denied the request
)

// record is one check and its outcome. It is small, because a whole buffer of records passes
// through the processor's caches.
type record struct {
	rule  *headgate.Rule
	limit *headgate.Limit // the limit that decided
	cost  int64
	// remaining is what the limit has left after the decision. A denial does not change it.
	remaining int64
	from, to  uint16 // the range of its key in the buffer's keys
	outcome   outcome
	door      uint8
	source    headgate.Source
}

// denial has the further figures of a check that was denied.
type denial struct{ retryAfter, at, version int64 }

// The sizes of a buffer. When a processor counts a buffer, the figures of its rules move into that
// processor's cache, so buffers are large and are counted rarely.
const (
	bufferRecords = 1024
	bufferDenials = 256
	bufferKeys    = 16 << 10 // bytes; an index must fit a uint16
)

// buffer holds records until they are counted.
type buffer struct {
	n, denied, used int
	told            bool // requests were counted
	requests        [maxDoors]counts
	records         [bufferRecords]record
	denials         [bufferDenials]denial // one for each record that is a denial, in their order
	keys            [bufferKeys]byte
}

func (b *buffer) idle() bool { return b.n == 0 && !b.told }

// empty removes the records. It does not clear their pointers, so the few rules that they refer to
// stay in memory until the records are overwritten.
func (b *buffer) empty() {
	b.n, b.denied, b.used = 0, 0, 0
	if b.told {
		b.requests, b.told = [maxDoors]counts{}, false
	}
}

// stripe has a buffer to which usually only one processor writes.
type stripe struct {
	mu     sync.Mutex // locked before the recorder's mu
	buffer *buffer
	_      [64]byte // padding, so that no two stripes share a cache line
}

// Decided records the decisions on the checks of one request to take units, as [headgate.Store]
// returns them. version is the version of the policy that made the checks, or zero. Decided keeps
// neither slice. It does not block, except while a buffer is counted.
func (d *Door) Decided(version int64, checks []headgate.Check, decisions []headgate.Decision) {
	if len(decisions) == 0 {
		return
	}
	admitted, shadow := true, false
	for i := range decisions {
		if o := &decisions[i]; !o.Allowed {
			if o.Shadow {
				shadow = true
			} else {
				admitted = false
			}
		}
	}
	r := d.r
	s := r.lent.Get().(*stripe)
	s.mu.Lock()
	q := &s.buffer.requests[d.id]
	s.buffer.told = true
	if admitted {
		q.allowed++
	} else {
		q.denied++
	}
	if shadow {
		q.shadow++
	}
	for i := 0; i < len(decisions); {
		// The decisions of one check are adjacent.
		check := decisions[i].Check
		tightest := i
		for i++; i < len(decisions) && decisions[i].Check == check; i++ {
			if outranks(&decisions[i], &decisions[tightest]) {
				tightest = i
			}
		}
		if uint(check) >= uint(len(checks)) {
			continue
		}
		if !s.buffer.fits(len(checks[check].Key)) {
			s.change(r)
		}
		s.buffer.write(d.id, version, &checks[check], &decisions[tightest], admitted)
	}
	s.mu.Unlock()
	r.lent.Put(s)
}

// outranks reports whether the decision d describes a check better than o. A denial outranks an
// admission. Of two denials, the one with the longer RetryAfter wins; of two admissions, the one
// with the smaller part of its limit left.
func outranks(d, o *headgate.Decision) bool {
	switch {
	case d.Allowed != o.Allowed:
		return !d.Allowed
	case !d.Allowed:
		return o.RetryAfter != headgate.Never && (d.RetryAfter == headgate.Never || d.RetryAfter > o.RetryAfter)
	case d.Limit.Algorithm == headgate.Penalty:
		return false
	case o.Limit.Algorithm == headgate.Penalty:
		return true
	}
	// Neither product is larger than 10^18.
	return d.Remaining*o.Limit.Capacity() < o.Remaining*d.Limit.Capacity()
}

// fits reports whether there is room for a record with a key of that length.
func (b *buffer) fits(key int) bool {
	return b.n < bufferRecords && b.denied < bufferDenials && b.used+min(key, headgate.MaxKey) <= bufferKeys
}

// change replaces the full buffer by a free one, and hands it to the recorder's goroutine. If no
// buffer is free, it counts the records itself.
func (s *stripe) change(r *Recorder) {
	select {
	case b := <-r.free:
		// This never blocks: the channel has room for all buffers that are not in a stripe.
		r.full <- s.buffer
		s.buffer = b
		select {
		case r.wake <- struct{}{}:
		default:
		}
	default:
		r.count(s.buffer)
	}
}

func (b *buffer) write(door uint8, version int64, check *headgate.Check, d *headgate.Decision, admitted bool) {
	to := &b.records[b.n]
	to.rule, to.limit = d.Rule, d.Limit
	to.cost, to.remaining = check.Units(), d.Remaining
	to.from = uint16(b.used)
	// A store refuses longer keys.
	b.used += copy(b.keys[b.used:], check.Key[:min(len(check.Key), headgate.MaxKey)])
	to.to = uint16(b.used)
	to.door, to.source = door, d.Source
	switch {
	case !d.Allowed:
		to.outcome = wasDenied
		if d.Shadow {
			to.outcome = wasShadow
		}
		b.denials[b.denied] = denial{int64(d.RetryAfter), int64(d.At), version}
		b.denied++
	case admitted:
		to.outcome = wasAllowed
	default:
		to.outcome = wasUncharged
	}
	b.n++
}
