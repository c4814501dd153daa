package storetest

import (
	"context"
	"sync"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// Model is a [headgate.Store] over maps, built from nothing but the steps of
// package algorithm: what any store must do, without what makes one fast. It is
// safe for concurrent use and forgets nothing.
type Model struct {
	clock func() int64

	mu     sync.Mutex // guards the maps; a decision is one critical section
	states map[counter]algorithm.State
	logs   map[counter]*algorithm.Log
}

// counter names one: the limit's slot, or 0 for the log of a rule.
type counter struct {
	rule, key string
	slot      uint64
}

// NewModel returns an empty model that decides by clock, in microseconds since
// the Unix epoch.
func NewModel(clock func() int64) *Model {
	return &Model{clock: clock, states: map[counter]algorithm.State{}, logs: map[counter]*algorithm.Log{}}
}

// Take implements [headgate.Store].
func (m *Model) Take(_ context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := headgate.Validate(op, checks); err != nil {
		return dst, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock()
	m.follow(checks, now)
	switch op {
	case headgate.OpReset:
		m.reset(checks)
		return dst, nil
	case headgate.OpRefund:
		m.refund(checks, now)
		return m.describe(checks, now, dst, func(*headgate.Check) int64 { return 0 }, nil), nil
	}
	units := func(c *headgate.Check) int64 { return c.Units() }
	before := len(dst)
	dst = m.describe(checks, now, dst, units, nil)
	if op == headgate.OpPeek || !headgate.NewVerdict(dst[before:]).Allowed {
		return dst, nil
	}
	charge := make([]bool, len(checks))
	for i := range checks {
		charge[i] = true
	}
	for _, d := range dst[before:] {
		charge[d.Check] = charge[d.Check] && d.Allowed // a shadow that refuses is not charged
	}
	return m.describe(checks, now, dst[:before], units, charge), nil
}

// describe appends what there is to say of every limit, charging first the checks
// for which charges is true.
func (m *Model) describe(checks []headgate.Check, now int64, dst []headgate.Decision, units func(*headgate.Check) int64, charges []bool) []headgate.Decision {
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
			facts = append(facts, log.Facts(&limits[j], now, cost, algorithm.Horizon(c.Rule)))
		}
		logged := false
		for j := range limits {
			l := &limits[j]
			d := headgate.Decision{Rule: c.Rule, Check: i, Shadow: c.Shadow}
			if l.Algorithm == headgate.SlidingWindow {
				if charge && !logged {
					logged = true
					log.Add(now, cost)
					m.logs[counter{c.Rule.Name(), c.Key, 0}] = log
				}
				facts[j].Describe(&d, l, now, cost, charge)
			} else {
				id := counter{c.Rule.Name(), c.Key, l.Slot()}
				s := algorithm.Advance(l, m.states[id], now)
				after, fits := s, algorithm.Fits(l, s, now, cost)
				if charge {
					after = algorithm.Charge(l, s, now, cost)
					m.states[id] = after
				}
				algorithm.Describe(&d, l, s, after, now, cost, fits)
			}
			if cost == 0 {
				d.Allowed, d.RetryAfter, d.Delay = true, 0, 0
			}
			dst = append(dst, d)
		}
	}
	return dst
}

// follow takes counters back with a clock that has stepped back.
func (m *Model) follow(checks []headgate.Check, now int64) {
	for i := range checks {
		c := &checks[i]
		if log := m.logs[counter{c.Rule.Name(), c.Key, 0}]; log != nil && log.Stepped(now) && hasWindow(c.Rule) {
			log.Clamp(now, algorithm.Horizon(c.Rule))
		}
		for j := range c.Rule.Limits() {
			l := &c.Rule.Limits()[j]
			id := counter{c.Rule.Name(), c.Key, l.Slot()}
			if s := algorithm.Advance(l, m.states[id], now); algorithm.Moved(m.states[id], s, now) {
				m.states[id] = s
			}
		}
	}
}

func (m *Model) refund(checks []headgate.Check, now int64) {
	for i := range checks {
		c := &checks[i]
		if log := m.logs[counter{c.Rule.Name(), c.Key, 0}]; log != nil && hasWindow(c.Rule) {
			log.Refund(c.Units(), c.At, algorithm.Horizon(c.Rule))
		}
		for j := range c.Rule.Limits() {
			l := &c.Rule.Limits()[j]
			id := counter{c.Rule.Name(), c.Key, l.Slot()}
			if s := m.states[id]; l.Algorithm != headgate.SlidingWindow && !s.IsZero() {
				m.states[id] = algorithm.Refund(l, algorithm.Advance(l, s, now), c.Units(), c.At)
			}
		}
	}
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
