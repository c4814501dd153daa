package app

import (
	"runtime"
	"testing"
)

// A collection starts later by the reserve at least, as long as the service is there.
// It is not run beside other tests, whose heap would count.
func TestHeapReserve(t *testing.T) {
	const size = 32 << 20
	goal := func() uint64 {
		// What the first one finds may be freed by the second one only.
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.NextGC
	}
	// What is made once and stays is there now.
	first, err := New(t.Context(), Settings{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	before := goal()
	a, err := New(t.Context(), Settings{Listen: "127.0.0.1:0", HeapReserve: size})
	if err != nil {
		t.Fatal(err)
	}
	if with := goal(); with < before+size {
		t.Errorf("the next collection is at %d bytes of heap, and was at %d without the reserve of %d", with, before, size)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

// TestHeapReserveTooLarge: it is for small heaps.
func TestHeapReserveTooLarge(t *testing.T) {
	t.Parallel()
	for _, size := range []int{-1, MaxHeapReserve + 1} {
		if _, err := New(t.Context(), Settings{Listen: "127.0.0.1:0", HeapReserve: size}); err == nil {
			t.Errorf("a reserve of %d bytes is accepted", size)
		}
	}
}
