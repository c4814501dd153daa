package storetest_test

import (
	"context"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/storetest"
)

func TestVectors(t *testing.T) {
	vectors, err := storetest.Vectors()
	if err != nil {
		t.Fatal(err)
	}
	files, err := fs.Glob(os.DirFS("."), "vectors/*")
	if err != nil {
		t.Fatal(err)
	}
	if len(vectors) != len(files) || len(files) < 8 {
		t.Errorf("%d vectors of %d files, want one of each, and at least 8", len(vectors), len(files))
	}
	for _, v := range vectors {
		if len(v.Steps) < 5 {
			t.Errorf("%s has %d steps", v.File, len(v.Steps))
		}
	}
}

const header = "clock 2026-01-01T00:00:00Z\nrule r\n  token_bucket 5 per 1s\n"

// TestParseVector reads a vector with everything in it.
func TestParseVector(t *testing.T) {
	v, err := storetest.ParseVector("file.vec", header+`
# A comment, and below it a rule with two limits.
rule two   # here as well
	sliding_window 20 per 60s
	fixed_window 5 per calendar day in Europe/Berlin

at 1d2h3.000001s take r/"a b\x00#" 2 + shadow two/k
    -> allow remaining=3 reset=400ms ;
       deny remaining=1_000 retry=never ; allow remaining=4 delay=1us retry=0s
at 2024-03-31T03:00:00+02:00 refund r/ 1_0 @2024-03-31T00:00:00Z -> allow remaining=5
at -1h reset two/k -> done
`)
	if err != nil {
		t.Fatal(err)
	}
	if v.File != "file.vec" || len(v.Steps) != 3 {
		t.Fatalf("%+v, want 3 steps of file.vec", v)
	}
	origin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	first, refund, reset := v.Steps[0], v.Steps[1], v.Steps[2]
	if want := origin.Add(26*time.Hour + 3*time.Second + time.Microsecond).UnixMicro(); first.Now != want || first.Line != 10 || first.Op != headgate.OpTake {
		t.Errorf("%+v, want line 10 at %d", first, want)
	}
	if c := first.Checks[0]; c.Key != "a b\x00#" || c.Cost != 2 || c.Rule.Name() != "r" || c.Shadow {
		t.Errorf("first check %+v", c)
	}
	if c := first.Checks[1]; c.Key != "k" || c.Cost != 1 || len(c.Rule.Limits()) != 2 || !c.Shadow {
		t.Errorf("second check %+v", c)
	}
	two := first.Checks[1].Rule
	for i, want := range []headgate.Decision{
		{Rule: first.Checks[0].Rule, Limit: &first.Checks[0].Rule.Limits()[0], Allowed: true, Remaining: 3, ResetAfter: 400 * time.Millisecond, At: headgate.Instant(first.Now)},
		{Rule: two, Limit: &two.Limits()[0], Check: 1, Shadow: true, Remaining: 1000, RetryAfter: headgate.Never, At: headgate.Instant(first.Now)},
		{Rule: two, Limit: &two.Limits()[1], Check: 1, Shadow: true, Allowed: true, Remaining: 4, Delay: time.Microsecond, At: headgate.Instant(first.Now)},
	} {
		if first.Want[i] != want {
			t.Errorf("outcome %d: %+v\nwant %+v", i, first.Want[i], want)
		}
	}
	if want := time.Date(2024, 3, 31, 1, 0, 0, 0, time.UTC).UnixMicro(); refund.Now != want || int64(refund.Checks[0].At) != want-3_600_000_000 || refund.Checks[0].Cost != 10 || refund.Checks[0].Key != "" {
		t.Errorf("%+v, want a refund at %d of what was charged an hour before", refund, want)
	}
	if reset.Now != origin.Add(-time.Hour).UnixMicro() || reset.Want != nil || reset.Op != headgate.OpReset {
		t.Errorf("%+v, want a reset an hour before the clock line", reset)
	}
}

// TestParseVectorMistakes: every mistake is told with file and line.
func TestParseVectorMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"nonsense":                                        `:4: "nonsense" is not clock, rule or at`,
		"clock":                                           `:4: write clock 2026-01-01T00:00:00Z`,
		"clock yesterday":                                 `:4: "yesterday" is not a time such as`,
		"clock 2026-01-01T00:00:00.0000001Z":              `is not a whole number of microseconds`,
		"clock 1969-01-01T00:00:00Z":                      `is not between the years 1971 and 2200`,
		"rule":                                            `:4: write rule NAME`,
		"rule a/b\n token_bucket 1 per 1s":                `:4: rule "a/b": a name in a vector has no slash and no quote`,
		"rule a":                                          `:4: headgate: rule "a": it has 0 limits, must have 1 to 16`,
		"rule a\n bucket 1 per 1s":                        `:4: line 5: headgate: algorithm "bucket" is not one of`,
		"rule a\n token_bucket 1 a day":                   `:4: line 5: headgate: limit "1 a day"`,
		"at 0s":                                           `:4: write at TIME take`,
		"at 0s take r/k":                                  `:4: write at TIME take`,
		"at soon take r/k -> allow":                       `:4: duration "soon" is not one such as`,
		"at 1ns take r/k -> allow":                        `of whole microseconds`,
		"at 40000d take r/k -> allow":                     `more than 100 years from the clock line`,
		"at 1d25h take r/k -> allow":                      `duration "1d25h" is not one`,
		"at 0s give r/k -> allow":                         `:4: "give" is not take, peek, refund, reset or charge`,
		"at 0s take x/k -> allow":                         `:4: "x/k" does not begin with the name of a rule above and a slash`,
		"at 0s take r -> allow":                           `:4: "r" does not begin with the name of a rule above and a slash`,
		`at 0s take r/"a -> allow`:                        `:4: a quote is not closed`,
		`at 0s take r/"a"b -> allow`:                      `cannot be read`,
		"at 0s take r/k 0 -> allow":                       `cost "0" is not a whole number from 1`,
		"at 0s take r/k 1 2 -> allow":                     `"2" is not understood in a check to take`,
		"at 0s take r/k @0s -> allow":                     `"@0s" is not understood in a check to take`,
		"at 0s reset r/k 2 -> done":                       `"2" is not understood in a check to reset`,
		"at 0s take r/k + -> allow":                       `a check is missing beside a +`,
		"at 0s take r/k + r/k -> allow":                   `check 2 repeats the rule "r" and the key of check 1`,
		"at 0s take r/k ->":                               `limit 1 of rule r: "" does not begin with allow or deny`,
		"at 0s take r/k -> maybe":                         `"maybe" does not begin with allow or deny`,
		"at 0s take r/k -> allow":                         `say what is remaining`,
		"at 0s take r/k -> deny remaining=0":              `with a retry if and only if it is denied`,
		"at 0s take r/k -> allow remaining=x":             `remaining: strconv.ParseUint`,
		"at 0s take r/k -> allow rest=1":                  `"rest=1" is not remaining, retry, reset or delay`,
		"at 0s take r/k -> allow remaining=1 remaining=1": `remaining is said twice`,
		"at 0s take r/k -> allow remaining=1 reset=-1s":   `reset: duration "-1s" is negative`,
		"at 0s take r/k + r/l -> allow remaining=1":       `there is no outcome for limit 1 of rule r`,
		"at 0s take r/k -> allow remaining=1 ; allow":     `there are outcomes for more than the 1 limits: "allow"`,
		"at 0s reset r/k -> allow":                        `a reset decides nothing: write -> done`,
	} {
		_, err := storetest.ParseVector("v.vec", header+text)
		if err == nil || !strings.HasPrefix(err.Error(), "v.vec:") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %s", text, err, want)
		}
	}
	_, err := storetest.ParseVector("v.vec", " indented\nat 0s take r/k -> done\nrule\n")
	if want := "v.vec:1: an indented line continues the one above, and there is none\nv.vec:2: time \"0s\" is counted from the clock line, which must come first\nv.vec:3: write rule NAME, and its limits on indented lines below"; err == nil || err.Error() != want {
		t.Errorf("error %v\nwant %s", err, want)
	}
}

func FuzzParseVector(f *testing.F) {
	// Short ones: the fuzzer spends its time on making long ones shorter.
	f.Add(header + `at 0s take r/"\x00" 1_0 + shadow r/k @1h -> allow remaining=1 ; deny retry=never`)
	f.Add("clock 2026-01-01T00:00:00Z\nrule r\n fixed_window 1 per 1d\nat 1d2h refund r/k 2 @0s\n -> allow remaining=1\n")
	f.Add("rule r\n sliding_window 9 per 1s # c\nat 2024-03-31T03:00:00+02:00 reset r/ -> done\n")
	f.Add("rule r\n leaky_bucket 1 per 1s burst 2\n token_bucket 1 per 1s\nat 2024-03-31T03:00:00Z peek r/k -> allow remaining=2 delay=0.5s reset=1us ; deny remaining=0 retry=1s reset=1s\n")
	f.Fuzz(func(t *testing.T, text string) {
		v, err := storetest.ParseVector("v.vec", text)
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				if v != nil || len(line) < 7 {
					t.Errorf("%q: %+v and error %q", text, v, line)
				}
			}
			return
		}
		// What can be read can be carried out, by the model and every other store.
		clock := storetest.NewClock(storetest.Epoch)
		model := storetest.NewModel(clock.Now)
		for _, s := range v.Steps {
			clock.Set(s.Now)
			got, err := model.Take(context.Background(), s.Op, s.Checks, nil)
			if err != nil || len(got) != len(s.Want) {
				t.Fatalf("line %d: %d decisions, %v; want %d", s.Line, len(got), err, len(s.Want))
			}
		}
	})
}
