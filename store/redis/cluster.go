package redis

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
)

// On a cluster a script call reaches the keys of one slot. A request whose keys
// are in several slots is taken slot by slot, all at once; if one denies, what the
// others charged is given back. In between the units are in use, so that another
// request may be refused too early, and none is ever admitted too much: a process
// that dies before it has given back leaves them in use until they expire.

// clustered is what a store on a cluster has besides.
type clustered struct {
	trouble trouble
	tasks   tasks
}

// group is the checks of a request whose counters are in one slot.
type group struct {
	checks []headgate.Check // of its own
	places []int            // where they stand in the request
	answer answer
	err    error
}

// answer is what the store said of a group.
type answer struct {
	reply
	short short // the script that said it, if it is not take.lua or refund.lua
}

func (a *answer) describe(op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if a.short.script != nil {
		return a.short.describe(a.reply, &checks[0], dst)
	}
	return a.decisions(op, checks, dst)
}

// takeCluster is Take on a cluster.
func (s *Store) takeCluster(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	groups := s.bySlot(checks)
	if groups == nil && !s.clustered.trouble.now() {
		out, err := s.takeOne(ctx, op, checks, dst)
		s.clustered.trouble.note(err)
		if len(checks) == 1 || !isTryAgain(err) {
			return out, err
		}
	}
	if groups == nil {
		all := group{checks: slices.Clone(checks), places: make([]int, len(checks))}
		for i := range all.places {
			all.places[i] = i
		}
		groups = []group{all}
	}
	return s.takeGroups(ctx, op, groups, dst)
}

// bySlot groups the checks of a request, or returns nil if all of them are in one
// slot, as is usual.
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

// takeGroups is Take for a request in groups.
func (s *Store) takeGroups(ctx context.Context, op headgate.Op, groups []group, dst []headgate.Decision) ([]headgate.Decision, error) {
	s.askAll(ctx, op, groups)
	groups = s.askAgain(ctx, op, groups)
	admitted := true
	var failure error
	for i := range groups {
		g := &groups[i]
		if g.err != nil && failure == nil {
			failure = g.err
		}
		admitted = admitted && g.admits()
	}
	if op == headgate.OpTake && (failure != nil || !admitted) {
		s.giveBack(ctx, groups)
	}
	if failure != nil || op == headgate.OpReset {
		return dst, failure
	}
	return describeGroups(op, groups, admitted, dst)
}

// admits reports whether the group's checks let the request in. What shadows say
// has no say in it.
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

// askAll asks for all groups at once.
func (s *Store) askAll(ctx context.Context, op headgate.Op, groups []group) {
	var others sync.WaitGroup
	for i := 1; i < len(groups); i++ {
		others.Go(func() { s.askFor(ctx, op, &groups[i]) })
	}
	s.askFor(ctx, op, &groups[0])
	others.Wait()
}

// askAgain asks for each check by itself where a slot is just on its way from one
// node to another: keys of one request can be on both then, and the nodes answer
// TRYAGAIN and do nothing.
func (s *Store) askAgain(ctx context.Context, op headgate.Op, groups []group) []group {
	var done, alone []group
	for i := range groups {
		g := &groups[i]
		if len(g.checks) == 1 || !isTryAgain(g.err) {
			done = append(done, *g)
			continue
		}
		for j := range g.checks {
			alone = append(alone, group{checks: g.checks[j : j+1], places: g.places[j : j+1]})
		}
	}
	if alone == nil {
		return groups
	}
	s.askAll(ctx, op, alone)
	return append(done, alone...)
}

func (s *Store) askFor(ctx context.Context, op headgate.Op, g *group) {
	if s.clustered.trouble.now() {
		g.answer, g.err = within(ctx, &s.clustered.tasks, op, func() (answer, error) { return s.ask(ctx, op, g.checks) })
	} else {
		g.answer, g.err = s.ask(ctx, op, g.checks)
	}
	s.clustered.trouble.note(g.err)
}

// ask asks for checks whose counters are in one slot.
func (s *Store) ask(ctx context.Context, op headgate.Op, checks []headgate.Check) (answer, error) {
	if op == headgate.OpReset {
		return answer{}, s.reset(ctx, checks)
	}
	if op == headgate.OpTake && len(checks) == 1 {
		if short := s.short(&checks[0]); short.script != nil {
			reply, err := s.exec(ctx, op, short.script, []string{short.key}, short.args)
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
		s.ahead.Store(reply.now - time.Now().UnixMicro())
		if reply.status != statusWindow {
			return answer{reply: reply}, nil
		}
	}
	return answer{}, jumps(op)
}

// describeGroups describes the answers, in the order of the request's checks. Of
// a request that was denied nothing stays charged.
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
		if op == headgate.OpTake && !admitted {
			g.answer.status = statusDenied
		}
		decisions, err := g.answer.describe(op, g.checks, nil)
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

// giveBack gives back what the groups have charged. It goes on without the caller
// if his time is up: what is not given back stays in use until it expires.
func (s *Store) giveBack(ctx context.Context, groups []group) {
	var charged []headgate.Reservation
	for i := range groups {
		g := &groups[i]
		if g.err != nil || g.answer.status != statusAdmitted {
			continue
		}
		// An answer that cannot be read says nothing of what was charged.
		if decisions, err := g.answer.describe(headgate.OpTake, g.checks, nil); err == nil {
			if r := reservation("back", 0, g.checks, decisions); len(r.Checks) > 0 {
				charged = append(charged, r)
			}
		}
	}
	if charged == nil {
		return
	}
	if ctx.Err() == nil {
		s.refundAll(ctx, charged)
		return
	}
	s.clustered.tasks.start(func() {
		if ctx, cancel, err := s.deadlines.limit(context.Background()); err == nil {
			defer cancel()
			s.refundAll(ctx, charged)
		}
	})
}

func (s *Store) refundAll(ctx context.Context, charged []headgate.Reservation) {
	var others sync.WaitGroup
	for i := 1; i < len(charged); i++ {
		others.Go(func() { s.refundFor(ctx, &charged[i]) })
	}
	s.refundFor(ctx, &charged[0])
	others.Wait()
}

// refundFor gives back the units of checks whose counters are in one slot, one by
// one if that is on its way to another node. A failure leaves them in use.
func (s *Store) refundFor(ctx context.Context, r *headgate.Reservation) {
	refund := func(r *headgate.Reservation) (err error) {
		units := make([]int64, len(r.Checks))
		_, err = within(ctx, &s.clustered.tasks, headgate.OpRefund, func() (struct{}, error) {
			_, err := s.settle(ctx, r, units, nil, refundMode)
			return struct{}{}, err
		})
		return err
	}
	if err := refund(r); len(r.Checks) == 1 || !isTryAgain(err) {
		return
	}
	used := r.Used
	for i := range r.Checks {
		n := len(r.Checks[i].Rule.Limits())
		_ = refund(&headgate.Reservation{ID: r.ID, Checks: r.Checks[i : i+1], Used: used[:n]})
		used = used[n:]
	}
}

// trouble is when calls to a cluster go wrong. The client then looks up where the
// slots are, in the midst of somebody's call and without heeding its deadline, and
// a node that hangs fills its queue; so for a while calls are made where nobody
// waits for them but by their deadline.
type trouble struct {
	until atomic.Int64 // ns; 0 if all is well
}

// troubled is how long that is: a silent connection has been noticed by then.
const troubled = 3 * time.Second

func (t *trouble) now() bool {
	until := t.until.Load()
	if until == 0 {
		return false
	}
	if time.Now().UnixNano() < until {
		return true
	}
	t.until.CompareAndSwap(until, 0)
	return false
}

// note takes notice of how a call ended: what a node answers is no trouble, but that
// the cluster is down is.
func (t *trouble) note(err error) {
	if err == nil {
		return
	}
	var refused *rueidis.RedisError
	if !errors.As(err, &refused) || refused.IsClusterDown() {
		t.until.Store(time.Now().Add(troubled).UnixNano())
	}
}

// within returns what do returns, or the context's end if that comes first. Then
// do goes on by itself.
func within[T any](ctx context.Context, tasks *tasks, op headgate.Op, do func() (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	if !tasks.start(func() {
		value, err := do()
		done <- outcome{value, err}
	}) {
		return do()
	}
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		var none T
		return none, unavailable(op.String(), ctx.Err())
	}
}

// tasks are goroutines that somebody waits for in the end.
type tasks struct {
	mu      sync.Mutex // guards over, and that nothing is added after it
	running sync.WaitGroup
	over    bool
}

// start runs do, or returns false if the end has come.
func (t *tasks) start(do func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return false
	}
	t.running.Go(do)
	return true
}

func (t *tasks) end() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	t.running.Wait()
}

func isTryAgain(err error) bool {
	var refused *rueidis.RedisError
	return errors.As(err, &refused) && refused.IsTryAgain()
}

// pinged is how many nodes are asked whether one answers.
const pinged = 4

// pingAny returns nil if one of some nodes answers.
func (s *Store) pingAny(ctx context.Context) error {
	return s.pingNodes(ctx, pinged, 1)
}

// pingAll connects to all nodes, so that no request must, and returns nil if one of
// them answers.
func (s *Store) pingAll(ctx context.Context) error {
	return s.pingNodes(ctx, math.MaxInt, math.MaxInt)
}

// pingNodes asks so many nodes, waits for so many answers, and returns nil if one
// answers. The calls go on when nobody waits any more: who is cancelled while he
// connects fails all that wait for the same connection.
func (s *Store) pingNodes(ctx context.Context, ask, wait int) error {
	nodes := s.client.Nodes()
	ask = min(ask, len(nodes))
	answers := make(chan error, ask)
	asked := 0
	for _, node := range nodes {
		if asked++; asked > ask {
			break
		}
		if !s.clustered.tasks.start(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(s.deadlines.timeout, defaultConnectTimeout))
			defer cancel()
			answers <- node.Do(ctx, node.B().Ping().Build()).Error()
		}) {
			answers <- rueidis.ErrClosing
		}
	}
	failure, well := rueidis.ErrNoAddr, 0
	for range ask {
		select {
		case err := <-answers:
			if err != nil {
				failure = err
			} else if well++; well >= wait {
				return nil
			}
			continue
		case <-ctx.Done():
			failure = ctx.Err()
		}
		break
	}
	if well > 0 {
		return nil
	}
	return unavailable("ping", failure)
}
