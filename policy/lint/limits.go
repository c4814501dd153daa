package lint

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// limitList is one of the lists of limits by which a rule may bind a request.
type limitList struct {
	where  string // what a warning puts before the limit
	field  string // the list's field in the rule, as policy.Mistake names it
	limits []listedLimit
}

// listedLimit is a limit and its index in the list.
type listedLimit struct {
	*headgate.Limit
	number int
}

// at returns the field of the limit, as policy.Mistake names it.
func (l *limitList) at(limit listedLimit) string { return fmt.Sprintf("%s.%d", l.field, limit.number) }

// limitLists returns all lists of the rule's limits.
func limitLists(r *rule) []limitList {
	var all []limitList
	// Penalties are left out. They limit no units, so nothing that warnings say about limits
	// applies to them.
	list := func(where, field string, limits *headgate.Rule) {
		one := limitList{where: where, field: field}
		each := limits.Limits()
		for i := range each {
			if each[i].Algorithm != headgate.Penalty {
				one.limits = append(one.limits, listedLimit{&each[i], i})
			}
		}
		all = append(all, one)
	}
	if r.Tariff == nil {
		list("", "limits", r.Limits)
	} else {
		for i := range r.Tariff.Tiers {
			t := &r.Tariff.Tiers[i]
			list(fmt.Sprintf("for the %s %s, ", r.Tariff.Entry, policy.Quote(t.Value)), fmt.Sprintf("tariff.%d", i), t.Limits)
		}
		if r.Tariff.Other != nil {
			list(fmt.Sprintf("for every other %s, ", r.Tariff.Entry), "tariff.other", r.Tariff.Other)
		}
	}
	for i := range r.Overrides {
		list(fmt.Sprintf("in override %d, ", i+1), fmt.Sprintf("overrides.%d.limits", i), r.Overrides[i].Limits)
	}
	return all
}

func withoutPenalties(limits []headgate.Limit) []headgate.Limit {
	return slices.DeleteFunc(slices.Clone(limits), func(l headgate.Limit) bool { return l.Algorithm == headgate.Penalty })
}

// limits warns of limits that can never bind. If two limits make each other useless, the warning is
// about the later one.
func (l *linter) limits(r *rule) {
	for _, list := range limitLists(r) {
		limits := list.limits
		for i, limit := range limits {
			for j, other := range limits {
				if i == j {
					continue
				}
				why := useless(other.Limit, limit.Limit)
				if why == "" || i < j && useless(limit.Limit, other.Limit) != "" {
					continue
				}
				l.aboutField(r, list.at(limit))(NeverBinds, "%slimit %q can never bind: %s", list.where, limit, why)
				break
			}
		}
	}
}

// promised is the longest period for which a count may be meant as a rate. Ten per second is a
// rate. Five per 15 minutes is read as a promise to admit no more.
const promised = time.Minute

// defaultBuckets warns of token buckets with long periods for which nobody has chosen the
// algorithm. In its first period, a bucket admits nearly twice its count. A limit with a burst is
// not reported, because a burst can only be meant for a bucket.
func (l *linter) defaultBuckets(r *rule) {
	for _, list := range limitLists(r) {
		for _, limit := range list.limits {
			field := list.at(limit)
			if !r.Written[field].Default || limit.Algorithm != headgate.TokenBucket || limit.Burst != 0 || limit.Period <= promised || limit.Count < 2 {
				continue
			}
			l.aboutField(r, field)(DefaultBucket, "%slimit %q has no algorithm, so it is a token bucket, which admits up to %d units in the first %s: %d at once, and then one more every %s; write algorithm: sliding_window if %d is a promise, or algorithm: token_bucket if this is meant",
				list.where, limit, 2*limit.Count-1, headgate.FormatPeriod(limit.Period), limit.Count, headgate.FormatPeriod(limit.Period/time.Duration(limit.Count)), limit.Count)
		}
	}
}

// useless says why b never denies or delays what a admits. It returns the start of a sentence that
// ends with advice, or "" if b may deny or delay.
func useless(a, b *headgate.Limit) string {
	if a.Algorithm == headgate.SlidingCounter || b.Algorithm == headgate.SlidingCounter {
		return uselessCounter(a, b)
	}
	switch b.Algorithm {
	case headgate.FixedWindow, headgate.SlidingWindow:
		most := mostWithin(a, b)
		if most > b.Count {
			return ""
		}
		return fmt.Sprintf("%q lets at most %d units pass in that time; %s", a, most, below(most))
	case headgate.LeakyBucket:
		// b delays requests. Only another leaky bucket that is at least as slow delays them as
		// much.
		if a.Algorithm != headgate.LeakyBucket {
			return ""
		}
	}
	if peak(a) > b.Capacity() || !slower(a, b) {
		return ""
	}
	// same is what a's rate admits in b's period, rounded up. A smaller count of b would bind.
	same := mulDiv(a.Count, b.Micros(), a.Micros())
	if !slower(a, &headgate.Limit{Count: same, Period: b.Period}) {
		same++
	}
	return fmt.Sprintf("%q has no larger burst (%d, not %d) and no higher rate (%d units in %s, not %d); %s",
		a, peak(a), b.Capacity(), same, headgate.FormatPeriod(b.Period), b.Count, below(same))
}

// below returns the advice to set a count below most, or to leave the limit out.
func below(most int64) string {
	if most <= 1 {
		return "leave it out"
	}
	return fmt.Sprintf("set its count below %d, or leave it out", most)
}

// uselessCounter is useless where a or b is a sliding counter. Sliding counters estimate, so only
// one case is certain: both are sliding counters, a's period is a multiple of b's, and a.Count ≤
// b.Count.
func uselessCounter(a, b *headgate.Limit) string {
	if a.Algorithm != b.Algorithm || a.Micros()%b.Micros() != 0 || a.Count > b.Count {
		return ""
	}
	return fmt.Sprintf("%q lets at most %d units pass in that time; %s", a, a.Count, below(a.Count))
}

// peak returns the most that the limit admits within a moment.
func peak(l *headgate.Limit) int64 {
	if l.Algorithm == headgate.FixedWindow {
		// All at the end of one window, and all at the start of the next.
		return 2 * l.Count
	}
	return l.Capacity()
}

// slower reports whether the long-term rate of a is at most that of b.
func slower(a, b *headgate.Limit) bool {
	if a.Align >= headgate.AlignDay {
		return false // The length of such a window varies.
	}
	h1, l1 := bits.Mul64(uint64(a.Count), uint64(b.Micros()))
	h2, l2 := bits.Mul64(uint64(b.Count), uint64(a.Micros()))
	return h1 < h2 || h1 == h2 && l1 <= l2
}

// mostWithin returns the most that a admits in any one window of b, or unknown.
func mostWithin(a, b *headgate.Limit) int64 {
	if a.Algorithm == headgate.FixedWindow && b.Algorithm == headgate.FixedWindow {
		if n := windowsWithin(a, b); n > 0 {
			return mulDiv(a.Count, n, 1)
		}
	}
	length := b.Micros()
	if b.Align > headgate.AlignHour {
		length += shift
	}
	switch a.Algorithm {
	case headgate.TokenBucket, headgate.LeakyBucket:
		return a.Capacity() + mulDiv(a.Count, length-1, a.Micros())
	case headgate.SlidingWindow:
		return mulDiv(a.Count, (length-1)/a.Micros()+1, 1)
	}
	if a.Align > headgate.AlignHour {
		return unknown
	}
	return mulDiv(a.Count, (length-1+a.Micros()-1)/a.Micros()+1, 1)
}

// shift is the most, in microseconds, by which a calendar window can be longer than usual because
// the clocks of its time zone are set back.
const shift = 2 * 3600 * 1_000_000

// windowsWithin returns how many windows of a one window of b touches at most, if the windows of
// the shorter one nest in those of the longer one. Otherwise it returns 0.
func windowsWithin(a, b *headgate.Limit) int64 {
	switch {
	case a.Align == headgate.AlignUTC && b.Align == headgate.AlignUTC:
		switch {
		case b.Micros()%a.Micros() == 0:
			return b.Micros() / a.Micros()
		case a.Micros()%b.Micros() == 0:
			return 1
		}
		return 0
	case a.Align < headgate.AlignMinute || b.Align < headgate.AlignMinute || zone(a) != zone(b):
		return 0
	case a.Align == headgate.AlignWeek && b.Align > headgate.AlignWeek,
		b.Align == headgate.AlignWeek && a.Align > headgate.AlignWeek:
		return 0 // A week may lie in two months.
	case a.Align >= b.Align:
		return 1
	}
	length := b.Micros()
	switch {
	case b.Align == headgate.AlignHour || a.Align == headgate.AlignDay:
	case a.Align == headgate.AlignMonth:
		return 12
	default:
		length += shift
	}
	return length / a.Micros()
}

func zone(l *headgate.Limit) string {
	if l.Location == nil {
		return "UTC"
	}
	return l.Location.String()
}

// unknown is more than any limit admits. It is small enough that the sum of two such values does
// not overflow.
const unknown = math.MaxInt64 / 2

// mulDiv returns min(⌊a·b/c⌋, unknown), for a ≥ 0, b ≥ 0 and c > 0.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return unknown
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, unknown))
}
