package notice

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/muldiv"
)

// Dialect is the set of headers that tell a client its limits. The zero Dialect
// is XRateLimit.
type Dialect uint8

const (
	// XRateLimit writes X-RateLimit-Limit, X-RateLimit-Remaining and
	// X-RateLimit-Reset for the deciding limit: its capacity, what is left of
	// it, and the seconds until it is fully free again.
	XRateLimit Dialect = iota
	// RateLimitTriple writes RateLimit-Limit, RateLimit-Remaining and
	// RateLimit-Reset, as drafts of the IETF before the eighth have them. In a
	// denial the reset is the moment of Retry-After.
	RateLimitTriple
	// Draft11 writes RateLimit-Policy and RateLimit with one item for each
	// limit, as draft-ietf-httpapi-ratelimit-headers-11 has them.
	Draft11
	// NoHeaders writes no header but the Retry-After of a denial.
	NoHeaders

	dialects // the number of dialects
)

var dialectNames = [dialects]string{"x-ratelimit", "ratelimit-triple", "draft-11", "none"}

// String returns the dialect's name as it is written in configuration:
// "x-ratelimit", "ratelimit-triple", "draft-11" or "none".
func (d Dialect) String() string {
	if d < dialects {
		return dialectNames[d]
	}
	return fmt.Sprintf("dialect(%d)", uint8(d))
}

// Known reports whether the dialect is one of those above.
func (d Dialect) Known() bool { return d < dialects }

// ParseDialect is the inverse of [Dialect.String].
func ParseDialect(s string) (Dialect, error) {
	for i, name := range dialectNames {
		if s == name {
			return Dialect(i), nil
		}
	}
	return 0, headgate.Invalid("", "headers", "header dialect %q is not one of %v", s, dialectNames)
}

// maxItems is how many limits Draft11 lists. A request bound by more is told of
// the deciding one alone, since servers and proxies bound the size of headers.
const maxItems = 32

// WriteHeaders tells the verdict in the dialect's headers. A denial also gets
// Cache-Control: no-store and, unless its cost can never fit, Retry-After. A
// verdict without decisions is told by no header. The response must not have
// been started yet.
func WriteHeaders(h map[string][]string, dialect Dialect, v *headgate.Verdict) {
	if !v.Allowed {
		h["Cache-Control"] = []string{"no-store"}
		if v.RetryAfter != headgate.Never {
			SetRetryAfter(h, v.RetryAfter)
		}
	}
	d := v.Deciding()
	if d == nil || d.Limit == nil {
		return
	}
	items := v.Decisions
	if slices.ContainsFunc(items, isPenalty) {
		if items = withoutPenalties(items); len(items) == 0 {
			return
		}
		shown := headgate.Verdict{Decisions: items}
		if d = shown.Deciding(); d == nil {
			return
		}
	}
	switch dialect {
	case XRateLimit:
		writeTriple(h, &xNames, d, d.ResetAfter)
	case RateLimitTriple:
		reset := d.ResetAfter
		if !d.Allowed && d.RetryAfter != headgate.Never {
			reset = d.RetryAfter
		}
		writeTriple(h, &tripleNames, d, reset)
	case Draft11:
		if slices.ContainsFunc(items, isShadow) {
			// What never denies is nothing to keep to.
			items = slices.DeleteFunc(slices.Clone(items), isShadow)
		}
		if len(items) > maxItems {
			items = []headgate.Decision{*d}
		}
		writeDraft(h, items)
	}
}

func isShadow(d headgate.Decision) bool { return d.Shadow }

func isPenalty(d headgate.Decision) bool {
	return d.Limit != nil && d.Limit.Algorithm == headgate.Penalty
}

// withoutPenalties leaves out what clients have no units of. Where a penalty blocks,
// the limits beside it have nothing left until the block ends.
func withoutPenalties(items []headgate.Decision) []headgate.Decision {
	shown := make([]headgate.Decision, 0, len(items))
	for _, d := range items {
		if isPenalty(d) {
			continue
		}
		for _, p := range items {
			if isPenalty(p) && p.Check == d.Check && !p.Allowed && !p.Shadow {
				d.Allowed, d.Remaining = false, 0
				if d.RetryAfter != headgate.Never {
					d.RetryAfter = max(d.RetryAfter, p.RetryAfter)
				}
				d.ResetAfter = max(d.ResetAfter, p.RetryAfter)
			}
		}
		shown = append(shown, d)
	}
	return shown
}

// SetRetryAfter writes Retry-After in whole seconds, rounded up: a client that comes back then
// is not too early.
func SetRetryAfter(h map[string][]string, after time.Duration) {
	h["Retry-After"] = []string{strconv.FormatInt(max(1, ceilSeconds(after)), 10)}
}

// ceilSeconds rounds up to whole seconds.
func ceilSeconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}

// ceilMillis rounds up to whole milliseconds and keeps Never as it is.
func ceilMillis(d time.Duration) int64 {
	if d == headgate.Never {
		return -1
	}
	ms := int64(d / time.Millisecond)
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// The names are in the canonical form of map[string][]string, so that they can be set
// without a look at each letter.
var (
	xNames      = [3]string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}
	tripleNames = [3]string{"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset"}
)

// writeTriple sets three headers with two allocations: their text, and the
// slice that holds the three values.
func writeTriple(h map[string][]string, names *[3]string, d *headgate.Decision, reset time.Duration) {
	var buf [64]byte
	var ends [3]int
	b := strconv.AppendInt(buf[:0], d.Limit.Capacity(), 10)
	ends[0] = len(b)
	b = strconv.AppendInt(b, d.Remaining, 10)
	ends[1] = len(b)
	b = strconv.AppendInt(b, ceilSeconds(reset), 10)
	ends[2] = len(b)
	text := string(b)
	values := make([]string, len(names))
	start := 0
	for i, name := range names {
		values[i] = text[start:ends[i]]
		h[name] = values[i : i+1 : i+1]
		start = ends[i]
	}
}

// writeDraft sets the structured fields (RFC 9651) of draft 11.
func writeDraft(h map[string][]string, items []headgate.Decision) {
	var buf [512]byte
	b := buf[:0]
	for i := range items {
		d := &items[i]
		if i > 0 {
			b = append(b, ", "...)
		}
		quota, window := advertised(d.Limit)
		b = append(appendName(append(b, '"'), items, i), `";q=`...)
		b = strconv.AppendInt(b, min(quota, maxInteger), 10)
		b = append(b, ";w="...)
		b = strconv.AppendInt(b, window, 10)
	}
	split := len(b)
	for i := range items {
		d := &items[i]
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(appendName(append(b, '"'), items, i), `";r=`...)
		b = strconv.AppendInt(b, min(d.Remaining, maxInteger), 10)
		if t := ceilSeconds(untilMore(d)); t > 0 {
			b = append(b, ";t="...)
			b = strconv.AppendInt(b, t, 10)
		}
	}
	text := string(b)
	values := []string{text[:split], text[split:]}
	h["Ratelimit-Policy"] = values[:1:1]
	h["Ratelimit"] = values[1:]
}

// maxInteger is the largest integer of structured fields, RFC 9651.
const maxInteger = 999_999_999_999_999

// isBucket says that units flow back evenly instead of window by window.
func isBucket(l *headgate.Limit) bool {
	return l.Algorithm == headgate.TokenBucket || l.Algorithm == headgate.LeakyBucket
}

// advertised is what a limit promises: so many units in so many seconds. A
// window's period is rounded up to whole seconds. A bucket's quota is its burst
// and its window the time in which that refills, so that a client which sends
// that much in that time is not denied, and the remainder never exceeds the
// quota.
func advertised(l *headgate.Limit) (quota, window int64) {
	micros := l.Micros()
	if num, den := l.Rate(); isBucket(l) && num > 0 {
		micros = refill(l.Capacity(), num, den)
	}
	return l.Capacity(), max(1, ceilSeconds(time.Duration(micros)*time.Microsecond))
}

// refill is the time in microseconds, rounded up, in which units flow back at
// num per den microseconds. Rules whose buckets take more than 100 years to
// refill do not exist.
func refill(units, num, den int64) int64 {
	return muldiv.Up(units, den, num, headgate.MaxRefill.Microseconds())
}

// untilMore is the time until a limit has more units than now, or a bound above
// it: the draft's parameter t. A denied request's is the time until it fits. Of
// a window nothing is known but when its last unit returns. It is zero if there
// is nothing to come.
func untilMore(d *headgate.Decision) time.Duration {
	if !d.Allowed && d.RetryAfter != headgate.Never {
		return d.RetryAfter
	}
	num, den := d.Limit.Rate()
	missing := d.Limit.Capacity() - d.Remaining
	if !isBucket(d.Limit) || num == 0 || missing <= 1 {
		return d.ResetAfter
	}
	// ResetAfter is when the last of the missing units is back. The next one is
	// back as much earlier as the others take.
	others := refill(missing-1, num, den)
	if num > 1 {
		others-- // rounded up above, and t must not be earlier than the truth
	}
	next := d.ResetAfter - time.Duration(others)*time.Microsecond
	return max(next, time.Microsecond)
}

// appendName writes the name of a limit: its rule's, with the period if the rule
// has several limits, and a number where that is not enough. Rule names have no
// spaces, so that names cannot meet; what a structured string cannot hold is
// percent-encoded.
func appendName(b []byte, items []headgate.Decision, i int) []byte {
	d := &items[i]
	if d.Rule == nil {
		return strconv.AppendInt(append(b, "limit "...), int64(i+1), 10)
	}
	b = appendEncoded(b, d.Rule.Name())
	if limits := d.Rule.Limits(); len(limits) > 1 {
		b = append(b, " per "...)
		if d.Limit.Align >= headgate.AlignMinute {
			b = append(append(b, "calendar "...), d.Limit.Align.String()...)
		} else {
			b = append(b, headgate.FormatPeriod(d.Limit.Period)...)
		}
		nth := 1
		for j := range limits {
			if &limits[j] == d.Limit {
				break
			}
			if samePeriod(&limits[j], d.Limit) {
				nth++
			}
		}
		if nth > 1 {
			b = strconv.AppendInt(append(b, ' '), int64(nth), 10)
		}
	}
	// One rule may bind a request under several keys.
	key, last := 1, d.Check
	for j := i - 1; j >= 0; j-- {
		if items[j].Check != last && items[j].Rule == d.Rule {
			key, last = key+1, items[j].Check
		}
	}
	if key > 1 {
		b = strconv.AppendInt(append(b, " key "...), int64(key), 10)
	}
	return b
}

// samePeriod says whether two limits have periods of one name. Calendar limits
// have a period of zero and are named by their unit.
func samePeriod(a, b *headgate.Limit) bool {
	return a.Period == b.Period && (a.Period != 0 || a.Align == b.Align)
}

func appendEncoded(b []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c < ' ' || c > '~' || c == '"' || c == '\\' || c == '%':
			b = append(b, '%', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return b
}
