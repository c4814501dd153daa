package redis

import (
	"github.com/headgate/headgate"
)

// group has the checks of a request whose counters are in one slot.
type group struct {
	op     headgate.Op      // the operation for this group
	checks []headgate.Check // the checks of this group
	places []int            // their indices in the request
	answer answer
	err    error
}

// answer is the server's answer for a group.
type answer struct {
	reply
	short short // the script that answered, unless it is take.lua or refund.lua
}

func (a *answer) describe(op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if a.short.script != nil {
		return a.short.describe(a.reply, &checks[0], dst)
	}
	return a.decisions(op, checks, dst)
}

// admits reports whether the group's checks admit the request. Checks in shadow never deny.
func (g *group) admits() bool {
	if g.err != nil {
		return false
	}
	if g.answer.status == statusAdmitted {
		return true
	}
	for i := range g.checks {
		if !g.checks[i].Shadow {
			return false
		}
	}
	return true
}

// verdict reports whether all groups admit, and returns the first failure.
func verdict(groups []group) (admitted bool, failure error) {
	admitted = true
	for i := range groups {
		if groups[i].err != nil && failure == nil {
			failure = groups[i].err
		}
		admitted = admitted && groups[i].admits()
	}
	return admitted, failure
}

// penalizes reports whether a rule of the group has a penalty.
func (g *group) penalizes() bool {
	for i := range g.checks {
		limits := g.checks[i].Rule.Limits()
		for j := range limits {
			if limits[j].Algorithm == headgate.Penalty {
				return true
			}
		}
	}
	return false
}

// bySlot groups the checks of a request by slot. It returns nil if all of them are in one slot, as
// is usual.
func (s *Store) bySlot(checks []headgate.Check) []group {
	if len(checks) == 1 {
		return nil
	}
	var room [128]byte
	var slots [headgate.MaxChecks]uint16
	alike := true
	for i := range checks {
		slots[i] = slotOf(appendKey(room[:0], s.prefix, &checks[i]))
		alike = alike && slots[i] == slots[0]
	}
	if alike {
		return nil
	}
	var groups []group
	var of [headgate.MaxChecks]uint16 // the slots of the groups
	for i := range checks {
		at := 0
		for at < len(groups) && of[at] != slots[i] {
			at++
		}
		if at == len(groups) {
			groups = append(groups, group{})
			of[at] = slots[i]
		}
		g := &groups[at]
		g.checks, g.places = append(g.checks, checks[i]), append(g.places, i)
	}
	return groups
}

// describeGroups appends the decisions of all groups, in the order of the request's checks. If the
// request was denied, the decisions show nothing as charged.
func describeGroups(op headgate.Op, groups []group, admitted bool, dst []headgate.Decision) ([]headgate.Decision, error) {
	var starts [headgate.MaxChecks + 1]int // where the decisions of each check begin
	for i := range groups {
		for j, place := range groups[i].places {
			starts[place+1] = len(groups[i].checks[j].Rule.Limits())
		}
	}
	starts[0] = len(dst)
	for i := range headgate.MaxChecks {
		starts[i+1] += starts[i]
	}
	out := append(dst, make([]headgate.Decision, starts[headgate.MaxChecks]-len(dst))...)
	for i := range groups {
		g := &groups[i]
		asked := op
		if op == headgate.OpTake && !admitted {
			g.answer.status = statusDenied
			asked = g.op
		}
		decisions, err := g.answer.describe(asked, g.checks, nil)
		if err != nil {
			return dst, err
		}
		for _, place := range g.places {
			n := copy(out[starts[place]:starts[place+1]], decisions)
			for k := range n {
				out[starts[place]+k].Check = place
			}
			decisions = decisions[n:]
		}
	}
	return out, nil
}
