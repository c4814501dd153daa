package lint

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// TestLongWaysAround has circles that take long to be found: each begins with the next
// fifty of a long row, whose end leads to its beginning only. Not all are looked for, and
// the last warning says how many are left.
func TestLongWaysAround(t *testing.T) {
	t.Parallel()
	const n = 3000
	rules := make([]policy.Rule, n)
	for i := range rules {
		var replaces []string
		for j := i + 1; j < min(i+50, n); j++ {
			replaces = append(replaces, fmt.Sprint("r", j))
		}
		if i == n-1 {
			replaces = []string{"r0"}
		}
		rules[i] = policy.Rule{Limits: headgate.MustRule(fmt.Sprint("r", i), headgate.PerMinute(9)), Match: []policy.Condition{policy.Present("x")}, Replaces: replaces}
	}
	s, err := policy.New(rules)
	if err != nil {
		t.Fatal(err)
	}
	l := newLinter(s)
	l.circles()
	told := make(map[string]bool)
	last := len(l.warnings) - 1
	if last < 10 || last > n/4 {
		t.Fatalf("%d warnings", last+1)
	}
	// The middles of these circles are left out of the texts, so that they are found again.
	g := newReplacements(l)
	for _, w := range l.warnings[:last] {
		at := l.places[w.Rule]
		circle, _ := g.circle(at)
		for _, in := range circle {
			told[g.nodes[in].name] = true
		}
	}
	if want := fmt.Sprintf("it is in a circle of replaces as well, and so are %d others that are not listed;", n-len(told)-1); told[l.warnings[last].Rule] || !strings.HasPrefix(l.warnings[last].Text, want) {
		t.Errorf("%s: %s\nwant %s", l.warnings[last].Rule, l.warnings[last].Text, want)
	}
}

// TestGroupsMissNothingMeeting: whatever a request may meet besides is found, in order and
// once.
func TestGroupsMissNothingMeeting(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(9, 10))
	lists := drawn(random, 600)
	g := new(groups)
	meet, offered := 0, 0
	for n, list := range lists {
		found := g.meeting(list)
		if !slices.IsSorted(found) || len(slices.Compact(slices.Clone(found))) != len(found) {
			t.Fatalf("%v are not in order", found)
		}
		offered += len(found)
		for i, other := range lists[:n] {
			if apart(other, list) || contradiction(slices.Concat(other, list), nil, func(string) bool { return false }) != "" {
				continue
			}
			meet++
			if _, ok := slices.BinarySearch(found, i); !ok {
				t.Fatalf("%s may meet %s and is not found", show(other), show(list))
			}
		}
		g.add(n, list)
	}
	if pairs := 600 * 599 / 2; meet < 1000 || meet == offered || offered == pairs {
		t.Errorf("of %d pairs %d may meet, and %d were offered", pairs, meet, offered)
	}
}
