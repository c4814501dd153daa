package redis

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
)

// suspects are counters that will probably deny for a while, because they have denied, or have less
// left than the last request took. A request over several slots charges only these counters at
// first, and peeks at the others. So a client that is denied again and again does not hold units of
// others meanwhile. A wrong suspicion costs a round trip.
//
// The table is indexed by a hash of the counter's name. A new suspect replaces an older one in the
// same place.
type suspects struct {
	seed  maphash.Seed
	table [1 << 12]suspect
}

type suspect struct {
	counter atomic.Uint64
	until   atomic.Int64 // ns since the Unix epoch, on our clock
}

// suspectFor bounds a suspicion, because a refund, a reset or a changed limit can end its reason at
// any time.
const suspectFor = time.Second

func (t *suspects) find(c *headgate.Check) (*suspect, uint64) {
	h := maphash.String(t.seed, c.Key) ^ c.Rule.ID()
	return &t.table[h%uint64(len(t.table))], h
}

// among reports whether one of the checks will probably deny.
func (t *suspects) among(checks []headgate.Check) bool {
	now := int64(0)
	for i := range checks {
		c := &checks[i]
		if c.Shadow {
			continue
		}
		one, h := t.find(c)
		if one.counter.Load() != h {
			continue
		}
		if now == 0 {
			now = time.Now().UnixNano()
		}
		if now < one.until.Load() {
			return true
		}
	}
	return false
}

// note updates the suspicions from the decisions about the checks.
func (t *suspects) note(checks []headgate.Check, decisions []headgate.Decision) {
	for i := range checks {
		c := &checks[i]
		n := len(c.Rule.Limits())
		own := decisions[:n]
		decisions = decisions[n:]
		if c.Shadow {
			continue
		}
		wait := time.Duration(0)
		for j := range own {
			switch o := &own[j]; {
			case !o.Allowed && o.RetryAfter == headgate.Never:
				wait = suspectFor
			case !o.Allowed:
				wait = max(wait, o.RetryAfter)
			case o.Remaining < c.Units() && o.Limit.Algorithm != headgate.Penalty:
				wait = max(wait, o.ResetAfter)
			}
		}
		one, h := t.find(c)
		switch {
		case wait > 0:
			one.until.Store(time.Now().Add(min(wait, suspectFor)).UnixNano())
			one.counter.Store(h)
		case one.counter.Load() == h:
			one.counter.Store(0)
		}
	}
}
