package storetest

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// Model is a [headgate.Store] over maps, built from nothing but the steps of
// package algorithm: what any store must do, without what makes one fast. It is
// safe for concurrent use and forgets nothing.
type Model struct {
	book  // its lock guards the maps; a decision is one critical section
	clock func() int64

	states map[counter]algorithm.State
	logs   map[counter]*algorithm.Log
}

var _ headgate.Ledger = (*Model)(nil)

// counter names one: the limit's slot, or 0 for the log of a rule.
type counter struct {
	rule, key string
	slot      uint64
}

// NewModel returns an empty model that decides by clock, in microseconds since
// the Unix epoch.
func NewModel(clock func() int64) *Model {
	m := &Model{book: newBook(clock), clock: clock, states: map[counter]algorithm.State{}, logs: map[counter]*algorithm.Log{}}
	m.book.take, m.book.settle = m.take, m.adjust
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
	now := headgate.Instant(m.clock())
	m.follow(checks, now)
	switch op {
	case headgate.OpReset:
		m.reset(checks)
		return dst
	case headgate.OpRefund:
		for i := range checks {
			m.change(&checks[i], -checks[i].Units(), nil, now)
		}
		return m.describe(checks, now, dst, func(*headgate.Check) int64 { return 0 }, nil)
	case headgate.OpCharge:
		for i := range checks {
			m.change(&checks[i], checks[i].Units(), nil, now)
		}
		return m.describe(checks, now, dst, func(*headgate.Check) int64 { return 0 }, nil)
	}
	units := func(c *headgate.Check) int64 { return c.Units() }
	before := len(dst)
	dst = m.describe(checks, now, dst, units, nil)
	if op == headgate.OpPeek {
		return dst
	}
	if m.punish(checks, dst[before:], now) {
		return m.describe(checks, now, dst[:before], units, m.charges(checks, dst[before:]))
	}
	charges := m.charges(checks, dst[before:])
	if charges == nil {
		return dst
	}
	return m.describe(checks, now, dst[:before], units, charges)
}

// charges says which checks are charged, or nil if none is.
func (m *Model) charges(checks []headgate.Check, decisions []headgate.Decision) []bool {
	if !headgate.NewVerdict(decisions).Allowed {
		return nil
	}
	charge := make([]bool, len(checks))
	for i := range checks {
		charge[i] = true
	}
	for _, d := range decisions {
		charge[d.Check] = charge[d.Check] && d.Allowed // a shadow that refuses is not charged
	}
	return charge
}

// punish counts denials in the penalties of the rules that denied, unless those
// block already, and reports whether it did.
func (m *Model) punish(checks []headgate.Check, decisions []headgate.Decision, now headgate.Instant) bool {
	denied := make([]bool, len(checks))
	for _, d := range decisions {
		if !d.Allowed && d.Limit.Algorithm != headgate.Penalty {
			denied[d.Check] = true
		}
	}
	counted := false
	for _, d := range decisions {
		if d.Limit.Algorithm == headgate.Penalty && d.Allowed && denied[d.Check] {
			id := counter{d.Rule.Name(), checks[d.Check].Key, d.Limit.Slot()}
			m.states[id] = algorithm.Punish(d.Limit, algorithm.Advance(d.Limit, m.states[id], now), now) // it has no other slots
			counted = true
		}
	}
	return counted
}

// describe appends what there is to say of every limit, charging first the checks
// for which charges is true.
func (m *Model) describe(checks []headgate.Check, now headgate.Instant, dst []headgate.Decision, units func(*headgate.Check) int64, charges []bool) []headgate.Decision {
	for i := range checks {
		charge := charges != nil && charges[i]
		c := &checks[i]
		cost := units(c)
		limits := c.Rule.Limits()
		log := m.logs[counter{c.Rule.Name(), c.Key, 0}]
		if log == nil {
			log = new(algorithm.Log)
		}
		var facts []algorithm.WindowFacts // of all windows, before any is charged
		for j := range limits {
			facts = append(facts, log.Facts(&limits[j], now, cost))
		}
		logged := false
		for j := range limits {
			l := &limits[j]
			d := headgate.Decision{Rule: c.Rule, Check: i, Shadow: c.Shadow}
			if l.Algorithm == headgate.SlidingWindow {
				if charge && !logged {
					logged = true
					log.Open(now, algorithm.NeedOf(c.Rule))
					log.Add(now, cost)
					m.logs[counter{c.Rule.Name(), c.Key, 0}] = log
				}
				facts[j].Describe(&d, l, now, cost, charge)
			} else {
				s, _ := m.load(c, l).Advance(l, now)
				after, fits := s, s.Fits(l, now, cost)
				if charge {
					after = s.Charge(l, now, cost)
					m.put(c, l, after)
				}
				after.Describe(&d, l, s, now, cost, fits)
			}
			if cost == 0 { // a refund or a settlement, which nothing denies
				d.Allowed, d.RetryAfter, d.Delay = true, 0, 0
			}
			dst = append(dst, d)
		}
	}
	return dst
}

// load returns the counter of a limit, and put keeps it.
func (m *Model) load(c *headgate.Check, l *headgate.Limit) algorithm.Counter {
	return algorithm.LoadCounter(l, false, func(i int) algorithm.State {
		return m.states[counter{c.Rule.Name(), c.Key, algorithm.BucketSlot(l, i)}]
	})
}

func (m *Model) put(c *headgate.Check, l *headgate.Limit, k algorithm.Counter) {
	slots, n := k.Slots(l)
	for i := range n {
		id := counter{c.Rule.Name(), c.Key, algorithm.BucketSlot(l, i)}
		if m.states[id] = slots[i]; slots[i].IsZero() {
			delete(m.states, id)
		}
	}
}

// follow takes counters back with a clock that has stepped back.
func (m *Model) follow(checks []headgate.Check, now headgate.Instant) {
	for i := range checks {
		c := &checks[i]
		if log := m.logs[counter{c.Rule.Name(), c.Key, 0}]; log != nil && log.Stepped(now) && hasWindow(c.Rule) {
			log.Clamp(now)
		}
		for j := range c.Rule.Limits() {
			l := &c.Rule.Limits()[j]
			if s, moved := m.load(c, l).Advance(l, now); moved {
				m.put(c, l, s)
			}
		}
	}
}

// change charges a check so many units more, or takes them back if they are
// negative. The counters have followed the clock.
func (m *Model) change(c *headgate.Check, units int64, used []int64, now headgate.Instant) {
	if units == 0 {
		return
	}
	if id := (counter{c.Rule.Name(), c.Key, 0}); hasWindow(c.Rule) {
		log := m.logs[id]
		if log == nil {
			log = new(algorithm.Log)
		}
		need := algorithm.NeedOf(c.Rule)
		if units < 0 {
			log.Refund(-units, c.At)
		} else if owed := log.Owable(now, units, need); owed > 0 {
			log.Open(now, need)
			log.Add(now, owed)
		}
		m.logs[id] = log
	}
	for j := range c.Rule.Limits() {
		l := &c.Rule.Limits()[j]
		if l.Algorithm == headgate.SlidingWindow {
			continue
		}
		before := int64(0)
		if used != nil {
			before = used[j]
		}
		s, _ := m.load(c, l).Advance(l, now)
		m.put(c, l, s.Settle(l, now, units, c.At, before))
	}
}

// adjust changes the units of checks, with the lock held.
func (m *Model) adjust(checks []headgate.Check, units [][]int64, dst []headgate.Decision) []headgate.Decision {
	now := headgate.Instant(m.clock())
	m.follow(checks, now)
	for i := range checks {
		m.change(&checks[i], units[i][0], units[i][1:], now)
	}
	return m.describe(checks, now, dst, func(*headgate.Check) int64 { return 0 }, nil)
}

func (m *Model) reset(checks []headgate.Check) {
	for i := range checks {
		for id := range m.states {
			if id.rule == checks[i].Rule.Name() && id.key == checks[i].Key {
				delete(m.states, id)
			}
		}
		delete(m.logs, counter{checks[i].Rule.Name(), checks[i].Key, 0})
	}
}

func hasWindow(r *headgate.Rule) bool {
	for i := range r.Limits() {
		if r.Limits()[i].Algorithm == headgate.SlidingWindow {
			return true
		}
	}
	return false
}
