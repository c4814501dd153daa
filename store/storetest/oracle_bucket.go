package storetest

import (
	"math/big"
	"slices"

	"github.com/headgate/headgate"
)

// obviousBucket is one tank that everything goes into that any list of limits admits, and one
// more for each list that is not the fastest. The first drains as the fastest list does that has
// asked since it was empty; the others as their own lists do.
type obviousBucket struct {
	period int64
	all    *tank   // nil if nothing is in use
	slower []*tank // in the order of counts
	// since is when the tank of all was empty last while others were not.
	since int64
}

// tank says that exactly used units were in use at an instant.
type tank struct {
	count int64 // in a period
	used  int64
	at    *big.Rat
	// joint tanks are those of several lists, because there were too many: of each list
	// with at least this count that has none of its own.
	joint bool
}

// mostTanks is how many slower lists have tanks of their own.
const mostTanks = 4

func whole(micros int64) *big.Rat { return big.NewRat(micros, 1) }

// unit is how long one unit takes.
func (s *obviousBucket) unit(t *tank) *big.Rat { return big.NewRat(s.period, t.count) }

// level is how many units are in use at now, counting one that is partly refilled as a
// whole one, and when the last whole one was refilled.
func (s *obviousBucket) level(t *tank, now int64) (int64, *big.Rat) {
	if t == nil {
		return 0, whole(now)
	}
	turns := new(big.Rat).Quo(new(big.Rat).Sub(whole(now), t.at), s.unit(t))
	gone := new(big.Int).Quo(turns.Num(), turns.Denom())
	if gone.Cmp(big.NewInt(t.used)) >= 0 {
		return 0, whole(now)
	}
	back := new(big.Rat).Mul(s.unit(t), new(big.Rat).SetInt(gone))
	return t.used - gone.Int64(), back.Add(back, t.at)
}

// keep writes down how all tanks stand at now. What is written of tanks that are joint, or of
// counts that leave no room for it, has no fractions of a microsecond.
func (s *obviousBucket) keep(now int64) {
	keep := func(t *tank) *tank {
		used, at := s.level(t, now)
		if used == 0 {
			return nil
		}
		return &tank{t.count, used, at, t.joint}
	}
	s.all = keep(s.all)
	var slower []*tank
	for _, t := range s.slower {
		k := keep(t)
		if k == nil {
			continue
		}
		if num := new(big.Rat).Inv(s.unit(k)).Num(); k.joint || k.count > 46_340 && num.Cmp(big.NewInt(1)) > 0 {
			up := new(big.Int).Add(k.at.Num(), new(big.Int).Sub(k.at.Denom(), big.NewInt(1)))
			k.at = new(big.Rat).SetInt(up.Quo(up, k.at.Denom()))
		}
		slower = append(slower, k)
	}
	if s.slower = slower; len(slower) == 0 {
		s.since = 0
	}
}

// own is the tank of a list, if it has one, or the joint one that it is in.
func (s *obviousBucket) own(l *headgate.Limit, now int64) *tank {
	var found *tank
	for _, t := range s.slower {
		if used, _ := s.level(t, now); used > 0 && (t.count == l.Count || t.joint && t.count < l.Count) {
			found = t
		}
	}
	return found
}

// add adds a tank of a list that has none. If there are too many, the two fastest become one,
// which drains as the slower one does, and has as much in use as the fuller one.
func (s *obviousBucket) add(t *tank, now int64) {
	s.slower = append(s.slower, t)
	slices.SortFunc(s.slower, func(a, b *tank) int { return int(a.count - b.count) })
	if n := len(s.slower); n > mostTanks {
		into, from := s.slower[n-2], s.slower[n-1]
		s.slower = s.slower[:n-1]
		into.joint = true
		s.pour(into, from, now)
	}
}

// pour sees to it that a tank has as much in use as another one.
func (s *obviousBucket) pour(into, from *tank, now int64) {
	has, _ := s.level(into, now)
	if used, _ := s.level(from, now); used >= has {
		into.used, into.at = used, whole(now)
	}
}

// follow: units charged in the future count as charged now. And who asks may be a list that
// has not asked before.
func (s *obviousBucket) follow(l *headgate.Limit, now int64) {
	s.period = l.Period.Microseconds()
	changed := false
	for _, t := range append([]*tank{s.all}, s.slower...) {
		if t != nil && t.at.Cmp(whole(now)) > 0 {
			t.at, changed = whole(now), true
		}
	}
	if used, at := s.level(s.all, now); used > 0 {
		switch {
		case l.Count < s.all.count && s.own(l, now) == nil:
			s.keep(now)
			s.add(&tank{count: l.Count, used: used, at: whole(now)}, now)
			changed = true
		case l.Count > s.all.count:
			s.keep(now)
			was := &tank{count: s.all.count, used: used, at: at}
			if before := s.own(&headgate.Limit{Count: was.count}, now); before == nil {
				s.add(was, now)
			} else {
				s.pour(before, was, now)
			}
			s.all = &tank{count: l.Count, used: used, at: whole(now)}
			changed = true
		}
	}
	if changed {
		s.keep(now)
	}
}

// each calls f with the tanks that count for a list.
func (s *obviousBucket) each(l *headgate.Limit, now int64, f func(t *tank)) {
	own := s.own(l, now)
	if s.all != nil {
		f(s.all)
	}
	if own != nil {
		f(own)
	}
}

func (s *obviousBucket) free(l *headgate.Limit, now int64) int64 {
	most := int64(0)
	s.each(l, now, func(t *tank) {
		used, _ := s.level(t, now)
		most = max(most, used)
	})
	return l.Capacity() - most
}

func (s *obviousBucket) charge(l *headgate.Limit, now, cost int64) {
	s.keep(now)
	if s.all == nil {
		s.all, s.since = &tank{count: l.Count, at: whole(now)}, 0
		if len(s.slower) > 0 {
			s.since = now
		}
	}
	s.each(l, now, func(t *tank) { t.used += min(cost, max(0, headgate.MaxCount-t.used)) })
}

func (s *obviousBucket) refund(l *headgate.Limit, now, cost, then, inUse int64) {
	s.keep(now)
	if s.own(l, now) != nil {
		inUse = cost // so that no more comes back than what is certain to be in use
	} else if inUse == 0 {
		inUse = max(cost, l.Capacity())
	}
	s.each(l, now, func(t *tank) {
		if t == s.all && then != 0 && then < s.since {
			return // drained before the tank began to fill again
		}
		s.giveBack(t, now, cost, then, inUse)
	})
	s.keep(now)
	s.follow(l, now)
}

// giveBack: the units that were in use after the charge have been refilled in turn,
// and what is refilled is not given back, nor the part of a unit that is. Less is
// in use then, but at a later instant.
func (s *obviousBucket) giveBack(t *tank, now, cost, then, inUse int64) {
	used, at := s.level(t, now)
	if then != 0 && now > then {
		unit := s.unit(t)
		gone := new(big.Rat).Quo(big.NewRat(now-then, 1), unit)
		gone.Sub(gone, whole(inUse-cost))
		if gone.Cmp(whole(cost)) >= 0 {
			return
		}
		if gone.Sign() > 0 {
			at.Add(at, gone.Mul(gone, unit))
		}
		// The instant must not lie ahead.
		if turns := new(big.Rat).Quo(new(big.Rat).Sub(at, whole(now)), unit); turns.Sign() > 0 {
			up := new(big.Int).Add(turns.Num(), new(big.Int).Sub(turns.Denom(), big.NewInt(1)))
			up.Quo(up, turns.Denom())
			at.Sub(at, unit.Mul(unit, new(big.Rat).SetInt(up)))
			cost -= up.Int64()
		}
	}
	t.used, t.at = max(0, used-cost), at
}

func (s *obviousBucket) busy(l *headgate.Limit, now int64) int64 {
	longest := int64(0)
	s.each(l, now, func(t *tank) {
		used, at := s.level(t, now)
		if used == 0 {
			return
		}
		full := s.unit(t)
		full.Mul(full, whole(used))
		full.Add(full, at)
		full.Sub(full, whole(now))
		up := new(big.Int).Add(full.Num(), new(big.Int).Sub(full.Denom(), big.NewInt(1)))
		longest = max(longest, up.Quo(up, full.Denom()).Int64())
	})
	return longest
}
