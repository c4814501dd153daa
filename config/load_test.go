package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/lint"
)

// different names what two sets do not have in common, or is "" if they are the
// same but for their positions.
func different(a, b *policy.Set) string {
	if a == nil || b == nil {
		return "being there at all"
	}
	x, y := a.Rules(), b.Rules()
	if len(x) != len(y) {
		return fmt.Sprintf("having %d and %d rules", len(x), len(y))
	}
	for i := range x {
		if p, q := plain(&x[i]), plain(&y[i]); !reflect.DeepEqual(p, q) {
			return fmt.Sprintf("rule %q:\n%+v\n%+v", p.rule.Name, p, q)
		}
	}
	for name, pair := range map[string][2]any{
		"deny":     {plainList(a.Denied()), plainList(b.Denied())},
		"allow":    {plainList(a.Allowed()), plainList(b.Allowed())},
		"ignore":   {fmt.Sprint(a.Ignored()), fmt.Sprint(b.Ignored())},
		"entries":  {fmt.Sprintf("%#v", a.Declared()), fmt.Sprintf("%#v", b.Declared())},
		"subjects": {plainSubjects(a.Subjects()), plainSubjects(b.Subjects())},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			return fmt.Sprintf("%s:\n%+v\n%+v", name, pair[0], pair[1])
		}
	}
	return ""
}

// plainRule is a rule without positions, and its limits as they decide.
type plainRule struct {
	rule   policy.Rule
	tariff string
	limits [][]string
}

func plain(r *policy.Rule) plainRule {
	p := plainRule{rule: *r}
	add := func(r *headgate.Rule) {
		var texts []string
		if r != nil {
			limits := r.Limits()
			for i := range limits {
				l := &limits[i]
				texts = append(texts, fmt.Sprintf("%v %v %v of %d at once", l.Algorithm, l, l.Align, l.Capacity()))
			}
		}
		p.limits = append(p.limits, texts)
	}
	add(r.Limits)
	if r.Tariff != nil {
		p.tariff = r.Tariff.Entry
		for _, t := range r.Tariff.Tiers {
			p.tariff += " " + t.Value
			add(t.Limits)
		}
		add(r.Tariff.Other)
	}
	p.rule.Overrides = nil
	for _, o := range r.Overrides {
		add(o.Limits)
		o.Limits, o.Pos, o.Until, o.Match = nil, policy.Position{}, o.Until.UTC(), ordered(o.Match)
		p.rule.Overrides = append(p.rule.Overrides, o)
	}
	p.rule.Match = ordered(r.Match)
	p.rule.Limits, p.rule.Tariff, p.rule.Pos, p.rule.Written, p.rule.Cost = nil, nil, policy.Position{}, nil, max(r.Cost, 1)
	if len(r.Per) == 0 {
		p.rule.Per = nil
	}
	if len(r.Ignore) == 0 {
		p.rule.Ignore = nil
	}
	return p
}

// ordered has nil for what is empty.
func ordered(conditions []policy.Condition) []policy.Condition {
	var all []policy.Condition
	for _, c := range conditions {
		if len(c.Equals) == 0 {
			c.Equals = nil
		}
		all = append(all, c)
	}
	return all
}

func plainList(list []policy.ListEntry) []policy.ListEntry {
	var all []policy.ListEntry
	for _, e := range list {
		e.Pos, e.Until, e.Match = policy.Position{}, e.Until.UTC(), ordered(e.Match)
		all = append(all, e)
	}
	return all
}

func plainSubjects(t *policy.Subjects) policy.Subjects {
	if t == nil {
		return policy.Subjects{}
	}
	c := *t
	c.OtherPos, c.Table = policy.Position{}, nil
	for _, s := range t.Table {
		s.Pos = policy.Position{}
		c.Table = append(c.Table, s)
	}
	return c
}

func TestLoad(t *testing.T) {
	set, err := Load("testdata/good/limits.yml")
	if err != nil {
		t.Fatal(err)
	}
	rules := set.Rules()
	if len(rules) != 2 || rules[0].Pos != (policy.Position{File: "testdata/good/limits.yml", Line: 2, Column: 5}) {
		t.Fatalf("got %+v", rules)
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	want := []headgate.Limit{
		{Count: 1000, Period: time.Hour, Burst: 50},
		{Count: 50, Period: time.Second},
		{Algorithm: headgate.FixedWindow, Count: 1000, Align: headgate.AlignMonth, Location: berlin},
		{Algorithm: headgate.FixedWindow, Count: 10, Period: time.Minute, Align: headgate.AlignFirst},
		{Count: 20, Period: 90 * time.Second, Burst: 40},
		{Algorithm: headgate.LeakyBucket, Count: 16, Period: time.Second},
		{Algorithm: headgate.SlidingWindow, Count: 20, Period: 24 * time.Hour},
		{Algorithm: headgate.SlidingCounter, Count: 20, Period: 250 * time.Millisecond},
	}
	got := rules[0].Limits.Limits()
	for i := range want {
		if !sameLimit(&got[i], &want[i]) {
			t.Errorf("limit %d is %+v, want %+v", i, got[i], want[i])
		}
	}
	zones := rules[1].Limits.Limits()
	if zones[0].Location != nil || zones[1].Location.String() != "America/New_York" || zones[2].Location != time.UTC {
		t.Errorf("the time zones are %v, %v and %v", zones[0].Location, zones[1].Location, zones[2].Location)
	}
}

func TestSample(t *testing.T) {
	set, err := Parse("sample.yml", Sample(), policy.HashKey(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range set.Rules() {
		got = append(got, fmt.Sprintf("%v %v", r.Limits, r.Direct))
	}
	want := []string{
		"login-address (20 per 1m) false",
		"login-user (5 per 15m) false",
		"anonymous (100 per 1m) false",
		"everyone (1000 per 1s burst 2000) false",
		"auth.createToken (20 per 1m, 5 per 3s) true",
		"service.actionName (600 per 10m, 30 per 20s) true",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if warnings := lint.Warnings(set); len(warnings) > 0 {
		t.Errorf("lint warns: %v", warnings)
	}
	Sample()[0] = 'x'
	if Sample()[0] != '#' {
		t.Error("changing what Sample returns changes the sample")
	}
}

// TestFormatRefuses: a set that no file can say is refused, not bent.
func TestFormatRefuses(t *testing.T) {
	limits := headgate.MustRule("a", headgate.PerSecond(5))
	for _, c := range []struct {
		rule policy.Rule
		want string
	}{
		{policy.Rule{Limits: limits, Direct: true}, `headgate: rule "a" cannot be written: the short form has sliding windows of whole seconds and no cost, not token_bucket "5 per 1s" at cost 1`},
		{policy.Rule{Limits: headgate.MustRule("a", headgate.Sliding(5, time.Second)), Direct: true, Cost: 2}, `not sliding_window "5 per 1s" at cost 2`},
		{policy.Rule{Limits: headgate.MustRule("a", headgate.Sliding(5, time.Millisecond)), Direct: true}, `not sliding_window "5 per 1ms" at cost 1`},
		{policy.Rule{Limits: limits, Match: []policy.Condition{policy.Equal("e", "x"), policy.Prefix("e", "x")}}, `entry "e" has more than one list of values; join them into one`},
		{policy.Rule{Limits: limits, Match: []policy.Condition{policy.Present("e"), policy.Not(policy.Equal("e", "x"))}}, `entry "e" is asked to be present or absent, and to have values as well; drop one`},
	} {
		set, err := policy.New([]policy.Rule{c.rule})
		if err != nil {
			t.Fatal(err)
		}
		if text, err := Format(set); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %q, %v; want %q", text, err, c.want)
		}
	}
}

func TestLoadFiles(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "none.yml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := Load(t.TempDir()); err == nil || errors.As(err, new(*Error)) {
		t.Errorf("a directory: %v", err)
	}
	large := filepath.Join(t.TempDir(), "large.yml")
	if err := os.WriteFile(large, []byte(strings.Repeat("#", MaxBytes+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(large); err == nil || !strings.Contains(err.Error(), "large.yml: the file has 1048577 bytes, must have at most 1048576") {
		t.Errorf("a large file: %v", err)
	}
}

// TestHashKey: options reach the set, and a bad one is a mistake like others.
func TestHashKey(t *testing.T) {
	data := []byte("rules:\n  - name: a\n    per: [api_key]\n    limits: [20 per 60s]\n")
	_, err := Parse("p.yml", append(data, "    cost: 0\n"...), policy.HashKey([]byte("short")))
	want := "p.yml: the hash key has 5 bytes, must have 16 to 1024\np.yml:5:11: cost is 0, must be 1 to 9007199254740991"
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	plain, err := Parse("p.yml", data)
	if err != nil {
		t.Fatal(err)
	}
	keyed, err := Parse("p.yml", data, policy.HashKey([]byte("0123456789abcdef")))
	if err != nil {
		t.Fatal(err)
	}
	a, err := plain.Check("a", "k1", 1)
	if err != nil {
		t.Fatal(err)
	}
	b, err := keyed.Check("a", "k1", 1)
	if err != nil || a.Key == b.Key {
		t.Errorf("with and without a hash key the keys are %q and %q, %v", a.Key, b.Key, err)
	}
}

// TestBounds: files that would cost too much are refused, and those at the
// bounds are not.
func TestBounds(t *testing.T) {
	rules := func(n int) string {
		var b strings.Builder
		b.WriteString("limits:\n")
		for i := range n {
			fmt.Fprintf(&b, "- {name: r%d, config: [{limit: 20, period: 60}]}\n", i)
		}
		return b.String()
	}
	var bomb strings.Builder
	bomb.WriteString("a: &a [x, x, x, x, x, x, x, x, x, x]\n")
	for c := 'b'; c <= 'j'; c++ {
		fmt.Fprintf(&bomb, "%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", c-1), 10), ", "))
	}
	for _, c := range []struct {
		name, file string
		want       string // "" if it loads
	}{
		{"10,000 rules", rules(10_000), ""},
		{"10,001 rules", rules(10_001), "p.yml:10002:1: this list has more than 10000 entries"},
		{"entries without a value", "rules:\n" + strings.Repeat("-\n", 50_000), "this list has more than 10000 entries"},
		{"fields without a value", "rules: {" + strings.Repeat("a,", 50_000) + "}", "p.yml:1:20010: there are more than 10000 entries between two brackets"},
		{"documents", strings.Repeat("--- a\n", 20_000), "p.yml:3:1: there is a second document"},
		{"alias bomb", bomb.String(), "with its aliases written out this has more than 1048576 values"},
		{"many fields", strings.Repeat("a: b\n", 100_000), "p.yml:1001:1: this mapping has more than 1000 fields"},
		{"many fields, deeper", "rules:\n- " + strings.Repeat("a: b\n  ", 1500), "p.yml:1002:3: this mapping has more than 1000 fields"},
		{"open brackets", strings.Repeat("[", 100_000), "p.yml:1:17: values stand more than 16 deep in each other"},
		{"open braces", strings.Repeat("{a: ", 50_000), "values stand more than 16 deep in each other"},
		{"entries in a line", strings.Repeat("- ", 50_000), "values stand more than 16 deep in each other"},
		{"anchors", strings.Repeat("&a ", 50_000), "p.yml:1:1: one value has two anchors; leave one out"},
		{"blank lines", "rules: |\n" + strings.Repeat(" \r\n", MaxBytes/3-4), "p.yml:102:1: more than 100 blank lines follow each other; take some out"},
		{"few blank lines", strings.Repeat("\n", 99) + rules(1), ""},
		{"like bomb", likeBomb(5000), "with what rules are like written out this has more than 1048576 values"},
		{"a long chain of rules", likeChain(9000), ""},
		{"rules that are like none", likeNone(9000), "p.yml: and 8000 more mistakes"}, // of which few are advised on
		{"many mistakes", "rules: [" + strings.Repeat("x,", 5000) + "]", "p.yml: and 4000 more mistakes"},
	} {
		_, err := Parse("p.yml", []byte(c.file))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %.300v, want %q", c.name, err, c.want)
		}
	}
}

// likeBomb has many rules that are like one with many overrides.
func likeBomb(n int) string {
	var b strings.Builder
	b.WriteString("rules:\n- name: a\n  per: all\n  limits: [1 per 1s]\n  overrides:\n")
	for range n {
		b.WriteString("  - {match: {u: x}, limits: [1 per 1s]}\n")
	}
	for i := range n {
		fmt.Fprintf(&b, "- {name: r%d, like: a}\n", i)
	}
	return b.String()
}

// likeChain has rules each of which is like the next.
func likeChain(n int) string {
	var b strings.Builder
	b.WriteString("rules:\n")
	for i := range n {
		fmt.Fprintf(&b, "- {name: r%d, like: r%d}\n", i, i+1)
	}
	fmt.Fprintf(&b, "- {name: r%d, per: all, limits: [1 per 1s]}\n", n)
	return b.String()
}

// likeNone has rules each of which is like one that there is not, with a name as long
// as those that there are.
func likeNone(n int) string {
	var b strings.Builder
	b.WriteString("rules:\n")
	for i := range n {
		fmt.Fprintf(&b, "- {name: %[1]s%[3]d, like: %[2]s%[3]d}\n", strings.Repeat("n", 24), strings.Repeat("m", 24), i)
	}
	return b.String()
}

func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/good/*.yml", "testdata/bad/*.yml", "sample.yml"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		set, err := Parse("p.yml", data)
		if err != nil {
			var mistakes *Error
			if !errors.As(err, &mistakes) || len(mistakes.Mistakes) == 0 || set != nil {
				t.Fatalf("got %v, %v", set, err)
			}
			return
		}
		lint.Warnings(set)
		text, err := Format(set)
		if err != nil {
			t.Fatalf("what was loaded cannot be written: %v", err)
		}
		again, err := Parse("again.yml", text)
		if err != nil || different(set, again) != "" {
			t.Fatalf("it was written as\n%s\nwhich loads with error %v, and differs in %s", text, err, different(set, again))
		}
	})
}

// TestWarningsHavePlaces: a warning about a part of a rule is where that part is written, also if
// another rule has it by like or by an alias.
func TestWarningsHavePlaces(t *testing.T) {
	set, err := Parse("p.yml", []byte(`rules:
  - name: a
    match: { user: present }
    per: [user]
    limits:
      - 20 per 1m
      - 20 per 3s
  - name: b
    match:
      usre: present
    per: [usre]
    cost: 30
    limits: { tier: { pro: [50 per 1s], "*": [40 per 1s, 20 per 1s] } }
    overrides:
      - match: { ip: present }
        limits: [{ count: 90, period: 1h }, { algorithm: token_bucket, count: 900, period: 1d }]
  - name: c
    like: a
    match: { user: present, ip: present }
    mode: shadow
`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range lint.Warnings(set) {
		got = append(got, fmt.Sprintf("%s %s %v", w.Code, w.Rule, w.Pos))
	}
	want := []string{
		"HG001 a p.yml:7:9",
		"HG022 b p.yml:10:7", "HG001 b p.yml:13:47", "HG023 b p.yml:16:18", "HG003 b p.yml:13:58",
		"HG001 c p.yml:7:9",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
