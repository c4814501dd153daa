package accesslog

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSort: records are sorted by time, those of one time by their lines, whether the block has a
// minute, years or millennia.
func TestSort(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, span := range []int64{2, 60, 100 * 24 * 3600, 101 * 24 * 3600, 102 * 24 * 3600, 50 * 365 * 24 * 3600, 99_999_999_999} {
		b := &Batch{format: &Format{parse: func(r *row, off, end int) {
			r.put([]sink{{part: partTime}}, off, end, false)
		}}}
		for range 500 {
			b.buf = fmt.Appendf(b.buf, "%d\n", rng.Int64N(span))
		}
		b.parse()
		if len(b.order) != 500 || b.ordered {
			t.Fatalf("%d records, ordered: %v", len(b.order), b.ordered)
		}
		if !slices.IsSortedFunc(b.order, func(x, y uint32) int {
			return cmp.Or(cmp.Compare(b.records[x].Time, b.records[y].Time), cmp.Compare(x, y))
		}) {
			t.Fatalf("within %d s: the records are not in order", span)
		}
	}
}
