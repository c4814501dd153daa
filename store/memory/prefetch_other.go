//go:build !amd64 && !arm64

package memory

// prefetch does nothing here: a decision waits for its memory when it needs it.
func prefetch(uintptr) {}
