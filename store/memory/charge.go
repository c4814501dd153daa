package memory

import (
	"github.com/headgate/headgate"
)

// Charge charges each limit of the checks separately, whether the cost fits or not. It is for a
// store that records what another store has admitted. No bucket is charged beyond its capacity,
// because a bucket would have to refill the surplus, while a window forgets it. The checks must be
// valid. Checks in shadow are charged like all others. Charge allocates only when tables or logs
// grow.
func (s *Store) Charge(checks []headgate.Check) {
	s.catchUp()
	for i := range checks {
		c := &checks[i]
		hash := s.hash(c.Rule, c.Key)
		now := s.read()
		sh := s.shardOf(hash)
		sh.mu.Lock()
		sh.chargeAll(c, hash, s.timeIn(now, sh))
		sh.mu.Unlock()
	}
}

// chargeAll is Charge for one check.
func (sh *shard) chargeAll(c *headgate.Check, hash uint64, now headgate.Instant) {
	limits := c.Rule.Limits()
	reserved := len(limits)
	sh.reserve(reserved, now)
	logged := false
	for i := range limits {
		l := &limits[i]
		if l.Algorithm == headgate.SlidingWindow {
			sh.chargeLog(l, c, hash, now, !logged)
			logged = true
			continue
		}
		st := step{limit: l}
		st.hash, st.shared = sh.place(c.Rule, hash, l.Slot(), now)
		reserved += sh.load(&st, reserved, now)
		cost := c.Units()
		if l.Algorithm == headgate.TokenBucket || l.Algorithm == headgate.LeakyBucket || st.shared {
			// No key may overdraw a counter that several keys share.
			cost = min(cost, l.Capacity()-st.state.Used(l))
		}
		if cost <= 0 {
			continue
		}
		if st.shared {
			sh.charging(&st, now)
		}
		at := sh.onTime(l, now)
		after := st.state.Charge(l, at, cost)
		var d headgate.Decision
		after.Describe(&d, l, st.state, at, 0, true)
		d.At = now
		sh.put(&st, after, until(after.Expires(&d)))
	}
}

// chargeLog charges the log of a rule. It does nothing if the window is not the rule's first.
func (sh *shard) chargeLog(l *headgate.Limit, c *headgate.Check, hash uint64, now headgate.Instant, first bool) {
	if !first {
		return
	}
	place, shared := sh.placeLog(c.Rule, hash, now)
	e := sh.table.find(place)
	sh.followClock(e, now)
	if shared {
		if !sh.fitsLog(e, l, c.Units(), now) {
			return
		}
		sh.charging(&step{hash: place, limit: l}, now)
	}
	sh.insert(e, place)
	sh.addToLog(e, c, c.Units(), now)
}
