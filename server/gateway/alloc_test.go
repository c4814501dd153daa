//go:build !race

package gateway

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
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

// document is an upstream server that answers at once.
type document struct{}

func (document) RoundTrip(r *http.Request) (*http.Response, error) {
	h := http.Header{"Content-Type": {"text/plain"}, "Content-Length": {"2"}, "Cache-Control": {"private"}, "Etag": {`"1"`}}
	return &http.Response{StatusCode: http.StatusOK, Header: h, ContentLength: 2, Body: io.NopCloser(strings.NewReader("ok")), Request: r}, nil
}

// The gateway adds few allocations to those of net/http.
func TestAllocationsOfAForward(t *testing.T) {
	g, err := New(t.Context(), decider(t, []policy.Rule{perKey(1000)}), to("http://127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	g.current.Load().pools[0].targets[0].sender = document{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/items/7", http.NoBody)
	for _, name := range []string{"X-API-Key", "User-Agent", "Accept", "Accept-Encoding"} {
		r.Header.Set(name, "k")
	}
	w := &sink{header: make(http.Header)}
	serve := func() {
		clear(w.header)
		g.ServeHTTP(w, r)
	}
	serve()
	if w.header.Get("Etag") != `"1"` || w.header.Get("X-Ratelimit-Limit") == "" {
		t.Fatalf("the answer has the headers %v", w.header)
	}
	// Most of them are those of the answer, the proxy and the transport.
	if got := testing.AllocsPerRun(200, serve); got > 27 {
		t.Errorf("a request that is passed on allocates %v times, want at most 27", got)
	}
}
