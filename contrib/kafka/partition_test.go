package kafka

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headgate/headgate/internal/consume"
)

// TestWindow finishes records in every order that lanes allow, beside an obvious oracle:
// what is committed ends before the first record that is not done, a record begins only
// when those of its key before it are done, and what is counted is what is left.
func TestWindow(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		order := Order(rng.IntN(3))
		p := newPartition(context.Background(), "t", 0, -1)
		var ready []*item
		done := make(map[int64]bool)
		var all []*item
		next := int64(rng.IntN(100))
		first := next
		for len(all) < 100 || len(ready) > 0 {
			if len(all) < 100 && rng.IntN(2) == 0 {
				var key []byte
				if k := rng.IntN(5); k > 0 {
					key = fmt.Append(nil, k)
				}
				it := &item{Item: consume.Item[*kgo.Record]{Message: &kgo.Record{Key: key, Offset: next}}, of: p, size: 1 + rng.Int64N(100)}
				it.done = rng.IntN(10) == 0 // shed
				done[next] = it.done
				next += 1 + rng.Int64N(3) // compacted topics have gaps
				all = append(all, it)
				if p.add(it, order) {
					ready = append(ready, it)
				}
			} else if len(ready) > 0 {
				i := rng.IntN(len(ready))
				it := ready[i]
				ready = slices.Delete(ready, i, i+1)
				for _, before := range all {
					same := order == ByPartition || order == ByKey && it.Message.Key != nil && string(before.Message.Key) == string(it.Message.Key)
					if before.Message.Offset < it.Message.Offset && same && !before.done {
						t.Fatalf("seed %d: offset %d before %d", seed, it.Message.Offset, before.Message.Offset)
					}
				}
				done[it.Message.Offset] = true
				if n := p.finish(it); n != nil {
					ready = append(ready, n)
				}
			}
			p.advance()
			var left int
			var bytes int64
			commit := int64(-1)
			for _, it := range all {
				if left > 0 || !it.done {
					left++
					bytes += it.size
				} else {
					commit = it.Message.Offset + 1
				}
			}
			if len(p.window) != left || p.bytes != bytes || p.next.Offset != commit {
				t.Fatalf("seed %d: %d records, %d bytes, commit %d, want %d, %d, %d (from %d)",
					seed, len(p.window), p.bytes, p.next.Offset, left, bytes, commit, first)
			}
		}
		if len(p.lanes) != 0 {
			t.Fatalf("seed %d: %d lanes are left", seed, len(p.lanes))
		}
	}
}

func TestFetchSize(t *testing.T) {
	for _, tt := range []struct {
		budget           int64
		brokers          int
		expansion        float64
		whole, partition int32
	}{
		{64 << 20, 1, 1, 8 << 20, 1 << 20},
		{64 << 20, 4, 1, 2 << 20, 1 << 19},
		{64 << 20, 1, 8, 1 << 20, 1 << 18},
		{64 << 20, 0, 0, 8 << 20, 1 << 20},
		{1 << 20, 3, 1000, 32 << 10, 8 << 10},
		{1 << 40, 1, 1, 50 << 20, 1 << 20},
	} {
		whole, partition := fetchSize(tt.budget, tt.brokers, tt.expansion)
		if whole != tt.whole || partition != tt.partition {
			t.Errorf("fetchSize(%d, %d, %v) is %d and %d, want %d and %d",
				tt.budget, tt.brokers, tt.expansion, whole, partition, tt.whole, tt.partition)
		}
	}
}
