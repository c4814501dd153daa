//go:build amd64 || arm64

package memory

// prefetch asks for the cache line at addr and the one after it, into which an
// entry's probing may lead, and waits for neither. Any address will do: one that
// is not mapped is ignored.
//
//go:noescape
func prefetch(addr uintptr)
