package memory

import (
	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// glance is what a decision knows about a counter between looking at it and charging it. The
// counter is one entry, for which [algorithm.Plain] is true.
type glance struct {
	hash  uint64
	state algorithm.State // advanced to now
	moved bool            // the state must be stored although nothing is charged
	fits  bool
}

// look looks at the counter with the given hash. It returns false if only load can read the
// counter. The counter must not be a log.
func (sh *shard) look(g *glance, hash uint64, l *headgate.Limit, cost int64, now headgate.Instant) (plain bool) {
	e := sh.table.find(hash)
	sh.hold(e, l, now)
	stored, plain := algorithm.Plain(l, e.state())
	if !plain {
		return false
	}
	at := sh.onTime(l, now)
	g.hash, g.state = hash, algorithm.Advance(l, stored, at)
	g.moved = algorithm.Moved(stored, g.state, at)
	g.fits = algorithm.Fits(l, g.state, at, cost)
	return true
}

// finish charges the counter if charge is true, and describes it in d. open says that a charged
// counter becomes an open entry, if it can be one.
func (sh *shard) finish(g *glance, l *headgate.Limit, cost int64, charge, open bool, now headgate.Instant, d *headgate.Decision) {
	at, after := sh.onTime(l, now), g.state
	if charge {
		after = algorithm.Charge(l, after, at, cost)
	}
	algorithm.Describe(d, l, g.state, after, at, cost, g.fits)
	d.At = sh.wall.shown(now)
	expires := now + headgate.Instant(d.ResetAfter.Microseconds())
	e := sh.table.find(g.hash)
	if charge {
		sh.insert(e, g.hash)
		if !open || !sh.open(e, l, after) {
			e.set(algorithm.Mark(l, after), until(expires))
		}
		return
	}
	if g.moved {
		e.set(algorithm.Mark(l, after), e.until)
	}
	sh.keep(e, expires)
}

// takeOne is take for one check with one limit that is not a sliding window. own is the hash of the
// key's own counter, if it has one. If the counter is a bucket that lists of different rates share,
// takeOne does nothing and returns false.
func (sh *shard) takeOne(c *headgate.Check, l *headgate.Limit, hash, own uint64, now headgate.Instant, d *headgate.Decision) bool {
	sh.reserve(1, now)
	shared := false
	if sh.sharing && sh.table.find(own).hash == 0 {
		own, shared = sh.placeNew(c.Rule, hash, l.Slot(), own, sh.full, now)
	}
	var g glance
	cost := c.Units()
	if !sh.look(&g, own, l, cost, now) {
		return false
	}
	d.Rule, d.Shadow = c.Rule, c.Shadow
	if shared && g.fits {
		sh.share(own)
	}
	sh.finish(&g, l, cost, g.fits, !shared, now, d)
	return true
}

// isPlain reports whether takePlain can decide by the limits of a rule.
func isPlain(rule *headgate.Rule) bool {
	limits := rule.Limits()
	for i := range limits {
		if a := limits[i].Algorithm; a == headgate.SlidingWindow || a == headgate.Penalty {
			return false
		}
	}
	return true
}

// takePlain is take for requests to take units, as most are: no limit is a sliding window or a
// penalty, each counter is one entry, and no memory is short. It charges nothing and returns false
// if the request is another one, or if it must be decided by a later reading of the clock.
func (s *Store) takePlain(checks []headgate.Check, hashes []uint64, now headgate.Instant, dst []headgate.Decision) ([]headgate.Decision, bool) {
	all := 0
	for i := range checks {
		all += len(checks[i].Rule.Limits())
		if !isPlain(checks[i].Rule) || all > inline {
			return dst, false
		}
		sh := s.shardOf(hashes[i])
		if sh.reserve(countersIn(sh, s, checks, hashes), now); sh.sharing {
			return dst, false
		}
	}
	var glances [inline]glance
	n, denied := 0, uint64(0) // a bit for each check that a limit denies
	admitted := true
	for i := range checks {
		c := &checks[i]
		sh := s.shardOf(hashes[i])
		limits := c.Rule.Limits()
		for j := range limits {
			l := &limits[j]
			g := &glances[n]
			if !sh.look(g, counterOf(hashes[i], l.Slot()), l, c.Units(), now) {
				return dst, false
			}
			if !g.fits {
				denied |= 1 << i
				admitted = admitted && c.Shadow
			}
			n++
		}
	}
	if denied != 0 && s.outrun(hashes) {
		return dst, false
	}
	n = 0
	for i := range checks {
		c := &checks[i]
		sh := s.shardOf(hashes[i])
		charge := admitted && denied&(1<<i) == 0
		limits := c.Rule.Limits()
		for j := range limits {
			dst = append(dst, headgate.Decision{Rule: c.Rule, Check: i, Shadow: c.Shadow})
			sh.finish(&glances[n], &limits[j], c.Units(), charge, false, now, &dst[len(dst)-1])
			n++
		}
	}
	return dst, true
}
