package nested_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/explain"
	"github.com/headgate/headgate/policy/nested"
)

// explained is what an explanation says of the way, of the rule that binds and of one
// that does not.
func explained(e *explain.Explanation, other string) string {
	var b strings.Builder
	for _, s := range e.Steps {
		fmt.Fprintf(&b, "%s>%s by %s, ", s.Entry, s.Node, s.By)
	}
	for i := range e.Rules {
		switch r := &e.Rules[i]; {
		case r.Binds && r.Admits != "":
			fmt.Fprintf(&b, "%s admits %s, shadow %t", r.Rule, r.Admits, r.Shadow)
		case r.Binds:
			fmt.Fprintf(&b, "%s under %q at %d, shadow %t, quota %t", r.Rule, r.Key, r.Cost, r.Shadow, r.Quota)
		case r.Rule == other:
			fmt.Fprintf(&b, "%s: %s; ", r.Rule, r.Why)
		}
	}
	return b.String()
}

func TestExplain(t *testing.T) {
	free, named := &nested.Limit{Unlimited: true}, limit(5)
	named.Name, named.Replaces = "per_user", []string{"others"}
	pos := policy.Position{File: "d.yaml", Line: 3, Column: 5}
	tree, set := mustNew(t, []nested.Node{
		{Key: "user", Limit: named, Pos: pos, Nodes: []nested.Node{
			{Key: "path", Value: "/x*", Share: true, Shadow: true, Limit: limit(1)},
			{Key: "path", Value: "/xy*", Limit: limit(1)},
			{Key: "path", Value: "/z", Quota: true, Limit: limit(1)},
		}},
		{Key: "user", Value: "free", Quota: true, Limit: free},
		{Key: "user", Value: "out", Limit: limit(0)},
		{Key: "user", Value: "seen", Shadow: true, Limit: limit(0)},
		{Key: "user", Value: "told", Quota: true, Limit: limit(0)},
		{Key: "h-*", Limit: limit(1)},
		{Key: "api_key", Limit: limit(1), Nodes: []nested.Node{{Key: "path", Limit: limit(1)}}},
		{Key: "api_key", Value: "geheim", Nodes: []nested.Node{{Key: "user", Limit: limit(1)}}},
	})
	hash := set.Hash("api_key", "other")
	for _, tt := range []struct {
		d     policy.Descriptor
		other string
		want  string
	}{
		{d("domain=d", "user=a"), "d.user_free", `user>d.user by key, d.user under "a" at 2, shadow false, quota falsed.user_free: entry 1, user, is "a", must be "free"; `},
		{d("user=a", "domain=d"), "d.user.path_/z", `d.user.path_/z: the descriptor ends 1 entry before it; `},
		{d("domain=d", "user=a", "path=/xy"), "d.user.path_/xy*", `path>d.user.path_/x* by star, d.user.path_/x* under "a" at 2, shadow true, quota falsed.user.path_/xy*: entry 2, path = "/xy", leads to d.user.path_/x*, which goes before it, and there is no way back; `},
		{d("domain=d", "user=a", "path=/z"), "d.user", `path>d.user.path_/z by value, d.user: the descriptor has 1 entry more than the 1 that lead here; d.user.path_/z under "a" at 2, shadow true, quota true`},
		{d("domain=d", "user=a", "path=/q", "x=1"), "d.h-*", `user>d.user by key, path> by , d.h-*: entry 1 is "user", must be like "h-*"; `},
		{d("domain=d", "user=free"), "", `user>d.user_free by value, d.user_free admits everything, shadow false`},
		{d("domain=d", "user=out"), "", `user>d.user_out by value, d.user_out admits nothing, shadow false`},
		{d("domain=d", "user=seen"), "", `user>d.user_seen by value, d.user_seen admits nothing, shadow true`},
		{d("domain=d", "h-a=1"), "d.api_key", `h-a>d.h-* by star, d.h-* under "h-a=1" at 2, shadow false, quota falsed.api_key: entry 1 is "h-a", must be "api_key"; `},
		{d("domain=d", "api_key=other", "path=/"), "d.api_key_#" + set.Hash("api_key", "geheim") + ".user", `api_key>d.api_key by key, path>d.api_key.path by key, d.api_key.path under "` + hash + `|/" at 2, shadow false, quota false` + "d.api_key_#" + set.Hash("api_key", "geheim") + `.user: entry 1, api_key, is (secret, hash:` + hash + `), must be "#` + set.Hash("api_key", "geheim") + `"; `},
		{d("domain=e", "user=a"), "d.user", `user> by , d.user: the domain is "e", must be "d"; `},
	} {
		e := tree.Explain(tt.d, 2)
		if got := explained(&e, tt.other); !strings.Contains(got, tt.want) {
			t.Errorf("%v:\n got %s\nwant %s", tt.d, got, tt.want)
		}
		if text := e.String(); strings.Contains(text, "geheim") || strings.Contains(text, `"other"`) {
			t.Errorf("a secret in %s", text)
		}
	}
	e := tree.Explain(d("domain=d", "user=a"), 0)
	if r := &e.Rules[0]; r.Pos != pos || r.Depth != 1 || r.LimitName != "per_user" || len(r.Replaces) != 1 || len(r.Limits) != 1 || r.Cost != 1 || len(e.Checks()) != 1 {
		t.Errorf("%+v", r)
	}
	for _, tt := range []struct {
		d       policy.Descriptor
		allowed bool
		text    string
	}{
		{d("domain=d", "user=out"), false, "admits nothing, and counts nothing"},
		{d("domain=d", "user=seen"), true, "in shadow: denies nobody"},
		{d("domain=d", "user=told"), true, "in quota mode: denies nobody"},
		{d("domain=d", "user=free"), true, "admits everything, and counts nothing\n\ndo not"},
	} {
		e := tree.Explain(tt.d, 1)
		if e.Observe(set, nil); e.Verdict.Allowed != tt.allowed || (e.Verdict.RetryAfter < 0) == tt.allowed || len(e.Checks()) != 0 || !strings.Contains(e.String(), tt.text) {
			t.Errorf("%v: %+v %s", tt.d, e.Verdict, e.String())
		}
	}
	for _, bad := range []explain.Explanation{tree.Explain(d("user=a"), 1), tree.Explain(d("domain=d"), headgate.MaxCount+1)} {
		if bad.Error == "" || len(bad.Rules) != 12 || bad.Rules[0].Why == "" {
			t.Errorf("%d rules, and the error %q", len(bad.Rules), bad.Error)
		}
	}
}

// TestExplainAgreesWithFind: of configurations at random, the limit that is found is
// the one that is said to bind, and of all others there is a reason why not.
func TestExplainAgreesWithFind(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	keys, values := []string{"a", "ab", "b"}, []string{"", "x", "xy", "*", "x*", "*y", "x*z"}
	var nodes func(depth int) []nested.Node
	nodes = func(depth int) (made []nested.Node) {
		taken := make(map[string]bool)
		for range 1 + r.IntN(5) {
			n := nested.Node{Key: []string{"a", "ab", "b", "a*", "*", "*b"}[r.IntN(6)], Value: values[r.IntN(len(values))], Limit: limit(int64(r.IntN(3)))}
			if id := n.Key + "=" + n.Value; !taken[id] {
				taken[id] = true
				if depth > 0 {
					n.Nodes = nodes(depth - 1)
				}
				made = append(made, n)
			}
		}
		return made
	}
	bound := 0
	for range 60 {
		tree, _ := mustNew(t, nodes(2))
		for range 60 {
			asked := d("domain=d")
			for range 1 + r.IntN(4) {
				asked = append(asked, policy.Entry{Name: keys[r.IntN(len(keys))], Value: []string{"", "x", "xy", "xyz", "y"}[r.IntN(5)]})
			}
			leaf, _ := tree.Find("d", asked[1:])
			out, err := tree.Decide(asked, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			e := tree.Explain(asked, 1)
			binds := 0
			for i := range e.Rules {
				rule := &e.Rules[i]
				if rule.Binds == (rule.Why != "") {
					t.Fatalf("%v: %+v", asked, rule)
				}
				if rule.Binds {
					binds++
					if leaf.Rule != nil && leaf.Rule.Name() != rule.Rule || leaf.Rule == nil && leaf.Listed.Name != rule.Rule {
						t.Fatalf("%v: %s binds, and %v is found", asked, rule.Rule, leaf)
					}
				}
			}
			if want := leaf != nil; (binds == 1) != want || binds > 1 || len(e.Checks()) != len(out.Checks) || (e.Denied != nil) != (out.Denied != nil) {
				t.Fatalf("%v: %d bind, and %v is found: %s", asked, binds, leaf, e.String())
			}
			bound += binds
		}
	}
	if bound < 300 {
		t.Errorf("only %d were bound", bound)
	}
}
