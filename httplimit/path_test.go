package httplimit

import (
	"bufio"
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/internal/spelling/spellingtest"
	"github.com/headgate/headgate/policy"
)

// recording is a store that remembers the rules under which the last request was counted.
type recording struct {
	headgate.Store
	rules []string
}

func (s *recording) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	for i := range checks {
		s.rules = append(s.rules, checks[i].Rule.Name())
	}
	return s.Store.Take(ctx, op, checks, dst)
}

// attacked is a middleware before a reverse proxy, which is sent spellings.
type attacked struct {
	store   *recording
	handler http.Handler
	forms   spelling.Forms
	target  string // that is passed on; "" if nothing is
}

// protecting is a policy for what is protected, by an entry with this before its paths.
func protecting(t testing.TB, entry, before string) Option {
	t.Helper()
	var rules []policy.Rule
	for name, c := range map[string]policy.Condition{
		"token":  policy.Equal(entry, before+"/v1/token"),
		"admin":  {Entry: entry, Equals: []string{before + "/admin"}, Prefixes: []string{before + "/admin/"}},
		"script": policy.Equal(entry, before+"/script.php"),
	} {
		rules = append(rules, policy.Rule{Limits: headgate.MustRule(name, headgate.PerHour(headgate.MaxCount)), Match: []policy.Condition{c}})
	}
	set, err := policy.New(rules)
	if err != nil {
		t.Fatal(err)
	}
	return Policy(set)
}

// attackedBy returns middlewares that protect paths in every way there is.
func attackedBy(t testing.TB, forms ...PathForm) (all []*attacked) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/token", http.NotFound)
	mux.HandleFunc("/admin/", http.NotFound)
	mux.HandleFunc("/script.php", http.NotFound)
	for _, f := range forms {
		for _, opts := range [][]Option{
			{protecting(t, "path", "")},
			{protecting(t, "route", "POST ")}, // which is the path, as there is no pattern
			{protecting(t, "route", ""), Route(MuxRoute(mux))},
		} {
			a := &attacked{store: &recording{Store: newClock().store()}, forms: spelling.Forms(f)}
			if f != 0 || len(opts) > 1 {
				opts = append(opts, Paths(f))
			}
			limit, err := New(a.store, opts...)
			if err != nil {
				t.Fatal(err)
			}
			a.handler = limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { a.target = r.URL.EscapedPath() }))
			all = append(all, a)
		}
	}
	return all
}

// send sends a request for the target. It reports whether it was passed on, and fails the
// test if a server may take it for one that was not counted.
func (a *attacked) send(t *testing.T, target string) bool {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("POST " + target + " HTTP/1.1\r\nHost: h\r\n\r\n")))
	if err != nil {
		return false
	}
	a.store.rules, a.target = nil, ""
	a.handler.ServeHTTP(httptest.NewRecorder(), r)
	if a.target == "" {
		return false
	}
	if read := spellingtest.GotAround(a.target, a.forms, a.store.rules...); read != "" {
		t.Errorf("%q is passed on, counted under %q, and may be taken for %q by servers of the forms %b", a.target, a.store.rules, read, a.forms)
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
	random := rand.New(rand.NewPCG(11, 3))
	for range 1000 {
		targets = append(targets, spellingtest.Spellings(random))
	}
	for _, a := range attackedBy(t, 0, EncodedSlashes|CutParameters, EncodedSlashes|DoubleEncoding|LeadingSlashes|KeptParameters) {
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

func FuzzSpellings(f *testing.F) {
	all := attackedBy(f, 0, EncodedSlashes|DoubleEncoding|CutParameters)
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

// Paths are refused only where something looks at them, and the router in the program is
// the one that reads patterns.
func TestWhenPathsAreRefused(t *testing.T) {
	t.Parallel()
	around := http.NewServeMux()
	around.HandleFunc("/", http.NotFound)
	byPath, byRoute := protecting(t, "path", ""), protecting(t, "route", "")
	for _, tt := range []struct {
		name    string
		opts    []Option
		pattern string
		target  string
		code    int
	}{
		{"by address", []Option{Limit(ByIP(), one("ip"))}, "", "//a%2Fb;c/d", 200},
		{"by path", []Option{byPath}, "", "/a%2Fb", 400},
		{"by path, which is plain", []Option{byPath}, "", "/caf%C3%A9/x", 200},
		{"by path, with parameters", []Option{byPath}, "", "/a;b", 400},
		{"by path, and its forms are known", []Option{byPath, Paths(EncodedSlashes, KeptParameters)}, "", "/a%2Fb;c", 200},
		{"by pattern", []Option{byRoute}, "/", "/a%2Fb;c", 200},
		{"without a pattern", []Option{byRoute}, "", "/a%2Fb;c", 400},
		{"by a mux", []Option{byRoute, Route(MuxRoute(around))}, "", "/a%2Fb;c", 200},
		{"by a mux that is not the router", []Option{byRoute, Route(MuxRoute(around)), Paths()}, "", "/a%2Fb", 400},
		{"by address, before another server", []Option{Limit(ByIP(), one("ip")), Paths()}, "", "/a%2Fb", 400},
		{"by pattern, where parameters are cut", []Option{byRoute, Paths(CutParameters)}, "/", "/a;b", 400},
		{"by a mux, where parameters are cut", []Option{byRoute, Route(MuxRoute(around)), Paths(CutParameters)}, "", "/a;b", 200},
	} {
		h := mustNew(t, newClock().store(), tt.opts...)
		r := httptest.NewRequest(http.MethodGet, "http://h"+tt.target, http.NoBody)
		r.Pattern = tt.pattern
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tt.code {
			t.Errorf("%s: %s is answered with %d %s, want %d", tt.name, tt.target, w.Code, w.Body, tt.code)
		}
	}
	if _, err := New(newClock().store(), byPath, Paths(CutParameters, KeptParameters)); err == nil || !strings.Contains(err.Error(), "cut_parameters and kept_parameters exclude") {
		t.Errorf("parameters that are cut and kept are %v", err)
	}
}

// A header that says who somebody is stands there once.
func TestSeveralLinesOfAnIdentity(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		key    Key
		header []string
		code   int
	}{
		"two API keys":              {ByAPIKey(), []string{"X-API-Key", "a", "X-API-Key", "b"}, 400},
		"one key twice":             {ByAPIKey(), []string{"X-API-Key", "a", "X-API-Key", "a"}, 400},
		"two tokens":                {ByAPIKey(), []string{"Authorization", "Bearer a", "Authorization", "Bearer b"}, 400},
		"a key and a token":         {ByAPIKey(), []string{"Authorization", "Bearer a", "X-API-Key", "b"}, 200},
		"two tenants":               {ByHeader("X-Tenant"), []string{"X-Tenant", "a", "X-Tenant", "b"}, 400},
		"tenants nobody counts by":  {ByIP(), []string{"X-Tenant", "a", "X-Tenant", "b"}, 200},
		"API keys nobody counts by": {ByIP(), []string{"X-API-Key", "a", "X-API-Key", "b"}, 200},
	} {
		told := ""
		h := mustNew(t, newClock().store(), Limit(tt.key, one("rule")), Observe(Hooks{Missing: func(_ *http.Request, entry string) { told = entry }}))
		if w := ask(h, "203.0.113.7:1", tt.header...); w.Code != tt.code || (told != "") != (tt.code == 400) {
			t.Errorf("%s: %d %s, told of %q, want %d", name, w.Code, w.Body, told, tt.code)
		}
	}
}
