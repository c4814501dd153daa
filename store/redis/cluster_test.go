package redis

import (
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
)

// TestGroups: checks are grouped by slot, and it costs nothing to see that all are in one.
func TestGroups(t *testing.T) {
	s := &Store{prefix: "hg:", cluster: new(cluster)}
	rule := func(name, tag string) *headgate.Rule {
		r, err := headgate.MustRule(name, headgate.PerHour(1)).WithTag(tag)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	same := []headgate.Check{{Rule: rule("a", "x"), Key: "1"}, {Rule: rule("b", "x"), Key: "2"}, {Rule: rule("c", "x"), Key: strings.Repeat("k", headgate.MaxKey)}}
	mixed := []headgate.Check{same[0], {Rule: rule("d", "y"), Key: "1"}, same[1], {Rule: rule("e", "y"), Key: "2"}, {Rule: rule("f", "z"), Key: ""}}
	for _, test := range []struct {
		store  *Store
		checks []headgate.Check
		want   [][]int
	}{
		{s, same[:1], [][]int{{0}}},
		{s, same, [][]int{{0, 1, 2}}},
		{s, mixed, [][]int{{0, 2}, {1, 3}, {4}}},
		{&Store{prefix: "hg:"}, mixed, [][]int{{0, 1, 2, 3, 4}}},
	} {
		groups := test.store.groups(test.checks)
		if len(groups) != len(test.want) {
			t.Fatalf("there are %d groups, want %d", len(groups), len(test.want))
		}
		for i, g := range groups {
			if !slices.Equal(g.places, test.want[i]) {
				t.Errorf("group %d has the checks %v, want %v", i, g.places, test.want[i])
			}
			for j, place := range g.places {
				if g.checks[j].Key != test.checks[place].Key || g.checks[j].Rule != test.checks[place].Rule {
					t.Errorf("group %d has check %d at %d", i, place, j)
				}
			}
		}
	}
	if allocs := testing.AllocsPerRun(100, func() { s.sameSlot(same[:2]) }); allocs != 0 {
		t.Errorf("checks of one slot cost %v allocations", allocs)
	}
}

// TestSplit: each check of a settlement keeps its units, and what was in use of its limits.
func TestSplit(t *testing.T) {
	one, two := headgate.MustRule("one", headgate.PerHour(9)), headgate.MustRule("two", headgate.PerHour(9), headgate.PerMinute(3))
	s := &Store{prefix: "hg:"}
	g := s.groupsOf([]headgate.Check{{Rule: two, Key: "a"}, {Rule: one, Key: "b"}}, []int64{3, 4}, []int64{5, 6, 7})[0]
	parts := g.split()
	if len(parts) != 2 || !slices.Equal(parts[0].used, []int64{5, 6}) || !slices.Equal(parts[1].used, []int64{7}) ||
		!slices.Equal(parts[0].units, []int64{3}) || !slices.Equal(parts[1].units, []int64{4}) || parts[1].places[0] != 1 {
		t.Errorf("got %+v", parts)
	}
}

// TestDenials: a denial is expected while it is probable, and no longer.
func TestDenials(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		rule := headgate.MustRule("r", headgate.Per(10, time.Minute), headgate.Sliding(10, time.Minute))
		limits := rule.Limits()
		table := denials{seed: maphash.MakeSeed()}
		check := headgate.Check{Rule: rule, Key: "k", Cost: 2}
		shadow := check
		shadow.Shadow = true
		two := func(a, b headgate.Decision) []headgate.Decision {
			a.Limit, b.Limit = &limits[0], &limits[1]
			return []headgate.Decision{a, b}
		}
		well := headgate.Decision{Allowed: true, Remaining: 5, ResetAfter: time.Minute}
		for _, c := range []struct {
			name      string
			check     headgate.Check
			decisions []headgate.Decision
			want      time.Duration // for how long a denial is expected
		}{
			{"all is well", check, two(well, well), 0},
			{"denied", check, two(well, headgate.Decision{RetryAfter: 300 * time.Millisecond}), 300 * time.Millisecond},
			{"denied for long", check, two(headgate.Decision{RetryAfter: time.Hour}, well), expectedFor},
			{"can never fit", check, two(headgate.Decision{RetryAfter: headgate.Never}, well), expectedFor},
			{"as much is left as was asked for", check, two(headgate.Decision{Allowed: true, Remaining: 2, ResetAfter: time.Minute}, well), 0},
			{"less is left", check, two(headgate.Decision{Allowed: true, Remaining: 1, ResetAfter: 200 * time.Millisecond}, well), 200 * time.Millisecond},
			{"a shadow is never expected to deny", shadow, two(headgate.Decision{RetryAfter: time.Hour}, well), 0},
			{"well again", check, two(well, well), 0},
		} {
			table.note([]headgate.Check{c.check}, c.decisions)
			if got := table.expect([]headgate.Check{c.check}); got != (c.want > 0) {
				t.Errorf("%s: expected %t", c.name, got)
			}
			if c.want > 0 {
				time.Sleep(c.want - time.Millisecond)
				if !table.expect([]headgate.Check{c.check}) {
					t.Errorf("%s: not expected for %v", c.name, c.want)
				}
				time.Sleep(2 * time.Millisecond)
				if table.expect([]headgate.Check{c.check}) {
					t.Errorf("%s: expected for longer than %v", c.name, c.want)
				}
			}
		}
	})
}

// TestDenialsAreApart: one counter is not taken for another, and any number of
// them takes no more memory.
func TestDenialsAreApart(t *testing.T) {
	table := denials{seed: maphash.MakeSeed()}
	a, b := headgate.MustRule("a", headgate.PerHour(1)), headgate.MustRule("b", headgate.PerHour(1))
	denied := []headgate.Decision{{Limit: &a.Limits()[0], RetryAfter: time.Hour}}
	for i := range 10_000 {
		table.note([]headgate.Check{{Rule: a, Key: strconv.Itoa(i)}}, denied)
	}
	for i := range 10_000 {
		for _, c := range []headgate.Check{{Rule: b, Key: strconv.Itoa(i)}, {Rule: a, Key: "x" + strconv.Itoa(i)}} {
			if table.expect([]headgate.Check{c}) {
				t.Fatalf("%s %s is expected to deny, and was never asked", c.Rule.Name(), c.Key)
			}
		}
	}
	if allocs := testing.AllocsPerRun(100, func() {
		c := headgate.Check{Rule: a, Key: "k"}
		table.note([]headgate.Check{c}, denied)
		table.expect([]headgate.Check{c})
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestSlotOf(t *testing.T) {
	// What CLUSTER KEYSLOT answers.
	tests := []struct {
		key  string
		want uint16
	}{
		{"", 0},
		{"123456789", 0x31c3},
		{"foo", 12182},
		{"{foo}", 12182},
		{"a{foo}b{bar}", 12182},
		{"foo{}{bar}", 8363},
		{"foo{{bar}}zap", 4015},
		{"hg:rule k", 15588},
	}
	for _, test := range tests {
		if got := slotOf(test.key); got != test.want {
			t.Errorf("%q is in slot %d, want %d", test.key, got, test.want)
		}
	}
	if slotOf("foo{}{bar}") == slotOf("bar") || slotOf("{}x") == slotOf("x") || slotOf("{x") == slotOf("x") {
		t.Error("an empty or unclosed tag counts as one")
	}
}

func TestTagOf(t *testing.T) {
	seen := make(map[string]bool, hashSlots)
	for slot := range uint16(hashSlots) {
		tag := tagOf(slot)
		seen[tag] = true
		if got := slotOf("hg:{" + tag + "} anything"); got != slot {
			t.Fatalf("%q is in slot %d, want %d", tag, got, slot)
		}
		for _, c := range tag {
			if c < '@' || c > 'O' {
				t.Fatalf("the tag of slot %d is %q, must have letters from @ to O", slot, tag)
			}
		}
	}
	if len(seen) != hashSlots {
		t.Errorf("there are %d tags for %d slots", len(seen), hashSlots)
	}
}
