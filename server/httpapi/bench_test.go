package httpapi_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/httpapi"
	"github.com/headgate/headgate/store/memory"
)

// over decides by a policy over a store.
func over(set *policy.Set, store headgate.Store) decide.Decider {
	return &decide.Over{Rules: func() decide.Policy { return decide.Policy{Set: set, Version: 1} }, Store: store}
}

// discard is a ResponseWriter that keeps nothing.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

// again is a body that can be read again.
type again struct{ *strings.Reader }

func (again) Close() error { return nil }

// BenchmarkHandler is one request without the server around it, decided by the
// memory store.
func BenchmarkHandler(b *testing.B) {
	set, err := policy.New([]policy.Rule{{
		Limits: headgate.MustRule("auth.createToken", headgate.Sliding(20, time.Minute), headgate.Sliding(5, 3*time.Second)),
		Match:  []policy.Condition{policy.Equal("route", "POST /v1/token")},
		Per:    []policy.Part{{Entry: "user"}},
	}, {
		Limits: headgate.MustRule("everyone", headgate.PerSecond(1_000_000_000)),
	}})
	if err != nil {
		b.Fatal(err)
	}
	for _, bb := range []struct{ name, target, body string }{
		{"checks", "/v1/check", `{"checks":[{"rule":"everyone","key":"","cost":1}]}`},
		{"descriptor", "/v1/check", `{"descriptor":{"user":"user42","ip":"203.0.113.10","route":"POST /v1/token"},"cost":1}`},
		{"status", "/v1/check?status=true", `{"checks":[{"rule":"auth.createToken","key":"user43","cost":6}]}`},
	} {
		b.Run(bb.name, func(b *testing.B) {
			h := httpapi.New(over(set, memory.New()), httpapi.Options{})
			r := httptest.NewRequest(http.MethodPost, bb.target, nil)
			r.Header.Set("Content-Type", "application/json")
			r.ContentLength = int64(len(bb.body))
			body := again{strings.NewReader(bb.body)}
			r.Body = body
			w := &discard{make(http.Header)}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := body.Seek(0, io.SeekStart); err != nil {
					b.Fatal(err)
				}
				h.ServeHTTP(w, r)
			}
		})
	}
}
