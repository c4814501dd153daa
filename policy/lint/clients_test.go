package lint

import (
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// lintedWith returns warnings of one code, without those of others.
func lintedWith(s *policy.Set, code string) []string {
	var got []string
	for _, w := range Warnings(s) {
		if w.Code == code {
			got = append(got, strings.TrimPrefix(w.String(), code+": "))
		}
	}
	return got
}

// limited is a rule with these limits.
func limited(name string, match []policy.Condition, per string, limits ...headgate.Limit) policy.Rule {
	var parts []string
	if per != "" {
		parts = strings.Split(per, ",")
	}
	r := ruleOf(name, match, parts...)
	r.Limits = headgate.MustRule(name, limits...)
	return r
}

func TestLintOverlaps(t *testing.T) {
	sliding := headgate.Sliding
	tiers := limited("tiers", nil, "user", sliding(5, time.Second))
	tiers.Limits, tiers.Tariff = nil, &policy.Tariff{Entry: "tier", Other: per("tiers", 1)}
	shadow := limited("shadow", nil, "user", sliding(5, time.Second))
	shadow.Mode = policy.ModeShadow
	dear := limited("dear", nil, "user", sliding(5, time.Second))
	dear.Cost = 2
	vip := limited("vip", []policy.Condition{policy.Equal("tier", "vip")}, "user", sliding(50, time.Second))
	vip.Replaces = []string{"api"}
	instead := limited("v1", []policy.Condition{policy.Prefix("route", "/v1/")}, "user", sliding(5, time.Second))
	instead.Replaces = []string{"get"}
	get, post := []policy.Condition{policy.Equal("method", "GET")}, []policy.Condition{policy.Equal("method", "POST")}
	const below = "lets at most 5 units pass in that time; set its count below 5, or leave it out"
	for _, c := range []struct {
		name  string
		rules []policy.Rule
		want  []string // codes and what they say
	}{
		{"a tighter rule for all", []policy.Rule{
			limited("api", nil, "user", sliding(5, time.Second)), limited("day", get, "user", sliding(500_000, 24*time.Hour)),
		}, []string{`HG007: rule "day": limit "500000 per 1d" can never bind, because rule "api" counts all its requests as well: "5 per 1s" lets at most 432000 units pass in that time; set its count below 432000, or leave it out`}},
		{"a looser rule for all", []policy.Rule{
			limited("api", nil, "user", sliding(5, time.Second)), limited("day", get, "user", sliding(400_000, 24*time.Hour)),
		}, nil},
		{"a tighter rule for some", []policy.Rule{
			limited("some", get, "user", sliding(5, time.Second)), limited("api", nil, "user", sliding(5, time.Second)),
		}, []string{`HG007: rule "some": limit "5 per 1s" can never bind, because rule "api" counts all its requests as well: "5 per 1s" ` + below}},
		{"one counter for all", []policy.Rule{
			limited("user", nil, "user", sliding(9, time.Second)), limited("all", nil, "", sliding(5, time.Second)),
		}, []string{`HG007: rule "user": limit "9 per 1s" can never bind, because rule "all" counts all its requests as well: "5 per 1s" ` + below}},
		{"one counter for each", []policy.Rule{
			limited("user", nil, "user", sliding(5, time.Second)), limited("all", nil, "", sliding(9, time.Second)),
		}, nil},
		{"networks in networks", []policy.Rule{
			limited("narrow", nil, "ip/64", sliding(9, time.Second)), limited("wide", nil, "ip/24/48", sliding(5, time.Second)),
		}, []string{`HG007: rule "narrow": limit "9 per 1s" can never bind, because rule "wide" counts all its requests as well: "5 per 1s" ` + below}},
		{"twice the same", []policy.Rule{
			limited("first", nil, "user", sliding(5, time.Second)), limited("second", nil, "user", sliding(5, time.Second)),
		}, []string{`HG007: rule "second": limit "5 per 1s" can never bind, because rule "first" counts all its requests as well: "5 per 1s" ` + below}},
		{"in shadow, by tiers, at another cost", []policy.Rule{
			shadow, tiers, dear, limited("api", nil, "user", sliding(9, time.Second)),
		}, nil},
		{"the same for other requests", []policy.Rule{
			limited("get", get, "user", sliding(5, time.Second)), limited("post", post, "user", sliding(5, time.Second)),
		}, nil},
		{"the same for some requests", []policy.Rule{
			limited("get", get, "user", sliding(5, time.Second)), limited("v1", []policy.Condition{policy.Prefix("route", "/v1/")}, "user", sliding(5, time.Second)),
		}, []string{`HG008: rule "v1": it has the key and the limits of rule "get", and a request that both match is counted by each under a counter of its own; make one rule of them, or let their match exclude each other`}},
		{"what is sometimes replaced", []policy.Rule{
			limited("api", nil, "user", sliding(5, time.Second)), limited("day", nil, "user", sliding(500_000, 24*time.Hour)), vip,
		}, nil},
		{"the same in place of it", []policy.Rule{
			limited("get", get, "user", sliding(5, time.Second)), instead,
		}, nil},
		{"the same key and other limits", []policy.Rule{
			limited("get", get, "user", sliding(5, time.Second)), limited("v1", []policy.Condition{policy.Prefix("route", "/v1/")}, "user", sliding(6, time.Second)),
		}, nil},
	} {
		var got []string
		for _, w := range Warnings(mustNew(t, c.rules)) {
			if w.Code == Shadowed || w.Code == Twice {
				got = append(got, w.String())
			}
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

func TestLintUnreachable(t *testing.T) {
	networks := func(s string) policy.Condition { return policy.Network("ip", netip.MustParsePrefix(s)) }
	deny := []policy.ListEntry{
		{Name: "bad", Match: []policy.Condition{networks("203.0.113.0/24"), policy.Present("user")}},
		{Name: "old", Match: []policy.Condition{policy.Equal("route", "GET /old")}, Until: noon.Add(time.Hour)},
	}
	allow := []policy.ListEntry{{Name: "health", Match: []policy.Condition{policy.Equal("route", "GET /health", "GET /ready")}}}
	for _, c := range []struct {
		rule policy.Rule
		want string
	}{
		{ruleOf("r", []policy.Condition{policy.Equal("route", "GET /health")}), `rule "r": it is never reached: the entry "health" of the allow list answers every request that it matches`},
		{ruleOf("r", []policy.Condition{policy.Equal("route", "GET /health", "GET /")}), ""},
		{ruleOf("r", []policy.Condition{policy.Equal("route", "GET /old")}), ""}, // Not for long.
		{ruleOf("r", []policy.Condition{policy.Equal("ip", "203.0.113.7")}, "user"), `rule "r": it is never reached: the entry "bad" of the deny list answers every request that it matches`},
		{ruleOf("r", []policy.Condition{networks("203.0.113.128/25")}, "user"), `rule "r": it is never reached: the entry "bad" of the deny list answers every request that it matches`},
		{ruleOf("r", []policy.Condition{networks("203.0.112.0/23")}, "user"), ""},
		{ruleOf("r", []policy.Condition{policy.Equal("ip", "203.0.113.7")}), ""},
	} {
		s := mustNew(t, []policy.Rule{c.rule}, atNoon(), policy.Denied(deny...), policy.Allowed(allow...))
		if got := strings.Join(lintedWith(s, Unreachable), "\n"); got != c.want {
			t.Errorf("%+v:\ngot  %s\nwant %s", c.rule.Match, got, c.want)
		}
	}
}

// TestLintPatterns: networks and hashes neither contradict nor imply what cannot
// be told from them.
func TestLintPatterns(t *testing.T) {
	network := func(s string) policy.Condition { return policy.Network("ip", netip.MustParsePrefix(s)) }
	const hash, other = "AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBA"
	for _, c := range []struct {
		match []policy.Condition
		want  string
	}{
		{[]policy.Condition{network("10.0.0.0/8"), network("10.1.0.0/16")}, ""},
		{[]policy.Condition{network("10.0.0.0/8"), network("11.0.0.0/8")}, `entry "ip" must have a value out of 2 lists that have none in common; join them into one`},
		{[]policy.Condition{network("10.0.0.0/8"), policy.Equal("ip", "10.1.2.3")}, ""},
		{[]policy.Condition{network("10.0.0.0/8"), policy.Equal("ip", "::ffff:10.1.2.3")}, ""},
		{[]policy.Condition{network("10.0.0.0/8"), policy.Equal("ip", "11.1.2.3")}, `entry "ip" must have a value out of 2 lists that have none in common; join them into one`},
		{[]policy.Condition{network("10.0.0.0/8"), policy.Prefix("ip", "10.")}, ""},
		{[]policy.Condition{network("10.0.0.0/8"), policy.Prefix("ip", "192.")}, ""},
		{[]policy.Condition{network("10.1.0.0/16"), policy.Not(network("10.0.0.0/8"))}, `entry "ip" must have one of the values "10.1.0.0/16", and not has each of them; take them out of not`},
		{[]policy.Condition{network("10.0.0.0/8"), policy.Not(network("10.1.0.0/16"))}, ""},
		{[]policy.Condition{policy.Equal("ip", "10.1.2.3"), policy.Not(network("10.0.0.0/8"))}, `entry "ip" must have one of the values "10.1.2.3", and not has each of them; take them out of not`},
		{[]policy.Condition{policy.Hashed("api_key", hash), policy.Equal("api_key", "k1")}, ""},
		{[]policy.Condition{policy.Hashed("api_key", hash), policy.Prefix("api_key", "k")}, ""},
		{[]policy.Condition{policy.Hashed("api_key", hash), policy.Hashed("api_key", other)}, `entry "api_key" must have a value out of 2 lists that have none in common; join them into one`},
		{[]policy.Condition{policy.Hashed("api_key", hash), policy.Not(policy.Equal("api_key", "k1"))}, ""},
		{[]policy.Condition{policy.Equal("api_key", "k1"), policy.Not(policy.Equal("api_key", "k1"))}, `entry "api_key" must have one of the values (a secret), and not has each of them; take them out of not`},
	} {
		got := ""
		for _, w := range lintedWith(mustNew(t, []policy.Rule{ruleOf("r", c.match)}), NeverMatches) {
			got += strings.TrimPrefix(w, `rule "r": it can never match: `)
		}
		if got != c.want {
			t.Errorf("%+v:\ngot  %s\nwant %s", c.match, got, c.want)
		}
	}
}

func TestLintTariffs(t *testing.T) {
	tariff := func(name string, match []policy.Condition, other bool, tiers ...string) policy.Rule {
		r := policy.Rule{Match: match, Tariff: &policy.Tariff{Entry: "tier"}}
		if other {
			r.Tariff.Other = headgate.MustRule(name, headgate.PerMinute(60), headgate.PerHour(3600))
		}
		for _, tier := range tiers {
			r.Tariff.Tiers = append(r.Tariff.Tiers, policy.Tier{Value: tier, Limits: headgate.MustRule(name, headgate.Sliding(20, time.Minute), headgate.Sliding(20, time.Second))})
		}
		return r
	}
	open := `it does not bind requests with another tier than it has limits for, nor those without one; add "*" with limits for them`
	s := mustNew(t, []policy.Rule{
		tariff("open", nil, false, "pro"),
		tariff("all", nil, true, "free"),
		tariff("some", []policy.Condition{policy.Equal("tier", "pro")}, false, "pro", "max"),
		tariff("more", []policy.Condition{policy.Equal("tier", "pro", "free")}, false, "pro"),
		tariff("others", nil, true),
	}, policy.SubjectTable(policy.Subjects{
		Table: []policy.Subject{
			{Key: policy.HashMark + "AAAAAAAAAAAAAAAAAAAAAA", Entries: []policy.Entry{{Name: "tier", Value: "pro"}}},
			{Key: "k2", Entries: []policy.Entry{{Name: "tier", Value: "fre"}, {Name: "tenant", Value: "x"}}, Pos: policy.Position{File: "s.yml", Line: 2, Column: 1}},
			{Key: "k3", Entries: []policy.Entry{{Name: "tier", Value: "fre"}}},
		},
		Other: []policy.Entry{{Name: "tier", Value: "none"}}, OtherPos: policy.Position{File: "s.yml", Line: 9, Column: 1},
	}))
	for code, want := range map[string][]string{
		OpenTariff: {`rule "open": ` + open, `rule "more": ` + open},
		UnknownTier: {
			`s.yml:2:1: HG010: the table of subjects has the tier "fre", which no rule has limits for; there are "pro"`,
			`s.yml:9:1: HG010: the table of subjects has the tier "none", which no rule has limits for; there are "pro"`,
		},
		ClearSecret: {`s.yml:2:1: HG013: the table of subjects has 2 values of the secret api_key in the clear; write their hashes, as hash:...`},
		NeverBinds: {
			`rule "open": for the tier "pro", limit "20 per 1s" can never bind: "20 per 1m" lets at most 20 units pass in that time; set its count below 20, or leave it out`,
			`rule "all": for the tier "free", limit "20 per 1s" can never bind: "20 per 1m" lets at most 20 units pass in that time; set its count below 20, or leave it out`,
			`rule "all": for every other tier, limit "3600 per 1h" can never bind: "60 per 1m" has no larger burst (60, not 3600) and no higher rate (at most 3600 in 1h, not 3600); set its count below 3600, or leave it out`,
			`rule "some": for the tier "pro", limit "20 per 1s" can never bind: "20 per 1m" lets at most 20 units pass in that time; set its count below 20, or leave it out`,
			`rule "some": for the tier "max", limit "20 per 1s" can never bind: "20 per 1m" lets at most 20 units pass in that time; set its count below 20, or leave it out`,
			`rule "more": for the tier "pro", limit "20 per 1s" can never bind: "20 per 1m" lets at most 20 units pass in that time; set its count below 20, or leave it out`,
			`rule "others": for every other tier, limit "3600 per 1h" can never bind: "60 per 1m" has no larger burst (60, not 3600) and no higher rate (at most 3600 in 1h, not 3600); set its count below 3600, or leave it out`,
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
	table := policy.Subjects{By: "user"}
	for i := range n {
		entries := []policy.Entry{{Name: "tier", Value: fmt.Sprint("t", i%(n/2))}, {Name: "plan", Value: "none"}}
		table.Table = append(table.Table, policy.Subject{Key: fmt.Sprint("u", i), Entries: entries, Pos: policy.Position{File: "s.csv", Line: i + 2, Column: 1}})
	}
	rules := []policy.Rule{ruleOf("tiers", nil), ruleOf("plans", nil)}
	rules[0].Limits, rules[0].Tariff = nil, &policy.Tariff{Entry: "tier", Tiers: []policy.Tier{{Value: "t0", Limits: per("tiers", 1)}}, Other: per("tiers", 2)}
	rules[1].Limits, rules[1].Tariff = nil, &policy.Tariff{Entry: "plan", Tiers: []policy.Tier{{Value: "some", Limits: per("plans", 1)}}, Other: per("plans", 2)}
	got := lintedWith(mustNew(t, rules, policy.SubjectTable(table)), UnknownTier)
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
	r := ruleOf("r", []policy.Condition{policy.Equal("api_key", "k1")}, "ip", "x_forwarded_for")
	r.Per[0] = policy.Part{Entry: "ip", Bits4: 24}
	r.Overrides = []policy.Override{
		{Match: []policy.Condition{policy.Equal("token", "t")}, Limits: per("r", 1), Until: noon, Pos: policy.Position{File: "p.yml", Line: 7, Column: 9}},
		{Match: []policy.Condition{policy.Hashed("token", "AAAAAAAAAAAAAAAAAAAAAA")}, Limits: per("r", 2), Until: noon.Add(time.Second)},
	}
	keys := ruleOf("keys", nil, "ip/64")
	keys.Limits, keys.Tariff = nil, &policy.Tariff{Entry: "api_key", Tiers: []policy.Tier{{Value: "k1", Limits: per("keys", 5)}}, Other: per("keys", 1)}
	keys.Costs = &policy.Costs{Entry: "token", Values: map[string]int64{"t": 40}, Other: 1}
	s := mustNew(t, []policy.Rule{r, keys}, atNoon(),
		policy.Denied(policy.ListEntry{Name: "old", Match: []policy.Condition{policy.Equal("api_key", "k1")}, Until: noon.Add(-time.Minute)}),
		policy.Allowed(policy.ListEntry{Name: "office", Match: []policy.Condition{policy.Equal("X-Forwarded-For", "192.0.2.1")}}))
	for code, want := range map[string][]string{
		Ended: {
			`the entry "old" of the deny list has ended at 2026-07-01 11:59 UTC; take it out`,
			`p.yml:7:9: HG011: rule "r": override 1 has ended at 2026-07-01 12:00 UTC; take it out`,
		},
		Forgeable: {
			`the entry "office" of the allow list believes "X-Forwarded-For", a header that any client can set; go by "ip", which is an address that has been seen`,
			`rule "r": it counts by whole IPv6 addresses in "ip", of which one customer usually has 2^64 to choose from; write ip/24/64`,
			`rule "r": it counts by "x_forwarded_for", a header that any client can set to a new address for each request; count by "ip", which is an address that has been seen`,
		},
		ClearSecret: {
			`the entry "old" of the deny list has the secret api_key in the clear; write its hash, as { hash: ... }`,
			`rule "r": it has values of the secret api_key in the clear; write their hashes, as { hash: ... }`,
			`rule "r": it has values of the secret token in the clear; write their hashes, as { hash: ... }`,
			`rule "keys": it has values of the secret api_key in the clear; give the clients a tier or the like in the table of subjects, and go by that`,
			`rule "keys": it has values of the secret token in the clear; give the clients a tier or the like in the table of subjects, and go by that`,
		},
		NeverFits: {
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
	route := func(r string) []policy.Condition { return []policy.Condition{policy.Equal("route", r)} }
	quiet, loud := ruleOf("quiet", route("q"), "user"), ruleOf("loud", route("l"), "tenant")
	quiet.Ignore = []policy.Ignore{{Code: Uncaught, Reason: "internal"}, {Code: NeverBinds, Reason: "of old"}}
	s := mustNew(t, []policy.Rule{quiet, loud, ruleOf("ip", route("i"), "ip")}, policy.Ignored(policy.Ignore{Code: Forgeable, Reason: "no IPv6 here"}, policy.Ignore{Code: Twice, Reason: "no more"}))
	all, left := map[string]string{}, []string{}
	for _, w := range All(s) {
		all[w.Code+" "+w.Rule] = w.Ignored
	}
	for _, w := range Warnings(s) {
		left = append(left, w.Code+" "+w.Rule)
	}
	if want := map[string]string{"HG004 quiet": "internal", "HG004 loud": "", "HG004 ip": "", "HG012 ip": "no IPv6 here", "HG014 ": "", "HG014 quiet": ""}; !reflect.DeepEqual(all, want) {
		t.Errorf("all are %v, want %v", all, want)
	}
	if want := []string{"HG014 ", "HG014 quiet", "HG004 loud", "HG004 ip"}; !reflect.DeepEqual(left, want) {
		t.Errorf("left are %v, want %v", left, want)
	}
	if got := lintedWith(s, IdleIgnore); got[0] != "the policy ignores HG008, but there is no such warning; leave it out" ||
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

// TestLintOneNode: what a tag costs is told of rules by many keys.
func TestLintOneNode(t *testing.T) {
	t.Parallel()
	tagged := func(name, tag string) *headgate.Rule {
		r, err := per(name, 1).WithTag(tag)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	keys := []policy.Part{{Entry: "user"}}
	got := map[string]string{}
	for _, w := range Warnings(mustNew(t, []policy.Rule{
		{Limits: tagged("alone", "x"), Per: keys},
		{Limits: tagged("both", "y"), Per: keys},
		{Limits: tagged("direct", "y"), Direct: true},
		{Limits: tagged("everyone", "y")},
		{Limits: per("untagged", 1), Per: keys},
	})) {
		if w.Code == OneNode {
			got[w.Rule] = w.Text
		}
	}
	if len(got) != 3 || !strings.Contains(got["alone"], "gains nothing") ||
		!strings.Contains(got["both"], `the slot "y"`) || !strings.Contains(got["both"], "the 2 other rules") || !strings.Contains(got["direct"], "the 2 other rules") {
		t.Errorf("got %v", got)
	}
}

func TestLintSharedLists(t *testing.T) {
	byEntry := func(entry string, lists ...[]headgate.Limit) policy.Rule {
		r := policy.Rule{Tariff: &policy.Tariff{Entry: entry, Other: headgate.MustRule("r", headgate.PerMinute(60))}}
		for i, list := range lists {
			r.Tariff.Tiers = append(r.Tariff.Tiers, policy.Tier{Value: strconv.Itoa(i), Limits: headgate.MustRule("r", list...)})
		}
		return r
	}
	sliding := func(count int64, period time.Duration) []headgate.Limit {
		return []headgate.Limit{headgate.Sliding(count, period)}
	}
	for name, c := range map[string]struct {
		rule policy.Rule
		want string // in the warning
	}{
		"windows of one log":                 {byEntry("method", sliding(100, time.Second), sliding(5, time.Hour)), `limits "100 per 1s" and "5 per 1h", for different values of method, share`},
		"buckets of one period":              {byEntry("route", []headgate.Limit{headgate.PerSecond(100)}, []headgate.Limit{headgate.PerSecond(5)}), `limits "100 per 1s" and "5 per 1s", for different values of route, share`},
		"the list for every other value":     {byEntry("path", []headgate.Limit{headgate.PerMinute(5)}), `limits "5 per 1m" and "60 per 1m"`},
		"buckets of different periods":       {byEntry("route", []headgate.Limit{headgate.PerSecond(100)}, []headgate.Limit{headgate.PerHour(5)}), ""},
		"the same limit":                     {byEntry("route", sliding(100, time.Second), sliding(100, time.Second)), ""},
		"tiers, which clients do not choose": {byEntry("tier", sliding(100, time.Second), sliding(5, time.Hour)), ""},
	} {
		got := lintedWith(mustNew(t, []policy.Rule{c.rule}), SharedLists)
		if (len(got) == 1) != (c.want != "") || len(got) > 1 || c.want != "" && !strings.Contains(got[0], c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
