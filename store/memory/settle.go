package memory

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// charge charges or refunds the difference between the units that the checks of a reservation were
// charged and the given units.
func (s *Store) charge(n *note, units []int64, dst []headgate.Decision) []headgate.Decision {
	checks := n.reservation.Checks
	var l locked
	s.lock(checks, &l)
	defer s.unlock(&l)
	used := n.reservation.Used
	for i := range checks {
		c := &checks[i]
		sh := s.shardOf(l.hashes[i])
		sh.reserve(countersIn(sh, s, checks, l.hashes[:len(checks)]), l.now)
		limits := len(c.Rule.Limits())
		dst = sh.settleAll(c, i, l.hashes[i], units[i]-c.Units(), used[:limits], l.now, dst)
		used = used[limits:]
	}
	return dst
}

// settleAll charges units to all limits of a check, or refunds them if they are negative. place is
// the check's index in the request. used has the units that were in use right after the charge, for
// each limit; it is nil if they are not known.
func (sh *shard) settleAll(c *headgate.Check, place int, hash uint64, units int64, used []int64, now headgate.Instant, dst []headgate.Decision) []headgate.Decision {
	limits := c.Rule.Limits()
	logged := false
	for j := range limits {
		known := int64(0)
		if used != nil {
			known = used[j]
		}
		dst = append(dst, headgate.Decision{Rule: c.Rule, Check: place, Shadow: c.Shadow})
		sh.settle(&limits[j], c, hash, units, known, now, !logged, &dst[len(dst)-1])
		logged = logged || limits[j].Algorithm == headgate.SlidingWindow
	}
	return dst
}

// settle charges or refunds one limit of a check, and describes it. first says that the limit is
// the rule's first sliding window, which charges the log.
func (sh *shard) settle(l *headgate.Limit, c *headgate.Check, hash uint64, units, used int64, now headgate.Instant, first bool, d *headgate.Decision) {
	if l.Algorithm == headgate.SlidingWindow {
		place, shared := sh.placeLog(c.Rule, hash, now)
		e := sh.table.find(place)
		sh.followClock(e, now)
		if first && units != 0 && (!shared || units > 0 && sh.fitsLog(e, l, units, now)) {
			if shared {
				sh.charging(&step{hash: place, limit: l}, now)
			}
			sh.settleLog(e, place, c, units, now)
		}
		var facts algorithm.WindowFacts
		if g := sh.log(e); g != nil {
			facts = g.Facts(l, now, 0)
		}
		facts.Describe(d, l, now, 0, false)
		d.At = sh.wall.shown(now)
		d.Allowed, d.RetryAfter = true, 0
		return
	}
	st := step{limit: l}
	st.hash, st.shared = sh.place(c.Rule, hash, l.Slot(), now)
	sh.load(&st, len(c.Rule.Limits()), now)
	after := st.state
	at := sh.onTime(l, now)
	if st.shared {
		// A key must not give back what other keys have used, and must not overdraw the counter.
		units = max(0, min(units, l.Capacity()-st.state.Used(l)))
	}
	changes := units != 0
	if changes && st.shared {
		sh.charging(&st, now)
	}
	if changes {
		after = st.state.Settle(l, at, units, sh.told(l, c.At), used)
	}
	after.Describe(d, l, st.state, at, 0, true)
	d.At = now
	d.Allowed, d.RetryAfter, d.Delay = true, 0, 0
	if changes {
		sh.put(&st, after, until(after.Expires(d)))
	}
	d.At = sh.wall.shown(now)
}
