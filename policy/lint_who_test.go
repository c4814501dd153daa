package policy

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// lintedWith returns warnings of one code, without those of others.
func lintedWith(s *Set, code string) []string {
	var got []string
	for _, w := range Lint(s) {
		if w.Code == code {
			got = append(got, strings.TrimPrefix(w.String(), code+": "))
		}
	}
	return got
}

// limited is a rule with these limits.
func limited(name string, match []Condition, per string, limits ...headgate.Limit) Rule {
	var parts []string
	if per != "" {
		parts = strings.Split(per, ",")
	}
	r := rule(name, match, parts...)
	r.Limits = headgate.MustRule(name, limits...)
	return r
}

func TestLintOverlaps(t *testing.T) {
	sliding := headgate.Sliding
	tiers := limited("tiers", nil, "user", sliding(5, time.Second))
	tiers.Limits, tiers.Tariff = nil, &Tariff{Entry: "tier", Other: per("tiers", 1)}
	shadow := limited("shadow", nil, "user", sliding(5, time.Second))
	shadow.Mode = ModeShadow
	dear := limited("dear", nil, "user", sliding(5, time.Second))
	dear.Cost = 2
	vip := limited("vip", []Condition{Equal("tier", "vip")}, "user", sliding(50, time.Second))
	vip.Replaces = []string{"api"}
	instead := limited("v1", []Condition{Prefix("route", "/v1/")}, "user", sliding(5, time.Second))
	instead.Replaces = []string{"get"}
	get, post := []Condition{Equal("method", "GET")}, []Condition{Equal("method", "POST")}
	const below = "lets at most 5 units pass in that time; set its count below 5, or leave it out"
	for _, c := range []struct {
		name  string
		rules []Rule
		want  []string // codes and what they say
	}{
		{"a tighter rule for all", []Rule{
			limited("api", nil, "user", sliding(5, time.Second)), limited("day", get, "user", sliding(500_000, 24*time.Hour)),
		}, []string{`HG007: rule "day": limit "500000 per 1d" can never bind, because rule "api" counts all its requests as well: "5 per 1s" lets at most 432000 units pass in that time; set its count below 432000, or leave it out`}},
		{"a looser rule for all", []Rule{
			limited("api", nil, "user", sliding(5, time.Second)), limited("day", get, "user", sliding(400_000, 24*time.Hour)),
		}, nil},
		{"a tighter rule for some", []Rule{
			limited("some", get, "user", sliding(5, time.Second)), limited("api", nil, "user", sliding(5, time.Second)),
		}, []string{`HG007: rule "some": limit "5 per 1s" can never bind, because rule "api" counts all its requests as well: "5 per 1s" ` + below}},
		{"one counter for all", []Rule{
			limited("user", nil, "user", sliding(9, time.Second)), limited("all", nil, "", sliding(5, time.Second)),
		}, []string{`HG007: rule "user": limit "9 per 1s" can never bind, because rule "all" counts all its requests as well: "5 per 1s" ` + below}},
		{"one counter for each", []Rule{
			limited("user", nil, "user", sliding(5, time.Second)), limited("all", nil, "", sliding(9, time.Second)),
		}, nil},
		{"networks in networks", []Rule{
			limited("narrow", nil, "ip/64", sliding(9, time.Second)), limited("wide", nil, "ip/24/48", sliding(5, time.Second)),
		}, []string{`HG007: rule "narrow": limit "9 per 1s" can never bind, because rule "wide" counts all its requests as well: "5 per 1s" ` + below}},
		{"twice the same", []Rule{
			limited("first", nil, "user", sliding(5, time.Second)), limited("second", nil, "user", sliding(5, time.Second)),
		}, []string{`HG007: rule "second": limit "5 per 1s" can never bind, because rule "first" counts all its requests as well: "5 per 1s" ` + below}},
		{"in shadow, by tiers, at another cost", []Rule{
			shadow, tiers, dear, limited("api", nil, "user", sliding(9, time.Second)),
		}, nil},
		{"the same for other requests", []Rule{
			limited("get", get, "user", sliding(5, time.Second)), limited("post", post, "user", sliding(5, time.Second)),
		}, nil},
		{"the same for some requests", []Rule{
			limited("get", get, "user", sliding(5, time.Second)), limited("v1", []Condition{Prefix("route", "/v1/")}, "user", sliding(5, time.Second)),
		}, []string{`HG008: rule "v1": it has the key and the limits of rule "get", and a request that both match is counted by each under a counter of its own; make one rule of them, or let their match exclude each other`}},
		{"what is sometimes replaced", []Rule{
			limited("api", nil, "user", sliding(5, time.Second)), limited("day", nil, "user", sliding(500_000, 24*time.Hour)), vip,
		}, nil},
		{"the same in place of it", []Rule{
			limited("get", get, "user", sliding(5, time.Second)), instead,
		}, nil},
		{"the same key and other limits", []Rule{
			limited("get", get, "user", sliding(5, time.Second)), limited("v1", []Condition{Prefix("route", "/v1/")}, "user", sliding(6, time.Second)),
		}, nil},
	} {
		var got []string
		for _, w := range Lint(mustNew(t, c.rules)) {
			if w.Code == CodeShadowed || w.Code == CodeTwice {
				got = append(got, w.String())
			}
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

func TestLintUnreachable(t *testing.T) {
	networks := func(s string) Condition { return Network("ip", netip.MustParsePrefix(s)) }
	deny := []ListEntry{
		{Name: "bad", Match: []Condition{networks("203.0.113.0/24"), Present("user")}},
		{Name: "old", Match: []Condition{Equal("route", "GET /old")}, Until: noon.Add(time.Hour)},
	}
	allow := []ListEntry{{Name: "health", Match: []Condition{Equal("route", "GET /health", "GET /ready")}}}
	for _, c := range []struct {
		rule Rule
		want string
	}{
		{rule("r", []Condition{Equal("route", "GET /health")}), `rule "r": it is never reached: the entry "health" of the allow list answers every request that it matches`},
		{rule("r", []Condition{Equal("route", "GET /health", "GET /")}), ""},
		{rule("r", []Condition{Equal("route", "GET /old")}), ""}, // Not for long.
		{rule("r", []Condition{Equal("ip", "203.0.113.7")}, "user"), `rule "r": it is never reached: the entry "bad" of the deny list answers every request that it matches`},
		{rule("r", []Condition{networks("203.0.113.128/25")}, "user"), `rule "r": it is never reached: the entry "bad" of the deny list answers every request that it matches`},
		{rule("r", []Condition{networks("203.0.112.0/23")}, "user"), ""},
		{rule("r", []Condition{Equal("ip", "203.0.113.7")}), ""},
	} {
		s := mustNew(t, []Rule{c.rule}, atNoon(), WithDenied(deny...), WithAllowed(allow...))
		if got := strings.Join(lintedWith(s, CodeUnreachable), "\n"); got != c.want {
			t.Errorf("%+v:\ngot  %s\nwant %s", c.rule.Match, got, c.want)
		}
	}
}

// TestLintPatterns: networks and hashes neither contradict nor imply what cannot
// be told from them.
func TestLintPatterns(t *testing.T) {
	network := func(s string) Condition { return Network("ip", netip.MustParsePrefix(s)) }
	const hash, other = "AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBA"
	for _, c := range []struct {
		match []Condition
		want  string
	}{
		{[]Condition{network("10.0.0.0/8"), network("10.1.0.0/16")}, ""},
		{[]Condition{network("10.0.0.0/8"), network("11.0.0.0/8")}, `entry "ip" must have a value out of 2 lists that have none in common; join them into one`},
		{[]Condition{network("10.0.0.0/8"), Equal("ip", "10.1.2.3")}, ""},
		{[]Condition{network("10.0.0.0/8"), Equal("ip", "::ffff:10.1.2.3")}, ""},
		{[]Condition{network("10.0.0.0/8"), Equal("ip", "11.1.2.3")}, `entry "ip" must have a value out of 2 lists that have none in common; join them into one`},
		{[]Condition{network("10.0.0.0/8"), Prefix("ip", "10.")}, ""},
		{[]Condition{network("10.0.0.0/8"), Prefix("ip", "192.")}, ""},
		{[]Condition{network("10.1.0.0/16"), Not(network("10.0.0.0/8"))}, `entry "ip" must have one of the values "10.1.0.0/16", and not has each of them; take them out of not`},
		{[]Condition{network("10.0.0.0/8"), Not(network("10.1.0.0/16"))}, ""},
		{[]Condition{Equal("ip", "10.1.2.3"), Not(network("10.0.0.0/8"))}, `entry "ip" must have one of the values "10.1.2.3", and not has each of them; take them out of not`},
		{[]Condition{Hashed("api_key", hash), Equal("api_key", "k1")}, ""},
		{[]Condition{Hashed("api_key", hash), Prefix("api_key", "k")}, ""},
		{[]Condition{Hashed("api_key", hash), Hashed("api_key", other)}, `entry "api_key" must have a value out of 2 lists that have none in common; join them into one`},
		{[]Condition{Hashed("api_key", hash), Not(Equal("api_key", "k1"))}, ""},
		{[]Condition{Equal("api_key", "k1"), Not(Equal("api_key", "k1"))}, `entry "api_key" must have one of the values (a secret), and not has each of them; take them out of not`},
	} {
		got := ""
		for _, w := range lintedWith(mustNew(t, []Rule{rule("r", c.match)}), CodeNeverMatches) {
			got += strings.TrimPrefix(w, `rule "r": it can never match: `)
		}
		if got != c.want {
			t.Errorf("%+v:\ngot  %s\nwant %s", c.match, got, c.want)
		}
	}
}

func TestLintTariffs(t *testing.T) {
	tariff := func(name string, match []Condition, other bool, tiers ...string) Rule {
		r := Rule{Match: match, Tariff: &Tariff{Entry: "tier"}}
		if other {
			r.Tariff.Other = headgate.MustRule(name, headgate.PerMinute(60), headgate.PerHour(3600))
		}
		for _, tier := range tiers {
			r.Tariff.Tiers = append(r.Tariff.Tiers, Tier{tier, headgate.MustRule(name, headgate.Sliding(20, time.Minute), headgate.Sliding(20, time.Second))})
		}
		return r
	}
	open := `it does not bind requests with another tier than it has limits for, nor those without one; add "*" with limits for them`
	s := mustNew(t, []Rule{
		tariff("open", nil, false, "pro"),
		tariff("all", nil, true, "free"),
		tariff("some", []Condition{Equal("tier", "pro")}, false, "pro", "max"),
		tariff("more", []Condition{Equal("tier", "pro", "free")}, false, "pro"),
		tariff("others", nil, true),
	}, WithSubjects(Subjects{
		Table: []Subject{
			{Key: HashMark + "AAAAAAAAAAAAAAAAAAAAAA", Entries: []Entry{{"tier", "pro"}}},
			{Key: "k2", Entries: []Entry{{"tier", "fre"}, {"tenant", "x"}}, Pos: Position{"s.yml", 2, 1}},
			{Key: "k3", Entries: []Entry{{"tier", "fre"}}},
		},
		Other: []Entry{{"tier", "none"}}, OtherPos: Position{"s.yml", 9, 1},
	}))
	for code, want := range map[string][]string{
		CodeOpenTariff: {`rule "open": ` + open, `rule "more": ` + open},
		CodeUnknownTier: {
			`s.yml:2:1: HG010: the table of subjects has the tier "fre", which no rule has limits for; there are "pro"`,
			`s.yml:9:1: HG010: the table of subjects has the tier "none", which no rule has limits for; there are "pro"`,
		},
		CodeClearSecret: {`s.yml:2:1: HG013: the table of subjects has 2 values of the secret api_key in the clear; write their hashes, as hash:...`},
		CodeNeverBinds: {
			`rule "open": for the tier "pro", limit "20 per 1s" can never bind: "20 per 1m" lets at most 20 units pass in that time; set its count below 20, or leave it out`,
			`rule "all": for the tier "free", limit "20 per 1s" can never bind: "20 per 1m" lets at most 20 units pass in that time; set its count below 20, or leave it out`,
			`rule "all": for every other tier, limit "3600 per 1h" can never bind: "60 per 1m" has no larger burst (60, not 3600) and no higher rate (3600 units in 1h, not 3600); set its count below 3600, or leave it out`,
			`rule "some": for the tier "pro", limit "20 per 1s" can never bind: "20 per 1m" lets at most 20 units pass in that time; set its count below 20, or leave it out`,
			`rule "some": for the tier "max", limit "20 per 1s" can never bind: "20 per 1m" lets at most 20 units pass in that time; set its count below 20, or leave it out`,
			`rule "more": for the tier "pro", limit "20 per 1s" can never bind: "20 per 1m" lets at most 20 units pass in that time; set its count below 20, or leave it out`,
			`rule "others": for every other tier, limit "3600 per 1h" can never bind: "60 per 1m" has no larger burst (60, not 3600) and no higher rate (3600 units in 1h, not 3600); set its count below 3600, or leave it out`,
		},
	} {
		if got := lintedWith(s, code); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot\n%s\nwant\n%s", code, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// TestLintManyTiers: a table of a million rows is not a million lines in the log.
func TestLintManyTiers(t *testing.T) {
	const n = 1000
	table := Subjects{By: "user"}
	for i := range n {
		entries := []Entry{{"tier", fmt.Sprint("t", i%(n/2))}, {"plan", "none"}}
		table.Table = append(table.Table, Subject{Key: fmt.Sprint("u", i), Entries: entries, Pos: Position{File: "s.csv", Line: i + 2, Column: 1}})
	}
	rules := []Rule{rule("tiers", nil), rule("plans", nil)}
	rules[0].Limits, rules[0].Tariff = nil, &Tariff{Entry: "tier", Tiers: []Tier{{"t0", per("tiers", 1)}}, Other: per("tiers", 2)}
	rules[1].Limits, rules[1].Tariff = nil, &Tariff{Entry: "plan", Tiers: []Tier{{"some", per("plans", 1)}}, Other: per("plans", 2)}
	got := lintedWith(mustNew(t, rules, WithSubjects(table)), CodeUnknownTier)
	want := map[int]string{
		0:                   `s.csv:2:1: HG010: the table of subjects has the plan "none", which no rule has limits for; there are "some"`,
		1:                   `s.csv:3:1: HG010: the table of subjects has the tier "t1", which no rule has limits for; there are "t0"`,
		maxUnknownTiers:     `s.csv:22:1: HG010: the table of subjects has the tier "t20", which no rule has limits for; there are "t0"`,
		maxUnknownTiers + 1: `s.csv:23:1: HG010: the table of subjects has values of tier from here on, 479 in all, which no rule has limits for and which are not listed`,
	}
	for i, text := range want {
		if len(got) != maxUnknownTiers+2 || got[i] != text {
			t.Fatalf("got %d warnings:\n%s\nwant %d, and as the %d. %s", len(got), strings.Join(got, "\n"), maxUnknownTiers+2, i+1, text)
		}
	}
}

func TestLintEndedAndForged(t *testing.T) {
	r := rule("r", []Condition{Equal("api_key", "k1")}, "ip", "x_forwarded_for")
	r.Per[0] = Part{Entry: "ip", Bits4: 24}
	r.Overrides = []Override{
		{Match: []Condition{Equal("token", "t")}, Limits: per("r", 1), Until: noon, Pos: Position{"p.yml", 7, 9}},
		{Match: []Condition{Hashed("token", "AAAAAAAAAAAAAAAAAAAAAA")}, Limits: per("r", 2), Until: noon.Add(time.Second)},
	}
	keys := rule("keys", nil, "ip/64")
	keys.Limits, keys.Tariff = nil, &Tariff{Entry: "api_key", Tiers: []Tier{{"k1", per("keys", 5)}}, Other: per("keys", 1)}
	keys.Costs = &Costs{Entry: "token", Values: map[string]int64{"t": 40}, Other: 1}
	s := mustNew(t, []Rule{r, keys}, atNoon(),
		WithDenied(ListEntry{Name: "old", Match: []Condition{Equal("api_key", "k1")}, Until: noon.Add(-time.Minute)}),
		WithAllowed(ListEntry{Name: "office", Match: []Condition{Equal("X-Forwarded-For", "192.0.2.1")}}))
	for code, want := range map[string][]string{
		CodeEnded: {
			`the entry "old" of the deny list has ended at 2026-07-01 11:59 UTC; take it out`,
			`p.yml:7:9: HG011: rule "r": override 1 has ended at 2026-07-01 12:00 UTC; take it out`,
		},
		CodeForgeable: {
			`the entry "office" of the allow list believes "X-Forwarded-For", a header that any client can set; go by "ip", which is an address that has been seen`,
			`rule "r": it counts by whole IPv6 addresses in "ip", of which one customer usually has 2^64 to choose from; write ip/24/64`,
			`rule "r": it counts by "x_forwarded_for", a header that any client can set to a new address for each request; count by "ip", which is an address that has been seen`,
		},
		CodeClearSecret: {
			`the entry "old" of the deny list has the secret api_key in the clear; write its hash, as { hash: ... }`,
			`rule "r": it has values of the secret api_key in the clear; write their hashes, as { hash: ... }`,
			`rule "r": it has values of the secret token in the clear; write their hashes, as { hash: ... }`,
			`rule "keys": it has values of the secret api_key in the clear; give the clients a tier or the like in the table of subjects, and go by that`,
			`rule "keys": it has values of the secret token in the clear; give the clients a tier or the like in the table of subjects, and go by that`,
		},
		CodeNeverFits: {
			`rule "keys": for the api_key "k1", limit "5 per 1m" holds at most 5 units but a request with the token "t" costs at least 40, so every such request is denied; raise the limit or its burst to 40, or lower the cost`,
			`rule "keys": for every other api_key, limit "1 per 1m" holds at most 1 units but a request with the token "t" costs at least 40, so every such request is denied; raise the limit or its burst to 40, or lower the cost`,
		},
	} {
		if got := lintedWith(s, code); !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot\n%s\nwant\n%s", code, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// TestIgnore: warnings are silenced one by one, and what silences nothing is
// itself worth a warning.
func TestIgnore(t *testing.T) {
	route := func(r string) []Condition { return []Condition{Equal("route", r)} }
	quiet, loud := rule("quiet", route("q"), "user"), rule("loud", route("l"), "tenant")
	quiet.Ignore = []Ignore{{CodeUncaught, "internal"}, {CodeNeverBinds, "of old"}}
	s := mustNew(t, []Rule{quiet, loud, rule("ip", route("i"), "ip")}, WithIgnored(Ignore{CodeForgeable, "no IPv6 here"}, Ignore{CodeTwice, "no more"}))
	all, left := map[string]string{}, []string{}
	for _, w := range LintAll(s) {
		all[w.Code+" "+w.Rule] = w.Ignored
	}
	for _, w := range Lint(s) {
		left = append(left, w.Code+" "+w.Rule)
	}
	if want := map[string]string{"HG004 quiet": "internal", "HG004 loud": "", "HG004 ip": "", "HG012 ip": "no IPv6 here", "HG014 ": "", "HG014 quiet": ""}; !reflect.DeepEqual(all, want) {
		t.Errorf("all are %v, want %v", all, want)
	}
	if want := []string{"HG014 ", "HG014 quiet", "HG004 loud", "HG004 ip"}; !reflect.DeepEqual(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
	if got := lintedWith(s, CodeIdleIgnore); got[0] != "the policy ignores HG008, but there is no such warning; leave it out" ||
		got[1] != `rule "quiet": it ignores HG001, but there is no such warning; leave it out` {
		t.Errorf("got %q", got)
	}
}

func TestCodes(t *testing.T) {
	for i, c := range Codes() {
		if want := []byte{'H', 'G', '0', byte('0' + (i+1)/10), byte('0' + (i+1)%10)}; c.Code != string(want) || !strings.HasSuffix(c.About, ".") {
			t.Errorf("code %d is %+v", i, c)
		}
	}
}

func TestFootprints(t *testing.T) {
	direct := limited("direct", nil, "", headgate.Sliding(600, time.Minute), headgate.Sliding(30, time.Second))
	direct.Direct = true
	tiers := rule("tiers", nil, "api_key", "ip/64")
	tiers.Limits, tiers.Tariff = nil, &Tariff{Entry: "t", Tiers: []Tier{{"a", per("tiers", 1)}}, Other: headgate.MustRule("tiers", headgate.PerHour(5), headgate.PerMinute(1), headgate.Sliding(100, time.Second))}
	dear := limited("dear", nil, "user", headgate.Sliding(1000, time.Minute))
	dear.Cost = 10
	guessed := limited("guessed", nil, "user", headgate.PerMinute(5), headgate.Limit{Algorithm: headgate.Penalty, Count: 3, Period: time.Minute, Block: time.Hour})
	s := mustNew(t, []Rule{rule("all", nil), rule("user", nil, "user"), direct, tiers, dear, guessed})
	want := []Footprint{
		{"all", 120 + 3 + 4 + 24, true},
		{"user", 120 + 3 + 5 + 16 + 24, false},
		{"direct", 120 + 3 + 7 + 16 + 1 + 2*(13+6*600), false},
		{"tiers", 120 + 3 + 6 + 22 + 1 + 18 + 1 + 2*23 + 2*(13+6*100), false},
		{"dear", 120 + 3 + 5 + 16 + 1 + 2*(13+11*100), false},
		{"guessed", 120 + 3 + 8 + 16 + 1 + 2*23, false},
	}
	got := Footprints(s)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	if got[0].PerMillion() != got[0].Bytes || got[1].PerMillion() != 1e6*got[1].Bytes {
		t.Error("a million keys take otherwise")
	}
}
