package headgate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

func TestValidate(t *testing.T) {
	r := headgate.MustRule("r", headgate.PerHour(9))
	long := strings.Repeat("k", headgate.MaxKey+1)
	many := make([]headgate.Check, headgate.MaxChecks+1)
	for i := range many {
		many[i] = headgate.Check{Rule: r, Key: fmt.Sprint(i)}
	}
	for _, c := range []struct {
		op     headgate.Op
		checks []headgate.Check
		want   string
	}{
		{headgate.OpTake, []headgate.Check{{Rule: r}}, ""},
		{headgate.OpTake, []headgate.Check{{Rule: r, Key: long[1:], Cost: headgate.MaxCount}}, ""},
		{headgate.OpRefund, many[1:], ""},
		{headgate.OpReset, []headgate.Check{{Rule: r, Key: "a"}, {Rule: r, Key: "b"}, {Rule: headgate.MustRule("s", headgate.PerHour(9)), Key: "a"}}, ""},
		{headgate.OpTake, nil, "there are 0 checks, must be 1 to 64"},
		{headgate.OpTake, many, "there are 65 checks, must be 1 to 64"},
		{9, many[:1], "operation 9 is unknown"},
		{headgate.OpTake, []headgate.Check{{}}, "check 1 has no rule; make one with NewRule"},
		{headgate.OpTake, []headgate.Check{{Rule: new(headgate.Rule)}}, "check 1 has no rule; make one with NewRule"},
		{headgate.OpTake, []headgate.Check{{Rule: r, Key: long}}, "check 1 (r): the key has 1025 bytes, must have at most 1024"},
		{headgate.OpTake, []headgate.Check{{Rule: r, Cost: -1}}, "check 1 (r): the cost is -1, must be 1 to 1000000000"},
		{headgate.OpTake, []headgate.Check{{Rule: r, Cost: headgate.MaxCount + 1}}, "check 1 (r): the cost is 1000000001, must be 1 to 1000000000"},
		{headgate.OpTake, []headgate.Check{{Rule: r, Key: "k"}, {Rule: r, Key: "k"}}, `check 2 repeats the rule "r" and the key of check 1; add up their costs instead`},
		{
			9,
			[]headgate.Check{{Key: long, Cost: -2}, {Rule: r, Key: "k"}, {Rule: r, Key: long, Cost: -3}, {Rule: headgate.MustRule("r", headgate.Per(1, day)), Key: "k"}},
			"operation 9 is unknown; check 1 has no rule; make one with NewRule; check 1: the key has 1025 bytes, must have at most 1024; check 1: the cost is -2, must be 1 to 1000000000; " +
				"check 3 (r): the key has 1025 bytes, must have at most 1024; check 3 (r): the cost is -3, must be 1 to 1000000000; " +
				`check 4 repeats the rule "r" and the key of check 2; add up their costs instead`,
		},
	} {
		err := headgate.Validate(c.op, c.checks)
		if c.want == "" {
			if err != nil {
				t.Errorf("%v", err)
			}
			continue
		}
		if want := "headgate: request: " + c.want; !errors.Is(err, headgate.ErrInvalid) || err.Error() != want {
			t.Errorf("error %v\nwant  %s", err, want)
		}
		if len(c.checks) == 1 && c.op == headgate.OpTake {
			if single := c.checks[0].Validate(); single == nil || single.Error() != err.Error() {
				t.Errorf("Check.Validate says %v, Validate %v", single, err)
			}
		}
	}
	if err := (&headgate.Check{Rule: r}).Validate(); err != nil {
		t.Error(err)
	}
	if n := testing.AllocsPerRun(100, func() { _ = headgate.Validate(headgate.OpTake, many[:1]) }); n != 0 {
		t.Errorf("%v allocations to validate one check, want 0", n)
	}
}

// decision is short for tables of verdicts.
func decision(allowed bool, remaining int64, retry, delay time.Duration) headgate.Decision {
	return headgate.Decision{Allowed: allowed, Remaining: remaining, RetryAfter: retry, Delay: delay}
}

func TestVerdict(t *testing.T) {
	shadow := func(d headgate.Decision) headgate.Decision { d.Shadow = true; return d }
	for name, c := range map[string]struct {
		decisions    []headgate.Decision
		allowed      bool
		retry, delay time.Duration
		deciding     int
	}{
		"nothing":              {nil, true, 0, 0, -1},
		"the zero decision":    {[]headgate.Decision{{}}, false, 0, 0, 0},
		"one admits":           {[]headgate.Decision{decision(true, 3, 0, 0)}, true, 0, 0, 0},
		"the least remaining":  {[]headgate.Decision{decision(true, 3, 0, 0), decision(true, 2, 0, 0), decision(true, 2, 0, 0)}, true, 0, 0, 1},
		"the longest delay":    {[]headgate.Decision{decision(true, 1, 0, 0), decision(true, 9, 0, 5), decision(true, 5, 0, 7)}, true, 0, 7, 2},
		"one denies":           {[]headgate.Decision{decision(true, 0, 0, 9), decision(false, 5, 4, 0)}, false, 4, 0, 1},
		"the longest retry":    {[]headgate.Decision{decision(false, 0, 3, 0), decision(false, 0, 9, 0), decision(false, 0, 4, 0), decision(true, 1, 0, 0)}, false, 9, 0, 1},
		"never":                {[]headgate.Decision{decision(false, 0, 3, 0), decision(false, 0, headgate.Never, 0), decision(false, 0, 9, 0)}, false, headgate.Never, 0, 1},
		"never first":          {[]headgate.Decision{decision(false, 0, headgate.Never, 0), decision(false, 0, headgate.Never, 0), decision(false, 0, 9, 0)}, false, headgate.Never, 0, 0},
		"shadows":              {[]headgate.Decision{shadow(decision(false, 0, headgate.Never, 0)), decision(true, 4, 0, 2), shadow(decision(true, 0, 0, 9))}, true, 0, 2, 1},
		"nothing but a shadow": {[]headgate.Decision{shadow(decision(false, 0, 3, 0))}, true, 0, 0, -1},
	} {
		v := headgate.NewVerdict(c.decisions)
		if v.Allowed != c.allowed || v.RetryAfter != c.retry || v.Delay != c.delay {
			t.Errorf("%s: allowed %t, retry after %v, delay %v; want %+v", name, v.Allowed, v.RetryAfter, v.Delay, c)
		}
		d := v.Deciding()
		if c.deciding < 0 && d != nil || c.deciding >= 0 && d != &v.Decisions[c.deciding] {
			t.Errorf("%s: %+v decided, want decision %d", name, d, c.deciding)
		}
	}
}

func TestErrors(t *testing.T) {
	r := headgate.MustRule("login", headgate.PerMinute(20))
	d := headgate.Decision{Rule: r, Limit: &r.Limits()[0], RetryAfter: 1840*time.Millisecond + 300}
	for want, err := range map[string]*headgate.DeniedError{
		`headgate: denied`: {},
		`headgate: denied by rule "login", limit "20 per 1m": fits in 1.84s`:                                     {Decision: d},
		`headgate: denied by rule "login", limit "20 per 1m": fits in 1.84s; the context's deadline comes first`: {Decision: d, Reason: "the context's deadline comes first"},
		`headgate: denied by rule "login", limit "20 per 1m": the cost can never fit`:                            {Decision: headgate.Decision{Rule: r, Limit: d.Limit, RetryAfter: headgate.Never}},
	} {
		wrapped := fmt.Errorf("signing in: %w", err)
		var denied *headgate.DeniedError
		if err.Error() != want || !errors.Is(wrapped, headgate.ErrDenied) || errors.Is(wrapped, headgate.ErrInvalid) || !errors.As(wrapped, &denied) {
			t.Errorf("error %q, want %q", err, want)
		}
	}
	invalid := &headgate.InvalidError{Subject: "x", Problems: []string{"a is 1", "b is 2"}}
	if invalid.Error() != "headgate: x: a is 1; b is 2" || !errors.Is(invalid, headgate.ErrInvalid) || errors.Is(invalid, headgate.ErrDenied) {
		t.Errorf("%v", invalid)
	}
}
