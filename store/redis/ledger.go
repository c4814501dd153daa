package redis

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis/internal/guard"
)

// A request with an id, or one that is reserved, has a note: what take.lua answered and, for a
// reservation, its checks with all their limits, so that a process whose rules have changed can
// settle it. take.lua writes the note when it charges, and refund.lua when it settles.
//
// On a cluster every group has a note of its own, in its slot. The first group's note holds the
// checks of all groups, and its slot is a part of the reservation's ID, so that the note can be
// found. If the request is repeated, groups that have a note answer from it, and the others are
// charged. If one group denies, the others are settled at 0 units, which can be repeated, too.

var _ headgate.Ledger = (*Store)(nil)

// keptFor is how long a reservation whose units are to be given back is kept after it has expired,
// because there may be no running process that can give them back.
const keptFor = 24 * time.Hour

// TakeOnce implements [headgate.Ledger]. On a cluster, the same id names different requests if
// their first counters are in different hash slots.
func (s *Store) TakeOnce(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	_, dst, err := s.once(ctx, terms, checks, dst, false, true)
	return dst, err
}

// Reserve implements [headgate.Ledger]. If a reservation that is to be given back expires without a
// settlement, its units come back within seconds, by any process that has made such reservations.
// If no such process runs, they come back when one runs again.
func (s *Store) Reserve(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	chosen := terms.ID != ""
	if !chosen {
		terms.ID = rand.Text()
	}
	return s.once(ctx, terms, checks, dst, true, chosen)
}

// once takes a request that has an id. chosen says that the caller gave the id, and may repeat the
// request.
func (s *Store) once(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision, reserve, chosen bool) (r headgate.Reservation, _ []headgate.Decision, err error) {
	if err := store.ValidateOnce(&terms, checks); err != nil {
		return r, dst, err
	}
	ctx, cancel, err := s.deadlines.Limit(ctx)
	if err != nil {
		return r, dst, unavailable("take", err)
	}
	defer cancel()
	n := noteTerms{id: terms.ID, term: terms.Term(), reserve: reserve, chosen: chosen, gives: reserve && slices.ContainsFunc(checks, gives)}
	id := s.publicID(terms.ID, &checks[0])
	if reserve {
		if _, err := readChecks(string(appendChecks(nil, checks))); err != nil {
			return r, dst, fmt.Errorf("%w: the reservation could not be settled by another process: %w", headgate.ErrInvalid, err)
		}
	}
	if n.gives {
		if err := s.promise(ctx, id, n.term); err != nil {
			return r, dst, err
		}
	}
	groups := s.groups(checks)
	each(groups, func(g *group) (reply, error) {
		g.op = headgate.OpTake
		noted := g.checks
		if g == &groups[0] {
			noted = checks
		}
		return s.takeNoted(ctx, g.checks, &n, noted)
	})
	admitted, changed, err := onceTaken(groups)
	if err != nil {
		s.giveBack(ctx, groups, settlement{op: headgate.OpRefund, mode: modeForget, id: terms.ID})
		return r, dst, err
	}
	if !admitted {
		s.giveBack(ctx, groups, settlement{op: headgate.OpRefund, mode: modeSettle, id: terms.ID})
	}
	before := len(dst)
	if changed {
		// The request is repeated after its limits have changed.
		if admitted && reserve {
			recalled, err := s.read(ctx, id)
			if err != nil {
				return r, dst, err
			}
			r = recalled.reservation
		}
		if dst, err = s.Take(ctx, headgate.OpPeek, checks, dst); err != nil {
			return headgate.Reservation{}, dst, err
		}
		algorithm.Again(dst[before:], admitted)
		return r, dst, nil
	}
	dst, err = collectTaken(headgate.OpTake, checks, groups, admitted, dst)
	if err != nil || !reserve || !admitted {
		return r, dst, err
	}
	first := slices.MinFunc(groups, func(a, b group) int { return cmp.Compare(a.reply.now, b.reply.now) })
	return store.NewReservation(id, first.reply.now+headgate.Instant(n.term.Microseconds()), checks, dst[before:]), dst, nil
}

// onceTaken returns what the groups of a request with an id say together. changed says that the
// request is repeated, and that its limits have changed.
func onceTaken(groups []group) (admitted, changed bool, err error) {
	admitted = true
	for i := range groups {
		g := &groups[i]
		switch {
		case g.err != nil:
			err = cmp.Or(err, g.err)
		case g.reply.status == statusConflict:
			return false, false, &headgate.ConflictError{}
		case g.reply.status == statusNone:
			err = cmp.Or(err, headgate.ErrNoReservation)
		case g.reply.status == statusDenies || g.reply.status == statusAdmits:
			changed = true
			admitted = admitted && g.reply.status == statusAdmits
		default:
			admitted = admitted && g.admits()
		}
	}
	return admitted, changed, err
}

func gives(c headgate.Check) bool { return c.GiveBack }

// takeNoted charges checks whose counters are in one slot, and has a note stored about others or
// the same.
func (s *Store) takeNoted(ctx context.Context, checks []headgate.Check, n *noteTerms, noted []headgate.Check) (reply, error) {
	note := n.arguments(noted)
	return s.inWindow(ctx, headgate.OpTake, checks, func(began time.Time) (reply, error) {
		q := s.requests.Get().(*request)
		q.set(s.prefix, modeOnce, checks, s.likely(began))
		keys, args := s.arguments(note, q)
		s.requests.Put(q)
		return s.take(ctx, headgate.OpTake, append(keys, s.noteKey(n.id, slotOf(keys[0]))), args, began, false)
	})
}

// recalled is what is known about a reservation.
type recalled struct {
	open        bool
	expired     bool
	reservation headgate.Reservation
}

// Recall implements [headgate.Ledger].
func (s *Store) Recall(ctx context.Context, id string) (headgate.Reservation, error) {
	ctx, cancel, err := s.deadlines.Limit(ctx)
	if err != nil {
		return headgate.Reservation{}, unavailable("recall", err)
	}
	defer cancel()
	r, err := s.read(ctx, id)
	if err == nil && (r.expired || r.reservation.ID == "") {
		err = headgate.ErrNoReservation
	}
	if err != nil {
		return headgate.Reservation{}, err
	}
	return r.reservation, nil
}

// read reads what is known about a reservation, whether it has expired or not: the first note, and
// then those of the other groups.
func (s *Store) read(ctx context.Context, id string) (recalled, error) {
	base, slot, ok := s.splitID(id)
	if !ok {
		return recalled{}, headgate.ErrNoReservation
	}
	first, err := s.readNote(ctx, s.noteKey(base, slot))
	switch {
	case err != nil:
		return recalled{}, err
	case first.checks == nil:
		return recalled{}, headgate.ErrNoReservation
	}
	groups := s.groups(first.checks)
	each(groups, func(g *group) (reply, error) {
		if g == &groups[0] {
			return first.answer, nil
		}
		n, err := s.readNote(ctx, s.noteKey(base, s.slotOfCheck(&g.checks[0])))
		return n.answer, err
	})
	if err := failure(groups); err != nil {
		return recalled{}, err
	}
	if !admit(groups) {
		return recalled{}, headgate.ErrNoReservation
	}
	decisions, err := collectTaken(headgate.OpTake, first.checks, groups, true, nil)
	if err != nil {
		return recalled{}, err
	}
	return recalled{first.open, first.now >= first.ended, store.NewReservation(id, headgate.Instant(first.expires), first.checks, decisions)}, nil
}

// settlement says how refund.lua changes what was charged.
type settlement struct {
	op      headgate.Op // in errors
	mode    string
	id      string           // the id of the request; "" if it has none
	expires headgate.Instant // when the reservation expires, lest it be another one by that id; 0 if any will do
}

// The modes of refund.lua.
const (
	modeRefund  = "0" // there is no note
	modeSettle  = "1"
	modeExpired = "2"
	modeForget  = "3" // the request has failed, and its note is dropped
)

// Settle implements [headgate.Ledger].
func (s *Store) Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := store.ValidateSettle(&r, units); err != nil {
		return dst, err
	}
	ctx, cancel, err := s.deadlines.Limit(ctx)
	if err != nil {
		return dst, unavailable("settle", err)
	}
	defer cancel()
	return s.settleAll(ctx, &r, units, dst, modeSettle)
}

func (s *Store) settleAll(ctx context.Context, r *headgate.Reservation, units []int64, dst []headgate.Decision, mode string) ([]headgate.Decision, error) {
	id, _, ok := s.splitID(r.ID)
	if !ok {
		return dst, headgate.ErrNoReservation
	}
	how := settlement{op: headgate.OpRefund, mode: mode, id: id}
	if s.cluster == nil { // The nodes' clocks differ, and so does the expiry of the notes on them.
		how.expires = r.Expires
	}
	settle := func(g *group) (reply, error) { return s.settle(ctx, how, g) }
	groups := s.groupsOf(r.Checks, units, r.Used)
	// The first group is settled before the others. If two settlements with different units come at
	// once, one of them fails there, and the other one counts for all groups.
	if each(groups[:1], settle); groups[0].err == nil && len(groups) > 1 {
		each(groups[1:], settle)
	}
	return collectSettled(r.Checks, groups, dst)
}

func collectSettled(checks []headgate.Check, groups []group, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := failure(groups); err != nil {
		return dst, err
	}
	return collect(checks, groups, dst, func(g *group) ([]headgate.Decision, error) {
		return g.reply.settled(g.checks, g.units, g.used, nil)
	})
}

// adjust carries out OpRefund and OpCharge: settlements at no units, and at twice the units, which
// charges them once more.
func (s *Store) adjust(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	units := make([]int64, len(checks))
	if op == headgate.OpCharge {
		for i := range checks {
			units[i] = 2 * checks[i].Units()
		}
	}
	groups := eachMoving(s.groupsOf(checks, units, nil), func(g *group) (reply, error) {
		return s.settle(ctx, settlement{op: op, mode: modeRefund}, g)
	})
	return collectSettled(checks, groups, dst)
}

// settle runs refund.lua for checks whose counters are in one slot. It does not wait behind
// decisions.
func (s *Store) settle(ctx context.Context, how settlement, g *group) (reply, error) {
	r, err := s.inWindow(ctx, how.op, g.checks, func(began time.Time) (reply, error) {
		keys, args := s.settleArguments(how, g, s.likely(began))
		to := s.guard(keys[0])
		if err := to.Begin(); err != nil {
			return reply{}, unavailable(how.op.String(), err)
		}
		text, err := s.run(ctx, to, began, s.scripts.refund, keys, args, false)
		to.End(began, err)
		if err != nil {
			return reply{}, unavailable(how.op.String(), err)
		}
		return parseReply(text)
	})
	switch {
	case err != nil:
		return r, err
	case r.status == statusConflict:
		return r, &headgate.ConflictError{Units: g.units}
	case r.status == statusNone:
		return r, headgate.ErrNoReservation
	}
	return r, nil
}

// settleArguments returns the keys and arguments of refund.lua, most of which are parts of one
// string.
func (s *Store) settleArguments(how settlement, g *group, near headgate.Instant) (keys, args []string) {
	b := make([]byte, 0, 64+160*len(g.checks))
	var ends []int
	end := func() { ends = append(ends, len(b)) }
	if s.clock != nil {
		b = appendInt(b, int64(near))
	}
	end()
	used := g.used
	h := sha256.New()
	for i := range g.checks {
		c := &g.checks[i]
		b = appendKey(b, s.prefix, c)
		end()
		b = appendSpec(b, c.Rule, 0, near)
		end()
		b = appendInt(b, c.Units()-g.units[i])
		end()
		b = appendInt(b, int64(c.At))
		end()
		limits := c.Rule.Limits()
		for j := range limits {
			if limits[j].Algorithm != headgate.SlidingWindow && len(used) > 0 {
				b = appendUint56(b, used[j])
			}
		}
		end()
		if len(used) > 0 {
			used = used[len(limits):]
		}
		h.Write(appendCount(nil, g.units[i]))
	}
	all := string(b)
	args = []string{how.mode, all[:ends[0]]}
	for i := range g.checks {
		at := ends[5*i:]
		keys = append(keys, all[at[0]:at[1]])
		args = append(args, all[at[1]:at[2]], all[at[2]:at[3]], all[at[3]:at[4]], all[at[4]:at[5]])
	}
	if how.id != "" {
		expires := ""
		if how.expires != 0 {
			expires = string(appendUint56(nil, int64(how.expires)))
		}
		repeat := strconv.FormatInt(store.RepeatFor.Microseconds(), 10)
		keys, args = append(keys, s.noteKey(how.id, slotOf(keys[0]))), append(args, expires, string(h.Sum(nil)[:16]), repeat)
	}
	return keys, args
}

// slotMark separates an id from the slot of its first note.
const slotMark = "~"

// publicID returns the ID of the reservation that a request's id leads to. check is its first one.
func (s *Store) publicID(id string, check *headgate.Check) string {
	if s.cluster == nil {
		return id
	}
	return id + slotMark + strconv.FormatUint(uint64(s.slotOfCheck(check)), 36)
}

// splitID is the inverse of publicID.
func (s *Store) splitID(id string) (base string, slot uint16, ok bool) {
	if s.cluster == nil {
		return id, 0, true
	}
	at := strings.LastIndex(id, slotMark)
	if at < 0 {
		return "", 0, false
	}
	n, err := strconv.ParseUint(id[at+len(slotMark):], 36, 16)
	return id[:at], uint16(n), err == nil && n < hashSlots
}

// noteKey returns the key of the note of a request. The space after the prefix distinguishes it
// from the names of counters. On a cluster the note is in the same slot as the counters.
func (s *Store) noteKey(id string, slot uint16) string {
	if s.cluster == nil {
		return s.prefix + " id " + id
	}
	return s.prefix + " {" + tagOf(slot) + "} " + id
}

// noteTerms says what take.lua is to store about a request that has an id.
type noteTerms struct {
	id      string
	term    time.Duration
	reserve bool
	chosen  bool // the caller gave the id, and may repeat a denied request
	gives   bool // the units are given back if no settlement comes
}

// arguments returns the arguments of take.lua for a note about checks.
func (n *noteTerms) arguments(checks []headgate.Check) []string {
	again, chosen, keep, payload := int64(0), "0", int64(0), ""
	if n.reserve {
		payload = string(appendChecks(nil, checks))
	}
	if n.chosen {
		chosen = "1"
		if n.reserve {
			again = store.SettledFor.Microseconds()
		}
	}
	if n.gives {
		keep = keptFor.Milliseconds()
	}
	return []string{
		n.prints(checks), strconv.FormatInt(n.term.Microseconds(), 10), strconv.FormatInt(again, 10),
		chosen, payload, strconv.FormatInt(keep, 10),
	}
}

// prints returns the fingerprint of a request: 16 bytes for its rules, keys and costs, and 8 bytes
// for its limits. For a reservation, the first part also covers its term and what is given back.
// Clients may choose keys and ids. But a client that finds two requests with the same fingerprint
// gains only that the second one gets the answer to the first.
func (n *noteTerms) prints(checks []headgate.Check) string {
	h := sha256.New()
	var b []byte
	for i := range checks {
		c := &checks[i]
		b = appendText(appendText(b[:0], c.Rule.Name()), c.Key)
		b = appendCount(b, c.Units())
		if n.reserve {
			b = appendCount(b, max(c.Factor, 1))
			b = strconv.AppendBool(b, c.GiveBack)
		}
		h.Write(b)
	}
	if n.reserve {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(n.term)))
	}
	text := h.Sum(nil)[:16]
	h.Reset()
	for i := range checks {
		b = appendLimits(b[:0], checks[i].Rule)
		if checks[i].Shadow {
			b = append(b, 1)
		}
		h.Write(b)
	}
	return string(append(text, h.Sum(nil)[:8]...))
}

// The layout of a note; see take.lua.
const (
	noteHead    = 59  // the offset of the answer to the request
	noteExpires = 25  // the offset of the time of expiry, which that of being forgotten follows
	noteState   = 'o' // the first byte of a note that is open: its reservation may be settled
)

// noted is the content of a note.
type noted struct {
	open    bool  // the reservation is not settled
	now     int64 // the server's time, in µs since the Unix epoch
	expires int64 // when the reservation expires
	ended   int64 // when it is no longer found
	answer  reply
	checks  []headgate.Check // nil if the request was not reserved
}

// readNote reads and parses the note. The error is ErrNoReservation if there is no note.
func (s *Store) readNote(ctx context.Context, key string) (n noted, err error) {
	text, err := guard.Do(ctx, s.guard(key), func() (string, error) {
		return s.scripts.recall.Exec(ctx, s.client, []string{key}, []string{s.testTime()}).ToString()
	})
	switch {
	case err != nil:
		return n, unavailable("recall", err)
	case len(text) <= 7:
		return n, headgate.ErrNoReservation
	}
	fail := func(err error) (noted, error) { return noted{}, unavailable("reading a note", err) }
	n.now = readUint(text, 7)
	text = text[7:]
	if len(text) < noteHead {
		return fail(fmt.Errorf("it has %d bytes, must have %d or more", len(text), noteHead))
	}
	n.open, n.expires = text[0] == noteState, readUint(text[noteExpires:], 7)
	n.ended = min(n.expires, readUint(text[noteExpires+7:], 7))
	answer, rest, err := cutText32(text[noteHead-4:])
	if err != nil {
		return fail(err)
	}
	if _, rest, err = cutText32(rest); err != nil {
		return fail(err)
	}
	if n.answer, err = parseReply(answer); err != nil || rest == "" {
		return n, err
	}
	if n.checks, err = readChecks(rest); err != nil {
		return fail(err)
	}
	return n, nil
}

// appendChecks writes the checks of a reservation with all their limits.
func appendChecks(b []byte, checks []headgate.Check) []byte {
	for i := range checks {
		c := &checks[i]
		b = appendText(b, c.Rule.Name())
		b = appendText(b, c.Rule.Tag())
		b = appendLimits(b, c.Rule)
		b = appendText(b, c.Key)
		b = appendCount(b, c.Units())
		b = appendCount(b, c.Factor)
		var flags byte
		if c.GiveBack {
			flags |= 1
		}
		if c.Shadow {
			flags |= 2
		}
		b = append(b, flags, byte(c.OnError))
	}
	return b
}

// appendLimits writes everything about a rule's limits that NewRule needs.
func appendLimits(b []byte, r *headgate.Rule) []byte {
	limits := r.Limits()
	b = append(b, byte(len(limits)))
	for i := range limits {
		l := &limits[i]
		b = append(b, byte(l.Algorithm), byte(l.Align))
		b = appendCount(b, l.Count)
		b = appendCount(b, l.Burst)
		b = binary.BigEndian.AppendUint64(b, uint64(l.Period))
		b = binary.BigEndian.AppendUint64(b, uint64(l.Block))
		b = binary.BigEndian.AppendUint64(b, uint64(l.MaxBlock))
		zone := ""
		if l.Location != nil {
			zone = l.Location.String()
		}
		b = appendText(b, zone)
	}
	return b
}

// appendCount writes a number of units: in 4 bytes, or in 8, of which the first bit is set, from 2^31.
func appendCount(b []byte, n int64) []byte {
	if n < 1<<31 {
		return binary.BigEndian.AppendUint32(b, uint32(n))
	}
	return binary.BigEndian.AppendUint64(b, uint64(n)|1<<63)
}

// appendText writes the length of a text, and the text.
func appendText(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

// reader reads what the functions above have written. After an error it returns zeros.
type reader struct {
	text string
	err  error
}

func (r *reader) uint(size int) int64 {
	if len(r.text) < size {
		r.text, r.err = "", errors.New("it ends before its time")
		return 0
	}
	v := readUint(r.text, size)
	r.text = r.text[size:]
	return v
}

// count is the inverse of appendCount.
func (r *reader) count() int64 {
	n := r.uint(4)
	if n>>31 != 0 {
		n = (n&(1<<31-1))<<32 | r.uint(4)
	}
	return n
}

func (r *reader) string() string {
	n := int(r.uint(2))
	if len(r.text) < n {
		r.text, r.err = "", errors.New("it ends within a text")
		return ""
	}
	s := r.text[:n]
	r.text = r.text[n:]
	return s
}

// readChecks is the inverse of appendChecks.
func readChecks(text string) ([]headgate.Check, error) {
	r := reader{text: text}
	var checks []headgate.Check
	for r.text != "" && len(checks) < headgate.MaxChecks {
		name, tag := r.string(), r.string()
		limits, err := r.limits()
		if err != nil {
			return nil, err
		}
		rule, err := headgate.NewRule(name, limits...)
		if err == nil && tag != "" {
			rule, err = rule.WithTag(tag)
		}
		if err != nil {
			return nil, err
		}
		c := headgate.Check{Rule: rule, Key: r.string(), Cost: r.count(), Factor: r.count()}
		flags := r.uint(1)
		c.GiveBack, c.Shadow = flags&1 != 0, flags&2 != 0
		c.OnError = headgate.OnError(r.uint(1))
		if r.err != nil {
			return nil, r.err
		}
		checks = append(checks, c)
	}
	return checks, store.Validate(headgate.OpTake, checks)
}

func (r *reader) limits() ([]headgate.Limit, error) {
	limits := make([]headgate.Limit, r.uint(1))
	for i := range limits {
		l := &limits[i]
		l.Algorithm, l.Align = headgate.Algorithm(r.uint(1)), headgate.Alignment(r.uint(1))
		l.Count, l.Burst = r.count(), r.count()
		l.Period, l.Block, l.MaxBlock = time.Duration(r.uint(8)), time.Duration(r.uint(8)), time.Duration(r.uint(8))
		if zone := r.string(); zone != "" && r.err == nil {
			location, err := headgate.LoadLocation(zone)
			if err != nil {
				return nil, fmt.Errorf("limit %d: %w", i+1, err)
			}
			l.Location = location
		}
	}
	return limits, r.err
}

// cutText32 cuts off a text that follows its length in four bytes.
func cutText32(s string) (text, rest string, err error) {
	if len(s) >= 4 {
		if n := readUint(s, 4); int64(len(s)-4) >= n {
			return s[4 : 4+n], s[4+n:], nil
		}
	}
	return "", "", errors.New("it ends within an answer")
}
