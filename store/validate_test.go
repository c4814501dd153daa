package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
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
		{headgate.OpTake, []headgate.Check{{Rule: r, Cost: -1}}, "check 1 (r): the cost is -1, must be 1 to 9007199254740991"},
		{headgate.OpTake, []headgate.Check{{Rule: r, Cost: headgate.MaxCount + 1}}, "check 1 (r): the cost is 9007199254740992, must be 1 to 9007199254740991"},
		{headgate.OpTake, []headgate.Check{{Rule: r, Key: "k"}, {Rule: r, Key: "k"}}, `check 2 repeats the rule "r" and the key of check 1; add up their costs instead`},
		{
			9,
			[]headgate.Check{{Key: long, Cost: -2}, {Rule: r, Key: "k"}, {Rule: r, Key: long, Cost: -3}, {Rule: headgate.MustRule("r", headgate.Per(1, 24*time.Hour)), Key: "k"}},
			"operation 9 is unknown; check 1 has no rule; make one with NewRule; check 1: the key has 1025 bytes, must have at most 1024; check 1: the cost is -2, must be 1 to 9007199254740991; " +
				"check 3 (r): the key has 1025 bytes, must have at most 1024; check 3 (r): the cost is -3, must be 1 to 9007199254740991; " +
				`check 4 repeats the rule "r" and the key of check 2; add up their costs instead`,
		},
	} {
		err := store.Validate(c.op, c.checks)
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
			one := &c.checks[0]
			if single := store.ValidateSingle(one.Rule, one.Key, one.Cost); single == nil || single.Error() != err.Error() {
				t.Errorf("ValidateSingle says %v, Validate %v", single, err)
			}
		}
	}
	if err := store.ValidateSingle(r, "", 0); err != nil {
		t.Error(err)
	}
	if n := testing.AllocsPerRun(100, func() { _ = store.Validate(headgate.OpTake, many[:1]) }); n != 0 {
		t.Errorf("%v allocations to validate one check, want 0", n)
	}
}

func TestValidateOnce(t *testing.T) {
	checks := []headgate.Check{{Rule: headgate.MustRule("r", headgate.PerHour(9)), Key: "k"}}
	for want, terms := range map[string]headgate.Terms{
		"":                               {ID: strings.Repeat("i", headgate.MaxID), For: headgate.MaxTerm},
		"it has no id":                   {},
		"the id has 257 bytes":           {ID: strings.Repeat("i", headgate.MaxID+1)},
		"to be remembered for 24h0m1s":   {ID: "a", For: headgate.MaxTerm + time.Second},
		"to be remembered for 1.5ms":     {ID: "a", For: 1500 * time.Microsecond},
		"to be remembered for -1s, must": {ID: "a", For: -time.Second},
	} {
		err := store.ValidateOnce(&terms, checks)
		if want == "" && err != nil || want != "" && (!errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: error %v, want %q", terms, err, want)
		}
	}
	if err := store.ValidateOnce(&headgate.Terms{ID: "a"}, nil); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("no checks: error %v", err)
	}
}
