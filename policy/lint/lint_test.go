package lint

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

func limit(t *testing.T, text string) headgate.Limit {
	t.Helper()
	algorithm, rest, found := strings.Cut(text, ": ")
	if !found {
		algorithm, rest = "sliding_window", text
	}
	a, err := headgate.ParseAlgorithm(algorithm)
	if err != nil {
		t.Fatal(err)
	}
	l, err := headgate.ParseLimit(a, rest)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLintLimits(t *testing.T) {
	for _, c := range []struct {
		limits []string
		want   string // "" if all of them can bind
	}{
		{[]string{"20 per 60s", "5 per 3s"}, ""},
		{[]string{"600 per 10m", "30 per 20s"}, ""},
		{[]string{"20 per 1m", "20 per 3s"}, `limit "20 per 3s" can never bind: "20 per 1m" lets at most 20 units pass in that time; set its count below 20, or leave it out`},
		{[]string{"20 per 1m", "19 per 3s"}, ""},
		{[]string{"100 per 1m", "5 per 3s"}, `limit "100 per 1m" can never bind: "5 per 3s" lets at most 100 units pass in that time; set its count below 100, or leave it out`},
		{[]string{"99 per 1m", "5 per 3s"}, ""},
		{[]string{"15 per 15s", "5 per 7s"}, `limit "15 per 15s" can never bind: "5 per 7s" lets at most 15 units pass in that time; set its count below 15, or leave it out`},
		{[]string{"14 per 15s", "5 per 7s"}, ""},
		{[]string{"5 per 1m", "5 per 1m"}, `limit "5 per 1m" can never bind: "5 per 1m" lets at most 5 units pass in that time; set its count below 5, or leave it out`},

		{[]string{"token_bucket: 100 per 1m", "token_bucket: 200000 per 1 day"}, `limit "200000 per 1d" can never bind: "100 per 1m" has no larger burst (100, not 200000) and no higher rate (at most 144000 in 1d, not 200000); set its count below 144000, or leave it out`},
		{[]string{"token_bucket: 100 per 1m", "token_bucket: 100000 per 1 day"}, ""},
		{[]string{"token_bucket: 50 per 1s burst 200", "token_bucket: 20 per 1s burst 100"}, `limit "50 per 1s burst 200" can never bind: "20 per 1s burst 100" has no larger burst (100, not 200) and no higher rate (at most 20 in 1s, not 50); set its count below 20, or leave it out`},
		{[]string{"token_bucket: 10 per 3s", "token_bucket: 20 per 5s"}, `limit "20 per 5s" can never bind: "10 per 3s" has no larger burst (10, not 20) and no higher rate (at most 17 in 5s, not 20); set its count below 17, or leave it out`},
		{[]string{"leaky_bucket: 10 per 1s", "leaky_bucket: 20 per 1s"}, `limit "20 per 1s" can never bind: "10 per 1s" has no larger burst (10, not 20) and no higher rate (at most 10 in 1s, not 20); set its count below 10, or leave it out`},
		{[]string{"10 per 1s", "leaky_bucket: 20 per 1s"}, ""}, // It delays.

		{[]string{"token_bucket: 10 per 1s", "20 per 1s"}, `limit "20 per 1s" can never bind: "10 per 1s" lets at most 19 units pass in that time; set its count below 19, or leave it out`},
		{[]string{"token_bucket: 10 per 1s", "18 per 1s"}, ""},
		{[]string{"10 per 1s", "token_bucket: 20 per 1s"}, `limit "20 per 1s" can never bind: "10 per 1s" has no larger burst (10, not 20) and no higher rate (at most 10 in 1s, not 20); set its count below 10, or leave it out`},
		{[]string{"fixed_window: 10 per 1s", "token_bucket: 19 per 1s"}, ""},
		{[]string{"fixed_window: 10 per 1s", "20 per 1s"}, `limit "20 per 1s" can never bind: "10 per 1s" lets at most 20 units pass in that time; set its count below 20, or leave it out`},
		{[]string{"fixed_window: 10 per 1s", "19 per 1s"}, ""},

		{[]string{"fixed_window: 10 per 1m", "fixed_window: 10 per 1s"}, `limit "10 per 1s" can never bind: "10 per 1m" lets at most 10 units pass in that time; set its count below 10, or leave it out`},
		{[]string{"fixed_window: 10 per 7s", "fixed_window: 10 per 2s"}, ""}, // Their windows do not nest.
		{[]string{"100 per calendar day", "3100 per calendar month"}, `limit "3100 per calendar month" can never bind: "100 per calendar day" lets at most 3100 units pass in that time; set its count below 3100, or leave it out`},
		{[]string{"100 per calendar day", "3099 per calendar month"}, ""},
		{[]string{"100 per calendar day in Asia/Tokyo", "3100 per calendar month"}, ""},
		{[]string{"100 per calendar week", "600 per calendar month"}, ""},
		{[]string{"100 per calendar month", "1200 per calendar year"}, `limit "1200 per calendar year" can never bind: "100 per calendar month" lets at most 1200 units pass in that time; set its count below 1200, or leave it out`},
		{[]string{"1000 per calendar month", "1000 per calendar hour"}, `limit "1000 per calendar hour" can never bind: "1000 per calendar month" lets at most 1000 units pass in that time; set its count below 1000, or leave it out`},
		{[]string{"1000 per calendar month", "token_bucket: 1000000 per 1s"}, ""},
		{[]string{"10 per calendar minute", "26 per 1m"}, `limit "26 per 1m" can never bind: "10 per calendar minute" lets at most 20 units pass in that time; set its count below 20, or leave it out`},
		{[]string{"10 per calendar month", "100 per 1s"}, ""},
		{[]string{"100 per 1h", "2600 per calendar day"}, `limit "2600 per calendar day" can never bind: "100 per 1h" lets at most 2600 units pass in that time; set its count below 2600, or leave it out`},

		{[]string{"sliding_counter: 10 per 1m", "sliding_counter: 10 per 1s"}, `limit "10 per 1s" can never bind: "10 per 1m" lets at most 10 units pass in that time; set its count below 10, or leave it out`},
		{[]string{"sliding_counter: 10 per 1m", "sliding_counter: 10 per 7s"}, ""},
		{[]string{"sliding_counter: 10 per 1m", "10 per 1s"}, ""},
		{[]string{"token_bucket: 1000000000 per 1us", "1 per 366 days"}, `limit "1000000000 per 1us" can never bind: "1 per 366d" has no larger burst (1, not 1000000000) and no higher rate (at most 1 in 1us, not 1000000000); leave it out`},
		{[]string{"token_bucket: 1000000000 per 1us", "token_bucket: 1 per 366 days"}, `limit "1000000000 per 1us" can never bind: "1 per 366d" has no larger burst (1, not 1000000000) and no higher rate (at most 1 in 1us, not 1000000000); leave it out`},
	} {
		r := policy.Rule{}
		var limits []headgate.Limit
		for _, text := range c.limits {
			limits = append(limits, limit(t, text))
		}
		var err error
		if r.Limits, err = headgate.NewRule("r", limits...); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range Warnings(mustNew(t, []policy.Rule{r})) {
			if w.Code == NeverBinds {
				got = append(got, w.Text)
			}
		}
		if strings.Join(got, "\n") != c.want {
			t.Errorf("%q:\ngot  %s\nwant %s", c.limits, strings.Join(got, "\n     "), c.want)
		}
	}
}

func TestLintMatch(t *testing.T) {
	user := func(c ...policy.Condition) policy.Rule { return ruleOf("r", c) }
	for _, c := range []struct {
		rule policy.Rule
		want string
	}{
		{user(), ""},
		{user(policy.Absent("user"), policy.Present("user")), `it can never match: entry "user" must be both absent and present; drop one of the conditions`},
		{user(policy.Absent("user"), policy.Equal("user", "ada")), `it can never match: entry "user" must be both absent and present; drop one of the conditions`},
		{user(policy.Absent("user"), policy.Not(policy.Equal("user", "ada"))), ""},
		{ruleOf("r", []policy.Condition{policy.Absent("user")}, "user"), `it can never match: entry "user" must be absent, but the rule counts by it; take it out of per, or drop the condition`},
		{user(policy.Equal("user", "ada"), policy.Equal("user", "bob")), `it can never match: entry "user" must have a value out of 2 lists that have none in common; join them into one`},
		{user(policy.Equal("user", "ada", "eve"), policy.Equal("user", "bob", "eve")), ""},
		{user(policy.Equal("user", "ada"), policy.Prefix("user", "a")), ""},
		{user(policy.Prefix("user", "ad"), policy.Prefix("user", "a")), ""},
		{user(policy.Prefix("user", "a"), policy.Prefix("user", "b")), `it can never match: entry "user" must have a value out of 2 lists that have none in common; join them into one`},
		{user(policy.Equal("user", "a", "b", "c", "d"), policy.Not(policy.Prefix("user", "a", "b", "c", "d"))), `it can never match: entry "user" must have one of the values "a", "b", "c" and 1 more, and not has each of them; take them out of not`},
		{user(policy.Prefix("user", "svc-"), policy.Not(policy.Prefix("user", "svc"))), `it can never match: entry "user" must have one of the values "svc-*", and not has each of them; take them out of not`},
		{user(policy.Prefix("user", "svc-"), policy.Not(policy.Equal("user", "svc-a"))), ""},
		{user(policy.Equal("user", "ada"), policy.Not(policy.Equal("user", "bob"))), ""},
	} {
		got := ""
		for _, w := range Warnings(mustNew(t, []policy.Rule{c.rule})) {
			if w.Code != NeverMatches {
				t.Errorf("%+v: unexpected %v", c.rule.Match, w)
			}
			got += w.Text
		}
		if got != c.want {
			t.Errorf("%+v:\ngot  %s\nwant %s", c.rule.Match, got, c.want)
		}
	}
}

func TestLintUncaught(t *testing.T) {
	login := func(per ...string) policy.Rule {
		return ruleOf("login", []policy.Condition{policy.Equal("route", "POST /")}, per...)
	}
	direct := ruleOf("direct", nil)
	direct.Direct = true
	all := ruleOf("all", nil)
	for _, c := range []struct {
		name  string
		rules []policy.Rule
		want  []string // the entries warned of
	}{
		{"alone", []policy.Rule{login("user")}, []string{"user"}},
		{"two entries", []policy.Rule{login("user", "tenant")}, []string{"user", "tenant"}},
		{"presence is demanded", []policy.Rule{ruleOf("r", []policy.Condition{policy.Present("user")}, "user")}, nil},
		{"a value is demanded", []policy.Rule{ruleOf("r", []policy.Condition{policy.Equal("user", "ada")}, "user")}, nil},
		{"another value", []policy.Rule{ruleOf("r", []policy.Condition{policy.Not(policy.Equal("user", "ada"))}, "user")}, []string{"user"}},
		{"one for all", []policy.Rule{login("user"), all}, []string{"user"}},
		{"one for each route", []policy.Rule{login("user"), ruleOf("each", nil, "route"), all}, []string{"user"}},
		{"one for all that lack it", []policy.Rule{login("user"), ruleOf("all", []policy.Condition{policy.Absent("user")})}, nil},
		{"one for all but one value", []policy.Rule{login("user"), ruleOf("all", []policy.Condition{policy.Not(policy.Equal("user", "ada"))})}, []string{"user"}},
		{"an address, and one for all", []policy.Rule{login("ip"), all}, nil},
		{"one for each address", []policy.Rule{login("user"), ruleOf("each", nil, "ip"), all}, nil},
		{"one for all, of what clients choose", []policy.Rule{login("host"), all}, nil},
		{"the same entry", []policy.Rule{login("user"), ruleOf("all", nil, "user")}, []string{"user", "user"}},
		{"absence", []policy.Rule{login("user"), ruleOf("x", []policy.Condition{policy.Absent("user"), policy.Present("route")})}, nil},
		{"absence and the route", []policy.Rule{login("user"), ruleOf("x", []policy.Condition{policy.Absent("user"), policy.Equal("route", "POST /", "GET /")})}, nil},
		{"absence and the route's prefix", []policy.Rule{login("user"), ruleOf("x", []policy.Condition{policy.Absent("user"), policy.Prefix("route", "POST ")})}, nil},
		{"absence and not a route", []policy.Rule{login("user"), ruleOf("x", []policy.Condition{policy.Not(policy.Equal("route", "GET /"))}, "ip"), all}, nil},
		{"absence and not this route", []policy.Rule{login("user"), ruleOf("x", []policy.Condition{policy.Not(policy.Prefix("route", "POST "))})}, []string{"user"}},
		{"absence and another route", []policy.Rule{login("user"), ruleOf("x", []policy.Condition{policy.Absent("user"), policy.Equal("route", "GET /")})}, []string{"user"}},
		{"presence", []policy.Rule{login("user"), ruleOf("x", []policy.Condition{policy.Present("user")})}, []string{"user"}},
		{"another entry", []policy.Rule{login("user"), ruleOf("x", []policy.Condition{policy.Present("tenant")})}, []string{"user"}},
		{"absence of another on both", []policy.Rule{ruleOf("r", []policy.Condition{policy.Absent("tenant")}, "user"), ruleOf("x", []policy.Condition{policy.Not(policy.Equal("tenant", "t"))}, "ip"), all}, nil},
		{"not, twice", []policy.Rule{ruleOf("r", []policy.Condition{policy.Not(policy.Equal("tenant", "t", "u"))}, "user"), ruleOf("x", []policy.Condition{policy.Not(policy.Equal("tenant", "t"))}, "ip"), all}, nil},
		{"not, the other way", []policy.Rule{ruleOf("r", []policy.Condition{policy.Not(policy.Equal("tenant", "t"))}, "user"), ruleOf("x", []policy.Condition{policy.Not(policy.Equal("tenant", "t", "u"))})}, []string{"user"}},
		{"direct rules catch nothing", []policy.Rule{login("user"), direct}, []string{"user"}},
	} {
		var got []string
		for _, w := range Warnings(mustNew(t, c.rules)) {
			if w.Code == Uncaught {
				got = append(got, strings.Split(w.Text, `"`)[1])
			}
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: warned of %q, want %q", c.name, got, c.want)
		}
	}
}

// TestLintText pins the order and the words of a report.
func TestLintText(t *testing.T) {
	heavy := policy.Rule{
		Limits: headgate.MustRule("heavy", headgate.Sliding(20, time.Minute), headgate.Per(50, time.Second).WithBurst(4)),
		Cost:   5, Match: []policy.Condition{policy.Present("route")}, Per: []policy.Part{{Entry: "token"}},
		Pos: policy.Position{File: "p.yml", Line: 2, Column: 5},
	}
	dead := ruleOf("dead", []policy.Condition{policy.Absent("x"), policy.Present("x")})
	s := []policy.Rule{dead, heavy, ruleOf("keys", []policy.Condition{policy.Present("api_key")}, "api_key")}
	want := []string{
		`HG002: rule "dead": it can never match: entry "x" must be both absent and present; drop one of the conditions`,
		`p.yml:2:5: HG003: rule "heavy": limit "50 per 1s burst 4" holds at most 4 units but each request costs at least 5, so every request is denied; raise the limit or its burst to 5, or lower the cost`,
		`p.yml:2:5: HG004: rule "heavy": it does not bind requests without "token", and no other rule does; add one for them, with match: { token: absent }, or require the entry here, with match: { token: present }, if they are to pass freely`,
		`p.yml:2:5: HG005: rule "heavy": it counts by the secret token, api_key (2 of 3 rules do), hashed without a key: whoever reads the store can test guesses; set one hash key of at least 16 bytes on all nodes`,
	}
	var got []string
	for _, w := range Warnings(mustNew(t, s)) {
		got = append(got, w.String())
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, w := range Warnings(mustNew(t, s, policy.HashKey(make([]byte, 16)))) {
		if w.Code == PlainHash {
			t.Errorf("with a hash key: %v", w)
		}
	}
	if got := Warnings(mustNew(t, nil)); got != nil {
		t.Errorf("an empty set: %v", got)
	}
}
