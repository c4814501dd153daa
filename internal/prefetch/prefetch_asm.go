//go:build amd64 || arm64

package prefetch

// At asks for the cache line at addr and the one after it, and waits for neither. Any address will
// do: one that is not mapped is ignored.
//
//go:noescape
func At(addr uintptr)
