//go:build !race

package gateway

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/policy"
)

// sink is a client that keeps nothing.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(p []byte) (int, error) { return len(p), nil }
func (s *sink) WriteHeader(int)             {}
func (s *sink) Flush()                      {}

// What is turned away, the gateway turns away with little: under an attack that is
// most of what it does.
func TestAllocationsOfADenial(t *testing.T) {
	g, err := New(t.Context(), decider(t, []policy.Rule{perKey(1)}), to("http://127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	r := httptest.NewRequest(http.MethodGet, "/items/7", http.NoBody)
	r.Header.Set("X-API-Key", "k")
	w := &sink{header: make(http.Header)}
	g.ServeHTTP(w, r) // the one that is admitted
	got := testing.AllocsPerRun(200, func() {
		clear(w.header)
		g.ServeHTTP(w, r)
	})
	// Half of them are the problem document.
	if got > 24 {
		t.Errorf("a denial allocates %v times, want at most 24", got)
	}
}
