package insight

import (
	"sync"

	"github.com/headgate/headgate"
)

// outcome is what became of a check.
type outcome uint8

const (
	wasAllowed   outcome = iota // charged
	wasDenied                   // one of its limits denied the request
	wasShadow                   // one of its limits would have, if it were enforced
	wasUncharged                // another check denied the request
)

// record is one check and what became of it. It is small, because a buffer of them passes
// through the processor's caches.
type record struct {
	rule  *headgate.Rule
	limit *headgate.Limit // that decided
	cost  int64
	// remaining is what the limit had left; of a denial, before and after.
	remaining int64
	from, to  uint16 // of its key
	outcome   outcome
	door      uint8
	source    headgate.Source
}

// denial is what is known besides of a check that was denied.
type denial struct{ retryAfter, at, version int64 }

// The room of a buffer. The figures of a rule move from one processor's cache to another's when
// another one counts a buffer, so a buffer holds many records.
const (
	bufferRecords = 1024
	bufferDenials = 256
	bufferKeys    = 16 << 10 // bytes, which places in a record can count
)

// buffer holds records until they are counted.
type buffer struct {
	n, denied, used int
	told            bool // of requests
	requests        [maxDoors]counts
	records         [bufferRecords]record
	denials         [bufferDenials]denial // of the records that are denials, in their order
	keys            [bufferKeys]byte
}

func (b *buffer) idle() bool { return b.n == 0 && !b.told }

// empty forgets the records. The rules that they name stay alive until the places are
// used again, which are few.
func (b *buffer) empty() {
	b.n, b.denied, b.used = 0, 0, 0
	if b.told {
		b.requests, b.told = [maxDoors]counts{}, false
	}
}

// stripe is a buffer that usually one processor alone writes to.
type stripe struct {
	mu     sync.Mutex // taken before the recorder's
	buffer *buffer
	_      [64]byte // no two of them share a cache line
}

// Decided records the decisions on the checks of one request to take units, as
// [headgate.Store] returns them, which were made by this version of the policy. It keeps
// neither slice, and does not wait for anything but a buffer to be counted.
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
		// The decisions of a check follow one another.
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

// outranks says which of the limits of one check has more to say: one that denies, for
// longer; or the one of which the smaller part is left.
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

// fits reports whether there is room for a record whose key has so many bytes.
func (b *buffer) fits(key int) bool {
	return b.n < bufferRecords && b.denied < bufferDenials && b.used+min(key, headgate.MaxKey) <= bufferKeys
}

// change hands the buffer over for another one, or has its records counted at once.
func (s *stripe) change(r *Recorder) {
	select {
	case b := <-r.free:
		// There are as many places in the channel as there are buffers beside the stripes'.
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
	// A longer key is none that a store takes.
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
