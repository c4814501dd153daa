package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// randomCondition has few values, so that conditions share them, contain each
// other, and are nested deep.
func randomCondition(r *rand.Rand, hash func(string) string) Condition {
	c := Condition{Entry: []string{"route", "ip", "user", "token", "peer", "plan"}[r.IntN(6)], Not: r.IntN(8) == 0}
	for range r.IntN(4) {
		switch kind := r.IntN(4); {
		case kind == 0 || c.Entry == "plan":
			c.Equals = append(c.Equals, randomValue(r, c.Entry))
		case kind == 1:
			if text := randomValue(r, c.Entry); len(text) > 1 {
				c.Prefixes = append(c.Prefixes, text[:1+r.IntN(len(text)-1)])
			}
		case c.Entry == "token":
			c.Hashes = append(c.Hashes, hash(randomValue(r, c.Entry)))
		default:
			if a, err := netip.ParseAddr(randomValue(r, "ip")); err == nil && !a.Is4In6() {
				n, _ := a.WithZone("").Prefix(r.IntN(a.BitLen() + 1))
				c.Networks = append(c.Networks, n)
			}
		}
	}
	return c
}

func randomValue(r *rand.Rand, entry string) string {
	switch entry {
	case "ip", "peer":
		return []string{
			fmt.Sprintf("10.0.%d.%d", r.IntN(2), r.IntN(4)), fmt.Sprintf("2001:db8::%d", r.IntN(4)),
			fmt.Sprintf("2001:DB8:0::%d", r.IntN(4)), fmt.Sprintf("::ffff:10.0.0.%d", r.IntN(4)), "fe80::1%eth0", "no address",
		}[r.IntN(6)]
	case "plan":
		return string(rune('a' + r.IntN(3)))
	}
	return strings.Repeat("a", r.IntN(9)) + []string{"", "b", "c"}[r.IntN(3)] + "z"
}

// TestIndexKinds is TestIndex for conditions of every kind, and for lists too.
func TestIndexKinds(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 11))
	hashes := mustNew(t, nil, HashKey(newKey))
	old := mustNew(t, nil, HashKey(oldKey))
	hash := func(v string) string {
		if random.IntN(2) == 0 {
			return old.Hash("token", v)
		}
		return hashes.Hash("token", v)
	}
	bound, denied := 0, 0
	for round := range 100 {
		var rules []Rule
		var deny []ListEntry
		for i := range 1 + random.IntN(60) {
			var match []Condition
			for range random.IntN(4) {
				match = append(match, randomCondition(random, hash))
			}
			rules = append(rules, rule(fmt.Sprint("r", i), match))
			if len(match) > 0 {
				deny = append(deny, ListEntry{Name: fmt.Sprint("d", i), Match: append([]Condition{Equal("plan", "b")}, match...)})
			}
		}
		s := mustNew(t, rules, HashKey(newKey), OldHashKey(oldKey), Denied(deny...))
		for range 40 {
			var d Descriptor
			for _, entry := range []string{"route", "ip", "user", "token", "peer", "plan"} {
				if random.IntN(4) > 0 {
					d = append(d, Entry{entry, randomValue(random, entry)})
				}
			}
			holds := func(match []Condition) bool { return holdAll(compileConditions(match, s.hasher), d) }
			var want []string
			if i := slices.IndexFunc(deny, func(e ListEntry) bool { return holds(e.Match) }); i >= 0 {
				want = append(want, "denied by "+deny[i].Name)
				denied++
			} else {
				for i := range rules {
					if holds(rules[i].Match) {
						want = append(want, fmt.Sprintf("%s= %d*1", rules[i].Limits.Name(), rules[i].Limits.Limits()[0].Count))
						bound++
					}
				}
			}
			out, err := s.Decide(d, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := decided(out); got != strings.Join(want, ", ") {
				t.Fatalf("round %d, %v:\ngot  %s\nwant %s", round, d, got, strings.Join(want, ", "))
			}
		}
	}
	if bound < 1000 || denied < 30 {
		t.Errorf("only %d rules bound and %d requests were denied", bound, denied)
	}
}

// manyRules are as many rules, each for something else, of one kind or of each.
func manyRules(n int, kind string) []Rule {
	kinds := []string{"values", "beginnings", "networks"}
	rules := make([]Rule, n)
	for i := range rules {
		k := kind
		if k == "mixed" {
			k = kinds[i%len(kinds)]
		}
		var c Condition
		switch k {
		case "values":
			c = Equal("route", fmt.Sprintf("GET /v1/things%d/items", i))
		case "beginnings":
			c = Prefix("route", fmt.Sprintf("GET /v1/things%d/", i))
		default:
			c = Network("ip", netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24))
		}
		rules[i] = rule(fmt.Sprint("r", i), []Condition{c}, "user")
	}
	return rules
}

func BenchmarkIndex(b *testing.B) {
	for _, kind := range []string{"values", "beginnings", "networks", "mixed"} {
		for _, n := range []int{10, 1000} {
			b.Run(fmt.Sprintf("%s/rules=%d", kind, n), func(b *testing.B) {
				s := mustNew(b, manyRules(n, kind))
				d := Descriptor{{"user", "ada"}, {"ip", "10.0.5.7"}, {"route", "GET /v1/things7/items"}}
				checks := make([]headgate.Check, 0, 8)
				b.ReportAllocs()
				for b.Loop() {
					checks, _ = s.Match(d, 1, checks[:0])
				}
			})
		}
	}
}

// TestIndexDeep: however deep beginnings and networks are nested, the index finds all of them.
func TestIndexDeep(t *testing.T) {
	const deep = 15
	var rules []Rule
	d := Descriptor{{"ip", "10.20.30.40"}, {"peer", "2001:db8::1"}, {"route", strings.Repeat("a", deep)}, {"user", strings.Repeat("b", deep)}}
	for i := range deep {
		a4, _ := netip.MustParseAddr("10.20.30.40").Prefix(i + 1)
		a6, _ := netip.MustParseAddr("2001:db8::1").Prefix(8 * (i + 1))
		rules = append(rules,
			rule(fmt.Sprint("a", i), []Condition{Network("ip", a4)}),
			rule(fmt.Sprint("b", i), []Condition{Network("peer", a6)}),
			rule(fmt.Sprint("c", i), []Condition{Prefix("route", strings.Repeat("a", i+1))}),
			rule(fmt.Sprint("d", i), []Condition{Prefix("user", strings.Repeat("b", i+1))}))
	}
	s := mustNew(t, rules)
	if checks, err := s.Match(d, 1, nil); err != nil || len(checks) != len(rules) {
		t.Errorf("%d of %d rules, %v", len(checks), len(rules), err)
	}
	if n := len(s.index.rest); n != 0 {
		t.Errorf("%d rules are not indexed", n)
	}
}
