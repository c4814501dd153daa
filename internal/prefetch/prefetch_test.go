package prefetch

import (
	"testing"
	"unsafe"
)

// TestAnyAddress: At must bear every address, those of no memory among them, and
// change nothing.
func TestAnyAddress(t *testing.T) {
	line := [16]uint64{1, 2, 3}
	before := line
	for _, addr := range []uintptr{0, 1, ^uintptr(0), ^uintptr(63), uintptr(unsafe.Pointer(&line))} {
		At(addr)
	}
	if line != before {
		t.Errorf("the memory became %v", line)
	}
}
