package forwardauth

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/leakwait"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(leakwait.After(m, goleak.Find)) }

// asked is a Decider over a memory store that remembers what it was asked.
type asked struct {
	decide.Over
	clock atomic.Int64
	err   error

	mu   sync.Mutex // guards what follows
	last policy.Descriptor
	ops  []headgate.Op
}

func newAsked(t testing.TB, rules []policy.Rule, opts ...policy.Option) *asked {
	t.Helper()
	set, err := policy.New(rules, append(opts, policy.HashKey([]byte("0123456789abcdef")))...)
	if err != nil {
		t.Fatal(err)
	}
	a := &asked{}
	a.clock.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro())
	a.Over = decide.Over{
		Rules: func() decide.Policy { return decide.Policy{Set: set, Version: 1} },
		Store: memory.New(memory.Clock(a.clock.Load)),
	}
	return a
}

func (a *asked) Take(ctx context.Context, ask *decide.Ask, dst []headgate.Decision) ([]headgate.Decision, error) {
	a.mu.Lock()
	a.last = slices.Clone(ask.Descriptor)
	a.ops = append(a.ops, ask.Op)
	a.mu.Unlock()
	if a.err != nil {
		return dst, a.err
	}
	return a.Over.Take(ctx, ask, dst)
}

// rule is one by some entries with the limits given.
func rule(limits *headgate.Rule, per ...string) policy.Rule {
	r := policy.Rule{Limits: limits}
	for _, entry := range per {
		p := policy.Part{Entry: entry}
		if entry == "ip" {
			p.Bits6 = 64
		}
		r.Per = append(r.Per, p)
	}
	return r
}

func perHour(name string, n int64) *headgate.Rule {
	return headgate.MustRule(name, headgate.PerHour(n))
}

// ask sends what a proxy would, about GET /items/7 of 203.0.113.7 unless the
// headers, given as name, value pairs, say otherwise. An empty value is no header.
func ask(h http.Handler, parameters string, header ...string) *httptest.ResponseRecorder {
	// The client's query is none of its business.
	r := httptest.NewRequest(http.MethodGet, Path+"/?route=client&denied=403&cost=9&x=1", http.NoBody)
	r.URL.RawPath = Path + "/" + parameters
	if plain, err := url.PathUnescape(r.URL.RawPath); err == nil {
		r.URL.Path = plain
	}
	r.RemoteAddr = "127.0.0.1:9999"
	r.Header.Set("X-Forwarded-Method", "GET")
	r.Header.Set("X-Forwarded-Uri", "/items/7")
	r.Header.Set("X-Forwarded-Host", "example.com")
	r.Header.Set("X-Forwarded-For", "203.0.113.7")
	replaced := make(map[string]bool)
	for i := 0; i < len(header); i += 2 {
		if name := http.CanonicalHeaderKey(header[i]); !replaced[name] {
			r.Header.Del(name)
			replaced[name] = true
		}
		if header[i+1] != "" {
			r.Header.Add(header[i], header[i+1])
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// lines are the headers that matter, sorted.
func lines(h http.Header) string {
	var out []string
	for name, values := range h {
		for _, v := range values {
			if name != "Content-Length" {
				out = append(out, name+": "+v)
			}
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

func (a *asked) descriptor() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	for _, e := range a.last {
		out = append(out, fmt.Sprintf("%s=%s", e.Name, e.Value))
	}
	return strings.Join(out, " ")
}
