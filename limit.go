package headgate

import (
	"fmt"
	"hash/fnv"
	"math/bits"
	"time"
)

// The bounds of a [Limit], and of what is asked of it.
const (
	// MaxCount is the largest Count and Burst of a limit, and the largest cost of
	// a request: 2^53 - 1, which is the largest number that Lua, JavaScript and
	// JSON hold exactly. A SlidingWindow has at most MaxLog, and a Penalty counts
	// at most MaxPermits denials.
	MaxCount = 1<<53 - 1
	// MaxPermits is the largest number of permits that work in progress holds at a
	// time: 10^9.
	MaxPermits = 1_000_000_000
	// MaxPeriod is the longest Period: 366 days.
	MaxPeriod = 366 * 24 * time.Hour
	// MaxRefill is the longest time a token or leaky bucket may take from empty
	// to full: 100 years.
	MaxRefill = 100 * 366 * 24 * time.Hour
	// MaxLog is the largest Count of a sliding_window limit. Its log holds one
	// entry for each admitted request; sliding_counter has no such bound.
	MaxLog = 1_000_000
	// MaxBlockTime is the longest that Penalty blocks a key: 30 days.
	MaxBlockTime = 30 * 24 * time.Hour
)

// Algorithm is the arithmetic of a limit. The zero Algorithm is TokenBucket.
type Algorithm uint8

const (
	// TokenBucket admits up to Burst units at once, and refills Count units
	// evenly over Period. GCRA (ITU-T I.371) makes the same decisions.
	TokenBucket Algorithm = iota
	// LeakyBucket lets units leave at Count per Period, evenly spaced: it
	// admits a request with a delay, and denies when Burst units are queued.
	LeakyBucket
	// FixedWindow admits Count units in each window; windows do not overlap.
	// See [Alignment] for where they begin.
	FixedWindow
	// SlidingWindow admits Count units in any window of length Period, exactly.
	// Its log costs memory for each request admitted within the period.
	SlidingWindow
	// SlidingCounter estimates a sliding window from two fixed windows, in
	// constant memory. Its error is bounded; see docs/guarantees.md.
	SlidingCounter
	// Penalty counts the denials of its rule's other limits: after Count of them
	// within Period it denies everything for Block, and for twice as long each
	// time it does so again, up to MaxBlock. Costs have no meaning to it. A key
	// that was not denied for MaxBlock after its last block, or after the period
	// in which it was denied last, begins anew.
	Penalty

	algorithms // the number of algorithms
)

var algorithmNames = [algorithms]string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_counter", "penalty"}

// String returns the algorithm's name as it is written in rules, such as
// "token_bucket".
func (a Algorithm) String() string { return nameOf(algorithmNames[:], "algorithm", uint8(a)) }

// ParseAlgorithm is the inverse of [Algorithm.String].
func ParseAlgorithm(s string) (Algorithm, error) {
	for i, name := range algorithmNames {
		if s == name {
			return Algorithm(i), nil
		}
	}
	return 0, Invalid("", "algorithm", "algorithm %q is not one of %v", s, algorithmNames)
}

// Alignment says where the windows of a FixedWindow limit begin. The zero
// Alignment is AlignUTC. Other algorithms accept only the zero Alignment.
type Alignment uint8

const (
	// AlignUTC begins windows at whole multiples of Period since the Unix epoch.
	AlignUTC Alignment = iota
	// AlignFirst begins a window with the first request after the last window
	// has ended.
	AlignFirst
	// AlignMinute begins windows with the calendar minute in the limit's
	// Location. With this and the following alignments, Period must be zero.
	AlignMinute
	// AlignHour begins windows with the calendar hour.
	AlignHour
	// AlignDay begins windows at midnight.
	AlignDay
	// AlignWeek begins windows at midnight before Monday, as ISO 8601 does.
	AlignWeek
	// AlignMonth begins windows with the calendar month.
	AlignMonth
	// AlignYear begins windows with the calendar year.
	AlignYear

	alignments // the number of alignments
)

var alignmentNames = [alignments]string{"utc", "first", "minute", "hour", "day", "week", "month", "year"}

// String returns "utc", "first", or the name of the calendar unit.
func (a Alignment) String() string { return nameOf(alignmentNames[:], "alignment", uint8(a)) }

// nominal is the longest that a calendar window lasts, a shift to or from
// daylight saving time not counted.
var nominal = [alignments]time.Duration{
	AlignMinute: time.Minute,
	AlignHour:   time.Hour,
	AlignDay:    24 * time.Hour,
	AlignWeek:   7 * 24 * time.Hour,
	AlignMonth:  31 * 24 * time.Hour,
	AlignYear:   366 * 24 * time.Hour,
}

// Limit is one bound: Count units per Period. It is a plain value; [NewRule]
// checks it and works out what decisions need.
type Limit struct {
	// Algorithm is the arithmetic; TokenBucket if left out.
	Algorithm Algorithm
	// Count is how many units pass in a Period: 1 to MaxCount, and less for some
	// algorithms; see MaxCount.
	Count int64
	// Period is the length of the window, or the time in which Count units are
	// refilled: whole microseconds from 1 µs to MaxPeriod. With a calendar
	// alignment it is left out.
	Period time.Duration
	// Burst is the largest amount that can pass (TokenBucket) or be queued
	// (LeakyBucket) at once: a total, 1 to MaxCount. Zero means Count. Other
	// algorithms have no burst apart from Count.
	Burst int64
	// Align is where the windows of FixedWindow begin.
	Align Alignment
	// Location is the time zone of a calendar alignment; nil means UTC.
	Location *time.Location
	// Block is how long Penalty denies at first: whole milliseconds from 1 ms to
	// MaxBlockTime. Other algorithms have none.
	Block time.Duration
	// MaxBlock is how long Penalty denies at most: Block to MaxBlockTime, in whole
	// milliseconds. Zero means Block.
	MaxBlock time.Duration

	// What NewRule works out. Units refill at num per den microseconds, in
	// lowest terms. The period is micros long.
	num, den, micros int64
	slot             uint64
}

// PerSecond is a token bucket of count units per second.
func PerSecond(count int64) Limit { return Limit{Count: count, Period: time.Second} }

// PerMinute is a token bucket of count units per minute.
func PerMinute(count int64) Limit { return Limit{Count: count, Period: time.Minute} }

// PerHour is a token bucket of count units per hour.
func PerHour(count int64) Limit { return Limit{Count: count, Period: time.Hour} }

// Per is a token bucket of count units per period.
func Per(count int64, period time.Duration) Limit { return Limit{Count: count, Period: period} }

// Sliding is an exact sliding window of count units per period.
func Sliding(count int64, period time.Duration) Limit {
	return Limit{Algorithm: SlidingWindow, Count: count, Period: period}
}

// Blocking is a penalty: after denials within period, block, and longer each
// time, up to most.
func Blocking(denials int64, period, block, most time.Duration) Limit {
	return Limit{Algorithm: Penalty, Count: denials, Period: period, Block: block, MaxBlock: most}
}

// WithBurst returns the limit with another burst.
func (l Limit) WithBurst(burst int64) Limit {
	l.Burst = burst
	return l
}

// Capacity is the largest cost that can ever be admitted at once: Burst for the
// buckets, Count for the windows.
func (l *Limit) Capacity() int64 {
	if l.Burst != 0 {
		return l.Burst
	}
	return l.Count
}

// Micros is the period in microseconds; for a calendar alignment, the longest
// that its windows last.
func (l *Limit) Micros() int64 {
	if l.micros != 0 {
		return l.micros
	}
	return l.period()
}

func (l *Limit) period() int64 {
	if l.Align >= AlignMinute && l.Align < alignments {
		return nominal[l.Align].Microseconds()
	}
	return l.Period.Microseconds()
}

// Rate is the speed of a bucket's refill in lowest terms: num units every den
// microseconds. It is zero for a limit that has not passed through [NewRule].
func (l *Limit) Rate() (num, den int64) { return l.num, l.den }

// Slot identifies the limit's counter among those of its rule: the same
// algorithm, alignment, time zone and period give the same slot, whatever the
// count and burst, so that what was used stays used when those change. It is zero for a
// limit that has not passed through [NewRule].
func (l *Limit) Slot() uint64 { return l.slot }

// Validate returns an [*InvalidError] with every mistake in the limit. [NewRule]
// validates the limits of a rule itself.
func (l *Limit) Validate() error { return l.check().Err(fmt.Sprintf("limit %q", l)) }

// check returns everything that is wrong with the limit.
func (l *Limit) check() (problems Problems) {
	if l.Algorithm >= algorithms {
		problems.Add("algorithm", "algorithm %d is unknown", l.Algorithm)
	}
	if l.Align >= alignments {
		problems.Add("align", "alignment %d is unknown", l.Align)
	}
	most := int64(MaxCount)
	if l.Algorithm == Penalty {
		most = MaxPermits
	}
	if l.Count < 1 || l.Count > most {
		problems.Add("count", "count is %d, must be 1 to %d", l.Count, most)
	}
	calendar := l.Align >= AlignMinute
	switch {
	case calendar && l.Period != 0:
		problems.Add("period", "period is %v, must be left out with calendar windows", l.Period)
	case calendar:
	case l.Period < time.Microsecond || l.Period > MaxPeriod:
		problems.Add("period", "period is %v, must be 1µs to %v", l.Period, MaxPeriod)
	case l.Period%time.Microsecond != 0:
		problems.Add("period", "period is %v, must be whole microseconds", l.Period)
	}
	if l.Align != AlignUTC && l.Algorithm != FixedWindow {
		problems.Add("align", "%s windows need algorithm fixed_window, not %s", l.Align, l.Algorithm)
	}
	if l.Location != nil && !calendar {
		problems.Add("location", "time zone %s needs calendar windows", l.Location)
	}
	bucket := l.Algorithm == TokenBucket || l.Algorithm == LeakyBucket
	switch {
	case l.Burst == 0:
	case !bucket:
		what := l.Algorithm.String()
		if calendar { // "per month" says neither the algorithm nor the alignment
			what = "a calendar window"
		}
		problems.Add("burst", "burst is %d, but %s admits at most its count at once and has no burst", l.Burst, what)
	case l.Burst < 1 || l.Burst > MaxCount:
		problems.Add("burst", "burst is %d, must be 1 to %d", l.Burst, MaxCount)
	}
	l.checkBlock(&problems)
	if l.Algorithm == SlidingWindow && l.Count > MaxLog && l.Count <= MaxCount {
		problems.Add("count", "count is %d, an exact sliding_window holds at most %d; sliding_counter holds more", l.Count, MaxLog)
	}
	if bucket && len(problems) == 0 {
		// Capacity and period are bounded above, so the product fits in 128
		// bits and the quotient, for any count of at least one, in 64 or is
		// over the bound.
		hi, lo := bits.Mul64(uint64(l.Capacity()), uint64(l.Micros()))
		long := hi >= uint64(l.Count)
		if !long {
			full, _ := bits.Div64(hi, lo, uint64(l.Count))
			long = full > uint64(MaxRefill.Microseconds())
		}
		if long {
			problems.Add("burst", "burst %d at %d per %v takes longer than 100 years to refill", l.Capacity(), l.Count, l.Period)
		}
	}
	return problems
}

// checkBlock adds what is wrong with Block and MaxBlock.
func (l *Limit) checkBlock(problems *Problems) {
	fits := func(d time.Duration) bool {
		return d >= time.Millisecond && d <= MaxBlockTime && d%time.Millisecond == 0
	}
	switch {
	case l.Algorithm != Penalty && (l.Block != 0 || l.MaxBlock != 0):
		problems.Add("block", "block is %v to %v, but %s blocks nobody; a penalty does", l.Block, max(l.Block, l.MaxBlock), l.Algorithm)
	case l.Algorithm != Penalty:
	case !fits(l.Block):
		problems.Add("block", "block is %v, must be whole milliseconds from 1ms to %v", l.Block, MaxBlockTime)
	case l.MaxBlock != 0 && (!fits(l.MaxBlock) || l.MaxBlock < l.Block):
		problems.Add("max_block", "max block is %v, must be whole milliseconds from block, %v, to %v", l.MaxBlock, l.Block, MaxBlockTime)
	}
}

// prepare works out what decisions need. The limit must have passed check; nth
// is its place among the rule's limits of the same shape.
func (l *Limit) prepare(nth int) {
	l.micros = l.period()
	l.num, l.den = l.Count, l.micros
	a, b := l.num, l.den
	for b != 0 {
		a, b = b, a%b
	}
	l.num, l.den = l.num/a, l.den/a
	l.slot = l.shape() | uint64(nth)<<56
}

// shape packs algorithm, alignment and period. MaxPeriod in microseconds needs
// 45 bits. Calendar windows, whose alignment tells the period, have a hash of
// their time zone there unless it is UTC: days of two zones overlap.
func (l *Limit) shape() uint64 {
	length := uint64(l.Micros())
	if zone := l.Location.String(); zone != time.UTC.String() {
		h := fnv.New64a()
		h.Write([]byte(zone))
		length = h.Sum64() >> (64 - 45)
	}
	return uint64(l.Algorithm+1)<<52 | uint64(l.Align)<<48 | length
}
