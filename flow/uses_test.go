package flow_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headgate/headgate/flow"
)

// TestUses: the keys with most in use are kept, in order, and the others counted.
func TestUses(t *testing.T) {
	t.Parallel()
	for most := range 12 {
		var all []flow.Use
		for i := range 10 {
			all = append(all, flow.Use{Key: fmt.Sprint(i), InUse: rand.Int64N(4), Waiting: rand.Int64N(3)})
		}
		uses := flow.Uses{Most: most}
		for _, u := range all {
			uses.Add(u)
		}
		slices.SortFunc(all, func(a, b flow.Use) int {
			return cmp.Or(-cmp.Compare(a.InUse, b.InUse), -cmp.Compare(a.Waiting, b.Waiting), cmp.Compare(a.Key, b.Key))
		})
		if want := all[:min(most, 10)]; !slices.Equal(uses.List, want) || uses.More != int64(10-len(want)) {
			t.Errorf("%d kept: %v and %d more, want %v", most, uses.List, uses.More, want)
		}
	}
}
