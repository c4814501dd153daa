package gateway

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store/memory"
)

// within bounds everything that a test waits for.
const within = 2 * time.Minute

// perKey admits n requests an hour for each API key.
func perKey(n int64, bounds ...policy.InProgress) policy.Rule {
	r := policy.Rule{Per: []policy.Part{{Entry: "api_key"}}, Limits: headgate.MustRule("per-key", headgate.PerHour(n))}
	for i := range bounds {
		r.InProgress = &bounds[i]
	}
	return r
}

// stopped is the clock of the stores: answers do not depend on how long a test takes.
func stopped() int64 { return 1_700_000_000_000_000 }

// decider decides by rules, on a memory store.
func decider(t testing.TB, rules []policy.Rule, opts ...policy.Option) *decide.Over {
	t.Helper()
	set, err := policy.New(rules, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return &decide.Over{Rules: func() decide.Policy { return decide.Policy{Set: set, Version: 1} }, Store: memory.New(memory.Clock(stopped))}
}

// failing is a store that does not answer.
type failing struct{}

func (failing) Take(context.Context, headgate.Op, []headgate.Check, []headgate.Decision) ([]headgate.Decision, error) {
	return nil, headgate.ErrUnavailable
}

// journal is a log that can be read.
type journal struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// logger is a logger that writes everything to the journal.
func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// fixture is a gateway that is served, and what it was made of.
type fixture struct {
	*Gateway
	server    *Server
	url, addr string
	log       *journal
}

// serveGateway serves a gateway on a free port, until the test ends.
func serveGateway(t *testing.T, d decide.Decider, o Options) *fixture {
	t.Helper()
	return serveOver(t, d, o, nil)
}

// serveTLS is serveGateway over TLS. Its clients are those of [anyCertificate].
func serveTLS(t *testing.T, d decide.Decider, o Options) *fixture {
	t.Helper()
	borrowed := httptest.NewUnstartedServer(nil)
	borrowed.StartTLS() // for its certificate alone
	borrowed.Close()
	f := serveOver(t, d, o, &tls.Config{Certificates: borrowed.TLS.Certificates, MinVersion: tls.VersionTLS12})
	f.url = "https://" + f.addr
	return f
}

// anyCertificate is for clients that believe every server.
func anyCertificate() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true} //nolint:gosec // The certificate is httptest's.
}

// serveOver serves over TLS if there is a configuration.
func serveOver(t *testing.T, d decide.Decider, o Options, config *tls.Config) *fixture {
	t.Helper()
	f := &fixture{log: new(journal)}
	if o.Logger == nil {
		o.Logger = f.log.logger()
	}
	g, err := New(t.Context(), d, o)
	if err != nil {
		t.Fatal(err)
	}
	f.Gateway = g
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := g.Server(g, config)
	f.server = s
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	f.addr = l.Addr().String()
	f.url = "http://" + f.addr
	return f
}

// upstream is an upstream server with the handler, until the test ends.
func upstream(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// to is the options of a gateway before these targets.
func to(targets ...string) Options {
	return Options{Settings: gatewayfile.Settings{Upstreams: []gatewayfile.Upstream{upstreamOf(targets...)}}}
}

// upstreamOf is a pool of these targets, which may take their time.
func upstreamOf(targets ...string) gatewayfile.Upstream {
	return gatewayfile.Upstream{Targets: targets, Timeouts: gatewayfile.Timeouts{Dial: within, ResponseHeader: within}}
}

// client is a client of its own connections.
func client(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: within, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// answer is what a client got.
type answer struct {
	*http.Response
	text string
}

// send sends a request with headers "Name: value". Whoever calls it closes the body of the answer.
func send(ctx context.Context, t *testing.T, c *http.Client, method, url string, body io.Reader, headers ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Add(name, value)
	}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// ask sends a request with headers "Name: value", and reads the answer to its end.
func ask(t *testing.T, c *http.Client, method, url string, body io.Reader, headers ...string) answer {
	t.Helper()
	res := send(t.Context(), t, c, method, url, body, headers...)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{res, string(text)}
}

func get(t *testing.T, c *http.Client, url string, headers ...string) answer {
	t.Helper()
	return ask(t, c, http.MethodGet, url, nil, headers...)
}

// wants checks status and headers "Name: value"; an empty value is an absent one.
func (a answer) wants(t *testing.T, status int, headers ...string) {
	t.Helper()
	if a.StatusCode != status {
		t.Errorf("status %d, want %d: %s", a.StatusCode, status, a.text)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if got := strings.Join(a.Header.Values(name), ", "); got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
}

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(within); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("within %v not: %s", within, what)
		}
	}
}

// sooner waits until an attempt succeeds: one that depends on short times may be
// spoiled by a machine that is slow at that moment.
func sooner(t *testing.T, what string, attempt func() error) {
	t.Helper()
	for deadline := time.Now().Add(within); ; {
		err := attempt()
		switch {
		case err == nil || t.Failed():
			return
		case time.Now().After(deadline):
			t.Fatalf("within %v not: %s: %v", within, what, err)
		}
	}
}

// next is what comes from a channel.
func next[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(within):
		t.Fatalf("nothing came within %v", within)
		panic("unreachable")
	}
}

// trusting believes X-Forwarded-For from this machine.
func trusting(t *testing.T) *httplimit.Resolver {
	t.Helper()
	r, err := httplimit.NewResolver(httplimit.XForwardedFor, "127.0.0.1", "::1")
	if err != nil {
		t.Fatal(err)
	}
	return r
}
