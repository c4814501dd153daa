package memory

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// change carries out an operation that does not ask whether units fit.
func (s *Store) change(op headgate.Op, checks []headgate.Check, dst []headgate.Decision) []headgate.Decision {
	sign := int64(1)
	if op == headgate.OpRefund {
		sign = -1
	}
	return s.settleAll(op, checks, func(i int) settlement { return settlement{units: sign * checks[i].Units()} }, nil, dst)
}

// settle charges or refunds the difference between the units that the checks of a reservation were
// charged and the given units.
func (s *Store) settle(r *headgate.Reservation, units []int64, dst []headgate.Decision) []headgate.Decision {
	return s.settleAll(headgate.OpCharge, r.Checks, func(i int) settlement { return settlement{units: units[i] - r.Checks[i].Units()} }, r.Used, dst)
}

// Charge charges each limit of the checks separately, whether the cost fits or not. It is for a
// store that records what another store has admitted. No bucket is charged beyond its capacity,
// because a bucket would have to refill the surplus, while a window forgets it. The checks must be
// valid. Checks in shadow are charged like all others. Charge allocates only when tables or logs
// grow.
//
// It has a loop of its own, without decisions, because a decision that another store has admitted
// waits for it: settleAll would take a third longer.
func (s *Store) Charge(checks []headgate.Check) {
	s.catchUp()
	for i := range checks {
		var hashes [1]uint64
		var order [1]uint8
		r := locked{hashes: hashes[:], order: order[:]}
		s.lock(checks[i:i+1], &r)
		s.hold(checks[i:i+1], &r)
		c, sh := &checks[i], s.shardOf(r.hashes[0])
		by := settlement{units: c.Units(), first: true, bounded: true}
		for j := range c.Rule.Limits() {
			l := &c.Rule.Limits()[j]
			var d headgate.Decision
			sh.settle(s.loaded(l, c, r.hashes[0], r.now), c, by, r.now, &d)
			by.first = by.first && l.Algorithm != headgate.SlidingWindow
		}
		s.unlock(&r)
	}
}

// settleAll resets the counters of the checks if that is the operation. Otherwise it settles each check
// as by says, and describes its limits. used has the units that were in use right after the charge, for
// each limit; it is nil if they are not known.
func (s *Store) settleAll(op headgate.Op, checks []headgate.Check, by func(i int) settlement, used []int64, dst []headgate.Decision) []headgate.Decision {
	var hashes [headgate.MaxChecks]uint64
	var order [headgate.MaxChecks]uint8
	r := locked{hashes: hashes[:], order: order[:]}
	s.lock(checks, &r)
	s.hold(checks, &r)
	defer s.unlock(&r)
	for i := range checks {
		c, sh := &checks[i], s.shardOf(r.hashes[i])
		if op == headgate.OpReset {
			sh.reset(c.Rule, r.hashes[i])
			continue
		}
		to := by(i)
		to.first = true
		for j := range c.Rule.Limits() {
			if used != nil {
				to.used, used = used[0], used[1:]
			}
			l := &c.Rule.Limits()[j]
			dst = append(dst, headgate.Decision{Rule: c.Rule, Check: i, Shadow: c.Shadow})
			d := &dst[len(dst)-1]
			sh.settle(s.loaded(l, c, r.hashes[i], r.now), c, to, r.now, d)
			d.At = sh.wall.shown(r.now)
			d.Allowed, d.RetryAfter, d.Delay = true, 0, 0
			to.first = to.first && l.Algorithm != headgate.SlidingWindow
		}
	}
	return dst
}

// hold makes sure that nobody without the lock changes the counters of the checks, and sets the time
// again if somebody may have changed them since the clock was read.
func (s *Store) hold(checks []headgate.Check, l *locked) {
	opened := false
	for i := range checks {
		sh, limits := s.shardOf(l.hashes[i]), checks[i].Rule.Limits()
		for j := range limits {
			opened = sh.table.find(counterOf(l.hashes[i], slotOf(&limits[j]))).shut() || opened
		}
	}
	if opened {
		s.setTime(l, s.read())
	}
}

// loaded finds and reads the counter of a limit.
func (s *Store) loaded(l *headgate.Limit, c *headgate.Check, hash uint64, now headgate.Instant) step {
	sh := s.shardOf(hash)
	sh.reserve(algorithm.BucketSlots, now)
	st := step{drawn: drawn{limit: l, kind: s.kindOf(l)}}
	st.place, st.shared = sh.place(c.Rule, hash, slotOf(l), now)
	if l.Algorithm == headgate.SlidingWindow {
		st.entry = sh.table.find(st.place)
		sh.followClock(st.entry, now)
	} else {
		sh.load(&st, now)
	}
	return st
}

// settlement is what settle does to one limit of a check.
type settlement struct {
	units   int64 // to charge, or to refund if they are negative
	used    int64 // how many were in use right after the charge, or 0
	first   bool  // the limit is the rule's first sliding window, if it is one; that one charges the log
	bounded bool  // a bucket is charged no more than it holds
}

// settle charges or refunds one limit of a check, and describes it. A key must not give back what
// other keys have used of a counter that they share, and must not overdraw it.
func (sh *shard) settle(st step, c *headgate.Check, by settlement, now headgate.Instant, d *headgate.Decision) {
	l, units := st.limit, by.units
	if l.Algorithm == headgate.SlidingWindow {
		g := sh.log(st.entry)
		if by.first && units != 0 && (!st.shared || units > 0 && sh.fitsLog(g, l, units, now)) {
			if st.shared {
				sh.share(st.place)
			}
			sh.settleLog(&st, c, units, now)
			g = sh.log(st.entry)
		}
		var facts algorithm.WindowFacts
		if g != nil {
			facts = g.Facts(l, now, 0)
		}
		facts.Describe(d, l, now, 0, false)
		return
	}
	at, after := sh.wall.on(l, now), st.state
	if st.shared {
		units = max(0, units)
	}
	if units > 0 && (st.shared || by.bounded && l.Algorithm <= headgate.LeakyBucket) {
		units = max(0, min(units, l.Capacity()-st.state.Used(l)))
	}
	if units != 0 {
		if st.shared {
			sh.share(st.place)
		}
		charged := c.At
		if !onCalendar(l) {
			charged = sh.wall.read(charged)
		}
		after = st.state.Settle(l, at, units, charged, by.used)
	}
	after.Describe(d, l, st.state, at, 0, true)
	d.At = now
	if expires := after.Expires(d); units != 0 {
		sh.put(&st, after, until(expires), false)
	} else {
		sh.keep(&st, expires)
	}
}

// reset forgets what a key has used.
func (sh *shard) reset(rule *headgate.Rule, hash uint64) {
	for i := range rule.Limits() {
		place := counterOf(hash, slotOf(&rule.Limits()[i]))
		e := sh.table.find(place)
		switch {
		case e.hash == 0:
			continue
		case e.asWord():
			e.hold()
		case e.isLog():
			sh.freeLog(e)
		}
		sh.clearFurther(e, place)
		e.set(algorithm.State{}, 0)
	}
}
