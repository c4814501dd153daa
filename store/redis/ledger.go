package redis

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis/internal/guard"
)

var _ headgate.Ledger = (*Store)(nil)

// settledFor is how long a reservation is remembered after it has expired, so that a settlement at
// the last moment can be repeated.
const settledFor = time.Minute

// keptFor is how long a reservation is kept whose units are to be given back, in case no process
// runs that could do it.
const keptFor = 24 * time.Hour

// note is what take.lua is to remember about a request.
type note struct {
	key     string
	prints  string // see printOf
	term    time.Duration
	named   bool   // the caller gave the id, and may repeat a denied request
	payload string // the checks of a reservation; empty if the request is not reserved
	gives   bool   // units are given back if nobody settles
}

// append appends the arguments of take.lua that follow those of the checks.
func (n *note) append(args []string) []string {
	again, named, keep := int64(0), "0", int64(0)
	if n.payload != "" {
		again = settledFor.Microseconds()
	}
	if n.named {
		named = "1"
	}
	if n.gives {
		keep = keptFor.Milliseconds()
	}
	return append(args, n.prints, strconv.FormatInt(n.term.Microseconds(), 10), strconv.FormatInt(again, 10),
		named, n.payload, strconv.FormatInt(keep, 10))
}

// noteKey returns the name of a note. A space after the prefix distinguishes it from the names of
// counters. On a cluster the note is in the slot of the given counter.
func (s *Store) noteKey(id, counter string) string {
	if s.clustered == nil {
		return s.prefix + " id " + id
	}
	return s.noteKeyIn(id, slotOf(counter))
}

// printOf returns the fingerprint of a request: 16 bytes for its rules, keys and costs, and 8 bytes
// for its limits. Clients may choose keys and ids. But a client that finds two requests with the
// same fingerprint gains no more than the answer to one request.
func printOf(terms *headgate.Terms, checks []headgate.Check, reserve bool) string {
	h := sha256.New()
	var b []byte
	for i := range checks {
		c := &checks[i]
		b = appendText(appendText(b[:0], c.Rule.Name()), c.Key)
		b = binary.BigEndian.AppendUint32(b, uint32(c.Units()))
		if reserve {
			b = binary.BigEndian.AppendUint32(b, uint32(max(c.Factor, 1)))
			b = strconv.AppendBool(b, c.GiveBack)
		}
		h.Write(b)
	}
	if reserve {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(terms.Term())))
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

// TakeOnce implements [headgate.Ledger]. On a cluster the ids of requests whose first
// counters are in different hash slots are different ids.
func (s *Store) TakeOnce(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	_, dst, err := s.once(ctx, terms, checks, dst, false, true)
	return dst, err
}

// Reserve implements [headgate.Ledger]. If a reservation that is to be given back expires without a
// settlement, its units come back within seconds, by any process that has made such reservations.
// If no such process runs, they come back when one runs again.
func (s *Store) Reserve(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	named := terms.ID != ""
	if !named {
		terms.ID = rand.Text()
	}
	return s.once(ctx, terms, checks, dst, true, named)
}

func (s *Store) once(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision, reserve, named bool) (headgate.Reservation, []headgate.Decision, error) {
	var none headgate.Reservation
	if err := store.ValidateOnce(&terms, checks); err != nil {
		return none, dst, err
	}
	ctx, cancel, err := s.deadlines.Limit(ctx)
	if err != nil {
		return none, dst, unavailable("take", err)
	}
	defer cancel()
	n := &note{key: s.noteKey(terms.ID, string(appendKey(nil, s.prefix, &checks[0]))), prints: printOf(&terms, checks, reserve), term: terms.Term(), named: named}
	if reserve {
		n.payload = string(appendChecks(nil, checks))
		if _, err := readChecks(n.payload); err != nil {
			return none, dst, fmt.Errorf("%w: the reservation could not be settled by another process: %w", headgate.ErrInvalid, err)
		}
		if n.gives = gives(checks); n.gives {
			id := terms.ID
			if s.clustered != nil {
				id = clusterID(id, s.slotOfCheck(&checks[0]))
			}
			if err := s.promise(ctx, id, terms.Term()); err != nil {
				return none, dst, err
			}
		}
	}
	if s.clustered != nil {
		return s.onceCluster(ctx, terms, checks, dst, reserve, n)
	}
	before := len(dst)
	for range windowTries {
		r, err := s.call(ctx, headgate.OpTake, checks, n)
		if err != nil {
			return none, dst, err
		}
		s.ahead.Store(r.now - time.Now().UnixMicro())
		switch r.status {
		case statusWindow:
			continue
		case statusConflict:
			return none, dst, &headgate.ConflictError{}
		case statusNone:
			return none, dst, headgate.ErrNoReservation
		case statusDenies, statusAdmits:
			return s.changed(ctx, terms.ID, checks, dst, r.status == statusAdmits, reserve)
		}
		dst, err = r.decisions(headgate.OpTake, checks, dst)
		if err != nil || !reserve || r.status != statusAdmitted {
			return none, dst, err
		}
		return store.NewReservation(terms.ID, headgate.Instant(r.now+terms.Term().Microseconds()), checks, dst[before:]), dst, nil
	}
	return none, dst, jumps(headgate.OpTake)
}

// changed answers a request that is repeated after its limits have changed.
func (s *Store) changed(ctx context.Context, id string, checks []headgate.Check, dst []headgate.Decision, admitted, reserve bool) (r headgate.Reservation, _ []headgate.Decision, err error) {
	if admitted && reserve {
		recalled, err := s.read(ctx, id)
		if err != nil {
			return r, dst, err
		}
		r = recalled.reservation
	}
	before := len(dst)
	dst, err = s.Take(ctx, headgate.OpPeek, checks, dst)
	if err != nil {
		return headgate.Reservation{}, dst, err
	}
	algorithm.Again(dst[before:], admitted)
	return r, dst, nil
}

func gives(checks []headgate.Check) bool {
	for i := range checks {
		if checks[i].GiveBack {
			return true
		}
	}
	return false
}

// The layout of a note; see take.lua.
const (
	noteHead    = 59  // the offset of the answer
	noteExpires = 25  // the offset of the time of expiry
	noteState   = 'o' // the first byte of a note that may be settled
)

// recalled is what is known about a reservation.
type recalled struct {
	open        bool
	expired     bool
	reservation headgate.Reservation
}

// noted is a note that was read from the server.
type noted struct {
	open    bool
	now     int64
	expires int64
	answer  reply
	checks  []headgate.Check // nil if the request was not reserved
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

// read reads what is known about a reservation, whether it has expired or not.
func (s *Store) read(ctx context.Context, id string) (recalled, error) {
	if s.clustered != nil {
		return s.readCluster(ctx, id)
	}
	n, err := s.readNote(ctx, s.noteKey(id, ""))
	if err != nil {
		return recalled{}, err
	}
	if n.checks == nil || n.answer.status != statusAdmitted {
		return recalled{}, headgate.ErrNoReservation
	}
	decisions, err := n.answer.decisions(headgate.OpTake, n.checks, nil)
	if err != nil {
		return recalled{}, err
	}
	return recalled{n.open, n.now >= n.expires, store.NewReservation(id, headgate.Instant(n.expires), n.checks, decisions)}, nil
}

// readNote reads a note. The error is ErrNoReservation if there is none.
func (s *Store) readNote(ctx context.Context, key string) (n noted, err error) {
	text, err := s.recallNote(ctx, key)
	switch {
	case err != nil:
		return n, err
	case text == "":
		return n, headgate.ErrNoReservation
	}
	fail := func(err error) (noted, error) { return noted{}, unavailable("reading a note", err) }
	n.now = readUint(text, 7)
	text = text[7:]
	if len(text) < noteHead {
		return fail(fmt.Errorf("it has %d bytes, must have %d or more", len(text), noteHead))
	}
	n.open, n.expires = text[0] == noteState, readUint(text[noteExpires:], 7)
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

// recallNote returns the server's time and the note, or "" if there is no note.
func (s *Store) recallNote(ctx context.Context, key string) (string, error) {
	now := ""
	if s.clock != nil {
		now = strconv.FormatInt(s.clock(), 10)
	}
	text, err := guard.Do(ctx, s.guard(key), func() (string, error) {
		return s.recall.Exec(ctx, s.client, []string{key}, []string{now}).ToString()
	})
	if err != nil {
		return "", unavailable("recall", err)
	}
	if len(text) <= 7 {
		return "", nil
	}
	return text, nil
}

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
	if s.clustered != nil {
		return s.settleCluster(ctx, &r, units, dst, settleNow)
	}
	return s.settle(ctx, &r, units, dst, settleNow)
}

// The modes of refund.lua.
const (
	refundMode    = "0"  // there is no note
	chargeMode    = "00" // sent as refundMode; only the operation in errors and statistics differs
	settleNow     = "1"
	settleExpired = "2"
	settleForget  = "3" // the request was denied or has failed, and its note is dropped
)

// settle runs refund.lua for a reservation or, in refundMode and chargeMode, for checks without a
// note.
func (s *Store) settle(ctx context.Context, r *headgate.Reservation, units []int64, dst []headgate.Decision, mode string) ([]headgate.Decision, error) {
	for range windowTries {
		reply, err := s.callSettle(ctx, r, units, mode)
		if err != nil {
			return dst, err
		}
		s.ahead.Store(reply.now - time.Now().UnixMicro())
		switch reply.status {
		case statusWindow:
			continue
		case statusConflict:
			return dst, &headgate.ConflictError{Units: units}
		case statusNone:
			return dst, headgate.ErrNoReservation
		}
		return reply.settled(r, units, dst)
	}
	return dst, jumps(headgate.OpRefund)
}

func (s *Store) callSettle(ctx context.Context, r *headgate.Reservation, units []int64, mode string) (reply, error) {
	near := s.likely()
	b := make([]byte, 0, 64+160*len(r.Checks))
	if s.clock != nil {
		b = appendInt(b, near)
	}
	ends := append(make([]int, 0, 1+5*len(r.Checks)), len(b))
	used := r.Used
	h := sha256.New()
	for i := range r.Checks {
		c := &r.Checks[i]
		b = appendKey(b, s.prefix, c)
		ends = append(ends, len(b))
		b = appendSpec(b, c.Rule, near)
		ends = append(ends, len(b))
		b = appendInt(b, c.Units()-units[i])
		ends = append(ends, len(b))
		b = appendInt(b, int64(c.At))
		ends = append(ends, len(b))
		limits := c.Rule.Limits()
		for j := range limits {
			if limits[j].Algorithm != headgate.SlidingWindow && len(used) > 0 {
				b = binary.BigEndian.AppendUint32(b, uint32(used[j]))
			}
		}
		ends = append(ends, len(b))
		if len(used) > 0 {
			used = used[len(limits):]
		}
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(units[i])))
	}
	keys := make([]string, 0, len(r.Checks)+1)
	keys, args := cutArgs(string(b), ends, len(r.Checks), []string{mode}, keys)
	switch mode {
	case chargeMode:
		args[0] = refundMode
		return s.exec(ctx, headgate.OpCharge, s.refund, keys, args)
	case refundMode:
		return s.exec(ctx, headgate.OpRefund, s.refund, keys, args)
	}
	// On a cluster each node has its own idea of when the reservation expires.
	expires := ""
	if s.clustered == nil {
		expires = string(appendUint56(nil, int64(r.Expires)))
	}
	return s.exec(ctx, headgate.OpRefund, s.refund, append(keys, s.noteKey(r.ID, keys[0])),
		append(args, expires, string(h.Sum(nil)[:16])))
}

// settled appends the decisions that follow from the answer of refund.lua to a settlement.
func (r reply) settled(res *headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	want := 0
	for i := range res.Checks {
		want += limitBytes(res.Checks[i].Rule.Limits(), r.text[min(want, len(r.text)):])
	}
	if len(r.text) != want {
		return dst, r.misread(want)
	}
	text, used := r.text, res.Used
	for i := range res.Checks {
		c := &res.Checks[i]
		limits := c.Rule.Limits()
		first := len(dst)
		for j := range limits {
			dst = append(dst, headgate.Decision{Rule: c.Rule, Check: i, Shadow: c.Shadow})
			l := &limits[j]
			if l.Algorithm == headgate.SlidingWindow {
				continue
			}
			before, rest := cutCounter(l, text, r.now)
			after := before
			text = rest
			if more := units[i] - c.Units(); more != 0 {
				known := int64(0)
				if len(used) > 0 {
					known = used[j]
				}
				after = before.Settle(l, r.now, more, int64(c.At), known)
			}
			after.Describe(&dst[first+j], l, before, r.now, 0, true)
		}
		for j := range limits {
			if l := &limits[j]; l.Algorithm == headgate.SlidingWindow {
				readFacts(text, r.now).Describe(&dst[first+j], l, r.now, 0, false)
				text = text[factsBytes:]
			}
			d := &dst[first+j]
			d.Allowed, d.RetryAfter, d.Delay = true, 0, 0
		}
		if len(used) > 0 {
			used = used[len(limits):]
		}
	}
	return dst, nil
}
