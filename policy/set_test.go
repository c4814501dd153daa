package policy

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

func rule(name string, match []Condition, per ...string) Rule {
	r := Rule{Match: match, Limits: headgate.MustRule(name, headgate.PerMinute(20))}
	for _, s := range per {
		p, err := ParsePart(s)
		if err != nil {
			panic(err)
		}
		r.Per = append(r.Per, p)
	}
	return r
}

func mustNew(t testing.TB, rules []Rule, opts ...Option) *Set {
	t.Helper()
	s, err := New(rules, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// bound writes checks as "name=key", in their order.
func bound(checks []headgate.Check) string {
	words := make([]string, len(checks))
	for i, c := range checks {
		words[i] = c.Rule.Name() + "=" + c.Key
	}
	return strings.Join(words, " ")
}

func TestMatch(t *testing.T) {
	direct := rule("direct", nil)
	direct.Direct = true
	s := mustNew(t, []Rule{
		rule("all", nil),
		direct,
		rule("login", []Condition{Equal("route", "POST /v1/token")}, "user"),
		rule("write", []Condition{Equal("method", "POST", "PUT")}, "user"),
		rule("v1", []Condition{Prefix("route", "GET /v1/", "POST /v1/")}),
		rule("public", []Condition{Absent("user")}, "ip/64"),
		rule("known", []Condition{Present("user"), Not(Equal("user", "root", "admin"))}, "user"),
		rule("notget", []Condition{Not(Prefix("route", "GET "))}),
		rule("mixed", []Condition{{Entry: "user", Equals: []string{"root"}, Prefixes: []string{"svc-"}}}),
	})
	for _, c := range []struct {
		name string
		d    Descriptor
		want string
	}{
		{"nothing known", nil, "all= notget="},
		{
			"login",
			Descriptor{{"route", "POST /v1/token"}, {"method", "POST"}, {"user", "ada"}},
			"all= login=ada write=ada v1= known=ada notget=",
		},
		{
			"login without a user does not bind",
			Descriptor{{"route", "POST /v1/token"}, {"method", "POST"}, {"ip", "192.0.2.1"}},
			"all= v1= public=192.0.2.1 notget=",
		},
		{"excluded value", Descriptor{{"user", "root"}, {"route", "GET /"}}, "all= mixed="},
		{"prefix", Descriptor{{"user", "svc-mail"}, {"route", "GET /v1/x"}}, "all= v1= known=svc-mail mixed="},
		{"a prefix is not the value before it", Descriptor{{"user", "svc"}, {"route", "GET /v1"}}, "all= known=svc"},
		{"an empty value is absent", Descriptor{{"user", ""}, {"ip", "2001:db8::1"}, {"route", "GET /"}}, "all= public=2001:db8::/64"},
	} {
		checks, err := s.Match(c.d, 1, nil)
		if got := bound(checks); got != c.want || err != nil {
			t.Errorf("%s: bound by %q, %v; want %q", c.name, got, err, c.want)
		}
	}
}

func TestMatchCost(t *testing.T) {
	r := rule("heavy", nil)
	r.Cost = 5
	s := mustNew(t, []Rule{rule("light", nil), r})
	before := []headgate.Check{{Key: "kept"}}
	for _, c := range []struct {
		cost, light, heavy int64
		err                string
	}{
		{0, 1, 5, ""},
		{1, 1, 5, ""},
		{3, 3, 15, ""},
		{headgate.MaxCount / 5, headgate.MaxCount / 5, headgate.MaxCount / 5 * 5, ""},
		{headgate.MaxCount/5 + 1, headgate.MaxCount/5 + 1, headgate.MaxCount, ""},
		{headgate.MaxCount, headgate.MaxCount, headgate.MaxCount, ""},
		{-1, 0, 0, "request: the cost is -1, must be 1 to 9007199254740991"},
		{headgate.MaxCount + 1, 0, 0, "the cost is 9007199254740992, must be 1 to 9007199254740991"},
	} {
		checks, err := s.Match(nil, c.cost, before)
		if c.err != "" {
			if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), c.err) || len(checks) != 1 {
				t.Errorf("cost %d: %v, %v; want error %q", c.cost, checks, err, c.err)
			}
			continue
		}
		if err != nil || len(checks) != 3 || checks[1].Cost != c.light || checks[2].Cost != c.heavy || checks[2].Factor != 5 {
			t.Errorf("cost %d: %v, %v; want %d and %d", c.cost, checks, err, c.light, c.heavy)
		}
	}
}

func TestMatchTooManyRules(t *testing.T) {
	var rules []Rule
	for i := range headgate.MaxChecks + 1 {
		rules = append(rules, rule(fmt.Sprint("r", i), []Condition{Not(Equal("user", fmt.Sprint(i)))}))
	}
	s := mustNew(t, rules)
	if checks, err := s.Match(nil, 1, nil); !errors.Is(err, headgate.ErrInvalid) || len(checks) != 0 || !strings.Contains(err.Error(), "more than 64 rules bind it") {
		t.Errorf("got %d checks, %v", len(checks), err)
	}
	if checks, err := s.Match(Descriptor{{"user", "7"}}, 1, nil); err != nil || len(checks) != headgate.MaxChecks {
		t.Errorf("got %d checks, %v", len(checks), err)
	}
}

// TestIndex compares the index with looking at every rule in turn.
func TestIndex(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	names := []string{"a", "b", "c", "d", "e", "f"}
	value := func() string { return fmt.Sprint(random.IntN(4)) }
	for range 300 {
		rules := make([]Rule, random.IntN(40))
		for i := range rules {
			rules[i] = rule(fmt.Sprint("r", i), nil)
			rules[i].Direct = random.IntN(10) == 0
			for range random.IntN(4) {
				c := Condition{Entry: names[random.IntN(len(names))], Not: random.IntN(4) == 0}
				for range random.IntN(4) {
					c.Equals = append(c.Equals, value())
				}
				if random.IntN(4) == 0 {
					c.Prefixes = append(c.Prefixes, value())
				}
				if !rules[i].Direct {
					rules[i].Match = append(rules[i].Match, c)
				}
			}
		}
		s := mustNew(t, rules)
		for range 20 {
			var d Descriptor
			for _, n := range names {
				if random.IntN(2) == 0 {
					d = append(d, Entry{n, value()})
				}
			}
			var want []string
			for i := range rules {
				holds := !rules[i].Direct
				for j := range rules[i].Match {
					c := rules[i].Match[j].compiled(nil)
					holds = holds && c.holds(d)
				}
				if holds {
					want = append(want, s.rules[i].Name+"=")
				}
			}
			checks, err := s.Match(d, 1, nil)
			if got := bound(checks); err != nil || got != strings.Join(want, " ") {
				t.Fatalf("%v: bound by %q, %v; want %q", d, got, err, want)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	direct := rule("direct", nil)
	direct.Direct, direct.Cost = true, 2
	s := mustNew(t, []Rule{
		direct,
		rule("all", nil),
		rule("user", []Condition{Equal("route", "GET /")}, "user"),
		rule("network", nil, "ip/64"),
		rule("both", nil, "user", "ip"),
		rule("secret", nil, "api_key"),
	})
	secret, _ := keyOf(t, Descriptor{{"api_key", "k1"}}, nil, "api_key")
	for _, c := range []struct {
		rule, key string
		cost      int64
		want, err string
		units     int64
	}{
		{"direct", "user|42", 3, "user|42", "", 6},
		{"direct", "", 0, "", "", 2},
		{"direct", strings.Repeat("k", 1025), 1, "", "the key has 1025 bytes, must have at most 1024", 0},
		{"direct", "k", -1, "", `rule "direct": the cost is -1, must be 1 to 9007199254740991`, 0},
		{"direct", "k", headgate.MaxCount, "k", "", headgate.MaxCount},
		{"direct", "k", headgate.MaxCount + 1, "", `rule "direct": the cost is 9007199254740992, must be 1 to 9007199254740991`, 0},
		{"all", "", 1, "", "", 1},
		{"all", "x", 1, "", `the key must be empty: the rule has one counter for all requests`, 0},
		{"user", "a|b", 1, "a|b", "", 1},
		{"user", "", 1, "", `the key has 0 bytes, but the rule binds no request without user`, 0},
		{"user", strings.Repeat("k", 8193), 1, "", "the key's user has 8193 bytes, must have at most 8192", 0},
		{"network", "2001:db8::1", 1, "2001:db8::/64", "", 1},
		{"both", `a\|b|::ffff:192.0.2.1`, 1, `a\|b|192.0.2.1`, "", 1},
		{"both", `a`, 1, "", `the key has 1 parts, must have 2 joined by "|": user, ip`, 0},
		{"both", `a|`, 1, "", "binds no request without user, ip", 0},
		{"secret", "k1", 1, secret, "", 1},
		{"nosuch", "k1", 1, "", `there is no rule "nosuch"; there are direct, all, user, network, both and 1 more`, 0},
	} {
		got, err := s.Check(c.rule, c.key, c.cost)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("Check(%q, %.20q, %d): error %v, want %q", c.rule, c.key, c.cost, err, c.err)
			}
			if c.rule == "nosuch" != errors.Is(err, ErrUnknownRule) || c.rule == "nosuch" == errors.Is(err, headgate.ErrInvalid) {
				t.Errorf("Check(%q): error %v is of the wrong kind", c.rule, err)
			}
			continue
		}
		if err != nil || got.Key != c.want || got.Cost != c.units || got.Rule.Name() != c.rule {
			t.Errorf("Check(%q, %q, %d) = %+v, %v; want key %q, cost %d", c.rule, c.key, c.cost, got, err, c.want, c.units)
		}
	}
	if _, err := mustNew(t, nil).Check("x", "", 1); err == nil || !strings.Contains(err.Error(), "the policy has no rules") {
		t.Errorf("an empty set says %v", err)
	}
}

// TestCheckAgreesWithMatch: what is checked by name counts where Match does.
func TestCheckAgreesWithMatch(t *testing.T) {
	s := mustNew(t, []Rule{rule("r", nil, "ip/24/64", "user", "api_key")})
	for _, d := range []Descriptor{
		{{"ip", "2001:db8::1"}, {"user", `a|b\`}, {"api_key", `k|1`}},
		{{"ip", "no|address"}, {"user", "ü"}, {"api_key", `\`}},
	} {
		var key []byte
		for i, e := range d {
			if i > 0 {
				key = append(key, separator)
			}
			key = appendEscaped(key, e.Value)
		}
		checks, err := s.Match(d, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := s.Check("r", string(key), 1); err != nil || !reflect.DeepEqual(c, checks[0]) {
			t.Errorf("%v: Check(%q) = %v, %v; Match has %v", d, key, c, err, checks[0])
		}
	}
}

func TestNewMistakes(t *testing.T) {
	limits := headgate.MustRule("a", headgate.PerMinute(1))
	at := Position{"policy.yml", 3, 5}
	many := make([]Condition, MaxConditions+1)
	for i := range many {
		many[i] = Present("e")
	}
	_, err := New([]Rule{
		{Limits: limits, Pos: at},
		{Name: "a", Limits: limits},
		{Name: "b", Limits: limits, Cost: -1},
		{Name: "c"},
		{Name: "a", Limits: limits, Direct: true, Per: []Part{{Entry: "user"}}},
		{
			Limits: headgate.MustRule("d", headgate.PerMinute(1)), Cost: headgate.MaxCount + 1,
			Match: []Condition{Present("a b"), Equal("user", ""), Prefix("user", strings.Repeat("x", MaxValue+1))},
			Per:   []Part{{Entry: "ip", Bits6: 129}, {Entry: "ip", Bits4: 33}, {}},
		},
		{Limits: headgate.MustRule("e", headgate.PerMinute(1)), Match: many, Per: []Part{{Entry: "1"}, {Entry: "2"}, {Entry: "3"}, {Entry: "4"}, {Entry: "5"}, {Entry: "6"}, {Entry: "7"}, {Entry: "8"}, {Entry: "9"}}},
		{Limits: headgate.MustRule("f", headgate.PerMinute(1)), Match: []Condition{Equal("e", make([]string, MaxValues+1)...)}},
	}, HashKey([]byte("short")), Secrets("a b"))
	want := `headgate: policy: the hash key has 5 bytes, must have 16 to 1024
secret entry "a b": the name has ' ' at byte 1; it may have letters, digits and _ - . : only
rule "a": the name "a" is taken by the rule at policy.yml:3:5; give each rule its own
rule "b": the name is "b" but the limits were made for "a"; counters can be kept under one name only
rule "b": cost is -1, must be 1 to 9007199254740991
rule "c": there are no limits; make them with headgate.NewRule
rule "a": there are 0 conditions and 1 key parts, but a direct rule is reached by name and key only
rule "a": the name "a" is taken by the rule at policy.yml:3:5; give each rule its own
rule "d": cost is 9007199254740992, must be 1 to 9007199254740991
rule "d": entry "a b": the name has ' ' at byte 1; it may have letters, digits and _ - . : only
rule "d": entry "user": the value "" has 0 bytes, must have 1 to 8192; for a missing entry ask that it be absent
rule "d": entry "user": the value "` + strings.Repeat("x", 64) + `"... has 8193 bytes, must have 1 to 8192; for a missing entry ask that it be absent
rule "d": entry "ip": the IPv6 prefix length is 129, must be 1 to 128
rule "d": entry "ip": the IPv4 prefix length is 33, must be 1 to 32
rule "d": entry "ip" is already part 1 of the key; leave one of them out
rule "d": entry "": the name has 0 bytes, must have 1 to 64
rule "e": there are 33 conditions, must be at most 32
rule "e": there are 9 key parts, must be at most 8
rule "f": entry "e": there are 10001 values, must be at most 10000`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, headgate.ErrInvalid) {
		t.Fatalf("the error is %T", err)
	}
	if m := e.Mistakes[9]; m.Index != 5 || m.Field != "match.0" || m.Rule != "d" {
		t.Errorf("the mistake has index %d, field %q, rule %q", m.Index, m.Field, m.Rule)
	}
	if _, err = New(make([]Rule, MaxRules+1)); err == nil || !strings.Contains(err.Error(), "there are 10001 rules, must be at most 10000") {
		t.Errorf("too many rules: %v", err)
	}
}

// TestNewKeepsNothing: changing what was given to New does not change the set.
func TestNewKeepsNothing(t *testing.T) {
	hashKey := []byte("0123456789abcdef")
	rules := []Rule{rule("r", []Condition{{Entry: "user", Equals: []string{"ada"}, Prefixes: []string{"b"}}}, "api_key")}
	s := mustNew(t, rules, HashKey(hashKey))
	d := Descriptor{{"user", "ada"}, {"api_key", "k1"}}
	before, _ := s.Match(d, 1, nil)
	hashKey[0]++
	rules[0].Match[0].Equals[0], rules[0].Match[0].Prefixes[0], rules[0].Match[0].Entry, rules[0].Per[0].Entry = "x", "x", "x", "x"
	after, _ := s.Match(d, 1, nil)
	if len(before) != 1 || !reflect.DeepEqual(before, after) {
		t.Errorf("before %v, after %v", before, after)
	}
	if r := s.Rules()[0]; r.Name != "r" || r.Match[0].Equals[0] != "ada" || r.Per[0].Entry != "api_key" {
		t.Errorf("the rule became %+v", r)
	}
}

// TestConcurrentUse has the race detector watch a set in use.
func TestConcurrentUse(t *testing.T) {
	s := mustNew(t, []Rule{rule("r", []Condition{Equal("route", "GET /")}, "api_key", "ip/64")})
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			d := Descriptor{{"api_key", fmt.Sprint(i)}, {"ip", "2001:db8::1"}, {"route", "GET /"}}
			first, err := s.Match(d, 1, nil)
			for range 200 {
				again, _ := s.Match(d, 1, nil)
				if err != nil || !reflect.DeepEqual(again, first) {
					t.Errorf("got %v, then %v, %v", first, again, err)
					return
				}
			}
		})
	}
	group.Wait()
}

func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			rules := []Rule{rule("all", nil), rule("anonymous", []Condition{Absent("api_key")}, "ip/64")}
			for i := range n - len(rules) {
				rules = append(rules, Rule{
					Match:  []Condition{Equal("route", fmt.Sprintf("GET /v1/things/%d", i))},
					Per:    []Part{{Entry: "user"}},
					Limits: headgate.MustRule(fmt.Sprint("route", i), headgate.Sliding(20, time.Minute)),
				})
			}
			s := mustNew(b, rules)
			d := Descriptor{{"api_key", "k1"}, {"ip", "203.0.113.10"}, {"user", "ada"}, {"route", "GET /v1/things/5"}}
			checks := make([]headgate.Check, 0, 8)
			b.ReportAllocs()
			for b.Loop() {
				checks, _ = s.Match(d, 1, checks[:0])
			}
		})
	}
}

// BenchmarkDecide is a request that meets a tariff, a table, lists and costs.
func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			var rules []Rule
			var subjects []Subject
			var deny []ListEntry
			for i := range n {
				r := rule(fmt.Sprint("route", i), []Condition{Equal("route", fmt.Sprintf("GET /v1/things/%d", i))}, "user")
				r.Tariff = &Tariff{Entry: "tier", Tiers: []Tier{{"pro", per(r.Limits.Name(), 600)}}, Other: r.Limits}
				r.Costs = &Costs{Entry: "bytes", Per: 1024}
				r.Overrides = []Override{{Match: []Condition{Equal("user", fmt.Sprint("u", i))}, Limits: per(r.Limits.Name(), 5)}}
				rules = append(rules, r)
				subjects = append(subjects, Subject{Key: fmt.Sprint("u", i), Entries: []Entry{{"tier", "pro"}}})
				deny = append(deny, ListEntry{Name: fmt.Sprint("d", i), Match: []Condition{Equal("user", fmt.Sprint("d", i))}})
			}
			s := mustNew(b, rules, SubjectTable(Subjects{By: "user", Table: subjects}), Denied(deny...))
			d := Descriptor{{"ip", "203.0.113.10"}, {"user", "u7"}, {"route", "GET /v1/things/5"}, {"bytes", "5000"}}
			checks := make([]headgate.Check, 0, 8)
			b.ReportAllocs()
			for b.Loop() {
				_, _ = s.Decide(d, 1, checks)
			}
		})
	}
}
