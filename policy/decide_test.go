package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// per are limits of so many a minute, made for a rule.
func per(name string, count int64) *headgate.Rule {
	return headgate.MustRule(name, headgate.PerMinute(count))
}

// noon is the time on the clock of these tests.
var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func atNoon() Option { return Clock(func() time.Time { return noon }) }

// decided writes an outcome: the list's entry, or "rule=key limits*cost" for
// each check, with a mark for shadows.
func decided(out Outcome) string {
	var words []string
	if out.Denied != nil {
		words = append(words, "denied by "+out.Denied.Name)
	}
	if out.Allowed != nil {
		words = append(words, "allowed by "+out.Allowed.Name)
	}
	for i := range out.Checks {
		c := &out.Checks[i]
		text := fmt.Sprintf("%s=%s %d*%d", c.Rule.Name(), c.Key, c.Rule.Limits()[0].Count, c.Cost)
		if c.Shadow {
			text += " shadow"
		}
		words = append(words, text)
	}
	return strings.Join(words, ", ")
}

func TestDecide(t *testing.T) {
	network := netip.MustParsePrefix
	api := rule("api", nil, "user")
	api.Limits = nil
	api.Tariff = &Tariff{Entry: "tier", Tiers: []Tier{{"free", per("api", 60)}, {"pro", per("api", 600)}}, Other: per("api", 30)}
	api.Overrides = []Override{
		{Match: []Condition{Equal("user", "ada")}, Limits: per("api", 1000), Until: noon.Add(time.Second)},
		{Match: []Condition{Equal("user", "ada", "bob")}, Limits: per("api", 2000)},
		{Match: []Condition{Equal("user", "eve")}, Limits: per("api", 3000), Until: noon},
	}
	closed := rule("closed", []Condition{Present("plan")}, "user")
	closed.Limits = nil
	closed.Tariff = &Tariff{Entry: "plan", Tiers: []Tier{{"a", per("closed", 5)}}}
	closed.Overrides = []Override{{Match: []Condition{Equal("user", "ada")}, Limits: per("closed", 7)}}
	costs := rule("costs", []Condition{Present("route")})
	costs.Costs = &Costs{Entry: "route", Values: map[string]int64{"GET /search": 5, "GET /health": 0}, Other: 2}
	bytes := rule("bytes", []Condition{Equal("route", "upload")})
	bytes.Costs = &Costs{Entry: "bytes", Per: 1024, Max: 100}
	shadow := rule("shadow", []Condition{Equal("route", "shadow")})
	shadow.Mode = ModeShadow
	s := mustNew(t, []Rule{api, closed, costs, bytes, shadow},
		atNoon(),
		Denied(
			ListEntry{Name: "network", Match: []Condition{Network("ip", network("203.0.113.0/24"), network("2001:db8::/32")), Not(Equal("route", "GET /status"))}},
			ListEntry{Name: "over", Match: []Condition{Equal("user", "kim")}, Until: noon},
			ListEntry{Name: "late", Match: []Condition{Equal("user", "lea")}, Until: noon.Add(1)},
			ListEntry{Name: "address", Match: []Condition{Equal("ip", "2001:db9:0::1", "192.0.2.1")}},
			ListEntry{Name: "tier", Match: []Condition{Equal("tier", "banned")}}),
		Allowed(
			ListEntry{Name: "staff", Match: []Condition{Prefix("user", "staff-")}},
			ListEntry{Name: "all-of-it", Match: []Condition{Present("nothing")}}),
		SubjectTable(Subjects{By: "user", Table: []Subject{
			{Key: "pat", Entries: []Entry{{"tier", "pro"}}},
			{Key: "mal", Entries: []Entry{{"tier", "banned"}}},
		}}))
	for _, c := range []struct {
		d    string // name=value, joined by commas
		cost int64
		want string
	}{
		{"user=u", 1, "api=u 30*1"},
		{"user=u,tier=free", 3, "api=u 60*3"},
		{"user=u,tier=pro", 1, "api=u 600*1"},
		{"user=u,tier=other", 1, "api=u 30*1"},
		// The table goes before the request, and only for whom it knows.
		{"user=pat,tier=free", 1, "api=pat 600*1"},
		{"user=pat", 1, "api=pat 600*1"},
		{"user=mal,tier=pro", 1, "denied by tier"},
		// Overrides: the first that holds and has not ended.
		{"user=ada,tier=pro", 1, "api=ada 1000*1"},
		{"user=bob", 1, "api=bob 2000*1"},
		{"user=eve", 1, "api=eve 30*1"},
		// Without other limits a tariff leaves requests alone; an override binds.
		{"user=u,plan=a", 1, "api=u 30*1, closed=u 5*1"},
		{"user=u,plan=b", 1, "api=u 30*1"},
		{"user=ada,plan=b", 1, "api=ada 1000*1, closed=ada 7*1"},
		// Lists: deny before allow, an end is the first moment that is not in.
		{"user=u,ip=203.0.113.9", 1, "denied by network"},
		{"user=u,ip=::ffff:203.0.113.9", 1, "denied by network"},
		{"user=u,ip=2001:db8:0:0::9", 1, "denied by network"},
		{"user=u,ip=203.0.114.9", 1, "api=u 30*1"},
		{"user=u,ip=203.0.113.9,route=GET /status", 1, "api=u 30*1, costs= 20*2"},
		{"ip=2001:DB9::1", 1, "denied by address"},
		{"ip=::ffff:192.0.2.1", 1, "denied by address"},
		{"ip=192.0.2.1", 1, "denied by address"},
		{"ip=192.0.2.11", 1, ""},
		{"user=kim", 1, "api=kim 30*1"},
		{"user=lea", 1, "denied by late"},
		{"user=staff-1", 1, "allowed by staff"},
		{"user=staff-1,ip=203.0.113.9", 1, "denied by network"},
		// Costs.
		{"route=GET /search", 3, "costs= 20*15"},
		{"route=GET /x", 1, "costs= 20*2"},
		{"route=GET /health", 1, ""},
		{"route=upload", 1, "costs= 20*2, bytes= 20*1"},
		{"route=upload,bytes=0", 1, "costs= 20*2, bytes= 20*1"},
		{"route=upload,bytes=1024", 1, "costs= 20*2, bytes= 20*1"},
		{"route=upload,bytes=1025", 2, "costs= 20*4, bytes= 20*4"},
		{"route=upload,bytes=102400", 1, "costs= 20*2, bytes= 20*100"},
		{"route=upload,bytes=102401", 1, "costs= 20*2, bytes= 20*100"},
		{"route=upload,bytes=99999999999999999999999", 1, "costs= 20*2, bytes= 20*100"},
		{"route=upload,bytes=-1", 1, `error headgate: rule "bytes": the entry "bytes" is "-1", must be a whole number: the rule's cost is measured by it`},
		{"route=upload,bytes=1e3", 1, `error headgate: rule "bytes": the entry "bytes" is "1e3", must be a whole number: the rule's cost is measured by it`},
		{"route=GET /search", headgate.MaxCount, "costs= 20*9007199254740991"},
		{"route=shadow", 1, "costs= 20*2, shadow= 20*1 shadow"},
	} {
		before := []headgate.Check{{Key: "kept"}}
		out, err := s.Decide(facts(c.d), c.cost, before)
		got := fmt.Sprintf("error %v", err)
		if err == nil {
			if len(out.Checks) == 0 || out.Checks[0].Key != "kept" {
				t.Fatalf("%s: what was there is lost: %v", c.d, out)
			}
			out.Checks = out.Checks[1:]
			got = decided(out)
		} else if len(out.Checks) != 1 || !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%s: %v with %v", c.d, err, out)
		}
		if got != c.want {
			t.Errorf("%s costing %d:\ngot  %s\nwant %s", c.d, c.cost, got, c.want)
		}
	}
	want := []string{"bytes", "ip", "nothing", "plan", "route", "tier", "user"}
	if got := s.Entries(); !slices.Equal(got, want) {
		t.Errorf("it looks at %q, want %q", got, want)
	}
}

// facts reads "name=value,name=value".
func facts(text string) Descriptor {
	var d Descriptor
	for one := range strings.SplitSeq(text, ",") {
		if name, value, ok := strings.Cut(one, "="); ok {
			d = append(d, Entry{name, value})
		}
	}
	return d
}

// TestMatchAndLists: Match never passes over a deny list in silence.
func TestMatchAndLists(t *testing.T) {
	s := mustNew(t, []Rule{rule("all", nil)},
		Denied(ListEntry{Name: "bad", Match: []Condition{Equal("user", "eve")}}),
		Allowed(ListEntry{Name: "good", Match: []Condition{Equal("user", "ada")}}))
	var denied *headgate.DeniedError
	if checks, err := s.Match(facts("user=eve"), 1, nil); !errors.As(err, &denied) || !errors.Is(err, headgate.ErrDenied) || denied.Decision.RetryAfter != headgate.Never || len(checks) != 0 ||
		err.Error() != `headgate: denied; the entry "bad" of the deny list denies the request` {
		t.Errorf("a denied request has %v, %v", checks, err)
	}
	if checks, err := s.Match(facts("user=ada"), 1, nil); err != nil || len(checks) != 0 {
		t.Errorf("an allowed request has %v, %v", checks, err)
	}
	if checks, err := s.Match(facts("user=kim"), 1, nil); err != nil || len(checks) != 1 {
		t.Errorf("any other request has %v, %v", checks, err)
	}
	if e := s.Denied()[0]; e.Name != "bad" || s.Allowed()[0].Name != "good" {
		t.Errorf("the lists are %v and %v", s.Denied(), s.Allowed())
	}
}

// TestTierKeepsCounter: a client who changes tiers is counted by the same slots.
func TestTierKeepsCounter(t *testing.T) {
	r := rule("api", nil, "user")
	r.Limits = nil
	r.Tariff = &Tariff{Entry: "tier", Tiers: []Tier{{"free", per("api", 60)}}, Other: per("api", 30)}
	s := mustNew(t, []Rule{r})
	a, err := s.Match(facts("user=u,tier=free"), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Match(facts("user=u"), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if a[0].Key != b[0].Key || a[0].Rule.Name() != b[0].Rule.Name() || a[0].Rule.Limits()[0].Slot() != b[0].Rule.Limits()[0].Slot() ||
		a[0].Rule.Limits()[0].Count == b[0].Rule.Limits()[0].Count {
		t.Errorf("one tier has %+v, the other %+v", a, b)
	}
	if s.Rules()[0].Limits != b[0].Rule {
		t.Error("the rule's own limits are not those of all others")
	}
}

// TestClockIsReadForDatesOnly: requests that meet nothing with an end do not pay
// for the clock.
func TestClockIsReadForDatesOnly(t *testing.T) {
	reads := 0
	r := rule("api", nil, "user")
	r.Overrides = []Override{{Match: []Condition{Equal("user", "ada")}, Limits: per("api", 5), Until: noon}}
	s := mustNew(t, []Rule{r, rule("plain", nil)},
		Clock(func() time.Time { reads++; return noon }),
		Denied(ListEntry{Name: "eve", Match: []Condition{Equal("user", "eve")}, Until: noon}))
	for _, c := range []struct {
		user string
		want int
	}{{"kim", 0}, {"ada", 1}, {"eve", 1}} {
		reads = 0
		if _, err := s.Decide(facts("user="+c.user), 1, nil); err != nil || reads != c.want {
			t.Errorf("%s: the clock was read %d times, %v; want %d", c.user, reads, err, c.want)
		}
	}
}

func TestSecretsByHash(t *testing.T) {
	opts := []Option{HashKey(make([]byte, 32))}
	hash := mustNew(t, nil, opts...).Hash
	r := rule("api", []Condition{Not(Hashed("api_key", hash("api_key", "k9")))}, "api_key")
	r.Limits = nil
	r.Tariff = &Tariff{Entry: "tier", Tiers: []Tier{{"pro", per("api", 600)}, {"free", per("api", 60)}}, Other: per("api", 30)}
	r.Overrides = []Override{{Match: []Condition{Hashed("api_key", hash("api_key", "k3"), hash("api_key", "k0"))}, Limits: per("api", 1000)}}
	s := mustNew(t, []Rule{r}, append(opts,
		SubjectTable(Subjects{
			Table: []Subject{{Key: HashMark + hash("api_key", "k1"), Entries: []Entry{{"tier", "pro"}}}, {Key: "k2", Entries: []Entry{{"tier", "free"}}}},
			Other: []Entry{{"tier", "none"}},
		}),
		Denied(ListEntry{Name: "stolen", Match: []Condition{Hashed("api_key", hash("api_key", "k4"))}}))...)
	for key, want := range map[string]string{
		"k1": "600*1", "k2": "60*1", "k3": "1000*1", "k4": "denied by stolen", "k5": "30*1", "k9": "",
	} {
		out, err := s.Decide(facts("tier=pro,api_key="+key), 1, nil)
		got := strings.TrimPrefix(decided(out), "api="+hash("api_key", key)+" ")
		if err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", key, got, err, want)
		}
	}
	if out, err := s.Decide(facts("tier=pro"), 1, nil); err != nil || len(out.Checks) > 0 {
		t.Errorf("without a key: %v, %v", out, err)
	}
	if hash("token", "k1") == hash("api_key", "k1") {
		t.Error("two entries have one hash")
	}
}

// TestEnforce: the choice of keys is stable, of the right size, and grows.
func TestEnforce(t *testing.T) {
	const keys = 20_000
	chosen := make(map[string]int) // the percentage from which on a key is chosen
	for _, percent := range []int{1, 25, 50, 99, 100} {
		r := rule("api", nil, "user")
		r.Enforce = percent
		s := mustNew(t, []Rule{r})
		n := 0
		for i := range keys {
			user := fmt.Sprint("u", i)
			c, err := s.Check("api", user, 1)
			if err != nil {
				t.Fatal(err)
			}
			matched, err := s.Match(Descriptor{{"user", user}}, 1, nil)
			if err != nil || matched[0].Shadow != c.Shadow {
				t.Fatalf("%s: Match has %v, Check has %v, %v", user, matched, c, err)
			}
			switch since := chosen[user]; {
			case !c.Shadow:
				n++
				if since == 0 {
					chosen[user] = percent
				}
			case since != 0:
				t.Fatalf("%s is enforced at %d%% and not at %d%%", user, since, percent)
			}
		}
		if want := keys * percent / 100; n < want-keys/50 || n > want+keys/50 {
			t.Errorf("%d%%: %d of %d keys are enforced", percent, n, keys)
		}
	}
	// The choice must never change: nodes of two versions share counters. Two
	// rules choose differently.
	var got []int
	for _, rule := range []string{"api", "login"} {
		for i := range 8 {
			least := 0
			for !enforced(rule, fmt.Sprint("u", i), least) {
				least++
			}
			got = append(got, least)
		}
	}
	if want := []int{78, 20, 86, 48, 73, 74, 92, 44, 41, 8, 48, 32, 95, 16, 23, 21}; !slices.Equal(got, want) {
		t.Errorf("keys are enforced from %v percent on, want %v", got, want)
	}
}

func TestSoft(t *testing.T) {
	r, hard := rule("soft", nil), rule("hard", nil)
	r.Soft = 80
	s := mustNew(t, []Rule{r, hard})
	for _, c := range []struct {
		rule      *headgate.Rule
		remaining int64
		want      bool
	}{
		{r.Limits, 20, false},
		{r.Limits, 5, false},
		{r.Limits, 4, true}, // 16 of 20 are used.
		{r.Limits, 0, true},
		{hard.Limits, 0, false},
		{per("other", 20), 0, false},
		{nil, 0, false},
	} {
		d := headgate.Decision{Rule: c.rule, Remaining: c.remaining, Allowed: true}
		if c.rule != nil {
			d.Limit = &c.rule.Limits()[0]
		}
		if got := s.Soft(&d); got != c.want {
			t.Errorf("%v with %d left: %v, want %v", c.rule, c.remaining, got, c.want)
		}
	}
	if r := s.Rule("soft"); r == nil || r.Soft != 80 || s.Rule("none") != nil {
		t.Errorf("the rule is %v", r)
	}
	if ModeShadow.String() != "shadow" || ModeEnforce.String() != "enforce" || Mode(7).String() != "mode(7)" {
		t.Error("modes are written otherwise")
	}
}

// TestCheckTariffs: what is checked by name has tier, override and cost as far as
// the key tells.
func TestCheckTariffs(t *testing.T) {
	api := rule("api", nil, "user")
	api.Limits = nil
	api.Tariff = &Tariff{Entry: "tier", Tiers: []Tier{{"pro", per("api", 600)}}}
	api.Overrides = []Override{{Match: []Condition{Equal("user", "ada")}, Limits: per("api", 1000)}}
	costs := rule("costs", nil, "user")
	costs.Costs = &Costs{Entry: "route", Values: map[string]int64{"x": 1}, Other: 3}
	free := rule("free", nil, "user")
	free.Costs = &Costs{Entry: "route", Values: map[string]int64{"x": 1}}
	direct := rule("direct", nil)
	direct.Direct, direct.Mode = true, ModeShadow
	s := mustNew(t, []Rule{api, costs, free, direct}, SubjectTable(Subjects{By: "user", Table: []Subject{{Key: "pat", Entries: []Entry{{"tier", "pro"}}}}}))
	for _, c := range []struct{ rule, key, want, err string }{
		{"api", "pat", "api=pat 600*1", ""},
		{"api", "ada", "api=ada 1000*1", ""},
		{"api", "eve", "", `headgate: rule "api": it has limits by "tier", and none for a key of which that is not known; give it limits for all others, "*", or ask by descriptor`},
		{"api", "", "", `rule "api": it has limits by "tier"`},
		{"costs", "eve", "costs=eve 20*3", ""},
		{"costs", "", "", `the key has 0 bytes, but the rule binds no request without user`},
		{"free", "eve", "", `a request of which no "route" is known costs it nothing; ask by descriptor`},
		{"direct", "eve", "direct=eve 20*1 shadow", ""},
	} {
		check, err := s.Check(c.rule, c.key, 1)
		switch {
		case c.err == "" && (err != nil || decided(Outcome{Checks: []headgate.Check{check}}) != c.want):
			t.Errorf("%s %q: %v, %v; want %s", c.rule, c.key, check, err, c.want)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s %q: %v; want %s", c.rule, c.key, err, c.err)
		}
	}
}

// TestDecideAllocations: what is there for some rules costs plain ones nothing,
// and tariffs, overrides, lists and tables allocate nothing either.
func TestDecideAllocations(t *testing.T) {
	api := rule("api", nil, "user")
	api.Limits = nil
	api.Tariff = &Tariff{Entry: "tier", Tiers: []Tier{{"pro", per("api", 600)}}}
	api.Overrides = []Override{{Match: []Condition{Equal("user", "ada")}, Limits: per("api", 1000), Until: noon.Add(time.Hour)}}
	api.Costs = &Costs{Entry: "bytes", Per: 10}
	api.Enforce = 50
	s := mustNew(t, []Rule{api, rule("plain", nil, "user")}, atNoon(),
		SubjectTable(Subjects{By: "user", Table: []Subject{{Key: "pat", Entries: []Entry{{"tier", "pro"}}}}}),
		Denied(ListEntry{Name: "net", Match: []Condition{Network("ip", netip.MustParsePrefix("203.0.113.0/24"))}}),
		Allowed(ListEntry{Name: "staff", Match: []Condition{Prefix("user", "staff-")}}))
	for _, text := range []string{"user=pat,ip=192.0.2.1,bytes=77", "user=ada,ip=2001:db8::1", "user=staff-1", "ip=203.0.113.1"} {
		d := facts(text)
		checks := make([]headgate.Check, 0, 4)
		if n := testing.AllocsPerRun(100, func() { _, _ = s.Decide(d, 1, checks) }); n != 0 {
			t.Errorf("%s: %v allocations", text, n)
		}
	}
}

// TestManyLists: an entry is found among many in the order of the list, and so is
// an override.
func TestManyLists(t *testing.T) {
	var deny []ListEntry
	r := rule("api", nil, "user")
	for i := range 1000 {
		deny = append(deny, ListEntry{Name: fmt.Sprint("d", i), Match: []Condition{Equal("api_key", fmt.Sprint("k", i), "shared")}})
		r.Overrides = append(r.Overrides, Override{Match: []Condition{Equal("user", fmt.Sprint("u", i), "shared")}, Limits: per("api", int64(i+1))})
	}
	s := mustNew(t, []Rule{r}, Denied(deny...))
	for text, want := range map[string]string{
		"api_key=k777": "denied by d777", "api_key=shared": "denied by d0", "user=u777": "api=u777 778*1", "user=shared": "api=shared 1*1", "user=x": "api=x 20*1",
	} {
		if out, err := s.Decide(facts(text), 1, nil); err != nil || decided(out) != want {
			t.Errorf("%s: %s, %v; want %s", text, decided(out), err, want)
		}
	}
}

// TestSetKeepsNothing: changing what was given changes nothing.
func TestSetKeepsNothing(t *testing.T) {
	r := rule("api", nil, "user")
	r.Limits = nil
	r.Tariff = &Tariff{Entry: "tier", Tiers: []Tier{{"pro", per("api", 600)}}, Other: per("api", 1)}
	r.Overrides = []Override{{Match: []Condition{Equal("user", "ada")}, Limits: per("api", 1000)}}
	r.Costs = &Costs{Entry: "route", Values: map[string]int64{"x": 2}, Other: 1}
	deny := []ListEntry{{Name: "eve", Match: []Condition{Equal("user", "eve")}}}
	table := Subjects{By: "user", Table: []Subject{{Key: "pat", Entries: []Entry{{"tier", "pro"}}}}}
	s := mustNew(t, []Rule{r}, Denied(deny...), SubjectTable(table))
	r.Tariff.Tiers[0].Value, r.Overrides[0].Match[0].Equals[0], r.Costs.Values["x"] = "y", "y", 9
	deny[0].Match[0].Equals[0], table.Table[0].Entries[0].Value = "y", "y"
	var got []string
	for _, text := range []string{"user=pat,route=x", "user=ada", "user=eve"} {
		out, err := s.Decide(facts(text), 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, decided(out))
	}
	if want := []string{"api=pat 600*2", "api=ada 1000*1", "denied by eve"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if again, err := New(s.Rules()); err != nil || again.Rules()[0].Tariff == s.Rules()[0].Tariff {
		t.Errorf("the set's own rules make no set of their own: %v", err)
	}
}
