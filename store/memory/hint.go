package memory

import (
	"sync/atomic"
	"unsafe"
)

// hint tells where a shard's table lies to who has not locked the shard yet. With
// many keys a decision mostly waits for the memory of its counter, which nothing
// has touched for long: asked for as soon as the hash is known, it is on its way
// while the clock is read and the shard is locked. A hint may be out of date, and
// then the wrong memory is asked for, which does nothing else.
type hint struct {
	base atomic.Uintptr // of the first entry; nothing is read or kept alive by it
	size atomic.Uint64  // how many entries there are
}

// follow makes the hint one of t. The shard is locked.
func (h *hint) follow(t *table) {
	h.base.Store(uintptr(unsafe.Pointer(unsafe.SliceData(t.entries))))
	h.size.Store(uint64(len(t.entries)))
}

// place is the address at which find begins to look for hash.
func (h *hint) place(hash uint64) uintptr {
	return h.base.Load() + uintptr(home(hash, h.size.Load())*entryBytes)
}
