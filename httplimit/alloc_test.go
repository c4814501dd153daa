//go:build !race

// The race detector makes sync.Pool drop what it is given, and so allocate.

package httplimit

import (
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// discard is a ResponseWriter whose headers are used again, so that only the
// middleware's own allocations are counted.
type discard struct{ h http.Header }

func (d *discard) Header() http.Header         { return d.h }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

var empty = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// request is one from that address, with the headers.
func request(remote string, header map[string][]string) *http.Request {
	return &http.Request{Method: "GET", RemoteAddr: remote, Header: maps.Clone(http.Header(header))}
}

// cases are admitted requests with what each may allocate.
func cases(t testing.TB) []allocCase {
	t.Helper()
	set, err := policy.New([]policy.Rule{
		{Limits: plenty("route"), Match: []policy.Condition{policy.Equal("route", "GET /")}, Per: []policy.Part{{Entry: "ip", Bits6: 64}}},
		{Limits: plenty("key"), Per: []policy.Part{{Entry: "api_key"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	direct := request("203.0.113.7:1234", nil)
	direct.Pattern = "GET /"
	forwarded := request("127.0.0.1:1234", map[string][]string{"X-Forwarded-For": {"1.1.1.1, 203.0.113.7"}})
	v6 := request("[2001:db8::7]:1234", nil)
	keyed := request("203.0.113.7:1234", map[string][]string{"X-Api-Key": {"k"}})
	keyed.Pattern = "GET /"
	trust := TrustProxies(XForwardedFor, "127.0.0.0/8")
	return []allocCase{
		{"by address, no headers", direct, []Option{Limit(ByIP(), plenty("a")), Headers(NoHeaders)}, 0},
		{"by address", direct, []Option{Limit(ByIP(), plenty("a"))}, 2},
		{"by address, draft-11", direct, []Option{Limit(ByIP(), plenty("a")), Headers(Draft11)}, 2},
		{"by forwarded address", forwarded, []Option{Limit(ByIP(), plenty("a")), trust}, 2},
		{"by IPv6 address", v6, []Option{Limit(ByIP(), plenty("a"))}, 4},
		{"by API key", keyed, []Option{Limit(ByAPIKey(), plenty("a"))}, 3},
		{"by route", direct, []Option{Limit(ByRoute(), plenty("a"))}, 2},
		{"three limits", keyed, []Option{Limit(ByAPIKey(), plenty("a")), Limit(ByIP(), plenty("b")), Limit(Everyone(), plenty("c"))}, 3},
		{"a policy of two rules", keyed, []Option{Policy(set)}, 3},
	}
}

type allocCase struct {
	name string
	r    *http.Request
	opts []Option
	most float64
}

func plenty(name string) *headgate.Rule {
	return headgate.MustRule(name, headgate.Per(1_000_000_000, time.Second))
}

// Not parallel: other tests' allocations would be counted.
func TestAllocations(t *testing.T) {
	for _, tt := range cases(t) {
		m, err := New(newClock().store(), tt.opts...)
		if err != nil {
			t.Fatal(err)
		}
		h := m(empty)
		w := &discard{http.Header{}}
		h.ServeHTTP(w, tt.r)
		if got := testing.AllocsPerRun(200, func() { h.ServeHTTP(w, tt.r) }); got > tt.most {
			t.Errorf("%s: %v allocations, may have %v", tt.name, got, tt.most)
		}
	}
}

func BenchmarkMiddleware(b *testing.B) {
	for _, bb := range cases(b) {
		b.Run(bb.name, func(b *testing.B) {
			m, err := New(newClock().store(), bb.opts...)
			if err != nil {
				b.Fatal(err)
			}
			h := m(empty)
			w := &discard{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(w, bb.r)
			}
		})
	}
}
