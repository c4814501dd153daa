package redis

import (
	"bytes"
	_ "embed"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// What the store and its scripts say to each other: take.lua, which decides, and refund.lua, which
// gives back, charges and settles. Both read the limits of a rule in the same form, and answer with
// what they have read of the counters. The decisions follow from that in Go.

// The parts of the scripts.
var (
	//go:embed lua/arithmetic.lua
	arithmeticLua string
	//go:embed lua/log.lua
	logLua string
	//go:embed lua/shared.lua
	sharedLua string
	//go:embed lua/checks.lua
	checksLua string
	//go:embed lua/plain.lua
	plainLua string
	//go:embed lua/advance.lua
	advanceLua string
	//go:embed lua/divide.lua
	divideLua string
	//go:embed lua/windows.lua
	windowsLua string
	//go:embed lua/take.lua
	takeLua string
	//go:embed lua/refund.lua
	refundLua string
	//go:embed lua/recall.lua
	recallLua string
)

// takeScript and refundScript return take.lua and refund.lua with the parts that they name.
func takeScript() string {
	script := strings.NewReplacer(
		"--{checks.lua}", arithmeticLua+logLua+sharedLua+checksLua,
		"--{plain.lua}", plainLua, "--{windows.lua}", windowsLua,
	).Replace(takeLua)
	script = strings.ReplaceAll(script, "--{advance.lua}", advanceLua)
	return strings.ReplaceAll(script, "--{divide.lua}", divideLua)
}

func refundScript() string {
	return strings.ReplaceAll(arithmeticLua+logLua+sharedLua+refundLua, "--{divide.lua}", divideLua)
}

// The kinds of limits that the scripts tell apart.
const (
	kindBucket   = 1
	kindAligned  = 2
	kindFirst    = 3
	kindCalendar = 4
	kindCounter  = 5
	kindPenalty  = 6
)

const (
	stateBytes = 15 // stamp I7, used I4, extra I4
	factsBytes = 16 // used I4, age of the blocking unit I6, age of the newest I6
)

// appendSpec writes a rule's limits, and a cost, as the scripts read them:
//
//	sliding windows B, slots B, the cost d
//	for each limit but sliding windows: its name, 8 bytes
//	for each limit but sliding windows: kind B, capacity d, num d, den d, period d, mark d
//	for each sliding window: count I4, period I7
//
// Doubles (d) are little-endian, integers big-endian. mark is algorithm.MarkOf for buckets, and
// otherwise 0. For a penalty num is its longest block in milliseconds and den its first in
// microseconds. Lua knows no time zones, so calendar windows are computed here: for them num is the
// longest that a window lasts in seconds, and den and period are the begin and end of the window
// that contains near, the store's likely time. A script that finds another time there does nothing,
// and is called again.
func appendSpec(b []byte, r *headgate.Rule, cost int64, near headgate.Instant) []byte {
	limits := r.Limits()
	at := len(b)
	b = appendDoubles(append(b, 0, 0), cost)
	for i := range limits {
		if limits[i].Algorithm == headgate.SlidingWindow {
			b[at]++
			continue
		}
		b[at+1]++
		b = binary.BigEndian.AppendUint64(b, limits[i].Slot())
	}
	for i := range limits {
		if l := &limits[i]; l.Algorithm != headgate.SlidingWindow {
			b = appendSlot(b, l, near)
		}
	}
	for i := range limits {
		if l := &limits[i]; l.Algorithm == headgate.SlidingWindow {
			b = binary.BigEndian.AppendUint32(b, uint32(l.Count))
			b = appendUint56(b, l.Micros())
		}
	}
	return b
}

func appendSlot(b []byte, l *headgate.Limit, near headgate.Instant) []byte {
	num, den := l.Rate()
	period := l.Micros()
	var kind byte
	var mark int64
	switch {
	case l.Algorithm == headgate.Penalty:
		kind = kindPenalty
		num, den = max(l.Block, l.MaxBlock).Milliseconds(), l.Block.Microseconds()
	case l.Algorithm == headgate.SlidingCounter:
		kind = kindCounter
	case l.Algorithm != headgate.FixedWindow:
		kind, mark = kindBucket, algorithm.MarkOf(l)
	case l.Align == headgate.AlignUTC:
		kind = kindAligned
	case l.Align == headgate.AlignFirst:
		kind = kindFirst
	default:
		kind = kindCalendar
		num = period / 1e6
		begin, end := algorithm.Window(l, near)
		den, period = int64(begin), int64(end)
	}
	return appendDoubles(append(b, kind), l.Capacity(), num, den, period, mark)
}

func appendDoubles(b []byte, values ...int64) []byte {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(v)))
	}
	return b
}

// appendKey writes the name of a counter: the prefix, the rule's name, its tag in braces if it has
// one, a space, and the key. A rule's name contains neither spaces nor braces, so no two counters
// have the same name. Only the tag is in braces. In keys, braces are written as %7B and %7D, and %
// as %25, so that different keys stay different. Otherwise the owner of a key could choose its
// slot.
func appendKey(b []byte, prefix string, c *headgate.Check) []byte {
	b = append(b, prefix...)
	b = append(b, c.Rule.Name()...)
	if tag := c.Rule.Tag(); tag != "" {
		b = append(b, '{')
		b = append(b, tag...)
		b = append(b, '}')
	}
	return appendEscaped(append(b, ' '), c.Key)
}

// appendEscaped writes a key with {, } and % escaped. On a cluster, braces would choose the key's
// hash slot.
func appendEscaped(b []byte, key string) []byte {
	if strings.IndexByte(key, '{') < 0 && strings.IndexByte(key, '}') < 0 && strings.IndexByte(key, '%') < 0 {
		return append(b, key...)
	}
	plain := 0 // the offset from which the key is not written yet
	for i := range len(key) {
		var written string
		switch key[i] {
		case '{':
			written = "%7B"
		case '}':
			written = "%7D"
		case '%':
			written = "%25"
		default:
			continue
		}
		b = append(b, key[plain:i]...)
		b = append(b, written...)
		plain = i + 1
	}
	return append(b, key[plain:]...)
}

func appendUint56(b []byte, v int64) []byte {
	return append(b, byte(v>>48), byte(v>>40), byte(v>>32), byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
}

func appendInt(b []byte, v int64) []byte { return strconv.AppendInt(b, v, 10) }

// request is what take.lua decides at a time, all or nothing: checks whose counters are in one
// slot. While it waits for a call that it shares with others, it has a place in the combiner's
// queue. It is used again; see Store.requests.
type request struct {
	names []byte // the names of the counters, one after the other
	ends  []int  // where each of them ends
	text  []byte // what take.lua reads about the request
	work  int    // the server's work for it, if it may share a call; the unit is the work for a single bucket

	until time.Time // the caller's deadline; zero if there is none
	reply reply
	err   error
	left  atomic.Bool   // the caller no longer waits; whoever makes the call may still use the request
	done  chan struct{} // has a value once reply or err is set
}

// The modes of take.lua.
const (
	modePeek = 0
	modeTake = 1
	modeOnce = 2 // the request has an id
)

// set makes the request one about the checks. It copies all that the call needs, because the caller
// may have given up before the call is made.
func (q *request) set(prefix string, mode byte, checks []headgate.Check, near headgate.Instant) {
	q.names, q.ends = q.names[:0], q.ends[:0]
	b := append(q.text[:0], byte(len(checks)), mode, 0, 0, 0)
	for i := range checks {
		c := &checks[i]
		q.names = appendKey(q.names, prefix, c)
		q.ends = append(q.ends, len(q.names))
		var shadow byte
		if c.Shadow {
			shadow = 1
		}
		b = appendSpec(append(b, shadow), c.Rule, c.Units(), near)
	}
	length := len(b) - 5
	b[2], b[3], b[4] = byte(length>>16), byte(length>>8), byte(length)
	q.text = b
}

// workOf estimates the work for a request. The unit is the work for a single limit, of 24,000
// instructions in a shared call. What checks.lua decides takes several times as many.
func workOf(mode byte, checks []headgate.Check) int {
	limits, sliding, simple := 0, 0, true
	for i := range checks {
		own := checks[i].Rule.Limits()
		limits += len(own)
		for j := range own {
			switch own[j].Algorithm {
			case headgate.SlidingWindow:
				sliding++
			case headgate.Penalty:
				simple = false
			}
		}
	}
	switch {
	case simple && sliding == 0:
		return len(checks) + (limits-len(checks)+1)/2
	case sliding == limits && len(checks) == 1 && mode == modeTake:
		return (limits + 1) / 2
	}
	return 2 + 2*len(checks) + limits
}

// arguments returns the keys and the arguments of take.lua, of which noted say what to note of a request
// that has an id. All others are parts of one string.
func (s *Store) arguments(noted []string, requests ...*request) (keys, args []string) {
	size, names := 0, 0
	for _, q := range requests {
		size += len(q.names) + len(q.text)
		names += len(q.ends)
	}
	var b strings.Builder
	b.Grow(size)
	for _, q := range requests {
		b.Write(q.names)
	}
	asked := b.Len()
	var before []byte
	for _, q := range requests {
		if bytes.Equal(q.text, before) {
			b.WriteByte(0)
		} else {
			b.Write(q.text)
		}
		before = q.text
	}
	all, clock := b.String(), s.testTime()
	room := make([]string, names+1+2) // there may be a note, too
	keys, args = room[:0:names+1], append(room[names+1:names+1], all[asked:])
	if clock != "" || noted != nil { // the server does work for an empty argument, too
		args = append(append(args, clock), noted...)
	}
	at := 0
	for _, q := range requests {
		from := at
		for _, end := range q.ends {
			keys = append(keys, all[at:from+end])
			at = from + end
		}
	}
	return keys, args
}

// The statuses with which the answers of scripts begin.
const (
	statusDenied   = 0
	statusAdmitted = 1
	statusWindow   = 2 // a calendar window does not contain the store's time
	statusStored   = 3 // more by this: the one counter is as it is stored; see spread
	statusConflict = 5 // the id is another request's, or the reservation was settled at other units
	statusDenies   = 6 // a denied request is repeated, and its limits have changed
	statusAdmits   = 7 // an admitted request is repeated, and its limits have changed
	statusNone     = 8 // there is no such reservation
	statusRefused  = 9 // the server refused something to this one of several requests; nothing was done
)

// reply is a script's answer about one request, settlement or note.
type reply struct {
	status int
	now    headgate.Instant
	text   string // the rest, after the status and the time
}

// replyHead is the length of the status and the time.
const replyHead = 8

// parseReply reads an answer of refund.lua, or one that is kept in a note.
func parseReply(text string) (reply, error) {
	if len(text) < replyHead {
		return reply{}, tooShort(len(text), replyHead)
	}
	return reply{status: int(text[0]), now: headgate.Instant(readUint(text[1:], 7)), text: text[replyHead:]}, nil
}

// answers are those of take.lua to its requests.
type answers struct {
	now  headgate.Instant
	text string // what is not read yet
}

func parseAnswers(text string) (answers, error) {
	if len(text) < 7 {
		return answers{}, tooShort(len(text), 7)
	}
	return answers{headgate.Instant(readUint(text, 7)), text[7:]}, nil
}

// next reads the answer to the next request.
func (a *answers) next() (reply, error) {
	if len(a.text) < 3 {
		return reply{}, tooShort(len(a.text), 3)
	}
	size := int(readUint(a.text, 3))
	if a.text = a.text[3:]; len(a.text) < size {
		return reply{}, tooShort(len(a.text), size)
	}
	if size == 0 {
		return reply{status: statusRefused, now: a.now}, nil
	}
	r := reply{status: int(a.text[0]), now: a.now, text: a.text[1:size]}
	if stored := r.status - statusStored; (stored == statusDenied || stored == statusAdmitted) && len(r.text) > 0 {
		r.status, r.text = stored, spread(r.text)
	}
	a.text = a.text[size:]
	return r, nil
}

// spread returns the states of a counter in the order of all other answers: behind the state of each
// limit its further ones; see counterBytes. The value is as it is stored: how many states there are,
// their names, and the states. First come those of the limits. Behind them, in the same order, is the
// one further state that a limit may have.
func spread(value string) string {
	count := int(value[0])
	if len(value) != 1+count*(8+stateBytes) {
		return ""
	}
	name := func(i int) string { return value[1+8*i : 9+8*i] }
	state := func(i int) string { return value[1+8*count+stateBytes*i:][:stateBytes] }
	// place is where a state is among those of its limit.
	place := func(i int) int {
		switch headgate.Algorithm(name(i)[1]>>4) - 1 {
		case headgate.TokenBucket, headgate.LeakyBucket, headgate.SlidingCounter:
			return int(name(i)[1] & 15)
		}
		return 0
	}
	own := 0
	for own < count && place(own) == 0 {
		own++
	}
	if own == count {
		return value[1+8*count:]
	}
	b := make([]byte, 0, (own+algorithm.BucketSlots*(count-own))*stateBytes)
	next := own
	for i := range own {
		at, kind := len(b), name(i)[1]
		b = append(b, state(i)...)
		if next == count || name(i)[:1] != name(next)[:1] || kind>>4 != name(next)[1]>>4 || name(i)[2:] != name(next)[2:] {
			continue
		}
		to, slots := place(next), algorithm.BucketSlots/2
		if to >= slots { // it has high halves
			b[at] |= 1 << 7
			slots = algorithm.BucketSlots
		}
		if headgate.Algorithm(kind>>4)-1 == headgate.SlidingCounter {
			to, slots = 1, 2
		}
		b = append(b, make([]byte, (slots-1)*stateBytes)...)
		copy(b[at+to*stateBytes:], state(next))
		next++
	}
	return string(b)
}

// tooShort returns the error for an answer that is too short.
func tooShort(has, least int) error {
	return unavailable("reading the script's answer", fmt.Errorf("it has %d bytes, must have %d or more", has, least))
}

// describe appends the decisions about checks, of which the script has read the counters. each
// describes the limits of one check, given what was read of them.
func (r reply) describe(checks []headgate.Check, dst []headgate.Decision, each func(i int, own []headgate.Decision, text string)) ([]headgate.Decision, error) {
	want := 0
	for i := range checks {
		want += limitBytes(checks[i].Rule.Limits(), r.text[min(want, len(r.text)):])
	}
	if len(r.text) != want {
		return dst, unavailable("reading the script's answer", fmt.Errorf("it has %d bytes of limits, must have %d", len(r.text), want))
	}
	text := r.text
	for i := range checks {
		c := &checks[i]
		limits := c.Rule.Limits()
		first := len(dst)
		for range limits {
			dst = append(dst, headgate.Decision{Rule: c.Rule, Check: i, Shadow: c.Shadow})
		}
		size := limitBytes(limits, text)
		each(i, dst[first:], text[:size])
		text = text[size:]
	}
	return dst, nil
}

// taken appends the decisions that follow from an answer of take.lua. They take the state that the
// script read through the same steps as the script.
func (r reply) taken(op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	admitted := op == headgate.OpTake && r.status == statusAdmitted
	return r.describe(checks, dst, func(i int, own []headgate.Decision, text string) {
		c := &checks[i]
		charged := admitted && (!c.Shadow || fits(text, c, r.now))
		describeTaken(own, text, op, c, r.now, charged)
	})
}

// settled appends the decisions that follow from an answer of refund.lua, which made the units of
// the checks those that are given. used are the units that were in use after the charge, if that is
// known, for each limit.
func (r reply) settled(checks []headgate.Check, units, used []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	return r.describe(checks, dst, func(i int, own []headgate.Decision, text string) {
		c := &checks[i]
		limits := c.Rule.Limits()
		for j := range limits {
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
				after = before.Settle(l, r.now, more, c.At, known)
			}
			after.Describe(&own[j], l, before, r.now, 0, true)
		}
		for j := range limits {
			if l := &limits[j]; l.Algorithm == headgate.SlidingWindow {
				readFacts(text, r.now).Describe(&own[j], l, r.now, 0, false)
				text = text[factsBytes:]
			}
			own[j].Allowed, own[j].RetryAfter, own[j].Delay = true, 0, 0
		}
		if len(used) > 0 {
			used = used[len(limits):]
		}
	})
}

// limitBytes returns the length of a script's answer about a rule's limits, with which text begins.
// The answer has the states of all limits that are not sliding windows, followed by the facts of
// the sliding windows.
func limitBytes(limits []headgate.Limit, text string) int {
	n, facts := 0, 0
	for i := range limits {
		if limits[i].Algorithm == headgate.SlidingWindow {
			facts += factsBytes
		} else {
			n += counterBytes(&limits[i], text[min(n, len(text)):])
		}
	}
	return n + facts
}

// counterBytes returns the length of the answer about a limit that is not a sliding window. It has
// the limit's state and, for a bucket that lists of different rates share, the further states. If
// there are high halves, as the first bit says, these follow.
func counterBytes(l *headgate.Limit, text string) int {
	states := 1
	if len(text) >= stateBytes {
		halves := text[0]>>7 != 0
		switch {
		case l.Algorithm <= headgate.LeakyBucket && algorithm.HasSlots(readState(text)):
			states = algorithm.BucketSlots / 2
			if halves {
				states = algorithm.BucketSlots
			}
		case halves:
			states = 2
		}
	}
	return states * stateBytes
}

// cutCounter reads a counter from the front of a script's answer, advances it to now, and returns
// the rest of the answer.
func cutCounter(l *headgate.Limit, text string, now headgate.Instant) (c algorithm.Counter, rest string) {
	size := counterBytes(l, text)
	c = algorithm.LoadCounter(l, true, func(i int) algorithm.State {
		if l.Algorithm > headgate.LeakyBucket {
			i = min(i, 1) // a sliding counter has no other further state
		}
		if (i+1)*stateBytes > size {
			return algorithm.State{}
		}
		return readState(text[i*stateBytes:])
	})
	c, _ = c.Advance(l, now)
	return c, text[size:]
}

// fits reports whether all limits of a check admit it, by the state that a script read.
func fits(text string, c *headgate.Check, now headgate.Instant) bool {
	var room [headgate.MaxLimits]headgate.Decision
	decisions := room[:len(c.Rule.Limits())]
	describeTaken(decisions, text, headgate.OpPeek, c, now, false)
	for i := range decisions {
		if !decisions[i].Allowed {
			return false
		}
	}
	return true
}

// describeTaken describes the limits of one check that was taken or peeked at.
func describeTaken(dst []headgate.Decision, text string, op headgate.Op, c *headgate.Check, now headgate.Instant, charged bool) {
	limits := c.Rule.Limits()
	var penalty *headgate.Decision
	var counted algorithm.State // the penalty's state
	denied := false             // by a limit that is not a penalty
	for i := range limits {
		l := &limits[i]
		if l.Algorithm == headgate.SlidingWindow {
			continue
		}
		before, rest := cutCounter(l, text, now)
		text = rest
		after := before
		if charged {
			after = before.Charge(l, now, c.Units())
		}
		after.Describe(&dst[i], l, before, now, c.Units(), before.Fits(l, now, c.Units()))
		if l.Algorithm == headgate.Penalty {
			penalty, counted = &dst[i], before.State
		} else {
			denied = denied || !dst[i].Allowed
		}
	}
	for i := range limits {
		if l := &limits[i]; l.Algorithm == headgate.SlidingWindow {
			readFacts(text, now).Describe(&dst[i], l, now, c.Units(), charged)
			text = text[factsBytes:]
			denied = denied || !dst[i].Allowed
		}
	}
	if penalty != nil && denied && op == headgate.OpTake && penalty.Allowed {
		after := algorithm.Punish(penalty.Limit, counted, now)
		algorithm.Describe(penalty, penalty.Limit, counted, after, now, c.Units(), true)
	}
}

// readUint reads a big-endian integer of the given size from the front of s.
func readUint(s string, size int) int64 {
	v := int64(0)
	for i := range size {
		v = v<<8 | int64(s[i])
	}
	return v
}

// readState reads a counter's state from the front of s.
func readState(s string) algorithm.State {
	return algorithm.State{
		Stamp: headgate.Instant(readUint(s, 7) &^ (1 << 55)),
		Used:  readUint(s[7:], 4),
		Extra: readUint(s[11:], 4),
	}
}

// readFacts reads the facts about a sliding window from the front of a script's answer.
func readFacts(s string, now headgate.Instant) algorithm.WindowFacts {
	return algorithm.WindowFacts{
		Used:     readUint(s, 4),
		Blocking: now - headgate.Instant(readUint(s[4:], 6)),
		Newest:   now - headgate.Instant(readUint(s[10:], 6)),
	}
}
