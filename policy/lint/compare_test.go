package lint

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/policy"
)

// smallSet is how many values a small condition has.
const smallSet = 8

// drawCondition draws a condition on one of so few values that many conditions have to do with
// each other, and more of them at times than are looked through one by one.
func drawCondition(random *rand.Rand) policy.Condition {
	c := policy.Condition{Entry: []string{"ip", "route", "user"}[random.IntN(3)], Not: random.IntN(4) == 0}
	if random.IntN(6) == 0 {
		return c
	}
	for range 1 + random.IntN(2)*random.IntN(3*smallSet) {
		digits := fmt.Sprint(random.IntN(200))
		switch random.IntN(5) {
		case 0, 1:
			if c.Entry == "ip" {
				digits = "10.0.0." + digits
			}
			c.Equals = append(c.Equals, digits)
		case 2:
			c.Prefixes = append(c.Prefixes, digits)
		case 3:
			a := netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(200))})
			c.Networks = append(c.Networks, netip.PrefixFrom(a, 20+random.IntN(13)).Masked())
		case 4:
			if random.IntN(8) == 0 {
				c.Hashes = append(c.Hashes, digits)
			}
		}
	}
	return c
}

func drawConditions(random *rand.Rand) []policy.Condition {
	list := make([]policy.Condition, random.IntN(3))
	for i := range list {
		list[i] = drawCondition(random)
	}
	return list
}

// covers is what values.cover says of one of its patterns, looked at by itself.
func covers(p, q pattern) bool {
	a, isAddress := address(q.text)
	switch {
	case p == q:
		return true
	case p.kind == prefixKind && q.kind&(wholeKind|prefixKind) != 0:
		return strings.HasPrefix(q.text, p.text)
	case p.kind == networkKind && q.kind == networkKind:
		return p.network.Bits() <= q.network.Bits() && p.network.Contains(q.network.Addr())
	}
	return p.kind == networkKind && q.kind == wholeKind && isAddress && p.network.Contains(a)
}

// TestValues: a condition's values say what looking at each of them says.
func TestValues(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	large := 0
	for range 3000 {
		c, d := drawCondition(random), drawCondition(random)
		a, b := newValues(&c), newValues(&d)
		if len(a.list) > smallSet {
			large++
		}
		meet, all := false, true
		for _, q := range b.list {
			covered := slices.ContainsFunc(a.list, func(p pattern) bool { return covers(p, q) })
			if got := a.cover(q); got != covered {
				t.Fatalf("%v covers %v: %v, want %v", a.list, q, got, covered)
			}
			all = all && covered
			meet = meet || slices.ContainsFunc(a.list, func(p pattern) bool {
				return covers(p, q) || covers(q, p) || p.kind != q.kind && (p.kind|q.kind)&hashKind != 0 || p.kind|q.kind == prefixKind|networkKind
			})
		}
		if got := a.coverAll(b); got != all {
			t.Fatalf("%v covers all of %v: %v, want %v", a.list, b.list, got, all)
		}
		if got := a.meet(b); got != meet {
			t.Fatalf("%v meets %v: %v, want %v", a.list, b.list, got, meet)
		}
		if c.Entry = d.Entry; len(a.list) > 0 && len(b.list) > 0 {
			if got := len(common([]*condition{{&c, a}, {&d, b}})) > 0; got != meet {
				t.Fatalf("%v and %v have something in common: %v, want %v", a.list, b.list, got, meet)
			}
		}
	}
	if large < 100 {
		t.Errorf("%d large sets were drawn", large)
	}
}

// descriptorOf draws facts that may meet the conditions that drawCondition draws.
func descriptorOf(random *rand.Rand) policy.Descriptor {
	var d policy.Descriptor
	for _, name := range []string{"ip", "route", "user"} {
		value := fmt.Sprint(random.IntN(200))
		switch {
		case random.IntN(4) == 0:
			continue
		case name == "ip" && random.IntN(3) > 0:
			value = "10.0.0." + value
		}
		d = append(d, policy.Entry{Name: name, Value: value})
	}
	return d
}

// TestImplicationsAreSound: a policy binds by each rule that follows from one that it binds
// by, and by no two that contradict each other.
func TestImplicationsAreSound(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(11, 12))
	follow, apart := 0, 0
	for range 25 {
		rules := make([]policy.Rule, 40)
		for i := range rules {
			rules[i] = ruleOf(fmt.Sprint("r", i), drawConditions(random))
			for j := range rules[i].Match {
				rules[i].Match[j].Hashes = nil // No value that is drawn has the hash.
			}
		}
		l := newLinter(mustNew(t, rules))
		for range 40 {
			checks, err := l.set.Match(descriptorOf(random), 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			binds := make(map[int]bool)
			for _, c := range checks {
				binds[l.places[c.Rule.Name()]] = true
			}
			for i := range binds {
				for j := range l.rules {
					if len(l.rules[j].match) > 0 && i != j && implied(l.rules[i].match, l.rules[j].match) {
						follow++
						if !binds[j] {
							t.Fatalf("%+v binds a request that %+v does not bind", l.rules[i].Match, l.rules[j].Match)
						}
					}
					if contradiction(slices.Concat(l.rules[i].match, l.rules[j].match), nil, l.set.Secret) != "" {
						apart++
						if binds[j] {
							t.Fatalf("%+v and %+v bind one request", l.rules[i].Match, l.rules[j].Match)
						}
					}
				}
			}
		}
	}
	if follow < 1000 || apart < 1000 {
		t.Errorf("%d rules were seen to follow from others, and %d to contradict others", follow, apart)
	}
}

// show writes conditions for a message.
func show(list []condition) string {
	var texts []string
	for _, c := range list {
		texts = append(texts, fmt.Sprintf("%+v", *c.Condition))
	}
	return strings.Join(texts, " and ")
}

// drawn returns lists of conditions drawn at random.
func drawn(random *rand.Rand, n int) [][]condition {
	lists := make([][]condition, n)
	for i := range lists {
		lists[i] = newConditions(drawConditions(random))
	}
	return lists
}

// TestGroupsMissNothingImplied: whatever follows from conditions is found, in order and
// once.
func TestGroupsMissNothingImplied(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 8))
	lists := drawn(random, 400)
	g := newGroups(lists)
	follow, offered := 0, 0
	for range 1000 {
		given := newConditions(drawConditions(random))
		found := g.implied(given)
		if !slices.IsSorted(found) || len(slices.Compact(slices.Clone(found))) != len(found) {
			t.Fatalf("%v are not in order", found)
		}
		offered += len(found)
		for i := range lists {
			if !implied(given, lists[i]) {
				continue
			}
			if len(lists[i]) > 0 {
				follow++
			}
			if _, ok := slices.BinarySearch(found, i); !ok {
				t.Fatalf("%s follows from %s and is not found", show(lists[i]), show(given))
			}
		}
	}
	if follow < 1000 || offered > 1000*len(lists)*2/3 {
		t.Errorf("%d follow, and %d were offered", follow, offered)
	}
}

// TestLintHasAnEnd: of rules that all may have to do with each other some are compared,
// and the first of the others is told of. Rules that differ by a value are all compared.
func TestLintHasAnEnd(t *testing.T) {
	t.Parallel()
	const n = 6000
	for name, match := range map[string]func(i int) policy.Condition{
		"present": func(int) policy.Condition { return policy.Present("x") },
		"not": func(i int) policy.Condition {
			return policy.Condition{Entry: "x", Not: true, Equals: []string{fmt.Sprint(i)}}
		},
		"by route": func(i int) policy.Condition { return policy.Equal("route", fmt.Sprint("/", i)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := make([]policy.Rule, n)
			for i := range rules {
				rules[i] = ruleOf(fmt.Sprint("r", i), []policy.Condition{match(i)}, "user")
			}
			rules[n-2] = ruleOf("one", []policy.Condition{policy.Equal("route", "/a", "/b")}, "user")
			rules[n-1] = ruleOf("other", []policy.Condition{policy.Equal("route", "/b", "/c")}, "user")
			uncaught, twice := 0, 0
			var unseen []Warning
			for _, w := range All(mustNew(t, rules)) {
				switch w.Code {
				case Uncaught:
					uncaught++
				case Unseen:
					unseen = append(unseen, w)
				case Twice:
					twice++
				}
			}
			if name == "by route" {
				if uncaught != n || len(unseen) != 0 || twice != 1 {
					t.Errorf("%d rules let requests pass, %d count twice, and %v; want %d, 1 and no more", uncaught, twice, unseen, n)
				}
				return
			}
			// What comes first is looked at whole.
			if uncaught < 100 || uncaught >= n || len(unseen) != 1 {
				t.Fatalf("%d rules of %d let requests pass, and %v; want some hundreds and one warning of the others", uncaught, n, unseen)
			}
			first, left := 0, 0
			if _, err := fmt.Sscanf(unseen[0].Rule+" "+unseen[0].Text, "r%d it has not been compared with all other rules, and neither have %d others", &first, &left); err != nil {
				t.Fatal(err)
			}
			if first == 0 || first > uncaught || left < n-uncaught-3 || left >= n-first {
				t.Errorf("the warning is of rule %q and %d others of %d, of which %d are known to let requests pass", unseen[0].Rule, left, n, uncaught)
			}
		})
	}
}

// TestLintOfManyRules: a policy as large as is allowed is linted within seconds, since
// servers do it when they start. What is compared with all others is not taken apart
// anew each time.
func TestLintOfManyRules(t *testing.T) {
	const n = 1000
	deny := make([]policy.ListEntry, n)
	rules := make([]policy.Rule, n)
	paths := make([]string, policy.MaxValues)
	for i := range paths {
		paths[i] = fmt.Sprint("/x", i)
	}
	for i := range n {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0})
		deny[i] = policy.ListEntry{Name: fmt.Sprint("d", i), Match: []policy.Condition{policy.Network("ip", netip.PrefixFrom(a, 24))}}
		a = netip.AddrFrom4([4]byte{11, byte(i >> 8), byte(i), 0})
		rules[i] = ruleOf(fmt.Sprint("r", i), []policy.Condition{policy.Network("ip", netip.PrefixFrom(a, 24)), policy.Prefix("path", fmt.Sprintf("/y%d/", i))}, "user")
	}
	deny[n/2] = policy.ListEntry{Name: "many", Match: []policy.Condition{policy.Prefix("path", paths...)}}
	for _, limited := range []string{"deny", "allow"} {
		option := policy.Denied(deny...)
		if limited == "allow" {
			option = policy.Allowed(deny...)
		}
		s := mustNew(t, rules, option)
		if allocs := testing.AllocsPerRun(1, func() { All(s) }); allocs > 100*n {
			t.Errorf("%s list: %.0f allocations for %d rules and as many entries, want at most 100 for each", limited, allocs, n)
		}
	}
}
