package outbound

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"golang.org/x/oauth2"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit/outbound"
	"github.com/headgate/headgate/store/memory"
)

// picky is a partner that refuses the first request of each path, and remembers what it got.
type picky struct {
	mu   sync.Mutex // guards what follows
	seen map[string][]seen
}

// seen is a request as the partner has it.
type seen struct{ token, trace, body string }

func (p *picky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[r.URL.Path] = append(p.seen[r.URL.Path], seen{r.Header.Get("Authorization"), r.Header.Get("Traceparent"), string(body)})
	if len(p.seen[r.URL.Path]) == 1 {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "well")
}

// requests are those of a path.
func (p *picky) requests(path string) []seen {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[path]
}

// tokens gives out another token each time.
type tokens struct {
	mu   sync.Mutex // guards next
	next []string
}

func (s *tokens) Token() (*oauth2.Token, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	token := s.next[0]
	if len(s.next) > 1 {
		s.next = s.next[1:]
	}
	return &oauth2.Token{AccessToken: token, Expiry: time.Now().Add(-time.Minute)}, nil
}

// put sends a request that may be repeated, with a body, and returns the answer.
func put(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader("a body"))
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestUnderOthers: the transport works around and below those for OAuth 2 and for tracing. Each
// attempt has a valid token where authentication is below, and a span of its own where tracing
// is; around it there is one for the call.
func TestUnderOthers(t *testing.T) {
	t.Parallel()
	recorder := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(recorder))
	t.Cleanup(func() { _ = provider.Shutdown(context.WithoutCancel(t.Context())) })
	traced := func(base http.RoundTripper) http.RoundTripper {
		return otelhttp.NewTransport(base, otelhttp.WithTracerProvider(provider), otelhttp.WithPropagators(propagation.TraceContext{}))
	}
	limited := func(base http.RoundTripper) http.RoundTripper {
		rule := headgate.MustRule("partner", headgate.PerSecond(1000))
		transport, err := outbound.New(memory.New(), base, outbound.Config{Backoff: time.Millisecond, Limits: []outbound.Limit{{Rules: []*headgate.Rule{rule}}}})
		if err != nil {
			t.Fatal(err)
		}
		return transport
	}
	authorized := func(base http.RoundTripper, tokens ...string) http.RoundTripper {
		return &oauth2.Transport{Base: base, Source: newTokens(tokens...)}
	}
	p := &picky{seen: make(map[string][]seen)}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	for _, c := range []struct {
		path      string
		transport http.RoundTripper
		tokens    [2]string // of the attempts
		spans     int
	}{
		{"/below", limited(traced(authorized(http.DefaultTransport, "first", "second"))), [2]string{"Bearer first", "Bearer second"}, 2},
		{"/around", authorized(traced(limited(http.DefaultTransport)), "first", "second"), [2]string{"Bearer first", "Bearer first"}, 1},
		{"/between", traced(limited(authorized(http.DefaultTransport, "first", "second"))), [2]string{"Bearer first", "Bearer second"}, 1},
	} {
		before := len(recorder.Ended())
		if got := put(t, &http.Client{Transport: c.transport}, s.URL+c.path); got != "well" {
			t.Errorf("%s: the answer is %q", c.path, got)
		}
		got := p.requests(c.path)
		if len(got) != 2 {
			t.Errorf("%s: there were %d attempts", c.path, len(got))
			continue
		}
		traces := make(map[string]bool)
		for i, r := range got {
			if r.token != c.tokens[i] || r.body != "a body" || r.trace == "" {
				t.Errorf("%s: attempt %d was %+v, want the token %q, the body and a trace", c.path, i+1, r, c.tokens[i])
			}
			traces[r.trace] = true
		}
		if spans := len(recorder.Ended()) - before; spans != c.spans || len(traces) != c.spans {
			t.Errorf("%s: %d spans have ended, and the attempts name %d, want %d", c.path, spans, len(traces), c.spans)
		}
	}
}

func newTokens(next ...string) *tokens { return &tokens{next: next} }

// TestDeniedThroughOthers: a call that is not made says so through the transports around.
func TestDeniedThroughOthers(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(s.Close)
	rule := headgate.MustRule("partner", headgate.Per(1, time.Hour))
	transport, err := outbound.New(memory.New(), nil, outbound.Config{Limits: []outbound.Limit{{Rules: []*headgate.Rule{rule}}}, MaxWait: -1})
	if err != nil {
		t.Fatal(err)
	}
	provider := trace.NewTracerProvider()
	client := &http.Client{Transport: &oauth2.Transport{
		Source: newTokens("a"), Base: otelhttp.NewTransport(transport, otelhttp.WithTracerProvider(provider)),
	}}
	for i := range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(r)
		if err == nil {
			_ = res.Body.Close()
		}
		if denied := errors.Is(err, headgate.ErrDenied); denied != (i == 1) {
			t.Errorf("call %d: %v", i+1, err)
		}
	}
}
