package insightapi

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/telemetry/insight"
)

// TestNeeded: with the limit that is said to be needed, nothing of the hour would have been denied, as
// the minutes tell.
func TestNeeded(t *testing.T) {
	asked := make([]int64, 120)
	asked[10] = 1000 // More than an hour ago.
	for i := 70; i < 120; i++ {
		asked[i] = 2
	}
	asked[90], asked[91], asked[92] = 30, 40, 20
	for _, test := range []struct {
		limit        headgate.Limit
		needs, asked string
	}{
		{limit: headgate.Sliding(10, time.Minute), needs: "70 per 1m", asked: "70 units in 2 minutes"},
		{limit: headgate.Limit{Count: 10, Period: time.Minute, Burst: 20}, needs: "70 per 1m", asked: "70 units in 2 minutes"},
		{limit: headgate.Sliding(70, time.Minute)},
		{limit: headgate.Sliding(10, 90*time.Second), needs: "90 per 90s", asked: "90 units in 3 minutes"},
		{limit: headgate.Sliding(10, time.Hour), needs: "184 per 1h", asked: "184 units in the last hour"},
		{limit: headgate.Sliding(10, 24*time.Hour), needs: "184 per 1d", asked: "184 units in the last hour"},
		{limit: headgate.PerSecond(10)},
		{limit: headgate.Sliding(5, 15*time.Second), needs: "10 per 15s", asked: "40 units in its busiest minute"},
	} {
		rule := headgate.MustRule("r", test.limit)
		needs, units := needed(&rule.Limits()[0], asked)
		if needs != test.needs || units != test.asked {
			t.Errorf("%s: %q, %q; want %q, %q", test.limit.String(), needs, units, test.needs, test.asked)
		}
	}
	if needs, _ := needed(&headgate.MustRule("r", headgate.PerMinute(1)).Limits()[0], make([]int64, 120)); needs != "" {
		t.Errorf("nothing was asked for, and %q is needed", needs)
	}
}

// TestUs: whether it is us or the client.
func TestUs(t *testing.T) {
	const now = 1_800_000_000
	denied := func(since int64) insight.KeyCounts {
		return insight.KeyCounts{Asked: make([]int64, 120), Denied: &insight.Key{Since: since, Last: now - 10}}
	}
	steady, sudden, many := denied(now-3600), denied(now-600), insight.Top{}
	for i := range steady.Asked {
		steady.Asked[i], sudden.Asked[i] = 50, 2
	}
	for i := 110; i < 120; i++ {
		sudden.Asked[i] = 90
	}
	for range 20 {
		many.Keys = append(many.Keys, insight.Key{Count: 10})
	}
	many.Total = 200
	for _, test := range []struct {
		name string
		s    story
		want string
	}{
		{"not denied", story{}, "Neither"},
		{"steady", story{counts: steady}, "It is the client: it asks for more than its limit, 500 units in the last ten minutes."},
		{"not lately", story{counts: denied(now - 3600)}, "It is the client: it asked for more than its limit, last at {t:1799999990}. Neither"},
		{"sudden", story{counts: sudden}, "It is the client: it asked for 900 units in the last ten minutes, 45.0 times as many as before."},
		{"changed", story{counts: sudden, marks: []Mark{{At: (now - 620) * 1000, Kind: "policy", Rules: []string{"login"}}}}, "Probably us: the rule was changed at {t:"},
		{"another rule changed", story{counts: steady, marks: []Mark{{At: (now - 3610) * 1000, Kind: "policy", Rules: []string{"api"}}}}, "It is the client"},
		{"many", story{counts: steady, denied: many}, "Probably us: the rule denies 20 clients or more"},
		{"away", story{counts: insight.KeyCounts{Away: &insight.Key{Last: now - 5}}}, "It is us"},
		{"away for a moment", story{counts: insight.KeyCounts{Away: &insight.Key{Last: now - 5, Count: 99}, Denied: &insight.Key{}, Asked: []int64{9000, 500, 500, 500, 500}}}, "It is the client"},
		{"away for long", story{counts: insight.KeyCounts{Away: &insight.Key{Last: now - 5, Count: 100}, Denied: &insight.Key{}, Asked: []int64{9000, 500, 500, 500, 500}}}, "It is us"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.s.rule, test.s.now = &policy.Rule{Name: "login"}, now
			if got := test.s.us(); !strings.HasPrefix(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// TestCounted: a key's story says what the units of its rule are.
func TestCounted(t *testing.T) {
	for counts, want := range map[models.Counted]string{
		models.Requests: "Every limit has room.", models.InputTokens: "Every limit has room. The rule counts input tokens.",
		models.Money: "Every limit has room. The rule counts money: a unit is 0.001 of the currency.",
	} {
		s := story{KeyReport: &KeyReport{States: make([]State, 1)}, rule: &policy.Rule{Counts: counts}, moneyUnit: 1000}
		for _, a := range s.answers() {
			if a.Question == "why" && a.Text != want {
				t.Errorf("%v: %q, want %q", counts, a.Text, want)
			}
		}
	}
}

// TestMark: what a change of the policy is called.
func TestMark(t *testing.T) {
	for _, test := range []struct {
		change Change
		text   string
		rules  []string
	}{
		{Change{Version: 1, Because: "the start"}, "", nil},
		{Change{Version: 2, Changed: []RuleChanged{{"login", "5 per 1m", "2 per 1m"}}, Added: []string{"a", "b"}}, "policy version 2: login: 5 per 1m → 2 per 1m; added a, b", []string{"login", "a", "b"}},
		{Change{Version: 3}, "policy version 3: the rules are the same, something else has changed", nil},
		{Change{Version: 3, Failed: "2 mistakes"}, "a new policy was not taken: 2 mistakes", nil},
	} {
		m, ok := test.change.mark()
		if ok != (test.text != "") || m.Text != test.text && ok || !slices.Equal(m.Rules, test.rules) {
			t.Errorf("%+v: %+v, %v", test.change, m, ok)
		}
	}
}

// TestSpellings: durations and numbers are spelled as the pages spell them; lib.js has the same cases.
func TestSpellings(t *testing.T) {
	for ms, want := range map[int64]string{0: "0 ms", 999: "999 ms", 1001: "1.1 s", 9950: "10.0 s", 12_000: "12 s", 59_001: "1 min 0 s", 2_558_400: "42 min 39 s", 3_599_001: "1 h 0 min", 3_540_000: "59 min 0 s", 86_399_000: "1.0 days"} {
		if got := after(ms); got != want {
			t.Errorf("%d ms are %q, want %q", ms, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 10129: "10,129", 1234567: "1,234,567"} {
		if got := num(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
