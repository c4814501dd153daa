package explain

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// explained is a set that has one of everything.
func explained(t testing.TB) *policy.Set {
	t.Helper()
	api := rule("api", []policy.Condition{policy.Present("api_key")}, "api_key")
	api.Limits = nil
	api.Tariff = &policy.Tariff{Entry: "tier", Tiers: []policy.Tier{{Value: "pro", Limits: per("api", 600)}}, Other: per("api", 30)}
	api.Overrides = []policy.Override{{Match: []policy.Condition{policy.Equal("tenant", "acme")}, Limits: headgate.MustRule("api", headgate.PerMinute(900), headgate.PerSecond(90))}}
	api.Soft, api.Pos = 80, policy.Position{File: "p.yml", Line: 2, Column: 5}
	closed := rule("closed", nil, "user")
	closed.Limits = nil
	closed.Tariff = &policy.Tariff{Entry: "tier", Tiers: []policy.Tier{{Value: "gold", Limits: per("closed", 9)}}}
	login := rule("login", []policy.Condition{policy.Equal("route", "POST /a", "POST /b"), policy.Not(policy.Prefix("user", "svc-"))}, "ip")
	export := rule("export", []policy.Condition{policy.Equal("route", "GET /export")})
	export.Costs = &policy.Costs{Entry: "size", Values: map[string]int64{"none": 0}, Other: 7}
	export.Mode = policy.ModeShadow
	partly := rule("partly", nil, "user")
	partly.Enforce = 50
	direct := rule("direct", nil)
	direct.Direct = true
	return mustNew(t, []policy.Rule{api, closed, login, export, partly, direct}, atNoon(),
		policy.HashKey(make([]byte, 32)),
		policy.SubjectTable(policy.Subjects{Table: []policy.Subject{{Key: "k1", Entries: []policy.Entry{{Name: "tier", Value: "pro"}}}}}),
		policy.Denied(policy.ListEntry{Name: "bad", Match: []policy.Condition{policy.Equal("user", "eve")}, Pos: policy.Position{File: "p.yml", Line: 9, Column: 3}}),
		policy.Allowed(policy.ListEntry{Name: "good", Match: []policy.Condition{policy.Equal("user", "ada")}}))
}

// TestUnused: an entry that nothing looks at is said to be one, and what was meant by it.
func TestUnused(t *testing.T) {
	t.Parallel()
	s := explained(t)
	for _, c := range []struct {
		d    string
		want map[string]string // what is unused, and what was meant
	}{
		{"user=kim,route=POST /a,ip=192.0.2.1,api_key=k1,tenant=acme,size=1", map[string]string{}},
		{"usr=kim,rout=POST /a,apikey=k1,zone=z", map[string]string{"usr": "user", "rout": "route", "apikey": "api_key", "zone": ""}},
		// What the request has was not meant, whether it says so or the table of subjects does.
		{"user=kim,usr=kim", map[string]string{"usr": ""}},
		{"api_key=k1,teir=pro", map[string]string{"teir": ""}},
		// It is said whoever answers.
		{"user=eve,foo=bar", map[string]string{"foo": ""}},
	} {
		e := Request(s, facts(c.d), 1, nil)
		got := make(map[string]string)
		for _, one := range e.Entries {
			if one.Unused {
				got[one.Name] = one.Meant
			}
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %q, want %q", c.d, got, c.want)
		}
	}
	e := Request(s, facts("usr=kim,zone=z"), 1, nil)
	for _, want := range []string{
		"  usr = \"kim\" (no rule or list looks at it; did you mean \"user\"?)\n",
		"  zone = \"z\" (no rule or list looks at it)\n",
	} {
		if !strings.Contains(e.String(), want) {
			t.Errorf("%s\nlacks %s", e.String(), want)
		}
	}
}

func TestExplain(t *testing.T) {
	s := explained(t)
	hash := s.Hash("api_key", "k1")
	for _, c := range []struct {
		d    string
		want string
	}{
		{"api_key=k1,tier=gold,user=kim,route=GET /export", `the request has
  tier = "pro", by the table of subjects, instead of what the request says
  api_key = (secret, hash:` + hash + `)
  user = "kim"
  route = "GET /export"
and costs 2

rule "api" binds it (p.yml:2:5)
  key "` + hash + `" (hashed), cost 2
  limits of the tier "pro"
  600 per 1m (token_bucket)
  warns from 80% on

rule "export" binds it
  one counter for all, cost 14
  20 per 1m (token_bucket)
  in shadow: counts and never denies

rule "partly" binds it
  key "kim", cost 2
  20 per 1m (token_bucket)
  enforced for this key, and 50% of all

do not bind it
  closed: it has no limits for the tier "pro", nor for all others
  login: route is "GET /export", must be one of "POST /a", "POST /b"
  direct: it is reached by its name only
`},
		{"api_key=k2,tenant=acme,user=svc-3,route=POST /a,size=none", `the request has
  api_key = (secret, hash:` + s.Hash("api_key", "k2") + `)
  tenant = "acme"
  user = "svc-3"
  route = "POST /a"
  size = "none"
and costs 2

rule "api" binds it (p.yml:2:5)
  key "` + s.Hash("api_key", "k2") + `" (hashed), cost 2
  limits of override 1
  900 per 1m (token_bucket)
  90 per 1s (token_bucket)
  warns from 80% on

rule "partly" binds it
  key "svc-3", cost 2
  20 per 1m (token_bucket)
  in shadow for this key: enforced for 50% of all

do not bind it
  closed: it has no limits for requests without tier, nor for all others
  login: user is "svc-3", must not be "svc-*"
  export: route is "POST /a", must be "GET /export"
  direct: it is reached by its name only
`},
		{"route=GET /export,size=none", `the request has
  route = "GET /export"
  size = "none"
and costs 2

no rule binds it

do not bind it
  api: api_key is absent, must be present
  closed: it counts by user, which is absent
  login: route is "GET /export", must be one of "POST /a", "POST /b"
  export: the request costs it nothing
  partly: it counts by user, which is absent
  direct: it is reached by its name only
`},
		{"user=eve", "the request has\n  user = \"eve\"\nand costs 2\n\ndenied by the entry \"bad\" of the deny list (p.yml:9:3)\n"},
		{"user=ada", "the request has\n  user = \"ada\"\nand costs 2\n\nallowed by the entry \"good\" of the allow list: no rule binds it\n"},
		{"", `the request has no entries
and costs 2

no rule binds it

do not bind it
  api: api_key is absent, must be present
  closed: it counts by user, which is absent
  login: route is absent, must be one of "POST /a", "POST /b"
  export: route is absent, must be "GET /export"
  partly: it counts by user, which is absent
  direct: it is reached by its name only
`},
	} {
		e := Request(s, facts(c.d), 2, nil)
		if got := e.String(); got != c.want {
			t.Errorf("%s\ngot\n%s\nwant\n%s", c.d, got, c.want)
		}
		out, err := s.Decide(facts(c.d), 2, nil)
		if err != nil || !reflect.DeepEqual(e.Checks(), out.Checks) {
			t.Errorf("%s: it explains %v, and decides %v, %v", c.d, e.Checks(), out.Checks, err)
		}
		text, err := json.Marshal(e)
		if err != nil || strings.Contains(string(text), `"k1"`) || strings.Contains(string(text), `"k2"`) {
			t.Errorf("%s: as JSON %s, %v", c.d, text, err)
		}
		var again Explanation
		if err := json.Unmarshal(text, &again); err != nil || again.String() != e.String() {
			t.Errorf("%s: JSON does not hold it all: %v\n%s", c.d, err, again.String())
		}
	}
}

func TestExplainErrors(t *testing.T) {
	s := explained(t)
	for cost, want := range map[int64]string{
		-1:                    "cannot be decided: request: the cost is -1, must be 1 to 9007199254740991",
		headgate.MaxCount + 1: "cannot be decided: request: the cost is 9007199254740992, must be 1 to 9007199254740991",
	} {
		e := Request(s, facts("route=GET /export"), cost, nil)
		if got := e.String(); e.Error == "" || !strings.Contains(got, want) || strings.Contains(got, "no rule binds it") {
			t.Errorf("cost %d: %s", cost, got)
		}
	}
}

// TestObserve: what a store says is shown at each limit, and who decides.
func TestObserve(t *testing.T) {
	s := explained(t)
	e := Request(s, facts("api_key=k2,tenant=acme,user=kim"), 1, nil)
	checks := e.Checks()
	var decisions []headgate.Decision
	for i := range checks {
		limits := checks[i].Rule.Limits()
		for j := range limits {
			decisions = append(decisions, headgate.Decision{Rule: checks[i].Rule, Limit: &limits[j], Check: i, Allowed: true, Remaining: int64(100 * j), ResetAfter: 1500 * time.Microsecond})
		}
	}
	decisions[1].Allowed, decisions[1].RetryAfter = false, time.Second+1
	e.Observe(s, decisions)
	want := []string{
		"900 per 1m (token_bucket): 0 left, all free again in 2ms, and callers are warned",
		"90 per 1s (token_bucket): 100 left, all free again in 2ms, denies for another 1.001s",
		"20 per 1m (token_bucket): 0 left, all free again in 2ms\n",
		`denied; rule "api", limit "90 per 1s" decides`,
	}
	for _, w := range want {
		if !strings.Contains(e.String(), w) {
			t.Errorf("it lacks %q:\n%s", w, e.String())
		}
	}
	decisions[1].RetryAfter = headgate.Never
	e.Observe(s, decisions)
	if got := e.String(); !strings.Contains(got, "can never hold the cost") || e.Verdict.RetryAfter != -1 {
		t.Errorf("a cost that never fits: %s", got)
	}
	none := Request(s, facts("user=eve"), 1, nil)
	none.Observe(s, nil)
	if none.Verdict.Allowed || !strings.HasSuffix(none.String(), "\ndenied\n") {
		t.Errorf("denied by a list: %s", none.String())
	}
}

// TestOldHashKey: a rule that binds a request under two keys is explained twice.
func TestOldHashKey(t *testing.T) {
	oldKey, newKey := []byte("an old key of 16"), []byte("a new key of 16 .")
	s := mustNew(t, []policy.Rule{rule("client", nil, "api_key"), rule("pair", nil, "ip", "api_key"), rule("plain", nil, "ip")},
		policy.HashKey(newKey), policy.OldHashKey(oldKey))
	e := Request(s, facts("api_key=k1,ip=192.0.2.1"), 1, nil)
	if n := len(e.Checks()); n != 5 {
		t.Errorf("explained are %d checks, want 5:\n%s", n, e.String())
	}
	if text := e.String(); strings.Count(text, "hashed with the old hash key") != 2 || strings.Contains(text, `"k1"`) {
		t.Errorf("explained as\n%s", text)
	}
}

// TestReplaced: a rule that another one replaces does not bind, and is told why.
func TestReplaced(t *testing.T) {
	vip := rule("vip", []policy.Condition{policy.Present("user")}, "user")
	vip.Replaces = []string{"all"}
	s := mustNew(t, []policy.Rule{rule("all", nil), vip})
	e := Request(s, facts("user=kim"), 1, nil)
	out, err := s.Decide(facts("user=kim"), 1, nil)
	if err != nil || !reflect.DeepEqual(e.Checks(), out.Checks) {
		t.Errorf("it explains %v, and decides %v, %v", e.Checks(), out.Checks, err)
	}
	if why := e.Rules[0].Why; e.Rules[0].Binds || why != `the rule "vip" binds the request and replaces it` {
		t.Errorf("the replaced rule binds: %v, %q", e.Rules[0].Binds, why)
	}
}

// TestWithoutStore: of several rules one that denies decides, and rules in shadow do not.
func TestWithoutStore(t *testing.T) {
	rule := func(name string, on headgate.OnError, mode policy.Mode) policy.Rule {
		return policy.Rule{Limits: headgate.MustRule(name, headgate.PerSecond(1)), Hints: headgate.Hints{OnError: on}, Mode: mode}
	}
	const enforce, shadow = policy.ModeEnforce, policy.ModeShadow
	allow, deny, local, open := headgate.OnErrorAllow, headgate.OnErrorDeny, headgate.OnErrorLocal, headgate.OnErrorReturn
	for _, c := range []struct {
		rules     []policy.Rule
		otherwise headgate.OnError
		want      Outage
		text      string
	}{
		{[]policy.Rule{rule("a", allow, enforce), rule("b", deny, enforce), rule("c", local, enforce)}, allow, Outage{"deny", "b", false}, `no decision (503), by rule "b"`},
		{[]policy.Rule{rule("a", allow, enforce), rule("b", deny, shadow), rule("c", local, enforce)}, deny, Outage{"local", "c", false}, `each server counts it, up to its share of the limits, by rule "c"`},
		{[]policy.Rule{rule("a", allow, enforce)}, deny, Outage{"allow", "a", false}, `let in, and not counted, by rule "a"`},
		{[]policy.Rule{rule("a", deny, shadow)}, deny, Outage{"allow", "", false}, "let in, and not counted, because no rule that binds it may deny"},
		{[]policy.Rule{rule("a", local, enforce), rule("b", open, enforce)}, deny, Outage{"deny", "b", true}, `no decision (503), as --on-store-error says: rule "b" leaves it open`},
		{[]policy.Rule{rule("a", local, enforce), rule("b", open, enforce)}, allow, Outage{"local", "a", false}, `each server counts it, up to its share of the limits, by rule "a"`},
		{[]policy.Rule{rule("a", local, enforce), rule("b", open, enforce)}, open, Outage{"", "b", true}, `what --on-store-error says, because rule "b" does not say it (by default headgate serve denies, headgate gateway counts its share, middleware lets in)`},
		{[]policy.Rule{rule("a", deny, enforce), rule("b", open, enforce)}, open, Outage{"deny", "a", false}, `no decision (503), by rule "a"`},
	} {
		s, err := policy.New(c.rules)
		if err != nil {
			t.Fatal(err)
		}
		e := Request(s, nil, 1, nil)
		e.Lose(c.otherwise)
		if e.WithoutStore == nil || *e.WithoutStore != c.want {
			t.Errorf("%+v: got %+v, want %+v", c.rules, e.WithoutStore, c.want)
		}
		if line := "\nwhile the store does not answer: " + c.text + "\n"; !strings.Contains(e.String(), line) {
			t.Errorf("%s\nlacks %s", e.String(), line)
		}
	}
	s, err := policy.New([]policy.Rule{{Name: "p", InProgress: &policy.InProgress{Limit: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	e := Request(s, nil, 1, nil)
	if e.Lose(deny); e.WithoutStore != nil {
		t.Errorf("no limit: %+v", e.WithoutStore)
	}
}
