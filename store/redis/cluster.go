package redis

import (
	"context"
	"errors"
	"hash/maphash"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis/internal/guard"
)

// On a cluster a script call reaches only keys in one slot. A request whose keys are in several
// slots makes one call for each slot, all at once. If one slot denies, the store gives back what
// the others have charged. Until then these units are in use, so another request may be denied too
// early. But no limit ever admits too much: if the process dies before it has given the units back,
// they stay in use until they expire. To make early denials rare, the store only peeks at the other
// groups while one group will probably deny the request; see denials.
//
// A single server is a cluster of one slot: whatever is done for each slot is done once.

// cluster is the additional state of a store on a cluster.
type cluster struct {
	denials denials
}

// group has those checks of a request whose counters are in one slot, and what became of them.
type group struct {
	op     headgate.Op      // for a take: the operation for this group
	checks []headgate.Check // the checks of this group
	places []int            // their indices in the request
	units  []int64          // for a settlement: what each check is to cost
	used   []int64          // for a settlement: Reservation.Used of the checks
	reply  reply
	err    error
}

// sameSlot reports whether the counters of all checks are in one slot.
func (s *Store) sameSlot(checks []headgate.Check) bool {
	if s.cluster == nil || len(checks) == 1 {
		return true
	}
	first := s.slotOfCheck(&checks[0])
	for i := 1; i < len(checks); i++ {
		if s.slotOfCheck(&checks[i]) != first {
			return false
		}
	}
	return true
}

func (s *Store) slotOfCheck(c *headgate.Check) uint16 {
	var room [128]byte
	return slotOf(appendKey(room[:0], s.prefix, c))
}

// oneGroup returns a group of all checks.
func oneGroup(checks []headgate.Check) *group {
	all := &group{checks: checks, places: make([]int, len(checks))}
	for i := range all.places {
		all.places[i] = i
	}
	return all
}

// groups groups the checks of a request by slot.
func (s *Store) groups(checks []headgate.Check) []group {
	if s.sameSlot(checks) {
		return []group{*oneGroup(checks)}
	}
	var groups []group
	var slots []uint16 // of the groups
	for i := range checks {
		slot := s.slotOfCheck(&checks[i])
		at := slices.Index(slots, slot)
		if at < 0 {
			at = len(groups)
			groups, slots = append(groups, group{}), append(slots, slot)
		}
		g := &groups[at]
		g.checks, g.places = append(g.checks, checks[i]), append(g.places, i)
	}
	return groups
}

// groupsOf groups the checks of a settlement by slot. used may be empty.
func (s *Store) groupsOf(checks []headgate.Check, units, used []int64) []group {
	groups := s.groups(checks)
	starts := limitStarts(0, checks)
	for i := range groups {
		g := &groups[i]
		for _, place := range g.places {
			g.units = append(g.units, units[place])
			if len(used) > 0 {
				g.used = append(g.used, used[starts[place]:starts[place+1]]...)
			}
		}
	}
	return groups
}

// limitStarts returns, for each check, where its first limit is among the limits of all checks, if
// the first of all is at the given place. The last element is where they end.
func limitStarts(first int, checks []headgate.Check) []int {
	starts := append(make([]int, 0, len(checks)+1), first)
	for i := range checks {
		starts = append(starts, starts[i]+len(checks[i].Rule.Limits()))
	}
	return starts
}

// split returns a group for each check.
func (g *group) split() []group {
	var all []group
	starts := limitStarts(0, g.checks)
	for i := range g.checks {
		one := group{op: g.op, checks: g.checks[i : i+1], places: g.places[i : i+1]}
		if len(g.units) > 0 {
			one.units = g.units[i : i+1]
		}
		if len(g.used) > 0 {
			one.used = g.used[starts[i]:starts[i+1]]
		}
		all = append(all, one)
	}
	return all
}

// each asks for all groups at once, and waits until all have been answered.
func each(groups []group, ask func(g *group) (reply, error)) {
	var others sync.WaitGroup
	for i := 1; i < len(groups); i++ {
		others.Go(func() { groups[i].reply, groups[i].err = ask(&groups[i]) })
	}
	groups[0].reply, groups[0].err = ask(&groups[0])
	others.Wait()
}

// eachMoving is each for calls that may be made for every check by itself. While a slot is being
// moved to another node, the keys of a group can be on both nodes. Then the nodes answer TRYAGAIN
// and charge nothing, and there are more groups afterwards than before.
func eachMoving(groups []group, ask func(g *group) (reply, error)) []group {
	each(groups, ask)
	var done, alone []group
	for i := range groups {
		if g := &groups[i]; len(g.checks) > 1 && isTryAgain(g.err) {
			alone = append(alone, g.split()...)
		} else {
			done = append(done, *g)
		}
	}
	if alone == nil {
		return groups
	}
	each(alone, ask)
	return append(done, alone...)
}

func isTryAgain(err error) bool {
	var refused *rueidis.RedisError
	return errors.As(err, &refused) && refused.IsTryAgain()
}

// failure returns the first error of the groups.
func failure(groups []group) error {
	for i := range groups {
		if groups[i].err != nil {
			return groups[i].err
		}
	}
	return nil
}

// collect appends the decisions of all groups, in the order of the request's checks.
func collect(checks []headgate.Check, groups []group, dst []headgate.Decision, describe func(g *group) ([]headgate.Decision, error)) ([]headgate.Decision, error) {
	starts := limitStarts(len(dst), checks)
	out := append(dst, make([]headgate.Decision, starts[len(checks)]-len(dst))...)
	for i := range groups {
		decisions, err := describe(&groups[i])
		if err != nil {
			return dst, err
		}
		for _, place := range groups[i].places {
			n := copy(out[starts[place]:starts[place+1]], decisions)
			for k := range n {
				out[starts[place]+k].Check = place
			}
			decisions = decisions[n:]
		}
	}
	return out, nil
}

// admits reports whether the group's checks admit the request. Checks in shadow never deny.
func (g *group) admits() bool {
	counts := func(c headgate.Check) bool { return !c.Shadow }
	return g.err == nil && (g.reply.status == statusAdmitted || !slices.ContainsFunc(g.checks, counts))
}

func admit(groups []group) bool {
	return !slices.ContainsFunc(groups, func(g group) bool { return !g.admits() })
}

// takeGroups is Take for a request whose checks are grouped by slot.
func (s *Store) takeGroups(ctx context.Context, op headgate.Op, checks []headgate.Check, groups []group, dst []headgate.Decision) ([]headgate.Decision, error) {
	peeking := s.plan(op, groups)
	ask := func(g *group) (reply, error) { return s.ask(ctx, g.op, g.checks) }
	groups = eachMoving(groups, ask)
	if peeking && admit(groups) {
		// Charge the groups that have only peeked.
		var done, rest []group
		for _, g := range groups {
			if g.op == op {
				done = append(done, g)
			} else {
				g.op = op
				rest = append(rest, g)
			}
		}
		groups = append(done, eachMoving(rest, ask)...)
	}
	err, admitted := failure(groups), admit(groups)
	if op == headgate.OpTake && !admitted {
		s.giveBack(ctx, groups, settlement{op: headgate.OpRefund, mode: modeRefund})
	}
	if err != nil {
		return dst, err
	}
	before := len(dst)
	if dst, err = collectTaken(op, checks, groups, admitted, dst); err == nil && op == headgate.OpTake {
		s.cluster.denials.note(checks, dst[before:])
	}
	return dst, err
}

// collectTaken appends the decisions of all groups. If the request was denied, they show nothing as
// charged.
func collectTaken(op headgate.Op, checks []headgate.Check, groups []group, admitted bool, dst []headgate.Decision) ([]headgate.Decision, error) {
	return collect(checks, groups, dst, func(g *group) ([]headgate.Decision, error) {
		r, asked := g.reply, op
		if op == headgate.OpTake && !admitted {
			r.status, asked = statusDenied, g.op
		}
		return r.taken(asked, g.checks, nil)
	})
}

// plan sets the operation of each group. Usually it is op. If some groups will probably deny the
// request, the others only peek, and peeking is true. A group with a penalty never peeks, because
// the penalty counts denials.
func (s *Store) plan(op headgate.Op, groups []group) (peeking bool) {
	denies := make([]bool, len(groups))
	for i := range groups {
		groups[i].op = op
		denies[i] = op == headgate.OpTake && len(groups) > 1 && s.cluster.denials.expect(groups[i].checks)
	}
	if !slices.Contains(denies, true) {
		return false
	}
	for i := range groups {
		if g := &groups[i]; !denies[i] && !slices.ContainsFunc(g.checks, penalizes) {
			g.op, peeking = headgate.OpPeek, true
		}
	}
	return peeking
}

func penalizes(c headgate.Check) bool {
	return slices.ContainsFunc(c.Rule.Limits(), func(l headgate.Limit) bool { return l.Algorithm == headgate.Penalty })
}

// giveBack gives back what the groups have charged for a request that was not admitted. If the
// caller's deadline passes, giveBack returns, and the work goes on in the background. Units that
// cannot be given back stay in use until they expire.
func (s *Store) giveBack(ctx context.Context, groups []group, how settlement) {
	var charged []group
	for i := range groups {
		g := &groups[i]
		if g.err != nil || g.op != headgate.OpTake || g.reply.status != statusAdmitted {
			continue
		}
		// If an answer cannot be read, it is not known what was charged.
		if decisions, err := g.reply.taken(headgate.OpTake, g.checks, nil); err == nil {
			if back := passing(g.checks, decisions); len(back.checks) > 0 {
				charged = append(charged, back)
			}
		}
	}
	if len(charged) == 0 {
		return
	}
	done := make(chan struct{})
	if !s.tasks.start(func() {
		defer close(done)
		// The work has a deadline of its own, because the caller's may have passed while a node did
		// not answer.
		ctx, cancel, err := s.deadlines.Limit(context.Background())
		if err != nil {
			return
		}
		defer cancel()
		ask := func(g *group) (reply, error) { return s.settle(ctx, how, g) }
		if how.id != "" {
			each(charged, ask) // a group has one note
		} else {
			eachMoving(charged, ask)
		}
	}) {
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// passing returns a group for units that are given back at once. Other requests may give units back
// at the same time. So of the units that were in use after the charge, only the request's own units
// are certain to be still in use, and used contains only those. With a higher number, a bucket could
// give back to one request what it has refilled for another.
func passing(checks []headgate.Check, decisions []headgate.Decision) group {
	r := store.NewReservation("", 0, checks, decisions)
	g := *oneGroup(r.Checks)
	g.units = make([]int64, len(r.Checks))
	for i := range r.Checks {
		for range r.Checks[i].Rule.Limits() {
			g.used = append(g.used, r.Checks[i].Units())
		}
	}
	return g
}

// denials are counters that will probably deny for a while, because they have denied, or have less
// left than the last request took. A request over several slots charges only these counters at
// first, and peeks at the others. So a client that is denied again and again does not hold units of
// others meanwhile. A wrong guess costs a round trip.
//
// The table is indexed by a hash of the counter's name. A counter replaces an older one in the same
// place.
type denials struct {
	seed  maphash.Seed
	table [1 << 12]denial
}

type denial struct {
	counter atomic.Uint64
	until   atomic.Int64 // ns since the Unix epoch, on our clock
}

// expectedFor bounds how long a denial is expected, because a refund, a reset or a changed limit can
// end its reason at any time.
const expectedFor = time.Second

func (t *denials) find(c *headgate.Check) (*denial, uint64) {
	h := maphash.String(t.seed, c.Key) ^ c.Rule.ID()
	return &t.table[h%uint64(len(t.table))], h
}

// expect reports whether one of the checks will probably deny.
func (t *denials) expect(checks []headgate.Check) bool {
	return slices.ContainsFunc(checks, func(c headgate.Check) bool {
		one, h := t.find(&c)
		return !c.Shadow && one.counter.Load() == h && time.Now().UnixNano() < one.until.Load()
	})
}

// note learns from the decisions about the checks.
func (t *denials) note(checks []headgate.Check, decisions []headgate.Decision) {
	for i := range checks {
		c := &checks[i]
		n := len(c.Rule.Limits())
		own := decisions[:n]
		decisions = decisions[n:]
		if c.Shadow {
			continue
		}
		wait := time.Duration(0)
		for j := range own {
			switch o := &own[j]; {
			case !o.Allowed && o.RetryAfter == headgate.Never:
				wait = expectedFor
			case !o.Allowed:
				wait = max(wait, o.RetryAfter)
			case o.Remaining < c.Units() && o.Limit.Algorithm != headgate.Penalty:
				wait = max(wait, o.ResetAfter)
			}
		}
		one, h := t.find(c)
		switch {
		case wait > 0:
			one.until.Store(time.Now().Add(min(wait, expectedFor)).UnixNano())
			one.counter.Store(h)
		case one.counter.Load() == h:
			one.counter.Store(0)
		}
	}
}

// hashSlots is how many hash slots a cluster has.
const hashSlots = 1 << 14

// slotOf returns the hash slot in which a cluster keeps a key. It is the slot of the part between
// the first { and the first } after it, if that part is not empty, and otherwise the slot of the
// whole key.
func slotOf[T string | []byte](key T) uint16 {
	for i := range len(key) {
		if key[i] != '{' {
			continue
		}
		for j := i + 1; j < len(key); j++ {
			if key[j] == '}' && j > i+1 {
				return crc16(key[i+1:j]) % hashSlots
			}
			if key[j] == '}' {
				break
			}
		}
		break
	}
	return crc16(key) % hashSlots
}

// tagOf returns a text of four letters from "@" to "O" whose slot is the given one. So a key that
// contains "{" + tagOf(slot) + "}" is in that slot. The text is the same in every process.
//
// Four letters carry four bits each, and a CRC is linear: if one bit of the letters is flipped, a
// fixed pattern of the slot's bits is flipped. tagBits has, for each bit of a slot, the bits of the
// letters that flip only that bit.
func tagOf(slot uint16) string {
	wanted := slot ^ tagBase
	bits := uint16(0)
	for i, flip := range tagBits {
		if wanted>>i&1 == 1 {
			bits ^= flip
		}
	}
	return string([]byte{'@' | byte(bits>>12), '@' | byte(bits>>8&15), '@' | byte(bits>>4&15), '@' | byte(bits&15)})
}

const tagBase = 13881 // the slot of "@@@@"

var tagBits = [14]uint16{
	0x1afa, 0x06ed, 0x277b, 0x110c, 0x2a91, 0x39c0, 0x1f63,
	0x277f, 0x1104, 0x2208, 0x1bea, 0x04cd, 0x233b, 0x198c,
}

// crc16 is CRC-16/XMODEM: polynomial 0x1021, nothing reflected, from zero.
func crc16[T string | []byte](s T) uint16 {
	crc := uint16(0)
	for i := range len(s) {
		crc = crc<<8 ^ crc16Table[byte(crc>>8)^s[i]]
	}
	return crc
}

var crc16Table = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc >> 15
			crc = crc<<1 ^ carry*0x1021
		}
		table[i] = crc
	}
	return table
}()

// placesLast is how long it is assumed that the same node serves a slot.
const placesLast = 2 * time.Second

// observing knows which server a call goes to.
type observing struct {
	tell    Observer // nil if there is none
	places  atomic.Pointer[places]
	looking atomic.Bool
}

// places knows which node serves which slot.
type places struct {
	until time.Time
	nodes []string
	slots []uint16 // by slot, 1 + the node's index in nodes, or 0 if unknown; nil without a cluster
	// guards are the guards of the nodes, in the same order.
	guards []*guard.Server
}

func (p *places) node(slot uint16) string {
	switch {
	case p == nil || len(p.nodes) == 0:
		return ""
	case p.slots == nil:
		return p.nodes[0]
	case slot < hashSlots && p.slots[slot] > 0:
		return p.nodes[p.slots[slot]-1]
	}
	return ""
}

// guard returns the guard of the node that serves a slot, or otherwise if that node is not known.
func (p *places) guard(slot uint16, otherwise *guard.Server) *guard.Server {
	if p == nil || slot >= hashSlots || len(p.slots) == 0 || p.slots[slot] == 0 {
		return otherwise
	}
	return p.guards[p.slots[slot]-1]
}

// placesNow returns which node serves which slot, as of the last few seconds, or nil if that is not
// known. It does not wait.
func (s *Store) placesNow() *places {
	p, now := s.observing.places.Load(), time.Now()
	if p == nil || now.After(p.until) {
		p = s.look(p, now)
	}
	return p
}

// observe reports a call to the node of a slot.
func (s *Store) observe(slot uint16, op string, start time.Time, err error) {
	o := &s.observing
	o.tell(s.placesNow().node(slot), op, time.Since(start), err)
}

// look starts to find out which nodes serve which slots. It does not wait, and returns what is
// known already.
func (s *Store) look(known *places, now time.Time) *places {
	if s.cluster == nil {
		p := &places{until: now.Add(placesLast), nodes: slices.Sorted(maps.Keys(s.client.Nodes()))}
		s.observing.places.Store(p)
		return p
	}
	if s.observing.looking.CompareAndSwap(false, true) {
		begun := s.tasks.start(func() {
			defer s.observing.looking.Store(false)
			ctx, cancel := context.WithTimeout(context.Background(), placesLast)
			defer cancel()
			p := &places{}
			if reply, err := s.client.Do(ctx, s.client.B().Arbitrary("CLUSTER", "SLOTS").Build()).ToArray(); err == nil {
				p = readPlaces(reply)
				p.guards = s.guards.Of(p.nodes)
			} else if known != nil {
				p.nodes, p.slots, p.guards = known.nodes, known.slots, known.guards
			}
			p.until = time.Now().Add(placesLast)
			s.observing.places.Store(p)
		})
		if !begun {
			s.observing.looking.Store(false)
		}
	}
	return known
}

// readPlaces reads the answer to CLUSTER SLOTS: first and last slot, and the nodes that
// serve them, the primary first.
func readPlaces(reply []rueidis.RedisMessage) *places {
	p := &places{slots: make([]uint16, hashSlots)}
	for i := range reply {
		line, err := reply[i].ToArray()
		if err != nil || len(line) < 3 {
			continue
		}
		first, err1 := line[0].AsInt64()
		last, err2 := line[1].AsInt64()
		primary, err3 := line[2].ToArray()
		if err1 != nil || err2 != nil || err3 != nil || len(primary) < 2 || first < 0 || last >= hashSlots {
			continue
		}
		host, err1 := primary[0].ToString()
		port, err2 := primary[1].AsInt64()
		if err1 != nil || err2 != nil || host == "" {
			continue // a node that does not know its own address
		}
		name := net.JoinHostPort(host, strconv.FormatInt(port, 10))
		at := slices.Index(p.nodes, name)
		if at < 0 {
			at, p.nodes = len(p.nodes), append(p.nodes, name)
		}
		for slot := first; slot <= last; slot++ {
			p.slots[slot] = uint16(at + 1)
		}
	}
	return p
}
