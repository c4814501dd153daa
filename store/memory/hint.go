package memory

import (
	"sync/atomic"
	"unsafe"
)

// hint says where a shard's table lies, for callers that have not locked the shard yet. With many
// keys, a decision mostly waits for the memory of its counter, which is in no cache. So a caller
// prefetches that memory as soon as the hash is known, and it arrives while the clock is read and
// the shard is locked. A hint may be out of date. Then the wrong memory is prefetched, which has no
// other effect.
type hint struct {
	base atomic.Uintptr // of the first entry; nothing is read or kept alive by it
	size atomic.Uint64  // how many entries there are
}

// follow makes the hint point to t. The shard is locked.
func (h *hint) follow(t *table) {
	h.base.Store(uintptr(unsafe.Pointer(unsafe.SliceData(t.entries))))
	h.size.Store(uint64(len(t.entries)))
}

// place returns the address at which find begins to look for hash.
func (h *hint) place(hash uint64) uintptr {
	return h.base.Load() + uintptr(home(hash, h.size.Load())*entryBytes)
}
