package headgate_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

const day = 24 * time.Hour

func TestNewRule(t *testing.T) {
	berlin := time.FixedZone("Berlin", 3600)
	for name, l := range map[string]headgate.Limit{
		"a rate":                     headgate.PerSecond(10),
		"one":                        headgate.Per(1, time.Microsecond),
		"the most":                   headgate.Per(headgate.MaxCount, headgate.MaxPeriod),
		"the fastest":                headgate.Per(headgate.MaxCount, time.Microsecond),
		"one in 30 days":             headgate.Per(1, 30*day),
		"a century to refill":        headgate.Per(1, 366*day).WithBurst(100),
		"a burst below the count":    headgate.PerSecond(10).WithBurst(1),
		"the largest burst":          headgate.PerSecond(10_000_000).WithBurst(headgate.MaxCount),
		"a queue":                    {Algorithm: headgate.LeakyBucket, Count: 1, Period: time.Second, Burst: 5},
		"a window":                   {Algorithm: headgate.FixedWindow, Count: headgate.MaxCount, Period: headgate.MaxPeriod},
		"a window from the first":    {Algorithm: headgate.FixedWindow, Count: 1, Period: time.Hour, Align: headgate.AlignFirst},
		"a month":                    {Algorithm: headgate.FixedWindow, Count: 1, Align: headgate.AlignMonth},
		"a month in a zone":          {Algorithm: headgate.FixedWindow, Count: 1, Align: headgate.AlignMonth, Location: berlin},
		"the largest log":            headgate.Sliding(headgate.MaxLog, headgate.MaxPeriod),
		"a counter without a log":    {Algorithm: headgate.SlidingCounter, Count: headgate.MaxCount, Period: headgate.MaxPeriod},
		"a short block":              headgate.Blocking(1, time.Second, time.Millisecond, 0),
		"the longest block":          headgate.Blocking(headgate.MaxPermits, headgate.MaxPeriod, headgate.MaxBlockTime, headgate.MaxBlockTime),
		"a microsecond of a counter": {Algorithm: headgate.SlidingCounter, Count: 1, Period: time.Microsecond},
	} {
		limits := []headgate.Limit{l}
		if l.Algorithm == headgate.Penalty { // counts the denials of another
			limits = append(limits, headgate.PerSecond(10))
		}
		if _, err := headgate.NewRule("r", limits...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNewRuleMistakes(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits []headgate.Limit
		want   string
	}{
		{"", []headgate.Limit{headgate.PerSecond(1)}, `headgate: rule "": the name has 0 bytes, must have 1 to 128`},
		{strings.Repeat("n", 129), []headgate.Limit{headgate.PerSecond(1)}, `the name has 129 bytes, must have 1 to 128`},
		{"a b", []headgate.Limit{headgate.PerSecond(1)}, `headgate: rule "a b": the name has ' ' at byte 1; spaces, control characters and braces are not allowed`},
		{"a{b}", []headgate.Limit{headgate.PerSecond(1)}, `the name has '{' at byte 1`},
		{"a\x7f", []headgate.Limit{headgate.PerSecond(1)}, `the name has '\x7f' at byte 1`},
		{"é\u00a0", []headgate.Limit{headgate.PerSecond(1)}, `the name has '\u00a0' at byte 2`},
		{"a\u2028", []headgate.Limit{headgate.PerSecond(1)}, `the name has '\u2028' at byte 1`},
		{"a\x85", []headgate.Limit{headgate.PerSecond(1)}, `the name has '�' at byte 1`},
		{"r", nil, `headgate: rule "r": it has 0 limits, must have 1 to 16`},
		{"r", make([]headgate.Limit, 17), `it has 17 limits, must have 1 to 16; limit 1: count is 0`},
		{"r", []headgate.Limit{{}}, `headgate: rule "r": limit 1: count is 0, must be 1 to 9007199254740991; limit 1: period is 0s, must be 1µs to 8784h0m0s`},
		{"r", []headgate.Limit{headgate.PerSecond(headgate.MaxCount + 1)}, `count is 9007199254740992, must be 1 to 9007199254740991`},
		{"r", []headgate.Limit{headgate.PerSecond(-1)}, `count is -1, must be`},
		{"r", []headgate.Limit{headgate.Per(1, headgate.MaxPeriod+1)}, `period is 8784h0m0.000000001s, must be 1µs to 8784h0m0s`},
		{"r", []headgate.Limit{headgate.Per(1, -time.Second)}, `period is -1s, must be`},
		{"r", []headgate.Limit{headgate.Per(1, 1500)}, `period is 1.5µs, must be whole microseconds`},
		{"r", []headgate.Limit{headgate.PerSecond(1), headgate.PerSecond(5).WithBurst(-1)}, `headgate: rule "r": limit 2: burst is -1, must be 1 to 9007199254740991`},
		{"r", []headgate.Limit{headgate.PerSecond(1).WithBurst(headgate.MaxCount + 1)}, `burst is 9007199254740992, must be 1 to 9007199254740991`},
		{"r", []headgate.Limit{headgate.Sliding(5, time.Second).WithBurst(6)}, `burst is 6, but sliding_window admits at most its count at once and has no burst`},
		{"r", []headgate.Limit{{Algorithm: headgate.FixedWindow, Count: 1, Period: time.Second, Burst: 1}}, `but fixed_window admits`},
		{"r", []headgate.Limit{{Algorithm: headgate.FixedWindow, Count: 1, Align: headgate.AlignMonth, Burst: 1}}, `but a calendar window admits`},
		{"r", []headgate.Limit{headgate.Sliding(headgate.MaxLog+1, time.Second)}, `count is 1000001, an exact sliding_window holds at most 1000000; sliding_counter holds more`},
		{"r", []headgate.Limit{headgate.Per(1, 366*day).WithBurst(101)}, `burst 101 at 1 per 8784h0m0s takes longer than 100 years to refill`},
		{"r", []headgate.Limit{headgate.Per(1, 366*day).WithBurst(headgate.MaxCount)}, `takes longer than 100 years to refill`},
		{"r", []headgate.Limit{{Algorithm: 9, Count: 1, Period: time.Second}}, `algorithm 9 is unknown`},
		{"r", []headgate.Limit{{Algorithm: headgate.FixedWindow, Count: 1, Align: 99}}, `alignment 99 is unknown`},
		{"r", []headgate.Limit{{Algorithm: headgate.FixedWindow, Count: 1, Align: headgate.AlignDay, Period: time.Hour}}, `period is 1h0m0s, must be left out with calendar windows`},
		{"r", []headgate.Limit{{Count: 1, Align: headgate.AlignDay}}, `day windows need algorithm fixed_window, not token_bucket`},
		{"r", []headgate.Limit{{Algorithm: headgate.SlidingWindow, Count: 1, Period: time.Second, Align: headgate.AlignFirst}}, `first windows need algorithm fixed_window, not sliding_window`},
		{"r", []headgate.Limit{{Algorithm: headgate.FixedWindow, Count: 1, Period: time.Second, Location: time.UTC}}, `time zone UTC needs calendar windows`},
		{"r", []headgate.Limit{headgate.PerSecond(1), headgate.Blocking(5, time.Minute, 0, 0)}, `limit 2: block is 0s, must be whole milliseconds from 1ms to 720h0m0s`},
		{"r", []headgate.Limit{headgate.PerSecond(1), headgate.Blocking(5, time.Minute, 1500*time.Microsecond, 0)}, `block is 1.5ms, must be whole milliseconds`},
		{"r", []headgate.Limit{headgate.PerSecond(1), headgate.Blocking(5, time.Minute, time.Hour, time.Minute)}, `max block is 1m0s, must be whole milliseconds from block, 1h0m0s, to 720h0m0s`},
		{"r", []headgate.Limit{headgate.PerSecond(1), headgate.Blocking(5, time.Minute, time.Hour, headgate.MaxBlockTime+time.Millisecond)}, `max block is 720h0m0.001s`},
		{"r", []headgate.Limit{{Count: 1, Period: time.Second, Block: time.Minute}}, `block is 1m0s to 1m0s, but token_bucket blocks nobody; a penalty does`},
		{"r", []headgate.Limit{headgate.Blocking(5, time.Minute, time.Minute, 0)}, `its only limit is a penalty, which counts the denials of others; give it one of those`},
		{"r", []headgate.Limit{headgate.PerSecond(1), headgate.Blocking(5, time.Minute, time.Minute, 0), headgate.Blocking(6, time.Hour, time.Minute, 0)}, `it has 2 penalties, must have at most one`},
	} {
		_, err := headgate.NewRule(c.name, c.limits...)
		var invalid *headgate.InvalidError
		if !errors.As(err, &invalid) || !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("rule %q %v: error %v\nwant %s", c.name, c.limits, err, c.want)
		}
	}
	_, err := headgate.NewRule("a b", headgate.Limit{Algorithm: headgate.LeakyBucket, Count: -5, Burst: -6, Align: headgate.AlignFirst}, headgate.Per(1, 0))
	var invalid *headgate.InvalidError
	if !errors.As(err, &invalid) || len(invalid.Problems) != 6 {
		t.Errorf("error %v; want all six mistakes", err)
	}
}

func TestMustRule(t *testing.T) {
	defer func() {
		if err, ok := recover().(error); !ok || !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("MustRule of a mistake did not panic with ErrInvalid")
		}
	}()
	headgate.MustRule("")
}

// TestRuleIsImmutable: neither the caller's slice nor a later change of a limit
// gets into a rule.
func TestRuleIsImmutable(t *testing.T) {
	limits := []headgate.Limit{headgate.PerSecond(10)}
	r := headgate.MustRule("r", limits...)
	limits[0].Count = 99
	if got := r.Limits()[0].Count; got != 10 {
		t.Errorf("the rule's count is %d, want 10", got)
	}
	if r.Name() != "r" || r.String() != "r (10 per 1s)" {
		t.Errorf("name %q, text %q", r.Name(), r)
	}
	if a, b := headgate.MustRule("r", headgate.PerHour(1)), headgate.MustRule("s", headgate.PerHour(1)); r.ID() != a.ID() || r.ID() == b.ID() {
		t.Errorf("IDs %d, %d, %d: want the first two alike", r.ID(), a.ID(), b.ID())
	}
}

func TestLimit(t *testing.T) {
	for _, c := range []struct {
		limit             headgate.Limit
		capacity, micros  int64
		num, den          int64
		algorithm, period string
	}{
		{headgate.PerSecond(10), 10, 1_000_000, 1, 100_000, "token_bucket", "1s"},
		{headgate.PerMinute(7).WithBurst(3), 3, 60_000_000, 7, 60_000_000, "token_bucket", "1m"},
		{headgate.PerHour(36), 36, 3_600_000_000, 1, 100_000_000, "token_bucket", "1h"},
		{headgate.Per(1_000_000_000, time.Second), 1_000_000_000, 1_000_000, 1000, 1, "token_bucket", "1s"},
		{headgate.Sliding(5, 90*time.Second), 5, 90_000_000, 1, 18_000_000, "sliding_window", "90s"},
		{headgate.Limit{Algorithm: headgate.FixedWindow, Count: 2, Align: headgate.AlignMonth}, 2, 31 * 86_400_000_000, 1, 31 * 43_200_000_000, "fixed_window", "0s"},
	} {
		r := headgate.MustRule("r", c.limit)
		l := &r.Limits()[0]
		num, den := l.Rate()
		if l.Capacity() != c.capacity || l.Micros() != c.micros || num != c.num || den != c.den || l.Algorithm.String() != c.algorithm {
			t.Errorf("%v: capacity %d, %d µs, rate %d/%d, %s; want %+v", l, l.Capacity(), l.Micros(), num, den, l.Algorithm, c)
		}
		if got := headgate.FormatPeriod(c.limit.Period); got != c.period {
			t.Errorf("%v: period %s, want %s", l, got, c.period)
		}
	}
	unprepared := headgate.PerSecond(1)
	if num, den := unprepared.Rate(); num != 0 || den != 0 || unprepared.Slot() != 0 {
		t.Errorf("a limit that is in no rule has rate %d/%d and slot %d", num, den, unprepared.Slot())
	}
}

// TestSlots: what makes a limit another counter, and what does not.
func TestSlots(t *testing.T) {
	slot := func(l headgate.Limit) uint64 { return headgate.MustRule("r", l).Limits()[0].Slot() }
	base := headgate.PerSecond(10)
	for name, l := range map[string]headgate.Limit{"count": headgate.PerSecond(99), "burst": base.WithBurst(50)} {
		if slot(l) != slot(base) {
			t.Errorf("another %s makes another counter", name)
		}
	}
	window := headgate.Limit{Algorithm: headgate.FixedWindow, Count: 10, Period: time.Second}
	seen := map[uint64]string{}
	first, monthly, daily := window, window, window
	first.Align = headgate.AlignFirst
	monthly.Align, monthly.Period = headgate.AlignMonth, 0
	daily.Align, daily.Period = headgate.AlignDay, 0
	for name, l := range map[string]headgate.Limit{
		"base": base, "period": headgate.Per(10, 1_000_001*time.Microsecond), "leaky": {Algorithm: headgate.LeakyBucket, Count: 10, Period: time.Second},
		"window": window, "first": first, "month": monthly, "day": daily, "sliding": headgate.Sliding(10, time.Second),
		"counter":  {Algorithm: headgate.SlidingCounter, Count: 10, Period: time.Second},
		"day long": {Algorithm: headgate.FixedWindow, Count: 10, Period: day}, "longest": headgate.Per(10, headgate.MaxPeriod),
	} {
		if other, ok := seen[slot(l)]; ok || slot(l) == 0 {
			t.Errorf("%s and %s are one counter", name, other)
		}
		seen[slot(l)] = name
	}
	twins := headgate.MustRule("r", base, base, base.WithBurst(3), headgate.PerMinute(1))
	slots := map[uint64]bool{}
	for i := range twins.Limits() {
		slots[twins.Limits()[i].Slot()] = true
	}
	if len(slots) != 4 || !slots[slot(base)] {
		t.Errorf("the slots of %v are %v; want four, the first as if it were alone", twins, slots)
	}
}

func TestAlgorithmNames(t *testing.T) {
	for a := headgate.TokenBucket; a <= headgate.Penalty; a++ {
		if got, err := headgate.ParseAlgorithm(a.String()); err != nil || got != a {
			t.Errorf("%s is read as %v, %v", a, got, err)
		}
	}
	if _, err := headgate.ParseAlgorithm("gcra"); !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), `"gcra" is not one of [token_bucket`) {
		t.Errorf("error %v", err)
	}
}

// TestNames: the words that rules, metrics and messages have for each choice, and
// what becomes of a choice that there is not.
func TestNames(t *testing.T) {
	for of, name := range map[string]func(uint8) string{
		"utc first minute hour day week month year alignment(8)": func(i uint8) string { return headgate.Alignment(i).String() },
		"take peek refund reset charge op(5)":                    func(i uint8) string { return headgate.Op(i).String() },
		" allow deny local on_error(4)":                          func(i uint8) string { return headgate.OnError(i).String() },
		"strict leased async consistency(3)":                     func(i uint8) string { return headgate.Consistency(i).String() },
		" on off deny_cache(3)":                                  func(i uint8) string { return headgate.DenyCache(i).String() },
		"store deny_cache lease local open async source(6)":      func(i uint8) string { return headgate.Source(i).String() },
	} {
		for i, want := range strings.Split(of, " ") {
			if got := name(uint8(i)); got != want {
				t.Errorf("choice %d of %q is %q", i, of, got)
			}
		}
	}
}

// TestConsistencyCounts: a limit that delays, or counts denials, needs the store.
func TestConsistencyCounts(t *testing.T) {
	for a := headgate.TokenBucket; a <= headgate.Penalty; a++ {
		always := a != headgate.LeakyBucket && a != headgate.Penalty
		for c, want := range []bool{true, always, always, false} {
			if c := headgate.Consistency(c); c.Counts(a) != want {
				t.Errorf("%v counts %v: %t, want %t", c, a, !want, want)
			}
		}
	}
}
