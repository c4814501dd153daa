package memory

import (
	"testing"
	"unsafe"
)

// TestShardsHaveLinesOfTheirOwn: no two shards share a cache line, and an entry lies in one.
func TestShardsHaveLinesOfTheirOwn(t *testing.T) {
	if n := unsafe.Sizeof(shard{}); n%64 != 0 {
		t.Errorf("a shard has %d bytes, want a multiple of 64", n)
	}
	if n := unsafe.Sizeof(entry{}); n != entryBytes {
		t.Errorf("an entry has %d bytes, want %d", n, entryBytes)
	}
}
