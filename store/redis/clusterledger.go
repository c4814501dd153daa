package redis

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// On a cluster a request with an id makes one call for each slot, as any other request does. Each
// group has a note of its own, in its slot. The first group's note holds the checks of all groups.
// Its slot is a part of the reservation's ID, so that the note can be found. If the request is
// repeated, groups that have a note answer from it, and the others are charged. If one group
// denies, the others are settled at 0 units, which can be repeated, too.

// slotMark separates an id from the slot of its first note.
const slotMark = "~"

func clusterID(id string, slot uint16) string {
	return id + slotMark + strconv.FormatUint(uint64(slot), 36)
}

// splitID is the inverse of clusterID.
func splitID(id string) (base string, slot uint16, ok bool) {
	at := strings.LastIndex(id, slotMark)
	if at < 0 {
		return "", 0, false
	}
	n, err := strconv.ParseUint(id[at+len(slotMark):], 36, 16)
	return id[:at], uint16(n), err == nil && n < hashSlots
}

func (s *Store) noteKeyIn(id string, slot uint16) string {
	return s.prefix + " {" + tagOf(slot) + "} " + id
}

func (s *Store) slotOfCheck(c *headgate.Check) uint16 {
	return slotOf(string(appendKey(nil, s.prefix, c)))
}

// grouped groups the checks by slot. If all of them are in one slot, there is one group.
func (s *Store) grouped(checks []headgate.Check) []group {
	if groups := s.bySlot(checks); groups != nil {
		return groups
	}
	return together(checks)
}

// together returns one group with all checks.
func together(checks []headgate.Check) []group {
	all := group{checks: slices.Clone(checks), places: make([]int, len(checks))}
	for i := range all.places {
		all.places[i] = i
	}
	return []group{all}
}

// each runs do for all groups at once, and waits until all have ended.
func each(groups []group, do func(i int, g *group)) {
	var others sync.WaitGroup
	for i := 1; i < len(groups); i++ {
		others.Go(func() { do(i, &groups[i]) })
	}
	do(0, &groups[0])
	others.Wait()
}

// onceCluster is once on a cluster. n is the note of the first group.
func (s *Store) onceCluster(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision, reserve bool, n *note) (headgate.Reservation, []headgate.Decision, error) {
	var none headgate.Reservation
	groups := s.grouped(checks)
	home := s.slotOfCheck(&groups[0].checks[0])
	each(groups, func(i int, g *group) {
		own := *n
		if i > 0 {
			own.key = s.noteKeyIn(terms.ID, s.slotOfCheck(&g.checks[0]))
			own.prints = printOf(&terms, g.checks, reserve)
			if reserve {
				own.payload = string(appendChecks(nil, g.checks))
			}
		}
		g.answer, g.err = within(ctx, &s.clustered.tasks, headgate.OpTake, func() (answer, error) {
			return s.askOnce(ctx, g.checks, &own)
		})
	})
	admitted, changed := true, false
	var failure error
	for i := range groups {
		g := &groups[i]
		switch {
		case g.err != nil && failure == nil:
			failure = g.err
		case g.answer.status == statusConflict:
			failure = &headgate.ConflictError{}
		case g.answer.status == statusNone:
			if failure == nil {
				failure = headgate.ErrNoReservation
			}
		case g.answer.status == statusDenies || g.answer.status == statusAdmits:
			changed = true
			admitted = admitted && g.answer.status == statusAdmits
		default:
			admitted = admitted && g.admits()
		}
	}
	if failure != nil {
		s.cancel(ctx, terms.ID, groups, settleForget)
		return none, dst, failure
	}
	if !admitted {
		s.cancel(ctx, terms.ID, groups, settleNow)
	}
	id := clusterID(terms.ID, home)
	if changed {
		return s.changed(ctx, id, checks, dst, admitted, reserve)
	}
	expires := headgate.Instant(0)
	for i := range groups {
		if end := groups[i].answer.now + headgate.Instant(terms.Term().Microseconds()); expires == 0 || end < expires {
			expires = end
		}
	}
	before := len(dst)
	dst, err := describeGroups(headgate.OpTake, groups, admitted, dst)
	if err != nil || !reserve || !admitted {
		return none, dst, err
	}
	return store.NewReservation(id, expires, checks, dst[before:]), dst, nil
}

// askOnce charges checks whose counters are in one slot, and stores their note.
func (s *Store) askOnce(ctx context.Context, checks []headgate.Check, n *note) (answer, error) {
	for range windowTries {
		r, err := s.call(ctx, headgate.OpTake, checks, n)
		if err != nil {
			return answer{}, err
		}
		s.heard(r.now)
		if r.status != statusWindow {
			return answer{reply: r}, nil
		}
	}
	return answer{}, jumps(headgate.OpTake)
}

// cancel settles at 0 units those groups that were charged for a request that was not admitted.
// Units that cannot be settled stay in use until they expire. If a group has failed, mode is
// settleForget, which drops the notes of the other groups: a repetition must charge them again.
func (s *Store) cancel(ctx context.Context, id string, groups []group, mode string) {
	each(groups, func(_ int, g *group) {
		if g.err != nil || g.answer.status != statusAdmitted {
			return
		}
		decisions, err := g.answer.describe(headgate.OpTake, g.checks, nil)
		if err != nil {
			return
		}
		r := passing(id, g.checks, decisions)
		if len(r.Checks) == 0 {
			return
		}
		_, _ = within(ctx, &s.clustered.tasks, headgate.OpRefund, func() ([]headgate.Decision, error) {
			return s.settle(ctx, &r, make([]int64, len(r.Checks)), nil, mode)
		})
	})
}

// settleCluster is settle on a cluster.
func (s *Store) settleCluster(ctx context.Context, r *headgate.Reservation, units []int64, dst []headgate.Decision, mode string) ([]headgate.Decision, error) {
	id, _, ok := splitID(r.ID)
	if !ok {
		return dst, headgate.ErrNoReservation
	}
	starts := limitStarts(r.Checks)
	all := make([]headgate.Decision, starts[len(r.Checks)])
	groups := s.grouped(r.Checks)
	settle := func(_ int, g *group) { s.settleGroup(ctx, r, id, units, g, starts, all, mode) }
	// The first group is settled before the others. If two settlements with different units come at
	// once, one of them fails there, and the other one counts for all groups.
	if settle(0, &groups[0]); groups[0].err != nil {
		return dst, groups[0].err
	}
	if len(groups) > 1 {
		each(groups[1:], settle)
	}
	for i := range groups {
		if groups[i].err != nil {
			return dst, groups[i].err
		}
	}
	return append(dst, all...), nil
}

// settleGroup settles the part of a reservation that is in one slot, and puts the decisions at
// their places among those of the whole reservation, in all.
func (s *Store) settleGroup(ctx context.Context, r *headgate.Reservation, id string, units []int64, g *group, starts []int, all []headgate.Decision, mode string) {
	part := headgate.Reservation{ID: id, Expires: r.Expires, Checks: g.checks}
	own := make([]int64, len(g.places))
	for i, place := range g.places {
		own[i] = units[place]
		if len(r.Used) > 0 {
			part.Used = append(part.Used, r.Used[starts[place]:starts[place+1]]...)
		}
	}
	var decisions []headgate.Decision
	decisions, g.err = within(ctx, &s.clustered.tasks, headgate.OpRefund, func() ([]headgate.Decision, error) {
		return s.settle(ctx, &part, own, nil, mode)
	})
	for _, place := range g.places {
		n := copy(all[starts[place]:starts[place+1]], decisions)
		for k := range n {
			all[starts[place]+k].Check = place
		}
		decisions = decisions[n:]
	}
}

// readCluster is read on a cluster. It reads the first note, and then the notes of the other
// groups.
func (s *Store) readCluster(ctx context.Context, id string) (recalled, error) {
	base, slot, ok := splitID(id)
	if !ok {
		return recalled{}, headgate.ErrNoReservation
	}
	first, err := s.readNote(ctx, s.noteKeyIn(base, slot))
	switch {
	case err != nil:
		return recalled{}, err
	case first.checks == nil:
		return recalled{}, headgate.ErrNoReservation
	}
	groups := s.grouped(first.checks)
	each(groups, func(i int, g *group) {
		n := first
		if i > 0 {
			n, g.err = s.readNote(ctx, s.noteKeyIn(base, s.slotOfCheck(&g.checks[0])))
		}
		g.answer = answer{reply: n.answer}
	})
	for i := range groups {
		if g := &groups[i]; errors.Is(g.err, headgate.ErrNoReservation) || g.err == nil && !g.admits() {
			return recalled{}, headgate.ErrNoReservation
		} else if g.err != nil {
			return recalled{}, g.err
		}
	}
	decisions, err := describeGroups(headgate.OpTake, groups, true, nil)
	if err != nil {
		return recalled{}, err
	}
	return recalled{first.open, first.now >= first.expires, store.NewReservation(id, headgate.Instant(first.expires), first.checks, decisions)}, nil
}
