package memory

import (
	"context"
	"strconv"
	"testing"
	"unsafe"

	"github.com/headgate/headgate"
)

// TestViewIsTheTable: whatever a table has grown to, callers without the lock see it.
func TestViewIsTheTable(t *testing.T) {
	s := New()
	check := func(what string) {
		t.Helper()
		for i := range s.shards {
			sh, v := &s.shards[i], s.views[i].Load()
			if &v.entries[0] != &sh.table.entries[0] || len(v.entries) != len(sh.table.entries) || v.sweepAt.Load() != int64(sh.sweepAt) {
				t.Fatalf("%s: the view of shard %d has %d places and is swept at %d, the table has %d, at %d", what, i, len(v.entries), v.sweepAt.Load(), len(sh.table.entries), sh.sweepAt)
			}
		}
	}
	check("empty")
	rule := headgate.MustRule("r", headgate.PerHour(5))
	for i := range 20 * minSize * shards {
		if _, _, _, _, _, _, err := s.TakeSingle(context.Background(), rule, strconv.Itoa(i), 1); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.shards[0].table.entries); n <= minSize {
		t.Fatalf("a shard has %d places still", n)
	}
	check("grown")
}

// TestUsedWhileMoved: callers without the lock may use entries again after a shard has counted the
// ones in use, and before it has moved them. There is room for these entries, and for those that
// the shard needs room for.
func TestUsedWhileMoved(t *testing.T) {
	const used, more = 500, 64
	var tt table
	tt.rebuild(0, 2*used, 0)
	for i := range uint64(used) {
		hash := mix(i, 1)
		*tt.find(hash) = entry{hash: hash, word: 2*grace + i, used: 1, kind: 1, until: isWord}
		tt.filled++
	}
	tt.rebuild(0, minSize, more) // as if all of them had been idle when they were counted
	if tt.filled != used || !tt.room(more) {
		t.Fatalf("%d of %d entries are in %d places, want room for %d more", tt.filled, used, len(tt.entries), more)
	}
	for i := range uint64(used) {
		if e := tt.find(mix(i, 1)); e.hash == 0 || e.word != 2*grace+i {
			t.Fatalf("entry %d became %+v", i, *e)
		}
	}
}

// TestShardsHaveLinesOfTheirOwn: no two shards share a cache line, and an entry lies in one.
func TestShardsHaveLinesOfTheirOwn(t *testing.T) {
	if n := unsafe.Sizeof(shard{}); n%64 != 0 {
		t.Errorf("a shard has %d bytes, want a multiple of 64", n)
	}
	if n := unsafe.Sizeof(entry{}); n != entryBytes {
		t.Errorf("an entry has %d bytes, want %d", n, entryBytes)
	}
}
