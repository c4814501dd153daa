package headgate_test

import (
	"errors"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // zones must be known wherever the test runs

	"github.com/headgate/headgate"
)

func TestParsePeriod(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"60s": time.Minute, "1m": time.Minute, "1 day": day, "10 minutes": 10 * time.Minute, "minute": time.Minute, "500ms": 500 * time.Millisecond,
		"1us": time.Microsecond, "7µs": 7 * time.Microsecond, "2w": 14 * day, "366d": 366 * day, "s": time.Second, " 3  hours ": 3 * time.Hour,
		"1sec": time.Second, "5 min": 5 * time.Minute, "0s": 0, "31622400 seconds": 366 * day, "week": 7 * day, "52 weeks": 364 * day, "00012s": 12 * time.Second,
	} {
		if got, err := headgate.ParsePeriod(text); err != nil || got != want {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "write a whole number and a unit", "60": "write a whole number and a unit", "1.5h": "write a whole number", "-1s": "write a whole number",
		"1 month": "write a whole number", "year": "write a whole number", "1h30m": "write a whole number", "one day": "write a whole number", "1 S": "write a whole number",
		"367d": `period "367d" is longer than 366 days`, "53 weeks": "longer than 366 days", "9223372036854775807w": "longer than 366 days",
		"99999999999999999999s": `period "99999999999999999999s": the number is too large`,
	} {
		if got, err := headgate.ParsePeriod(text); !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is %v, %v; want an error with %q", text, got, err, want)
		}
	}
}

func TestFormatPeriod(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Minute: "1m", 90 * time.Second: "90s", day: "1d", 7 * day: "7d", 36 * time.Hour: "36h", 1500 * time.Millisecond: "1500ms", 5 * time.Microsecond: "5us", 0: "0s", 1: "1ns",
	} {
		if got := headgate.FormatPeriod(d); got != want {
			t.Errorf("%v is written %q, want %q", d, got, want)
		}
	}
}

func TestParseLimit(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	const fixed = headgate.FixedWindow
	for _, c := range []struct {
		text  string
		want  headgate.Limit
		again string // how it is written; "" for as it was read
	}{
		{"20 per 1m", headgate.PerMinute(20), ""},
		{"20 per 60s", headgate.PerMinute(20), "20 per 1m"},
		{"20 per minute", headgate.PerMinute(20), "20 per 1m"},
		{"1_000_000 per 1 day", headgate.Per(1_000_000, day), "1000000 per 1d"},
		{"  50   per 1s\tburst 200 ", headgate.PerSecond(50).WithBurst(200), "50 per 1s burst 200"},
		{"50 per 1s burst 50", headgate.PerSecond(50).WithBurst(50), "50 per 1s"},
		{"100 per 1m from first request", headgate.Limit{Algorithm: fixed, Count: 100, Period: time.Minute, Align: headgate.AlignFirst}, ""},
		{"5 per 1h burst 7 from first request", headgate.Limit{Algorithm: fixed, Count: 5, Period: time.Hour, Burst: 7, Align: headgate.AlignFirst}, ""},
		{"1000 per calendar month in Europe/Berlin", headgate.Limit{Algorithm: fixed, Count: 1000, Align: headgate.AlignMonth, Location: berlin}, ""},
		{"1000 per month", headgate.Limit{Algorithm: fixed, Count: 1000, Align: headgate.AlignMonth}, "1000 per calendar month"},
		{"1000 per 1 month in UTC", headgate.Limit{Algorithm: fixed, Count: 1000, Align: headgate.AlignMonth, Location: time.UTC}, "1000 per calendar month"},
		{"9 per year", headgate.Limit{Algorithm: fixed, Count: 9, Align: headgate.AlignYear}, "9 per calendar year"},
		{"9 per calendar minute", headgate.Limit{Algorithm: fixed, Count: 9, Align: headgate.AlignMinute}, ""},
		{"9 per calendar week", headgate.Limit{Algorithm: fixed, Count: 9, Align: headgate.AlignWeek}, ""},
		{"9 per day", headgate.Per(9, day), "9 per 1d"},
		{"5 denials per 1m block 90s", headgate.Blocking(5, time.Minute, 90*time.Second, 0), ""},
		{"5 denials per minute block 1 minute up to 1 hour", headgate.Blocking(5, time.Minute, time.Minute, time.Hour), "5 denials per 1m block 1m up to 1h"},
		{"5 denials per 1m block 1m up to 1m", headgate.Blocking(5, time.Minute, time.Minute, time.Minute), "5 denials per 1m block 1m"},
		{"0 per 0s", headgate.Per(0, 0), ""}, // the form is right; NewRule says what is not
	} {
		got, err := headgate.ParseLimit(headgate.TokenBucket, c.text)
		zone := got.Location
		if zone != nil && c.want.Location != nil && zone.String() == c.want.Location.String() {
			got.Location = c.want.Location // each loading makes another pointer
		}
		if err != nil || got != c.want {
			t.Errorf("%q is read as %+v, %v\nwant %+v", c.text, got, err, c.want)
			continue
		}
		want := c.again
		if want == "" {
			want = c.text
		}
		if again := got.String(); again != want {
			t.Errorf("%q is written %q, want %q", c.text, again, want)
		}
	}
	if got, err := headgate.ParseLimit(headgate.SlidingWindow, "5 per 1s"); err != nil || got != headgate.Sliding(5, time.Second) {
		t.Errorf("%+v, %v", got, err)
	}
	if got := (*headgate.Limit)(nil).String(); got != "none" {
		t.Errorf("no limit is written %q", got)
	}
}

func TestParseLimitMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 `headgate: limit "": write it as "20 per 60s"`,
		"20":                               `write it as`,
		"20 per":                           `write it as`,
		"20/60s":                           `headgate: limit "20/60s": did you mean "20 per 1m"?`,
		"20 every 60s":                     `did you mean "20 per 1m"?`,
		"100/min":                          `did you mean "100 per 1m"?`,
		"10r/s":                            `did you mean "10 per 1s"?`,
		"10M per 1d":                       `did you mean "10000000 per 1d"?`,
		"10k requests per calendar month":  `did you mean "10000 per calendar month"?`,
		"5 per hr":                         `did you mean "5 per 1h"?`,
		"1,000 per 1h burst 50":            `did you mean "1000 per 1h burst 50"?`,
		"10000000G per 1s":                 `count "10000000G" is not a whole number`,
		"10x per 1s":                       `count "10x" is not a whole number`,
		"0/s":                              `write it as`,
		"/":                                `write it as`,
		"x per 60s":                        `count "x" is not a whole number from 1 to 9007199254740991`,
		"-1 per 60s":                       `count "-1" is not`,
		"1.5 per 60s":                      `count "1.5" is not`,
		"_1 per 60s":                       `count "_1" is not`,
		"1__0 per 60s":                     `count "1__0" is not`,
		"99999999999999999999 per 1s":      `count "99999999999999999999" is not`,
		"20 per fortnight":                 `period "fortnight": write a whole number and a unit`,
		"20 per fortnight ":                `(in limit "20 per fortnight ")`,
		"20 per calendar":                  `"calendar" is not a calendar unit: minute, hour, day, week, month or year`,
		"20 per calendar decade":           `"calendar decade" is not a calendar unit`,
		"20 per 2 months":                  `period "2 months": write`,
		"20 per 1m burst":                  `"burst" is not understood`,
		"20 per 1m burst x":                `burst "x" is not a whole number from 1`,
		"20 per 1m burst 0":                `burst "0" is not a whole number from 1`,
		"20 per 1m burst 5 burst 6":        `"burst 6" is not understood`,
		"20 per 1m from":                   `"from" is not understood`,
		"20 per 1m from first":             `"from first" is not understood`,
		"20 per 1m from first request now": `"now" is not understood`,
		"20 per month from first request":  `"from first request" is not understood`,
		"20 per month in":                  `"in" is not understood`,
		"20 per month in Local":            `time zone "Local" differs from machine to machine; name one, such as UTC or Europe/Berlin`,
		"20 per month in Middle/Earth":     `time zone "Middle/Earth" is not known here`,
		"20 per month in UTC in UTC":       `"in UTC" is not understood`,
		"20 per 1m, 5 per 1s":              `period "1m,": write`,
		"x denials per 1m block 1m":        `count "x" is not a whole number`,
		"5 denials per 1m":                 `write it as "5 denials per 1m block 1m up to 1h"`,
		"5 denials block 1m":               `write it as "5 denials per 1m block 1m up to 1h"`,
		"5 denials per 1m block":           `write it as "5 denials per 1m block 1m up to 1h"`,
		"5 denials per 1m up to 1h":        `write it as "5 denials per 1m block 1m up to 1h"`,
		"5 denials per 1m block 0s":        `"0s" is not a time, such as 500ms, 60s, 5m, 1h or 1d`,
		"5 denials per month block 1m":     `"month" is not a time`,
	} {
		if got, err := headgate.ParseLimit(headgate.TokenBucket, text); !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), want) || got != (headgate.Limit{}) {
			t.Errorf("%q is read as %+v, error %v; want one with %s", text, got, err, want)
		}
	}
}

func TestLoadLocation(t *testing.T) {
	if loc, err := headgate.LoadLocation("Asia/Tokyo"); err != nil || loc.String() != "Asia/Tokyo" {
		t.Errorf("%v, %v", loc, err)
	}
	for _, name := range []string{"", "Local", "nowhere", "../etc/passwd"} {
		if loc, err := headgate.LoadLocation(name); !errors.Is(err, headgate.ErrInvalid) || loc != nil {
			t.Errorf("%q: %v, %v; want an error", name, loc, err)
		}
	}
}

// FuzzParseLimit: what was read and makes a rule is written so that it is read as
// the same.
func FuzzParseLimit(f *testing.F) {
	for _, text := range []string{
		"20 per 1m", "50 per 1s burst 200", "1_0 per 7us", "5 per month in UTC", "1 per calendar week in Asia/Tokyo", "3 per 1 hour from first request", "9 per 90 minutes",
	} {
		f.Add(uint8(0), text)
		f.Add(uint8(3), text)
	}
	f.Fuzz(func(t *testing.T, a uint8, text string) {
		l, err := headgate.ParseLimit(headgate.Algorithm(a%5), text)
		if err != nil {
			if !errors.Is(err, headgate.ErrInvalid) || l != (headgate.Limit{}) {
				t.Fatalf("%q: %+v with error %v", text, l, err)
			}
			return
		}
		r, err := headgate.NewRule("r", l)
		if err != nil {
			return
		}
		written := l.String()
		again, err := headgate.ParseLimit(l.Algorithm, written)
		if err != nil || again.String() != written {
			t.Fatalf("%q is written %q, and that is read as %v, %v", text, written, &again, err)
		}
		// All that matters is the same: the counter, the rate and the capacity.
		is, was := headgate.MustRule("r", again).Limits()[0], r.Limits()[0]
		num, den := is.Rate()
		if n, d := was.Rate(); is.Slot() != was.Slot() || n != num || d != den || is.Capacity() != was.Capacity() || is.Micros() != was.Micros() {
			t.Fatalf("%q is %+v, written and read %+v", text, was, is)
		}
	})
}

func FuzzParsePeriod(f *testing.F) {
	for _, text := range []string{"60s", "1 day", "minute", "007 weeks", "99999999999999999999us", "7µs"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := headgate.ParsePeriod(text)
		if err != nil {
			if !errors.Is(err, headgate.ErrInvalid) || d != 0 {
				t.Fatalf("%q: %v with error %v", text, d, err)
			}
			return
		}
		if d < 0 || d > headgate.MaxPeriod || d%time.Microsecond != 0 {
			t.Fatalf("%q is %d ns", text, int64(d))
		}
		if again, err := headgate.ParsePeriod(headgate.FormatPeriod(d)); err != nil || again != d {
			t.Fatalf("%q is %v, written %q, and that is read as %v, %v", text, d, headgate.FormatPeriod(d), again, err)
		}
	})
}
