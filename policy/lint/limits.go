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

// limitList is one of the lists of limits that a rule may bind a request with.
type limitList struct {
	where  string // what a warning puts before the limit
	field  string // what the list is called in the rule, by the words of policy.Mistake
	limits []listedLimit
}

// listedLimit is a limit and its number in the list.
type listedLimit struct {
	*headgate.Limit
	number int
}

// at is the field of the limit.
func (l *limitList) at(limit listedLimit) string { return fmt.Sprintf("%s.%d", l.field, limit.number) }

// limitLists returns all lists of the rule's limits.
func limitLists(r *rule) []limitList {
	var all []limitList
	// Penalties limit no units, and nothing that is said of limits holds for them.
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

// limits warns of limits that can never bind. Of two limits that make each
// other useless the later one is named.
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

// promised is from which period on the count of a limit is read as a promise: ten a second is a
// rate, and five in a quarter of an hour is not. Up to a minute, rates are as common.
const promised = time.Minute

// defaultBuckets warns of token buckets for long periods that nobody has asked for: at first, a
// bucket admits nearly twice its count within its period. A burst can only be meant for a bucket.
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

// useless says why b never denies, nor delays, what a admits, as the start of a
// sentence that ends with advice; "" if it may.
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
		// Only a queue that is as slow hides the delay that this one imposes.
		if a.Algorithm != headgate.LeakyBucket {
			return ""
		}
	}
	if peak(a) > b.Capacity() || !slower(a, b) {
		return ""
	}
	// What a's rate comes to in b's period, rounded up: a smaller count binds.
	same := mulDiv(a.Count, b.Micros(), a.Micros())
	if !slower(a, &headgate.Limit{Count: same, Period: b.Period}) {
		same++
	}
	return fmt.Sprintf("%q has no larger burst (%d, not %d) and no higher rate (%d units in %s, not %d); %s",
		a, peak(a), b.Capacity(), same, headgate.FormatPeriod(b.Period), b.Count, below(same))
}

// below advises on a count that would have to be less than most to matter.
func below(most int64) string {
	if most <= 1 {
		return "leave it out"
	}
	return fmt.Sprintf("set its count below %d, or leave it out", most)
}

// uselessCounter compares two sliding counters. They estimate, so little is
// certain: a window inside another one, aligned with it, never holds more.
func uselessCounter(a, b *headgate.Limit) string {
	if a.Algorithm != b.Algorithm || a.Micros()%b.Micros() != 0 || a.Count > b.Count {
		return ""
	}
	return fmt.Sprintf("%q lets at most %d units pass in that time; %s", a, a.Count, below(a.Count))
}

// peak is the most that the limit admits within a moment.
func peak(l *headgate.Limit) int64 {
	if l.Algorithm == headgate.FixedWindow {
		// At the end of one window and at the start of the next.
		return 2 * l.Count
	}
	return l.Capacity()
}

// slower reports whether a's long-term rate is not above b's.
func slower(a, b *headgate.Limit) bool {
	if a.Align >= headgate.AlignDay {
		return false // The length of such a window varies.
	}
	h1, l1 := bits.Mul64(uint64(a.Count), uint64(b.Micros()))
	h2, l2 := bits.Mul64(uint64(b.Count), uint64(a.Micros()))
	return h1 < h2 || h1 == h2 && l1 <= l2
}

// mostWithin is the most that a admits in any one window of b, or unknown.
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

// shift is the most, in microseconds, that a time zone's clocks are set back
// within one calendar unit.
const shift = 2 * 3600 * 1_000_000

// windowsWithin is how many windows of a touch one window of b at most, where
// the windows of the shorter one nest in those of the longer one; else zero.
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

// unknown is more than any limit admits, and small enough to be added to.
const unknown = math.MaxInt64 / 2

// mulDiv is a·b/c rounded down, but at most unknown. The operands are positive
// or zero, c positive.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return unknown
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, unknown))
}
