package redis

import (
	"context"
	"slices"
	"sync"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// On a cluster a script call reaches only keys in one slot. A request whose keys are in several
// slots makes one call for each slot, all at once. If one slot denies, the store gives back what
// the others have charged. Until then these units are in use, so another request may be denied too
// early. But no limit ever admits too much: if the process dies before it has given the units back,
// they stay in use until they expire. To make early denials rare, the store only peeks at the other
// groups while one group will probably deny the request; see suspects.

// clustered is the additional state of a store on a cluster.
type clustered struct {
	suspects suspects
	tasks    tasks
}

// takeCluster is Take on a cluster.
func (s *Store) takeCluster(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	groups := s.bySlot(checks)
	if groups == nil {
		out, err := s.takeOne(ctx, op, checks, dst)
		if len(checks) == 1 || !isTryAgain(err) {
			return out, err
		}
		groups = together(checks)
	}
	return s.takeGroups(ctx, op, checks, groups, dst)
}

// takeGroups is Take for a request whose checks are grouped by slot.
func (s *Store) takeGroups(ctx context.Context, op headgate.Op, checks []headgate.Check, groups []group, dst []headgate.Decision) ([]headgate.Decision, error) {
	looking := s.plan(op, groups)
	groups = s.askAll(ctx, groups)
	admitted, failure := verdict(groups)
	if looking && admitted && failure == nil {
		// Charge the groups that have only peeked.
		var rest []group
		for i := len(groups) - 1; i >= 0; i-- {
			if groups[i].op != op {
				groups[i].op = op
				rest = append(rest, groups[i])
				groups = slices.Delete(groups, i, i+1)
			}
		}
		groups = append(groups, s.askAll(ctx, rest)...)
		admitted, failure = verdict(groups)
	}
	if op == headgate.OpTake && (failure != nil || !admitted) {
		s.giveBack(ctx, groups)
	}
	if failure != nil || op == headgate.OpReset {
		return dst, failure
	}
	before := len(dst)
	dst, err := describeGroups(op, groups, admitted, dst)
	if err == nil && op == headgate.OpTake {
		s.clustered.suspects.note(checks, dst[before:])
	}
	return dst, err
}

// plan sets the operation of each group. Usually it is op. If some groups will probably deny the
// request, the others only peek, and looking is true. A group with a penalty never peeks, because
// the penalty counts denials.
func (s *Store) plan(op headgate.Op, groups []group) (looking bool) {
	suspect := make([]bool, len(groups))
	some := false
	for i := range groups {
		groups[i].op = op
		if op == headgate.OpTake && len(groups) > 1 {
			suspect[i] = s.clustered.suspects.among(groups[i].checks)
			some = some || suspect[i]
		}
	}
	if !some {
		return false
	}
	for i := range groups {
		if !suspect[i] && !groups[i].penalizes() {
			groups[i].op = headgate.OpPeek
			looking = true
		}
	}
	return looking
}

// askAll makes the calls for all groups at once. It returns the groups with their answers. There
// may be more groups than before; see askAgain.
func (s *Store) askAll(ctx context.Context, groups []group) []group {
	var others sync.WaitGroup
	ask := func(g *group) { g.answer, g.err = s.ask(ctx, g.op, g.checks) }
	for i := 1; i < len(groups); i++ {
		others.Go(func() { ask(&groups[i]) })
	}
	ask(&groups[0])
	others.Wait()
	return s.askAgain(ctx, groups)
}

// askAgain makes a call for each check of a group whose slot is being moved to another node. During
// the move, the keys of the group can be on both nodes. Then the nodes answer TRYAGAIN and charge
// nothing.
func (s *Store) askAgain(ctx context.Context, groups []group) []group {
	var done, alone []group
	for i := range groups {
		g := &groups[i]
		if len(g.checks) == 1 || !isTryAgain(g.err) {
			done = append(done, *g)
			continue
		}
		for j := range g.checks {
			alone = append(alone, group{op: g.op, checks: g.checks[j : j+1], places: g.places[j : j+1]})
		}
	}
	if alone == nil {
		return groups
	}
	return append(done, s.askAll(ctx, alone)...)
}

// ask makes the call for checks whose counters are in one slot.
func (s *Store) ask(ctx context.Context, op headgate.Op, checks []headgate.Check) (answer, error) {
	if op == headgate.OpReset {
		return answer{}, s.reset(ctx, checks)
	}
	if op == headgate.OpTake && len(checks) == 1 {
		if short := s.short(&checks[0]); short.script != nil {
			reply, err := s.exec(ctx, op, short.script, []string{short.key}, short.args, true)
			if err != nil || reply.status != statusOther {
				return answer{reply, short}, err
			}
		}
	}
	for range windowTries {
		reply, err := s.call(ctx, op, checks, nil)
		if err != nil {
			return answer{}, err
		}
		s.heard(reply.now)
		if reply.status != statusWindow {
			return answer{reply: reply}, nil
		}
	}
	return answer{}, jumps(op)
}

// giveBack gives back what the groups have charged. If the caller's deadline passes, giveBack
// returns, and the work goes on in the background. Units that cannot be given back stay in use
// until they expire.
func (s *Store) giveBack(ctx context.Context, groups []group) {
	var others sync.WaitGroup
	for i := range groups {
		g := &groups[i]
		if g.err != nil || g.op != headgate.OpTake || g.answer.status != statusAdmitted {
			continue
		}
		// If an answer cannot be read, it is not known what was charged.
		if decisions, err := g.answer.describe(headgate.OpTake, g.checks, nil); err == nil {
			if r := passing("back", g.checks, decisions); len(r.Checks) > 0 {
				others.Go(func() { s.refundFor(ctx, &r) })
			}
		}
	}
	others.Wait()
}

// passing returns a reservation for units that are given back at once. Other requests may give
// units back at the same time. So of the units that were in use after the charge, only the
// request's own units are certain to be still in use, and Used contains only those. With a higher
// number, a bucket could give back to one request what it has refilled for another.
func passing(id string, checks []headgate.Check, decisions []headgate.Decision) headgate.Reservation {
	r := store.NewReservation(id, 0, checks, decisions)
	r.Used = r.Used[:0]
	for i := range r.Checks {
		for range r.Checks[i].Rule.Limits() {
			r.Used = append(r.Used, r.Checks[i].Units())
		}
	}
	return r
}

// refundFor gives back the units of checks whose counters are in one slot. If the slot is being
// moved, it makes one call for each check. Errors are dropped: the units then stay in use until
// they expire.
func (s *Store) refundFor(ctx context.Context, r *headgate.Reservation) {
	_, _ = within(ctx, &s.clustered.tasks, headgate.OpRefund, func() (struct{}, error) {
		// This call has a deadline of its own, because the caller's may have passed while a node
		// did not answer.
		ctx, cancel, err := s.deadlines.Limit(context.Background())
		if err != nil {
			return struct{}{}, err
		}
		defer cancel()
		_, err = s.settle(ctx, r, make([]int64, len(r.Checks)), nil, refundMode)
		if len(r.Checks) == 1 || !isTryAgain(err) {
			return struct{}{}, err
		}
		used := r.Used
		for i := range r.Checks {
			n := len(r.Checks[i].Rule.Limits())
			one := headgate.Reservation{ID: r.ID, Checks: r.Checks[i : i+1], Used: used[:n]}
			if _, again := s.settle(ctx, &one, make([]int64, 1), nil, refundMode); again != nil {
				err = again
			}
			used = used[n:]
		}
		return struct{}{}, err
	})
}
