package redis

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis/internal/guard"
)

// note says what take.lua is to store about a request that has an id.
type note struct {
	key     string
	prints  string // the fingerprint of the request; see printOf
	term    time.Duration
	named   bool   // the caller gave the id, and may repeat a denied request
	payload string // the checks of a reservation; empty if the request is not reserved
	gives   bool   // the units are given back if no settlement comes
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

// noteKey returns the key of the note of a request. The space after the prefix distinguishes it
// from the names of counters. On a cluster the note is in the same slot as the counter.
func (s *Store) noteKey(id, counter string) string {
	if s.clustered == nil {
		return s.prefix + " id " + id
	}
	return s.noteKeyIn(id, slotOf(counter))
}

// printOf returns the fingerprint of a request: 16 bytes for its rules, keys and costs, and 8 bytes
// for its limits. For a reservation, the first part also covers its term and what is given back.
// Clients may choose keys and ids. But a client that finds two requests with the same fingerprint
// gains only that the second one gets the answer to the first.
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

// The layout of a note; see take.lua.
const (
	noteHead    = 59  // the offset of the answer to the request
	noteExpires = 25  // the offset of the time of expiry
	noteState   = 'o' // the first byte of a note that is open: its reservation may be settled
)

// noted is the content of a note.
type noted struct {
	open    bool  // the reservation is not settled
	now     int64 // the server's time, in µs since the Unix epoch
	expires int64 // when the reservation expires
	answer  reply
	checks  []headgate.Check // nil if the request was not reserved
}

// readNote reads and parses the note. The error is ErrNoReservation if there is no note.
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

// recallNote returns the server's time in 7 bytes followed by the note, or "" if there is no note.
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
