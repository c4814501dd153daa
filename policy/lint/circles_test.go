package lint

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// TestLintCircles reads who replaces whom from lines such as "a>b,c"; a name in
// capitals is an entry of the deny list.
func TestLintCircles(t *testing.T) {
	t.Parallel()
	const none = ": a request that meets all of these is limited by none of them; take one of the names out of replaces"
	for _, c := range []struct {
		replaces string
		want     []string
	}{
		{"a>b b>c c>d d a2>b", nil},
		{"a>b,c b>c c", nil},
		{"a>b b>a", []string{`rule "a": it replaces rule "b", which replaces rule "a"` + none}},
		{"x>a a>b b>c c>a,end end", []string{`rule "a": it replaces rule "b", which replaces rule "c", which replaces rule "a"` + none}},
		// The shortest one of those that a rule is in; and each rule is named.
		{"a>b b>c,a c>a", []string{
			`rule "a": it replaces rule "b", which replaces rule "a"` + none,
			`rule "c": it replaces rule "a", which replaces rule "b", which replaces rule "c"` + none,
		}},
		{"a>b b>a c>d d>c", []string{
			`rule "a": it replaces rule "b", which replaces rule "a"` + none,
			`rule "c": it replaces rule "d", which replaces rule "c"` + none,
		}},
		{"A>B B>A", []string{`the entry "A" of the deny list replaces the entry "B" of the deny list, which replaces the entry "A" of the deny list` + strings.Replace(none, "a request that meets all of these is limited", "a request of Envoy that meets all of these, each with another descriptor, is denied", 1)}},
		{"A>b b>A", []string{`rule "b": it replaces the entry "A" of the deny list, which replaces rule "b"` + strings.Replace(none, "a request that meets all of these is limited", "a request of Envoy that meets all of these, the entries with descriptors of their own, is limited or denied", 1)}},
		{"r1>r2 r2>r3 r3>r4 r4>r5 r5>r6 r6>r7 r7>r8 r8>r1", []string{
			`rule "r1": it replaces rule "r2", which replaces rule "r3", which replaces rule "r4", which replaces rule "r5", which replaces the next of 3 more, the last of which replaces rule "r1"` + none,
		}},
	} {
		var rules []policy.Rule
		var deny []policy.ListEntry
		for _, line := range strings.Fields(c.replaces) {
			name, others, _ := strings.Cut(line, ">")
			match := []policy.Condition{policy.Present(strings.ToLower(name))}
			var replaces []string
			if others != "" {
				replaces = strings.Split(others, ",")
			}
			if strings.ToLower(name) != name {
				deny = append(deny, policy.ListEntry{Name: name, Match: match, Replaces: replaces})
				continue
			}
			rules = append(rules, policy.Rule{Limits: headgate.MustRule(name, headgate.PerMinute(9)), Match: match, Replaces: replaces})
		}
		if len(rules) == 0 {
			rules = append(rules, policy.Rule{Limits: headgate.MustRule("all", headgate.PerMinute(9))})
		}
		s, err := policy.New(rules, policy.Denied(deny...))
		if err != nil {
			t.Fatal(err)
		}
		if got := lintedWith(s, Circle); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s\ngot  %s\nwant %s", c.replaces, strings.Join(got, "\n     "), strings.Join(c.want, "\n     "))
		}
	}
}

// What lint says of a circle is so: each of its rules binds alone, and a request that
// meets all of them is bound by none of them.
func TestCircleBindsNothing(t *testing.T) {
	t.Parallel()
	for n := 2; n < 6; n++ {
		rules := []policy.Rule{{Limits: headgate.MustRule("all", headgate.PerMinute(9))}}
		var d policy.Descriptor
		for i := range n {
			name := fmt.Sprint("r", i)
			rules = append(rules, policy.Rule{Limits: headgate.MustRule(name, headgate.PerMinute(9)), Match: []policy.Condition{policy.Present(name)}, Replaces: []string{fmt.Sprint("r", (i+1)%n)}})
			d = append(d, policy.Entry{Name: name, Value: "x"})
		}
		s, err := policy.New(rules)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if checks, err := s.Match(d[i:i+1], 1, nil); err != nil || len(checks) != 2 {
				t.Errorf("of %d: rule %d alone gives %d checks, %v", n, i, len(checks), err)
			}
		}
		if checks, err := s.Match(d, 1, nil); err != nil || len(checks) != 1 {
			t.Errorf("of %d: all give %d checks, %v", n, len(checks), err)
		}
		if got := lintedWith(s, Circle); len(got) != 1 {
			t.Errorf("of %d: %q", n, got)
		}
	}
}
