package insight

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate"
)

// Denial is one denial and its reason.
type Denial struct {
	// Seq is the number of this event among those of its node, counted from 1.
	Seq int64 `json:"seq"`
	// Node is the recorder that the denial comes from; see [Recorder.Node].
	Node string `json:"node"`
	// At is when the request was decided, in milliseconds since 1970, on the store's clock. If that
	// clock is more than a minute off, it is when the denial was recorded, on this machine's clock.
	At int64 `json:"at"`
	// Rule, Limit and Tier say what denied. Limit is written as in rules.
	Rule  string `json:"rule"`
	Limit string `json:"limit"`
	Tier  string `json:"tier,omitempty"`
	// Key is the key that was denied.
	Key Name `json:"key"`
	// Shadow says that the limit is in shadow, so the denial was not enforced.
	Shadow bool `json:"shadow,omitempty"`
	// Cost is the cost that was asked for, Remaining what was left, and Capacity the largest cost that
	// the limit admits at once. If Source is "local", both are those of the server's share of the limit.
	Cost      int64 `json:"cost"`
	Remaining int64 `json:"remaining"`
	Capacity  int64 `json:"capacity"`
	// RetryAfterMS is how long it takes until the cost fits, in milliseconds, rounded up. It is -1 if
	// the cost never fits.
	RetryAfterMS int64 `json:"retry_after_ms"`
	// Version is the version of the policy, or zero if it is not known.
	Version int64 `json:"version,omitempty"`
	// Door is where the request came from.
	Door string `json:"door,omitempty"`
	// Source says who decided, such as "store".
	Source string `json:"source"`
	// Times is how many denials of the key by the rule were counted since the event before, including
	// this one.
	Times int64 `json:"times"`
}

// event is the stored form of a [Denial].
type event struct {
	record
	denial
	key   []byte
	tier  string
	times int64
	when  int64 // milliseconds since 1970
}

// denials is a ring of the last denials. Its memory is bounded by the number of slots, because no
// key is longer than headgate.MaxKey.
type denials struct {
	slots  []event
	events int64 // events recorded so far
	recent [recentKeys]recentKey
}

// recentKeys is the number of slots for keys that were denied recently. It is also the maximum
// number of events in a second.
const recentKeys = 1024

type recentKey struct {
	hash   uint64
	second int64
	times  int64 // since the last event
}

// denied records a denial as an event, unless the slot of its key and rule has had an event in the
// same second.
func (r *Recorder) denied(of *record, more *denial, hash uint64, key []byte, k known) {
	now := r.options.Now()
	hash ^= of.rule.ID()
	recent := &r.recent[hash%recentKeys]
	second := now.Unix()
	same := recent.hash == hash
	if recent.second == second {
		// A different key in the same slot also has to wait for the next second.
		if same {
			recent.times++
		}
		r.left.Events++
		return
	}
	times := int64(1)
	if same {
		times += recent.times
	}
	*recent = recentKey{hash: hash, second: second}
	to := &r.slots[r.events%int64(len(r.slots))]
	r.events++
	to.record, to.denial, to.times = *of, *more, times
	to.key = append(to.key[:0], key...)
	to.tier = ""
	if k.figures != nil {
		to.tier = k.figures.tierName(k.tier)
	}
	// A store's clock may differ from this machine's. For instance, a memory store uses the monotonic
	// clock, which stands still while the machine is suspended.
	if to.when = more.at / 1000; max(to.when-now.UnixMilli(), now.UnixMilli()-to.when) > apart.Milliseconds() {
		to.when = now.UnixMilli()
	}
}

// apart is the largest difference between the store's clock and this machine's for which the
// store's time is shown.
const apart = time.Minute

// Denials returns at most the given number of denials after the event with the number after, the
// oldest first. lost is how many events after that number are no longer remembered. Zero begins
// with the oldest event that is remembered, and -1 returns the last ones.
func (r *Recorder) Denials(after int64, most int) (list []Denial, lost int64) {
	r.flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	oldest := max(r.events-int64(len(r.slots)), 0)
	switch {
	case after < 0:
		after = max(oldest, r.events-int64(most))
	case after > r.events:
		after = r.events
	case after < oldest:
		if after > 0 {
			lost = oldest - after
		}
		after = oldest
	}
	for n := after; n < r.events && len(list) < most; n++ {
		list = append(list, r.denial(n))
	}
	return list, lost
}

// Search returns at most the given number of remembered denials that fit, the newest first.
func (r *Recorder) Search(fits func(rule, key string) bool, most int) (list []Denial) {
	r.flush()
	r.mu.Lock()
	defer r.mu.Unlock()
	for n := r.events - 1; n >= max(r.events-int64(len(r.slots)), 0) && len(list) < most; n-- {
		if e := &r.slots[n%int64(len(r.slots))]; fits(e.rule.Name(), string(e.key)) {
			list = append(list, r.denial(n))
		}
	}
	return list
}

func (r *Recorder) denial(n int64) Denial {
	e := &r.slots[n%int64(len(r.slots))]
	d := Denial{
		Seq: n + 1, Node: r.node, At: e.when,
		Rule: e.rule.Name(), Limit: e.limit.String(), Tier: e.tier, Key: Name{Raw: string(e.key)}, Shadow: e.outcome == wasShadow,
		Cost: e.cost, Remaining: e.denial.remaining, Capacity: e.capacity, RetryAfterMS: -1,
		Version: e.version, Source: e.source.String(), Times: e.times,
	}
	if int(e.door) < len(r.doors) {
		d.Door = r.doors[e.door].name
	}
	if after := time.Duration(e.retryAfter); after != headgate.Never {
		d.RetryAfterMS = int64((after + time.Millisecond - 1) / time.Millisecond)
	}
	return d
}

// Name is a key: any bytes, possibly chosen by a client. In JSON it is an object with an "id",
// which encodes the bytes, and a "text" for people, in which unprintable characters are escaped.
type Name struct {
	Raw string
	// Cut says that Raw is only the beginning of the key, because there was no memory for more.
	Cut bool
}

type nameJSON struct {
	ID   string `json:"id"`
	Text string `json:"text"`
	Cut  bool   `json:"cut,omitempty"`
}

// MarshalJSON implements [json.Marshaler].
func (n Name) MarshalJSON() ([]byte, error) {
	return json.Marshal(nameJSON{n.ID(), n.Text(), n.Cut})
}

// UnmarshalJSON implements [json.Unmarshaler]. It ignores the text, and reads the id and whether
// the key is cut.
func (n *Name) UnmarshalJSON(b []byte) error {
	var from nameJSON
	if err := json.Unmarshal(b, &from); err != nil {
		return err
	}
	parsed, err := ParseID(from.ID)
	*n = Name{parsed.Raw, from.Cut}
	return err
}

// ID returns the key encoded in letters, digits, "-" and "_" (base64url).
func (n Name) ID() string { return base64.RawURLEncoding.EncodeToString([]byte(n.Raw)) }

// errID is the error for a text that is not the ID of a name.
var errID = errors.New("headgate: not the id of a key")

// ParseID is the inverse of [Name.ID].
func ParseID(id string) (Name, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(id)
	if err != nil {
		return Name{}, errID
	}
	return Name{Raw: string(raw)}, nil
}

// maxText is about how much of a key is shown, in bytes.
const maxText = 160

// Text returns the key for people to read. Bytes that are not UTF-8, control characters, and marks
// that change the display of the text around them are escaped as in Go source code. A long key is
// shortened.
func (n Name) Text() string {
	var b strings.Builder
	raw := n.Raw
	for len(raw) > 0 {
		c, size := utf8.DecodeRuneInString(raw)
		switch {
		case b.Len() > maxText:
			b.WriteString("…")
			return b.String()
		case c == utf8.RuneError && size == 1:
			writeEscape(&b, 'x', uint32(raw[0]), 2)
		case c == '\\':
			b.WriteString(`\\`)
		case unicode.IsPrint(c):
			b.WriteRune(c)
		case c < 0x80:
			writeEscape(&b, 'x', uint32(c), 2)
		case c > 0xffff:
			writeEscape(&b, 'U', uint32(c), 8)
		default:
			writeEscape(&b, 'u', uint32(c), 4)
		}
		raw = raw[size:]
	}
	if n.Cut {
		b.WriteString("…")
	}
	return b.String()
}

func writeEscape(b *strings.Builder, kind byte, c uint32, digits int) {
	b.WriteByte('\\')
	b.WriteByte(kind)
	for i := digits - 1; i >= 0; i-- {
		b.WriteByte("0123456789abcdef"[c>>(4*i)&15])
	}
}
