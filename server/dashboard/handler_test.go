package dashboard

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/insightapi"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/telemetry/insight"
)

const token = "the admin's token" //nolint:gosec // of the test

// site is a dashboard over a store.
type site struct {
	*httptest.Server
	handler *Handler
	store   headgate.Store
	set     *policy.Set
	audit   *insightapi.Audit
}

func newSite(t *testing.T, o Options) *site {
	t.Helper()
	set, err := policy.New([]policy.Rule{{Limits: headgate.MustRule("login", headgate.Sliding(3, time.Minute)), Per: []policy.Part{{Entry: "user"}}}})
	if err != nil {
		t.Fatal(err)
	}
	recorder := insight.New(insight.Options{})
	t.Cleanup(recorder.Close)
	s := &site{set: set, audit: new(insightapi.Audit), store: headgate.Observe(memory.New(), recorder.Hooks())}
	o.Audit = s.audit
	o.API = insightapi.New(insightapi.Options{
		Recorder: recorder, Name: "one", Audit: s.audit, Policy: func() decide.Policy { return decide.Policy{Set: set, Version: 3, Hash: "abc"} },
		Take: func(ctx context.Context, op headgate.Op, checks []headgate.Check) ([]headgate.Decision, error) {
			return s.store.Take(ctx, op, checks, nil)
		},
	})
	o.Logins = headgate.New(memory.New(), headgate.MustRule("dashboard.login", headgate.PerHour(5)))
	s.handler = New(o)
	s.Server = httptest.NewServer(s.handler)
	t.Cleanup(func() {
		s.handler.Close()
		s.Close()
	})
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Client().Jar = jar
	return s
}

func (s *site) deny(t *testing.T, key string, times int) {
	t.Helper()
	for range times + 3 {
		if _, err := s.store.Take(t.Context(), headgate.OpTake, []headgate.Check{{Rule: s.set.Rule("login").Limits, Key: key}}, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// do sends a request, and returns the status and the body.
func (s *site) do(t *testing.T, method, path, body string, header ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if r.Header.Set(header[i], header[i+1]); header[i] == "Host" {
			r.Host = header[i+1]
		}
	}
	response, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(text)
}

func (s *site) status(t *testing.T, want int, method, path, body string, header ...string) *http.Response {
	t.Helper()
	r, text := s.do(t, method, path, body, header...)
	if r.StatusCode != want {
		t.Errorf("%s %s: status %d %s, not %d", method, path, r.StatusCode, text, want)
	}
	return r
}

func (s *site) signIn(t *testing.T) *http.Response {
	t.Helper()
	return s.status(t, http.StatusNoContent, "POST", "/session", `{"token":"`+token+`"}`)
}

// TestSharedAddress: people with the token sign in as often as they like from one address, and
// attempts that fail push nothing out of the audit.
func TestSharedAddress(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{Token: token})
	s.audit.Add(insightapi.Entry{What: "reset", OK: true})
	for range 12 {
		s.signIn(t)
	}
	for range 300 {
		s.audit.Add(insightapi.Entry{What: "login"})
	}
	failed, resets := 0, 0
	all := s.audit.Entries()
	for i, e := range all {
		if i > 0 && e.At > all[i-1].At {
			t.Errorf("the entry %d is newer than the one before", i)
		}
		switch {
		case e.What == "login" && !e.OK:
			failed++
		case e.What == "reset":
			resets++
		}
	}
	if failed != 200 || resets != 1 || len(all) != 213 {
		t.Errorf("%d entries: %d failed attempts and %d resets", len(all), failed, resets)
	}
	for range 5 {
		s.status(t, http.StatusUnauthorized, "POST", "/session", `{"token":"wrong"}`)
	}
	s.status(t, http.StatusTooManyRequests, "POST", "/session", `{"token":"`+token+`"}`)
}

func TestSessions(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{Token: token, Hosts: []string{"limits.example"}})
	s.status(t, http.StatusOK, "GET", "/", "")
	for _, path := range []string{"/api/now", "/api/stream", "/api/reset", "/api/nothing"} {
		s.status(t, http.StatusUnauthorized, "GET", path, "")
	}
	s.status(t, http.StatusUnauthorized, "POST", "/session", `{"token":"another one, as long"}`)
	s.status(t, http.StatusBadRequest, "POST", "/session", `{`)
	s.status(t, http.StatusRequestEntityTooLarge, "POST", "/session", `{"token":"`+strings.Repeat("x", maxLogin)+`"}`)
	cookie := s.signIn(t).Cookies()[0]
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || len(cookie.Value) < 26 || strings.Contains(cookie.Value, token) {
		t.Errorf("the cookie: %+v", cookie)
	}
	s.status(t, http.StatusOK, "GET", "/api/now", "")
	s.status(t, http.StatusNotFound, "GET", "/api/nothing", "")
	// It was stolen, and is used by another site, or under another name.
	s.status(t, http.StatusForbidden, "POST", "/api/reset", "{}", "Sec-Fetch-Site", "cross-site")
	s.status(t, http.StatusForbidden, "DELETE", "/session", "", "Origin", "https://evil.example")
	s.status(t, http.StatusMisdirectedRequest, "GET", "/api/now", "", "Host", "evil.example")
	s.status(t, http.StatusOK, "GET", "/", "", "Host", "Limits.example:9000")
	s.status(t, http.StatusOK, "GET", "/", "", "Host", "localhost")
	s.status(t, http.StatusNoContent, "DELETE", "/session", "")
	s.status(t, http.StatusUnauthorized, "GET", "/api/now", "", "Cookie", cookie.Name+"="+cookie.Value)
	// Three attempts failed, and five may.
	s.signIn(t)
	s.status(t, http.StatusBadRequest, "POST", "/session", `{`)
	s.status(t, http.StatusBadRequest, "POST", "/session", `{`)
	r := s.status(t, http.StatusTooManyRequests, "POST", "/session", `{"token":"`+token+`"}`)
	if r.Header.Get("Retry-After") == "" {
		t.Error("it does not say when to come again")
	}
	// Whoever is not signed in has nothing to say in the audit.
	s.status(t, http.StatusNoContent, "DELETE", "/session", "")
	s.status(t, http.StatusNoContent, "DELETE", "/session", "")
	s.status(t, http.StatusNoContent, "DELETE", "/session", "", "Cookie", cookie.Name+"="+cookie.Value)
	var got []string
	for _, e := range s.audit.Entries() {
		got = append(got, fmt.Sprint(e.What, e.OK))
	}
	if strings.Join(got, " ") != "logouttrue logintrue logouttrue logintrue loginfalse" {
		t.Errorf("the audit: %v", got)
	}
}

// TestGuessing has somebody with many addresses who guesses, and an administrator elsewhere.
func TestGuessing(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{Token: token})
	attempt := func(from, with string) int {
		r := httptest.NewRequest(http.MethodPost, "http://localhost/session", strings.NewReader(`{"token":"`+with+`"}`))
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		s.handler.ServeHTTP(w, r)
		return w.Code
	}
	for name, from := range map[string]func(i int) string{
		"a /64":             func(i int) string { return fmt.Sprintf("[2001:db8::%x]:1", i+1) },
		"an interface":      func(i int) string { return fmt.Sprintf("[fe80::1%%eth%d]:1", i) },
		"ports":             func(i int) string { return fmt.Sprintf("192.0.2.1:%d", i+1) },
		"two ways to write": func(i int) string { return []string{"192.0.2.2:1", "[::ffff:192.0.2.2]:1"}[i%2] },
	} {
		refused := 0
		for i := range 20 {
			if attempt(from(i), "a guess") == http.StatusTooManyRequests {
				refused++
			}
		}
		if refused < 12 {
			t.Errorf("%s: %d of 20 guesses were refused", name, refused)
		}
	}
	for _, from := range []string{"[2001:db8:0:1::1]:1", "192.0.2.3:1", "a pipe"} {
		if status := attempt(from, token); status != http.StatusNoContent {
			t.Errorf("the administrator at %s: status %d", from, status)
		}
	}
}

func TestWithoutToken(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	s.status(t, http.StatusOK, "GET", "/api/now", "")
	s.status(t, http.StatusConflict, "POST", "/session", `{"token":""}`)
	s.status(t, http.StatusMisdirectedRequest, "GET", "/api/now", "", "Host", "rebound.example")
}

func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	var s sessions
	first := s.begin()
	for range maxSessions {
		s.begin()
	}
	if s.valid(first) || len(s.all) != maxSessions || s.valid("") {
		t.Errorf("there are %d sessions, and the first one is valid: %t", len(s.all), s.valid(first))
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	sum := 0
	for _, name := range []string{"/", "/style.css", "/vendor/uPlot.min.css", "/vendor/uPlot.iife.min.js", "/theme.js", "/icon.svg", "/app.js", "/lib.js", "/now.js", "/rule.js", "/clients.js", "/key.js", "/denials.js", "/store.js", "/policy.js", "/flow.js", "/audit.js"} {
		r, text := s.do(t, "GET", name, "", "Accept-Encoding", "gzip")
		if r.StatusCode != http.StatusOK || r.Header.Get("Content-Encoding") != "gzip" || !strings.Contains(r.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %d %v", name, r.StatusCode, r.Header)
		}
		sum += len(text)
		if z, err := gzip.NewReader(strings.NewReader(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if plain, err := io.ReadAll(z); err != nil || bytes.Contains(plain, []byte("innerHTML")) || bytes.Contains(plain, []byte("https://")) && !strings.Contains(name, "vendor") {
			t.Errorf("%s: it has markup made of text, or leads elsewhere: %v", name, err)
		}
		s.status(t, http.StatusNotModified, "GET", name, "", "If-None-Match", r.Header.Get("Etag"))
	}
	if const80 := 80 << 10; sum > const80 {
		t.Errorf("the first load is %d bytes, and may be %d", sum, const80)
	}
	for path := range pages {
		s.status(t, http.StatusOK, "GET", path, "")
	}
	s.status(t, http.StatusNotFound, "GET", "/static/app.js", "")
	s.status(t, http.StatusMethodNotAllowed, "POST", "/", "")
	s.status(t, http.StatusMethodNotAllowed, "PUT", "/session", "")
	s.status(t, http.StatusMethodNotAllowed, "POST", "/api/stream", "")
}

// TestVendor holds what is other people's against the sums that were written down.
func TestVendor(t *testing.T) {
	t.Parallel()
	readme, err := files.ReadFile("static/vendor/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"uPlot.iife.min.js", "uPlot.min.css"} {
		text, err := files.ReadFile("static/vendor/" + name)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(text)
		if !strings.Contains(string(readme), hex.EncodeToString(sum[:])+"  "+name) {
			t.Errorf("%s is not what was taken from npm", name)
		}
	}
}

// event reads the next event of a stream, and its data.
func event(t *testing.T, from *bufio.Reader) (name, data string) {
	t.Helper()
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, "event: "):
			name = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			data = line[len("data: "):]
		case line == "" && name != "":
			return name, data
		}
	}
}

func TestStream(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/api/stream?denials=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	from := bufio.NewReader(response.Body)
	name, data := event(t, from)
	var tick Tick
	if err := json.Unmarshal([]byte(data), &tick); err != nil || name != "tick" || tick.Version != 3 || len(tick.Minutes) != 2 || tick.Instances[0].Store != "ok" {
		t.Fatalf("%s %s %v", name, data, err)
	}
	for i := range 80 {
		s.deny(t, fmt.Sprintf("evil\n\ndata: %d", i), 1)
	}
	told, lost := 0, int64(0)
	for told == 0 || told+int(lost) < 60 { // Some keys have to wait for one another.
		switch name, data := event(t, from); name {
		case "denial":
			var d insight.Denial
			if err := json.Unmarshal([]byte(data), &d); err != nil || d.Rule != "login" {
				t.Fatalf("%s: %v", data, err)
			}
			told++
		case "lost":
			var n int64
			if err := json.Unmarshal([]byte(data), &n); err != nil {
				t.Fatal(err)
			}
			lost += n
		}
	}
}

// TestStreamIsBounded has a sample of more than a viewer is told.
func TestStreamIsBounded(t *testing.T) {
	t.Parallel()
	one := sample{tick: []byte("{}")}
	for range 100 {
		one.denials = append(one.denials, bytes.Repeat([]byte("x"), 300))
	}
	text := string(one.append(nil, true, nil))
	if len(text) > 8<<10 || !strings.Contains(text, "event: lost\ndata: 7") {
		t.Errorf("%d bytes, ending in %q", len(text), text[len(text)-40:])
	}
}

// TestMissedSamples has a viewer that was slow while samples were made.
func TestMissedSamples(t *testing.T) {
	t.Parallel()
	last := &sample{tick: []byte("{}"), seen: 5}
	now := &sample{tick: []byte("{}"), denials: [][]byte{[]byte("{}"), []byte("{}")}, lost: 1, seen: 12}
	for told, want := range map[*sample]string{nil: "data: 1\n", last: "data: 5\n", {seen: 9}: "data: 1\n"} {
		if text := string(now.append(nil, true, told)); !strings.Contains(text, "event: lost\n"+want) {
			t.Errorf("after %+v: %q", told, text)
		}
	}
}

// TestSlowViewer has a viewer that does not read: the others are told all the same, and
// its place is free afterwards.
func TestSlowViewer(t *testing.T) {
	t.Parallel()
	s := newSite(t, Options{})
	slow, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(slow, "GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/api/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	from := bufio.NewReader(response.Body)
	for range 3 {
		if name, _ := event(t, from); name != "tick" {
			t.Errorf("an event %s", name)
		}
	}
	slow.Close()
	response.Body.Close()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		s.handler.stream.mu.Lock()
		viewers, working := s.handler.stream.viewers, s.handler.stream.working
		s.handler.stream.mu.Unlock()
		if viewers == 0 && !working {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d viewers are left, working %t", viewers, working)
		}
	}
	for range maxViewers {
		if !s.handler.stream.join() {
			t.Fatal("there is no place")
		}
	}
	s.status(t, http.StatusServiceUnavailable, "GET", "/api/stream", "")
}
