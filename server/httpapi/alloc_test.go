//go:build !race

package httpapi_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/httpapi"
	"github.com/headgate/headgate/store/memory"
)

// TestAllocations bounds what a decision allocates: the text of its body, which
// keys share, and nothing else. The race detector empties pools at random, so
// this is for builds without it.
func TestAllocations(t *testing.T) {
	set, err := policy.New([]policy.Rule{{Limits: headgate.MustRule("everyone", headgate.PerSecond(1_000_000_000))}})
	if err != nil {
		t.Fatal(err)
	}
	h := httpapi.New(over(set, memory.New()), httpapi.Options{})
	for _, text := range []string{`{"checks":[{"rule":"everyone","key":""}]}`, `{"descriptor":{"ip":"203.0.113.10"}}`} {
		r := httptest.NewRequest(http.MethodPost, "/v1/check", nil)
		r.Header.Set("Content-Type", "application/json")
		r.ContentLength = int64(len(text))
		body := again{strings.NewReader(text)}
		r.Body = body
		w := &discard{make(http.Header)}
		if n := testing.AllocsPerRun(200, func() {
			_, _ = body.Seek(0, io.SeekStart)
			h.ServeHTTP(w, r)
		}); n > 1 {
			t.Errorf("%s: %v allocations, want 1", text, n)
		}
	}
}
