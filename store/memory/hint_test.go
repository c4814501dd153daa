package memory

import (
	"context"
	"strconv"
	"testing"
	"unsafe"

	"github.com/headgate/headgate"
)

// TestHintFollowsItsTable: whatever a table has grown to, its hint leads to where
// find begins to look.
func TestHintFollowsItsTable(t *testing.T) {
	s := New()
	check := func(what string) {
		t.Helper()
		for i := range s.shards {
			sh := &s.shards[i]
			for _, hash := range []uint64{1, 1 << 40, 1<<63 + 1, 1<<64 - 1} {
				first := &sh.table.entries[home(hash, uint64(len(sh.table.entries)))]
				if got, want := sh.hint.place(hash), uintptr(unsafe.Pointer(first)); got != want {
					t.Fatalf("%s: shard %d with %d places: the hint for %#x is %#x, want %#x", what, i, len(sh.table.entries), hash, got, want)
				}
			}
		}
	}
	check("empty")
	rule := headgate.MustRule("r", headgate.PerHour(5))
	for i := range 20 * minSize * shards {
		if _, err := s.TakeSingle(context.Background(), rule, strconv.Itoa(i), 1); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.shards[0].table.entries); n <= minSize {
		t.Fatalf("a shard has %d places still", n)
	}
	check("grown")
}

// TestPrefetchOfAnyAddress: a hint may be out of date, so prefetch must bear every
// address, those of no memory among them, and change nothing.
func TestPrefetchOfAnyAddress(t *testing.T) {
	line := [16]uint64{1, 2, 3}
	before := line
	for _, addr := range []uintptr{0, 1, ^uintptr(0), ^uintptr(63), uintptr(unsafe.Pointer(&line))} {
		prefetch(addr)
	}
	if line != before {
		t.Errorf("the memory became %v", line)
	}
}
