package httplimittest

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// trusted has requests come from the address in their X-Forwarded-For.
var trusted = httplimit.TrustProxies(httplimit.XForwardedFor, "127.0.0.0/8")

// subject is a server and what a case needs to ask it.
type subject struct {
	Server
	t      *testing.T
	site   *Site
	client *http.Client
	clock  *memory.ManualClock
}

// newSubject makes a server on a memory store of its own.
func newSubject(t *testing.T, mk Maker, opts ...httplimit.Option) *subject {
	t.Helper()
	c := memory.NewManualClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	s := newSubjectOn(t, mk, memory.New(memory.Clock(c.Micros)), opts...)
	s.clock = c
	return s
}

func newSubjectOn(t *testing.T, mk Maker, store headgate.Store, opts ...httplimit.Option) *subject {
	t.Helper()
	site := newSite()
	server, err := mk(t, site, store, opts...)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &subject{server, t, site, &http.Client{Transport: transport, Timeout: time.Minute}, nil}
}

// reply is an answer that was read to its end.
type reply struct {
	status int
	header http.Header
	body   string
}

// send sends a request with headers given as name, value pairs. It may be called
// from any goroutine.
func (s *subject) send(method, path, body string, header ...string) (reply, error) {
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
		if strings.EqualFold(header[i], "Host") {
			r.Host = header[i+1]
		}
	}
	res, err := s.client.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, string(text)}, err
}

// ask is send for those who can fail the test.
func (s *subject) ask(method, path, body string, header ...string) reply {
	s.t.Helper()
	a, err := s.send(method, path, body, header...)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

// get asks for an item.
func (s *subject) get(header ...string) reply {
	s.t.Helper()
	return s.ask(http.MethodGet, "/items/7", "", header...)
}

// want fails the test unless items are answered with the codes, one after
// another.
func (s *subject) want(codes []int, header ...string) {
	s.t.Helper()
	for i, code := range codes {
		if a := s.get(header...); a.status != code {
			s.t.Errorf("request %d with %q is answered with %d %s, want %d", i+1, header, a.status, a.body, code)
		}
	}
}

// lines writes the headers that this package's readers look at, sorted.
func (a *reply) lines() string {
	var out []string
	for name, values := range a.header {
		switch name {
		case "Retry-After", "Cache-Control", "Www-Authenticate", "X-Content-Type-Options":
		default:
			if !strings.Contains(name, "Ratelimit") {
				continue
			}
		}
		for _, v := range values {
			out = append(out, name+": "+v)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// failing is a store that answers with an error.
type failing struct{ err error }

func (f failing) Take(_ context.Context, _ headgate.Op, _ []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	return dst, f.err
}

func one(name string) *headgate.Rule { return headgate.MustRule(name, headgate.PerHour(1)) }

func many(name string) *headgate.Rule { return headgate.MustRule(name, headgate.PerHour(1000)) }
