package gateway

import (
	"bufio"
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/internal/spelling/spellingtest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// protecting are rules for what is protected, by its routes and by its paths.
func protecting() [][]policy.Rule {
	rule := func(name string, c policy.Condition) policy.Rule {
		return policy.Rule{Limits: headgate.MustRule(name, headgate.PerHour(headgate.MaxCount)), Match: []policy.Condition{c}}
	}
	return [][]policy.Rule{
		{rule("token", policy.Equal("route", "POST /v1/token")), rule("admin", policy.Prefix("route", "POST /admin/")), rule("script", policy.Equal("route", "POST /script.php"))},
		{rule("token", policy.Equal("path", "/v1/token")), rule("admin", policy.Condition{Entry: "path", Equals: []string{"/admin"}, Prefixes: []string{"/admin/"}}), rule("script", policy.Equal("path", "/script.php"))},
	}
}

// recording is a decider that remembers the rules under which the last request was counted.
type recording struct {
	*decide.Over
	rules []string
}

func (c *recording) Take(ctx context.Context, ask *decide.Ask, dst []headgate.Decision) ([]headgate.Decision, error) {
	for i := range ask.Checks {
		c.rules = append(c.rules, ask.Checks[i].Rule.Name())
	}
	return c.Over.Take(ctx, ask, dst)
}

// attacked is a gateway that is sent spellings, one after the other.
type attacked struct {
	g      *Gateway
	d      *recording
	forms  spelling.Forms
	mu     sync.Mutex // guards target
	target string     // as the upstream server got it; "" if it did not
}

func newAttacked(t testing.TB, rules []policy.Rule, forms spelling.Forms) *attacked {
	t.Helper()
	a := &attacked{d: &recording{Over: decider(t, rules)}, forms: forms}
	up := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.target = r.RequestURI
	}))
	t.Cleanup(up.Close)
	o := to(up.URL)
	o.Paths = httplimit.PathForm(forms)
	var err error
	if a.g, err = New(t.Context(), a.d, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.g.Close)
	return a
}

// send sends a request for the target. It reports whether it was passed on, and fails the
// test if the server may take it for one that was not counted.
func (a *attacked) send(t *testing.T, target string) bool {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("POST " + target + " HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")))
	if err != nil {
		return false
	}
	r.RemoteAddr = "203.0.113.7:1"
	a.d.rules, a.target = nil, ""
	w := httptest.NewRecorder()
	a.g.ServeHTTP(w, r)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.target == "" {
		return false
	}
	if read := spellingtest.GotAround(a.target, a.forms, a.d.rules...); read != "" {
		t.Errorf("%q is passed on as %q and counted under %q, and may be taken for %q by servers of the forms %b", target, a.target, a.d.rules, read, a.forms)
	}
	return true
}

// No spelling gets a request to a protected path that is not counted as one.
func TestSpellingsAreCounted(t *testing.T) {
	t.Parallel()
	_, targets, err := spellingtest.Servers()
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(11, 1))
	for range 1000 {
		targets = append(targets, spellingtest.Spellings(random))
	}
	for _, rules := range protecting() {
		for _, forms := range []spelling.Forms{
			0, spelling.EncodedSlashes | spelling.CutParameters, spelling.EncodedSlashes | spelling.DoubleEncoding | spelling.LeadingSlashes | spelling.KeptParameters,
			spelling.KeptParameters | spelling.CutPathInfo | spelling.FrontController | spelling.OtherBytes | spelling.IgnoreCase | spelling.IgnoreSlash,
		} {
			a := newAttacked(t, rules, forms)
			passed := 0
			for _, target := range targets {
				if a.send(t, target) {
					passed++
				}
			}
			if passed < len(targets)/20 {
				t.Errorf("%d of %d are passed on: the others show nothing", passed, len(targets))
			}
		}
	}
}

func FuzzSpellings(f *testing.F) {
	var all []*attacked
	for _, rules := range protecting() {
		for _, forms := range []spelling.Forms{0, spelling.EncodedSlashes | spelling.DoubleEncoding | spelling.CutParameters} {
			all = append(all, newAttacked(f, rules, forms))
		}
	}
	_, targets, err := spellingtest.Servers()
	if err != nil {
		f.Fatal(err)
	}
	for _, target := range targets {
		f.Add(target)
	}
	f.Fuzz(func(t *testing.T, target string) {
		if len(target) > 64 || strings.ContainsAny(target, "\r\n ") {
			return
		}
		for _, a := range all {
			a.send(t, target)
		}
	})
}

// Over HTTP/2 it is the same.
func TestSpellingsOverHTTP2(t *testing.T) {
	t.Parallel()
	rules := protecting()[0]
	rules[0].Limits = headgate.MustRule("token", headgate.PerHour(1))
	g := serveGateway(t, decider(t, rules), to(upstream(t, hello).URL))
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	for _, tt := range []struct {
		target url.URL
		status int
	}{
		{url.URL{Path: "/v1/token"}, 200},
		{url.URL{Path: "/v1/token"}, 429},
		{url.URL{Path: "/v1//token"}, 429},
		{url.URL{Path: "/v1/toke%6e", RawPath: "/v1/toke%6e"}, 400},
		{url.URL{Path: "//x/v1/token"}, 400},
		{url.URL{Opaque: "/v1/token#x"}, 400},
		{url.URL{Opaque: `/\x/v1/token`}, 400},
		{url.URL{Opaque: "/v1/token;%2f..%2f..%2fx"}, 400},
		{url.URL{Opaque: "/x/%2e%2e/v1/token"}, 400},
		{url.URL{Path: "/v2/token"}, 200},
	} {
		u := tt.target
		u.Scheme, u.Host = "http", g.addr
		res, err := transport.RoundTrip(&http.Request{Method: http.MethodPost, URL: &u, Header: make(http.Header)})
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != tt.status || res.ProtoMajor != 2 {
			t.Errorf("%s: %s over %s, want %d", u.RequestURI(), res.Status, res.Proto, tt.status)
		}
	}
}

// What is refused says where and why, and repeats nothing.
func TestWhatIsSaidOfAPath(t *testing.T) {
	t.Parallel()
	g := serveGateway(t, decider(t, protecting()[0]), to(upstream(t, hello).URL))
	for target, want := range map[string]string{
		"/abc/%2e%2e/def":  `Byte 6 of the path begins a segment \".\" or \"..\"`,
		"/abc%2Fdef":       "Byte 5 of the path begins an encoded slash or backslash",
		"/abc;d/v1":        `Byte 5 of the path begins parameters`,
		"/abc/def%00<b>":   "Byte 9 of the path begins a control character",
		"http://h//abc/de": "Byte 2 of the path begins a second slash",
	} {
		res, err := http.ReadResponse(raw(t, g.addr, "POST "+target+" HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := res.Write(&text); err != nil {
			t.Fatal(err)
		}
		if got := text.String(); res.StatusCode != 400 || !strings.Contains(got, "application/problem+json") || !strings.Contains(got, want) || strings.Contains(got, "abc") || strings.Contains(got, "def") {
			t.Errorf("%s is answered with\n%s\nwant %q in it, and nothing of the path", target, got, want)
		}
	}
}
