package redis

import (
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// TestAppendKey: names are unlike for unlike counters, and only a tag stands in braces.
func TestAppendKey(t *testing.T) {
	plain := headgate.MustRule("r", headgate.PerHour(1))
	tagged, err := plain.WithTag("t")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		rule      *headgate.Rule
		key, want string
	}{
		{plain, "", "hg:r "},
		{plain, "k", "hg:r k"},
		{plain, " k ", "hg:r  k "},
		{plain, "{k}", "hg:r %7Bk%7D"},
		{plain, "%7Bk%7D", "hg:r %257Bk%257D"},
		{plain, "}}{{", "hg:r %7D%7D%7B%7B"},
		{plain, "50%", "hg:r 50%25"},
		{tagged, "k", "hg:r{t} k"},
		{tagged, "{x}", "hg:r{t} %7Bx%7D"},
	} {
		if got := string(appendKey(nil, "hg:", &headgate.Check{Rule: c.rule, Key: c.key})); got != c.want {
			t.Errorf("%q is %q, want %q", c.key, got, c.want)
		}
	}
}

// TestBySlot: checks of one slot are one group, or none at all if they are all.
func TestBySlot(t *testing.T) {
	s := &Store{prefix: "hg:"}
	rule := func(name, tag string) *headgate.Rule {
		r, err := headgate.MustRule(name, headgate.PerHour(1)).WithTag(tag)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	alike := []headgate.Check{{Rule: rule("a", "x"), Key: "1"}, {Rule: rule("b", "x"), Key: "2"}, {Rule: rule("c", "x"), Key: strings.Repeat("k", headgate.MaxKey)}}
	if got := s.bySlot(alike); got != nil {
		t.Errorf("checks of one slot are %d groups", len(got))
	}
	if got := s.bySlot(alike[:1]); got != nil {
		t.Errorf("one check is %d groups", len(got))
	}
	mixed := []headgate.Check{alike[0], {Rule: rule("d", "y"), Key: "1"}, alike[1], {Rule: rule("e", "y"), Key: "2"}, {Rule: rule("f", "z"), Key: ""}}
	groups := s.bySlot(mixed)
	want := [][]int{{0, 2}, {1, 3}, {4}}
	if len(groups) != len(want) {
		t.Fatalf("there are %d groups, want %d", len(groups), len(want))
	}
	for i, g := range groups {
		for j, place := range g.places {
			if place != want[i][j] || g.checks[j].Key != mixed[place].Key || g.checks[j].Rule != mixed[place].Rule {
				t.Errorf("group %d has check %d at %d", i, place, j)
			}
		}
	}
	if allocs := testing.AllocsPerRun(100, func() { s.bySlot(alike[:2]) }); allocs != 0 {
		t.Errorf("checks of one slot cost %v allocations", allocs)
	}
}

// FuzzAppendKey: no two keys have one name, and no key steers its slot.
func FuzzAppendKey(f *testing.F) {
	f.Add("a", "b")
	f.Add("{a}", "%7Ba%7D")
	f.Add("%", "%25")
	rule := headgate.MustRule("r", headgate.PerHour(1))
	f.Fuzz(func(t *testing.T, a, b string) {
		first := string(appendKey(nil, "hg:", &headgate.Check{Rule: rule, Key: a}))
		second := string(appendKey(nil, "hg:", &headgate.Check{Rule: rule, Key: b}))
		if (a == b) != (first == second) {
			t.Errorf("%q is %q, and %q is %q", a, first, b, second)
		}
		if slotOf(first) != crc16(first)%hashSlots {
			t.Errorf("%q has a part that chooses its slot", first)
		}
	})
}
