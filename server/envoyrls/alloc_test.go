//go:build !race

package envoyrls

import (
	"net/http"
	"testing"
)

// TestAnswerAllocatesLittle: the race detector allocates for itself.
func TestAnswerAllocatesLittle(t *testing.T) {
	s, wire := benchService(t)
	q := &scratch{header: make(http.Header)}
	if n := testing.AllocsPerRun(200, func() { s.once(t, q, wire) }); n > 8 {
		t.Errorf("%v allocations, want 8 at most", n)
	}
}
