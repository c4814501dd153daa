package linear

import (
	"fmt"
	"maps"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// call is what a caller asked of one key.
type call struct {
	key    string
	do     verb
	cost   int64
	at     headgate.Instant // of a refund: when the units were charged
	id     string           // of a reservation, or of a request that is repeated
	settle int64            // the units that a reservation is settled at
}

type verb uint8

const (
	take verb = iota
	peek
	refund
	reset
	once
	reserve
	settle
)

// answer is what came of it.
type answer struct {
	at        headgate.Instant // the store's clock
	admitted  bool
	remaining [limits]int64 // untold if it was not told
	none      bool          // there was no such reservation, or it was settled otherwise
}

const (
	// limits is how many limits the rules have.
	limits = 3
	// untold stands for what is left of a limit that is not the deciding one.
	untold = -1
)

// state is all that is kept of one key. It is never changed: each step makes
// another.
type state struct {
	counters [limits]algorithm.State
	log      *algorithm.Log // of the limit that is a sliding window, if one is
	notes    map[string]note
}

// note is what is remembered of a request with an id.
type note struct {
	answer  answer
	cost    int64
	used    [limits]int64
	settled int64 // the units, or -1
	again   answer
}

func (s state) clone() state {
	s.log = s.log.Clone()
	s.notes = maps.Clone(s.notes)
	return s
}

// model is a porcupine model of one rule, for one key. Time is the store's, as its answers tell it.
func model(rule *headgate.Rule) porcupine.Model {
	l := rule.Limits()
	need := algorithm.NeedOf(rule)
	remaining := func(s state, now headgate.Instant) (r [limits]int64) {
		for i := range l {
			var d headgate.Decision
			if l[i].Algorithm == headgate.SlidingWindow {
				s.log.Facts(&l[i], now, 0).Describe(&d, &l[i], now, 0, false)
			} else {
				before := algorithm.Advance(&l[i], s.counters[i], now)
				algorithm.Describe(&d, &l[i], before, before, now, 0, true)
			}
			r[i] = d.Remaining
		}
		return r
	}
	fits := func(s state, now headgate.Instant, cost int64) bool {
		for i := range l {
			if l[i].Algorithm == headgate.SlidingWindow {
				if !s.log.Facts(&l[i], now, cost).Fits(&l[i], cost) {
					return false
				}
			} else if !algorithm.Fits(&l[i], algorithm.Advance(&l[i], s.counters[i], now), now, cost) {
				return false
			}
		}
		return true
	}
	// change charges units, or gives them back.
	change := func(s state, now headgate.Instant, units int64, at headgate.Instant, used [limits]int64) state {
		s = s.clone()
		for i := range l {
			if l[i].Algorithm != headgate.SlidingWindow {
				s.counters[i] = algorithm.Settle(&l[i], algorithm.Advance(&l[i], s.counters[i], now), now, units, at, used[i])
				continue
			}
			switch {
			case units < 0:
				s.log.Refund(-units, at)
			case units > 0:
				if owed := s.log.Owable(now, units, need); owed > 0 {
					s.log.Open(now, need)
					s.log.Add(now, owed)
				}
			}
		}
		return s
	}
	taken := func(s state, c call, now headgate.Instant) (state, answer) {
		a := answer{at: now, admitted: fits(s, now, c.cost)}
		if a.admitted {
			s = change(s, now, c.cost, 0, [limits]int64{})
		}
		a.remaining = remaining(s, now)
		return s, a
	}
	step := func(s state, c call, got answer) (state, answer) {
		now := got.at
		switch c.do {
		case peek:
			return s, answer{at: now, admitted: fits(s, now, c.cost), remaining: remaining(s, now)}
		case refund:
			s = change(s, now, -c.cost, c.at, [limits]int64{})
			return s, answer{at: now, admitted: true, remaining: remaining(s, now)}
		case reset:
			// What is remembered of requests is no counter.
			return state{log: new(algorithm.Log), notes: s.notes}, got
		case once, reserve:
			if n, known := s.notes[c.id]; known {
				return s, n.answer
			}
			next, a := taken(s, c, now)
			n := note{answer: a, cost: c.cost, settled: -1}
			for i := range n.used {
				n.used[i] = l[i].Capacity() - a.remaining[i]
			}
			next = next.clone()
			next.notes[c.id] = n
			return next, a
		case settle:
			n := s.notes[c.id]
			switch {
			case n.settled == c.settle:
				return s, n.again
			case n.settled >= 0:
				return s, answer{at: now, none: true}
			}
			next := s
			if more := c.settle - n.cost; more != 0 {
				next = change(s, now, more, n.answer.at, n.used)
			}
			next = next.clone()
			n.settled, n.again = c.settle, answer{at: now, admitted: true, remaining: remaining(next, now)}
			next.notes[c.id] = n
			return next, n.again
		}
		return taken(s, c, now)
	}
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			byKey := map[string][]porcupine.Operation{}
			for _, o := range history {
				byKey[o.Input.(call).key] = append(byKey[o.Input.(call).key], o)
			}
			return slices.Collect(maps.Values(byKey))
		},
		Init: func() any { return state{log: new(algorithm.Log), notes: map[string]note{}} },
		Step: func(before, input, output any) (bool, any) {
			got := output.(answer)
			next, want := step(before.(state), input.(call), got)
			for i := range got.remaining {
				if got.remaining[i] == untold {
					want.remaining[i] = untold
				}
			}
			return want == got, next
		},
		Equal: func(a, b any) bool {
			x, y := a.(state), b.(state)
			return x.counters == y.counters && maps.Equal(x.notes, y.notes) && x.log.Equal(y.log)
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
	}
}
