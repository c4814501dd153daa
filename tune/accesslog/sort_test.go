package accesslog

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSort: records are sorted by time, those of one time by their lines, whether the block has a
// minute or years.
func TestSort(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, span := range []int64{2, 60, 100 * 24 * 3600, 101 * 24 * 3600, 102 * 24 * 3600, 50 * 365 * 24 * 3600} {
		b := &Batch{format: &Format{parse: func(r *row, off, end int) {
			r.put([]sink{{part: partTime}}, off, end, false)
		}}}
		for range 500 {
			b.buf = fmt.Appendf(b.buf, "%d\n", rng.Int64N(span))
		}
		b.parse()
		if len(b.records) != 500 || b.ordered {
			t.Fatalf("%d records, ordered: %v", len(b.records), b.ordered)
		}
		if !slices.IsSortedFunc(b.records, func(x, y Record) int { return cmp.Or(cmp.Compare(x.Time, y.Time), cmp.Compare(x.line, y.line)) }) {
			t.Fatalf("within %d s: the records are not in order", span)
		}
	}
}
