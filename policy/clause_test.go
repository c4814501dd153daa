package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// drawClause draws a condition on one of so few values that many conditions have to do with
// each other, and more of them at times than are looked through one by one.
func drawClause(random *rand.Rand) Condition {
	c := Condition{Entry: []string{"ip", "route", "user"}[random.IntN(3)], Not: random.IntN(4) == 0}
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

func drawClauses(random *rand.Rand) []Condition {
	list := make([]Condition, random.IntN(3))
	for i := range list {
		list[i] = drawClause(random)
	}
	return list
}

// TestPatternSets: sets say what looking at each of their patterns says.
func TestPatternSets(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	large := 0
	for range 3000 {
		c, d := drawClause(random), drawClause(random)
		a, b := newPatternSet(c.patterns()), newPatternSet(d.patterns())
		if len(a.list) > smallSet {
			large++
		}
		meet := false
		for _, q := range b.list {
			covered := slices.ContainsFunc(a.list, func(p pattern) bool { return p.covers(q) })
			if got := a.covers(q); got != covered {
				t.Fatalf("%v covers %v: %v, want %v", a.list, q, got, covered)
			}
			meet = meet || slices.ContainsFunc(a.list, func(p pattern) bool {
				return p.covers(q) || q.covers(p) || p.hash != q.hash || p.prefix && q.network.IsValid() || q.prefix && p.network.IsValid()
			})
		}
		if got := a.meets(b); got != meet {
			t.Fatalf("%v meets %v: %v, want %v", a.list, b.list, got, meet)
		}
		if got := len(a.and(b).list) > 0; got != meet {
			t.Fatalf("%v and %v have something in common: %v, want %v", a.list, b.list, got, meet)
		}
	}
	if large < 100 {
		t.Errorf("%d large sets were drawn", large)
	}
}

// TestCoverersMissNothing: whatever follows from conditions is found, in order and
// once.
func TestCoverersMissNothing(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 8))
	lists := make([][]clause, 400)
	for i := range lists {
		lists[i] = newClauses(drawClauses(random))
	}
	c := newCoverers(lists)
	follow, offered := 0, 0
	for range 1000 {
		given := newClauses(drawClauses(random))
		var found []int32
		c.each(given, func(i int32) bool {
			if len(found) > 0 && found[len(found)-1] >= i {
				t.Fatalf("%d comes after %v", i, found)
			}
			found = append(found, i)
			return false
		})
		offered += len(found)
		for i := range lists {
			if !implied(given, lists[i]) {
				continue
			}
			if len(lists[i]) > 0 {
				follow++
			}
			if _, ok := slices.BinarySearch(found, int32(i)); !ok {
				t.Fatalf("%v follows from %v and is not found", lists[i], given)
			}
		}
	}
	if follow < 1000 || offered > 1000*len(lists)/2 {
		t.Errorf("%d follow, and %d were offered", follow, offered)
	}
}

// TestAlikesMissNothing: whoever may count the same requests is found.
func TestAlikesMissNothing(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(9, 10))
	alike := newAlikes()
	meet, offered := 0, 0
	for range 600 {
		b := &bounds{match: newClauses(drawClauses(random))}
		found := alike.near(b.match)
		slices.Sort(found)
		found = slices.Compact(found)
		offered += len(found)
		for i, a := range alike.all {
			if !mayMeet(a.match, b.match) {
				continue
			}
			meet++
			if _, ok := slices.BinarySearch(found, int32(i)); !ok {
				t.Fatalf("%v may meet %v and is not found", a.match, b.match)
			}
		}
		alike.add(b)
	}
	if pairs := 600 * 599 / 2; meet < 1000 || meet == offered || offered == pairs {
		t.Errorf("of %d pairs %d may meet, and %d were offered", pairs, meet, offered)
	}
}

// TestLintHasAnEnd: of rules that all may have to do with each other some are compared,
// and the first of the others is told of. Rules that differ by a value are all compared.
func TestLintHasAnEnd(t *testing.T) {
	t.Parallel()
	const n = 6000
	for name, match := range map[string]func(i int) Condition{
		"present":  func(int) Condition { return Present("x") },
		"not":      func(i int) Condition { return Condition{Entry: "x", Not: true, Equals: []string{fmt.Sprint(i)}} },
		"by route": func(i int) Condition { return Equal("route", fmt.Sprint("/", i)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules := make([]Rule, n)
			for i := range rules {
				rules[i] = rule(fmt.Sprint("r", i), []Condition{match(i)}, "user")
			}
			rules[n-2] = rule("one", []Condition{Equal("route", "/a", "/b")}, "user")
			rules[n-1] = rule("other", []Condition{Equal("route", "/b", "/c")}, "user")
			uncaught, twice := 0, 0
			var unseen []Warning
			for _, w := range LintAll(mustNew(t, rules)) {
				switch w.Code {
				case CodeUncaught:
					uncaught++
				case CodeUnseen:
					unseen = append(unseen, w)
				case CodeTwice:
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
	deny := make([]ListEntry, n)
	rules := make([]Rule, n)
	paths := make([]string, MaxValues)
	for i := range paths {
		paths[i] = fmt.Sprint("/x", i)
	}
	for i := range n {
		a := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0})
		deny[i] = ListEntry{Name: fmt.Sprint("d", i), Match: []Condition{Network("ip", netip.PrefixFrom(a, 24))}}
		a = netip.AddrFrom4([4]byte{11, byte(i >> 8), byte(i), 0})
		rules[i] = rule(fmt.Sprint("r", i), []Condition{Network("ip", netip.PrefixFrom(a, 24)), Prefix("path", fmt.Sprintf("/y%d/", i))}, "user")
	}
	deny[n/2] = ListEntry{Name: "many", Match: []Condition{Prefix("path", paths...)}}
	for _, limited := range []string{"deny", "allow"} {
		option := WithDenied(deny...)
		if limited == "allow" {
			option = WithAllowed(deny...)
		}
		s := mustNew(t, rules, option)
		if allocs := testing.AllocsPerRun(1, func() { LintAll(s) }); allocs > 100*n {
			t.Errorf("%s list: %.0f allocations for %d rules and as many entries, want at most 100 for each", limited, allocs, n)
		}
	}
}
