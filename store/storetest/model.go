package storetest

import (
	"context"
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// Model is a [headgate.Store] that is as slow and obvious as can be: buckets in exact fractions,
// windows as lists of every unit's time, waiting times found by search. It shares nothing with
// package algorithm but the calendar, which that package's own tests compare with dates one by one.
// So it can be held against every store. It is safe for concurrent use and forgets nothing.
type Model struct {
	book     // its lock guards counters
	clock    func() int64
	counters map[counter]limitModel
}

// counter identifies what is counted: the limit's slot, or 0 for the log of a rule.
type counter struct {
	rule, key string
	slot      uint64
}

// limitModel is the counter of one limit. Costs and times are in units and µs.
type limitModel interface {
	// free is how many units the limit admits at now: negative if more are in
	// use than it allows.
	free(l *headgate.Limit, now int64) int64
	charge(l *headgate.Limit, now, cost int64)
	// refund takes units back that were charged at a time, or the newest if that is
	// 0. After the charge so many were in use; 0 if that is not known.
	refund(l *headgate.Limit, now, cost, at, used int64)
	// follow takes the counter back with a clock that has stepped back.
	follow(l *headgate.Limit, now int64)
	// busy is how long units are still in use at now if nothing else comes.
	busy(l *headgate.Limit, now int64) int64
}

// NewModel returns an empty model that decides by clock, in microseconds since
// the Unix epoch.
func NewModel(clock func() int64) *Model {
	m := &Model{book: newBook(clock), clock: clock, counters: map[counter]limitModel{}}
	m.book.take, m.book.settle = m.take, m.change
	return m
}

// Take implements [headgate.Store].
func (m *Model) Take(_ context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := store.Validate(op, checks); err != nil {
		return dst, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.catchUp()
	return m.take(op, checks, dst), nil
}

// take is Take with the lock held.
func (m *Model) take(op headgate.Op, checks []headgate.Check, dst []headgate.Decision) []headgate.Decision {
	now := m.clock()
	admitted := true
	fits := make([]bool, len(checks))
	denied := make([]bool, len(checks)) // by a limit that is no penalty
	for i := range checks {
		c := &checks[i]
		fits[i] = true
		m.look(c, now, op == headgate.OpReset)
		for j := range c.Rule.Limits() {
			l := &c.Rule.Limits()[j]
			if m.counter(c, l).free(l, now) < c.Units() {
				fits[i] = false
				denied[i] = denied[i] || l.Algorithm != headgate.Penalty
			}
		}
		admitted = admitted && (fits[i] || c.Shadow)
	}
	if op == headgate.OpReset {
		return dst
	}
	for i := range checks {
		dst = m.carryOut(op, &checks[i], i, admitted && fits[i], denied[i], now, dst)
	}
	return dst
}

// look makes the counters of a check, or all of them anew, and has them follow the
// clock.
func (m *Model) look(c *headgate.Check, now int64, anew bool) {
	for j := range c.Rule.Limits() {
		l := &c.Rule.Limits()[j]
		id := counter{c.Rule.Name(), c.Key, l.Slot()}
		if l.Algorithm == headgate.SlidingWindow {
			id.slot = 0
		}
		if m.counters[id] == nil || anew {
			m.counters[id] = newLimitModel(l)
		}
		if log, ok := m.counters[id].(*logModel); ok {
			log.list = c.Rule.Limits()
		}
		m.counters[id].follow(l, now)
	}
}

// change charges and gives back what a settlement says.
func (m *Model) change(checks []headgate.Check, units [][]int64, dst []headgate.Decision) []headgate.Decision {
	now := m.clock()
	for i := range checks {
		c := &checks[i]
		m.look(c, now, false)
		logged := false
		for j := range c.Rule.Limits() {
			l := &c.Rule.Limits()[j]
			if l.Algorithm == headgate.SlidingWindow {
				if logged {
					continue
				}
				logged = true
			}
			switch more := units[i][0]; {
			case more < 0:
				m.counter(c, l).refund(l, now, -more, int64(c.At), units[i][1+j])
			case more > 0:
				m.counter(c, l).charge(l, now, more)
			}
		}
		for j := range c.Rule.Limits() {
			l := &c.Rule.Limits()[j]
			dst = append(dst, headgate.Decision{
				Rule: c.Rule, Limit: l, Check: i, Shadow: c.Shadow, At: headgate.Instant(now), Allowed: true,
				Remaining: m.remaining(c, l, now), ResetAfter: tell(m.counter(c, l).busy(l, now)),
			})
		}
	}
	return dst
}

func (m *Model) remaining(c *headgate.Check, l *headgate.Limit, now int64) int64 {
	if p, ok := m.counter(c, l).(*penaltyModel); ok {
		return p.left(l, now)
	}
	return max(0, m.counter(c, l).free(l, now))
}

func (m *Model) carryOut(op headgate.Op, c *headgate.Check, place int, admitted, denied bool, now int64, dst []headgate.Decision) []headgate.Decision {
	first := len(dst)
	cost := c.Units()
	logged := false
	for j := range c.Rule.Limits() {
		l := &c.Rule.Limits()[j]
		s := m.counter(c, l)
		if p, ok := s.(*penaltyModel); ok && op == headgate.OpTake && denied && !p.blocks(l, now) {
			p.punish(l, now)
		}
		dst = append(dst, headgate.Decision{Rule: c.Rule, Limit: l, Check: place, Shadow: c.Shadow, At: headgate.Instant(now), Allowed: op == headgate.OpRefund || op == headgate.OpCharge})
		d := &dst[len(dst)-1]
		if d.Allowed {
			continue
		}
		d.Allowed = s.free(l, now) >= cost
		switch {
		case d.Allowed && l.Algorithm == headgate.LeakyBucket:
			d.Delay = tell(s.busy(l, now))
		case d.Allowed:
		case cost > l.Capacity() && l.Algorithm != headgate.Penalty:
			d.RetryAfter = headgate.Never
		default:
			d.RetryAfter = tell(wait(s, l, now, cost))
		}
	}
	for j := range c.Rule.Limits() {
		l := &c.Rule.Limits()[j]
		s := m.counter(c, l)
		if l.Algorithm == headgate.SlidingWindow {
			if logged {
				continue
			}
			logged = true
		}
		switch {
		case op == headgate.OpRefund:
			s.refund(l, now, cost, int64(c.At), 0)
		case op == headgate.OpCharge || op == headgate.OpTake && admitted:
			s.charge(l, now, cost)
		}
	}
	for j := range c.Rule.Limits() {
		l := &c.Rule.Limits()[j]
		d := &dst[first+j]
		d.Remaining = m.remaining(c, l, now)
		d.ResetAfter = tell(m.counter(c, l).busy(l, now))
	}
	return dst
}

func (m *Model) counter(c *headgate.Check, l *headgate.Limit) limitModel {
	id := counter{c.Rule.Name(), c.Key, l.Slot()}
	if l.Algorithm == headgate.SlidingWindow {
		id.slot = 0
	}
	return m.counters[id]
}

// tell turns microseconds into a Duration. More than 100 years, which a bucket can
// need after its limit was lowered, are told as just above that.
func tell(micros int64) time.Duration {
	return time.Duration(min(micros, headgate.MaxRefill.Microseconds()+1)) * time.Microsecond
}

// wait finds by bisection the shortest time after which cost is free. The units
// that are free never become fewer while nothing is charged.
func wait(s limitModel, l *headgate.Limit, now, cost int64) int64 {
	low, high := int64(0), int64(1)
	for s.free(l, now+high) < cost {
		if high > headgate.MaxRefill.Microseconds() {
			return high // told as longer than that
		}
		low, high = high, high*2
	}
	for high-low > 1 {
		if middle := low + (high-low)/2; s.free(l, now+middle) >= cost {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}

func newLimitModel(l *headgate.Limit) limitModel {
	switch l.Algorithm {
	case headgate.TokenBucket, headgate.LeakyBucket:
		return &bucketModel{}
	case headgate.FixedWindow:
		return &fixedModel{}
	case headgate.SlidingWindow:
		return &logModel{}
	case headgate.Penalty:
		return &penaltyModel{}
	}
	return &slidingCounterModel{}
}

// ordinary is how many units limits charge a counter up to whose count and burst are not above it.
const ordinary = 1_000_000_000

func mostUsed(l *headgate.Limit) int64 {
	if l.Count > ordinary || l.Burst > ordinary {
		return headgate.MaxCount
	}
	return ordinary
}

// box is one window of those that fixed windows and counters keep.
type box struct{ begin, end, used int64 }

// fixedModel is the window that was begun last.
type fixedModel struct{ last box }

// current is the window that counts at now. A long step back takes the count along.
func (s *fixedModel) current(l *headgate.Limit, now int64) box {
	begin, end := algorithm.Window(l, headgate.Instant(now))
	fresh := box{begin: int64(begin), end: int64(end)}
	switch {
	case s.last.used == 0 || now >= s.last.end:
		return fresh
	case s.ahead(l, now):
		fresh.used = s.last.used
		return fresh
	}
	return s.last
}

// ahead reports whether the window is more than a period ahead of a clock that has stepped back.
func (s *fixedModel) ahead(l *headgate.Limit, now int64) bool { return now < s.last.end-2*l.Micros() }

func (s *fixedModel) follow(l *headgate.Limit, now int64) {
	if s.last.used > 0 && s.ahead(l, now) {
		s.last = s.current(l, now)
	}
}

func (s *fixedModel) free(l *headgate.Limit, now int64) int64 {
	return l.Count - s.current(l, now).used
}

func (s *fixedModel) charge(l *headgate.Limit, now, cost int64) {
	s.last = s.current(l, now)
	s.last.used += min(cost, max(0, mostUsed(l)-s.last.used))
}

func (s *fixedModel) refund(l *headgate.Limit, now, cost, at, _ int64) {
	s.last = s.current(l, now)
	if at == 0 || at >= s.last.begin {
		s.last.used = max(0, s.last.used-cost)
	}
}

func (s *fixedModel) busy(l *headgate.Limit, now int64) int64 {
	if w := s.current(l, now); w.used > 0 {
		return w.end - now
	}
	return 0
}

// slidingCounterModel has the units of the window that was begun last and of the one
// before.
type slidingCounterModel struct{ last, before box }

func (s *slidingCounterModel) current(l *headgate.Limit, now int64) (last, before box) {
	period := l.Period.Microseconds()
	begin := now / period * period
	fresh := box{begin, begin + period, 0}
	switch {
	case s.last.used == 0 && s.before.used == 0 || now >= s.last.end+period:
		return fresh, box{}
	case now >= s.last.end:
		return fresh, s.last
	case now < s.last.begin-period:
		fresh.used = max(s.last.used, min(s.last.used+s.before.used, mostUsed(l)))
		return fresh, box{}
	}
	return s.last, s.before
}

func (s *slidingCounterModel) follow(l *headgate.Limit, now int64) {
	if now < s.last.begin-l.Period.Microseconds() {
		s.last, s.before = s.current(l, now)
	}
}

func (s *slidingCounterModel) free(l *headgate.Limit, now int64) int64 {
	last, before := s.current(l, now)
	period := l.Period.Microseconds()
	covered := big.NewRat(min(period, last.end-now), period)
	share := covered.Mul(covered, big.NewRat(before.used, 1))
	up := new(big.Int).Add(share.Num(), new(big.Int).Sub(share.Denom(), big.NewInt(1)))
	return l.Count - last.used - up.Quo(up, share.Denom()).Int64()
}

func (s *slidingCounterModel) charge(l *headgate.Limit, now, cost int64) {
	s.last, s.before = s.current(l, now)
	s.last.used += min(cost, max(0, mostUsed(l)-s.last.used))
}

func (s *slidingCounterModel) refund(l *headgate.Limit, now, cost, at, _ int64) {
	s.last, s.before = s.current(l, now)
	period := l.Period.Microseconds()
	back := int64(0)
	if at == 0 || at >= s.last.begin {
		back = min(cost, s.last.used)
		s.last.used -= back
	}
	if at == 0 || at < s.last.begin && at >= s.last.begin-period {
		s.before.used -= min(cost-back, s.before.used)
	}
}

func (s *slidingCounterModel) busy(l *headgate.Limit, now int64) int64 {
	last, before := s.current(l, now)
	switch {
	case last.used > 0:
		return last.end + l.Period.Microseconds() - now
	case before.used > 0:
		return last.end - now
	}
	return 0
}

// bucketModel is one tank that everything goes into that any list of limits admits, and one
// more for each list that is not the fastest. The first drains as the fastest list does that has
// asked since it was empty; the others as their own lists do.
type bucketModel struct {
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
func (s *bucketModel) unit(t *tank) *big.Rat { return big.NewRat(s.period, t.count) }

// level is how many units are in use at now, counting one that is partly refilled as a
// whole one, and when the last whole one was refilled.
func (s *bucketModel) level(t *tank, now int64) (int64, *big.Rat) {
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
// counts up to 10^9 that leave no room for it, has no fractions of a microsecond.
func (s *bucketModel) keep(now int64) {
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
		if num := new(big.Rat).Inv(s.unit(k)).Num(); k.joint || k.count > 46_340 && k.count <= ordinary && num.Cmp(big.NewInt(1)) > 0 {
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
func (s *bucketModel) own(l *headgate.Limit, now int64) *tank {
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
func (s *bucketModel) add(t *tank, now int64) {
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
func (s *bucketModel) pour(into, from *tank, now int64) {
	has, _ := s.level(into, now)
	if used, _ := s.level(from, now); used >= has {
		into.used, into.at = used, whole(now)
	}
}

// follow: units charged in the future count as charged now. And who asks may be a list that
// has not asked before.
func (s *bucketModel) follow(l *headgate.Limit, now int64) {
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
func (s *bucketModel) each(l *headgate.Limit, now int64, f func(t *tank)) {
	own := s.own(l, now)
	if s.all != nil {
		f(s.all)
	}
	if own != nil {
		f(own)
	}
}

func (s *bucketModel) free(l *headgate.Limit, now int64) int64 {
	most := int64(0)
	s.each(l, now, func(t *tank) {
		used, _ := s.level(t, now)
		most = max(most, used)
	})
	return l.Capacity() - most
}

func (s *bucketModel) charge(l *headgate.Limit, now, cost int64) {
	s.keep(now)
	if s.all == nil {
		s.all, s.since = &tank{count: l.Count, at: whole(now)}, 0
		if len(s.slower) > 0 {
			s.since = now
		}
	}
	s.each(l, now, func(t *tank) { t.used += min(cost, max(0, mostUsed(l)-t.used)) })
}

func (s *bucketModel) refund(l *headgate.Limit, now, cost, then, inUse int64) {
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
func (s *bucketModel) giveBack(t *tank, now, cost, then, inUse int64) {
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

func (s *bucketModel) busy(l *headgate.Limit, now int64) int64 {
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
		if most := headgate.MaxRefill.Microseconds(); full.Cmp(whole(most)) > 0 {
			longest = most + 1 // told as longer than that
			return
		}
		up := new(big.Int).Add(full.Num(), new(big.Int).Sub(full.Denom(), big.NewInt(1)))
		longest = max(longest, up.Quo(up, full.Denom()).Int64())
	})
	return longest
}

// logModel has the time of every request and its units, whatever list of limits it came
// under, and for how long each list has asked that its units be remembered.
type logModel struct {
	list    []headgate.Limit // the one that is looking
	charged []charged
	asked   []asked
	// others is how many charges came while another list asked for a longer memory than
	// the one that charged, since the log was squeezed for the last time.
	others int
}

type charged struct{ at, units int64 }

// asked says that until an end everything is to be remembered that is younger than age.
// most is the largest count of those who asked.
type asked struct{ age, end, most int64 }

// memory is the age from which on what was charged is forgotten at now.
func (s *logModel) memory(now int64) int64 {
	longest := int64(0)
	for _, a := range s.asked {
		if now < a.end {
			longest = max(longest, a.age)
		}
	}
	return longest
}

// forget drops what is forgotten at now, and who has asked in vain since.
func (s *logModel) forget(now int64) {
	age := s.memory(now)
	s.charged = slices.DeleteFunc(s.charged, func(c charged) bool { return c.units == 0 || now-c.at >= age })
	s.asked = slices.DeleteFunc(s.asked, func(a asked) bool { return a.end <= now })
	if len(s.asked) == 0 {
		s.others = 0
	}
}

// newest is the time of the last charge of which units are left.
func (s *logModel) newest() (int64, bool) {
	for i := len(s.charged) - 1; i >= 0; i-- {
		if s.charged[i].units > 0 {
			return s.charged[i].at, true
		}
	}
	return 0, false
}

// follow: what was forgotten when the newest unit came stays so.
func (s *logModel) follow(_ *headgate.Limit, now int64) {
	at, some := s.newest()
	if !some || at <= now {
		return
	}
	s.forget(at)
	for i := range s.charged {
		s.charged[i].at = min(s.charged[i].at, now)
	}
	for i := range s.asked {
		a := &s.asked[i]
		a.end = min(a.end, now+a.age+a.age/8)
	}
}

// inside is how many units are inside the last micros at now.
func (s *logModel) inside(micros, now int64) int64 {
	used := int64(0)
	age := min(micros, s.memory(now))
	for i := len(s.charged) - 1; i >= 0 && now-s.charged[i].at < age; i-- { // they are in the order of their times
		used += s.charged[i].units
	}
	return used
}

func (s *logModel) free(l *headgate.Limit, now int64) int64 {
	return l.Count - s.inside(l.Period.Microseconds(), now)
}

// need is the longest period and the largest count of the windows that are looking.
func (s *logModel) need() (age, most int64) {
	for i := range s.list {
		if l := &s.list[i]; l.Algorithm == headgate.SlidingWindow {
			age, most = max(age, l.Period.Microseconds()), max(most, l.Count)
		}
	}
	return age, most
}

func (s *logModel) charge(_ *headgate.Limit, now, cost int64) {
	age, _ := s.need()
	if cost = min(cost, ordinary-s.inside(age, now)); cost <= 0 {
		return
	}
	before := s.memory(now)
	s.forget(now)
	s.ask(now)
	if age < before {
		s.others++
		if s.others >= 1024 || s.inside(before, now) > 2*ordinary {
			s.others = 0
			s.squeeze(now, age)
		}
	}
	s.charged = append(s.charged, charged{now, cost})
}

// ask sees to it that what is charged now is remembered for as long as its list needs.
func (s *logModel) ask(now int64) {
	age, most := s.need()
	slices.SortFunc(s.asked, func(a, b asked) int { return int(max(-1, min(1, a.age-b.age))) })
	for i := range s.asked {
		if a := &s.asked[i]; a.age >= age && a.end >= now+age {
			a.most = max(a.most, most)
			return
		}
	}
	own := asked{age, now + age + age/8, most}
	for len(s.asked) > 0 && s.asked[0].age <= age {
		own.most = max(own.most, s.asked[0].most)
		s.asked = s.asked[1:]
	}
	if len(s.asked) == 4 { // no more than four ask: the next one lasts longer
		next := &s.asked[0]
		next.end, next.most = max(next.end, own.end), max(next.most, own.most)
		return
	}
	s.asked = append(s.asked, own)
}

// squeeze gives all units that are older than age one time, that of the newest of them:
// but for those that have fewer newer units than the largest count.
func (s *logModel) squeeze(now, age int64) {
	most := int64(0)
	for _, a := range s.asked {
		most = max(most, a.most)
	}
	all, last := int64(0), int64(-1)
	for i := len(s.charged) - 1; i >= 0; i-- {
		c := s.charged[i]
		if last < 0 && c.at <= now-age && s.inside(now-c.at, now) >= most {
			last = c.at
		}
		all += c.units
	}
	for i := range s.charged {
		c := &s.charged[i]
		if c.at <= last {
			c.at = last
			gone := min(c.units, max(0, all-ordinary))
			c.units, all = c.units-gone, all-gone
		}
	}
}

func (s *logModel) refund(_ *headgate.Limit, _, cost, at, _ int64) {
	if newest, some := s.newest(); some {
		s.forget(newest)
	}
	for i := len(s.charged) - 1; i >= 0; i-- {
		if c := &s.charged[i]; at == 0 || c.at <= at {
			back := min(c.units, cost)
			c.units -= back
			cost -= back
		}
	}
	s.charged = slices.DeleteFunc(s.charged, func(c charged) bool { return c.units == 0 })
	if len(s.charged) == 0 {
		s.asked, s.others = nil, 0
	}
}

func (s *logModel) busy(l *headgate.Limit, now int64) int64 {
	longest := int64(0)
	for _, c := range s.charged {
		remembered := int64(0)
		for _, a := range s.asked {
			remembered = max(remembered, min(a.end, c.at+a.age))
		}
		longest = max(longest, min(c.at+l.Period.Microseconds(), remembered)-now)
	}
	return longest
}

// penaltyModel is a count of denials that ends at a time, or a block that does.
type penaltyModel struct {
	denials, until int64
	times          int           // it has blocked
	most           time.Duration // the longest block of those who counted, in whole seconds
}

// longest is the longest block, in µs: the limit's own unless others have counted as well.
func (s *penaltyModel) longest(l *headgate.Limit) int64 {
	if own := max(l.Block, l.MaxBlock); s.most == 0 || s.most == upToSecond(own) {
		return own.Microseconds()
	}
	return s.most.Microseconds()
}

func upToSecond(d time.Duration) time.Duration {
	if part := d % time.Second; part > 0 {
		d += time.Second - part
	}
	return d
}

// at is the penalty as it stands at now.
func (s *penaltyModel) at(l *headgate.Limit, now int64) penaltyModel {
	if quiet := now - s.until; quiet >= s.longest(l) {
		return penaltyModel{}
	}
	return *s
}

func (s *penaltyModel) blocks(l *headgate.Limit, now int64) bool {
	p := s.at(l, now)
	return p.denials >= l.Count && now < p.until
}

func (s *penaltyModel) left(l *headgate.Limit, now int64) int64 {
	if p := s.at(l, now); now < p.until {
		return max(0, l.Count-p.denials)
	}
	return l.Count
}

func (s *penaltyModel) punish(l *headgate.Limit, now int64) {
	*s = s.at(l, now)
	if now >= s.until {
		s.denials, s.until = 0, now+l.Period.Microseconds()
	}
	s.denials++
	s.most = max(s.most, upToSecond(max(l.Block, l.MaxBlock)))
	if s.denials < l.Count {
		return
	}
	s.denials = l.Count
	block, most := l.Block.Microseconds(), max(l.Block, l.MaxBlock).Microseconds()
	for range s.times {
		block = min(2*block, most)
	}
	s.until, s.times = now+block, s.times+1
}

// free is anything while the penalty does not block, and nothing while it does.
func (s *penaltyModel) free(l *headgate.Limit, now int64) int64 {
	if s.blocks(l, now) {
		return 0
	}
	return math.MaxInt64
}

// charge and refund leave it as it is, and forget what is over.
func (s *penaltyModel) charge(l *headgate.Limit, now, _ int64)       { *s = s.at(l, now) }
func (s *penaltyModel) refund(l *headgate.Limit, now, _, _, _ int64) { *s = s.at(l, now) }

// follow: a block never lasts longer than it may from now.
func (s *penaltyModel) follow(l *headgate.Limit, now int64) {
	if s.denials > 0 {
		s.until = min(s.until, now+max(s.longest(l), l.Period.Microseconds()))
	}
}

func (s *penaltyModel) busy(l *headgate.Limit, now int64) int64 {
	if p := s.at(l, now); p.denials > 0 {
		return p.until + p.longest(l) - now
	}
	return 0
}
