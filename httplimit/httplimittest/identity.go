package httplimittest

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
)

// Cases about who a request is from and where it goes.

// identities send two requests under a limit of one: same tells whether they
// share a counter.
func identities(t *testing.T, mk Maker) {
	tenant := httplimit.ByHeader("X-Tenant")
	first := httplimit.ByFunc("first", func(r *http.Request) string { return r.URL.Query().Get("none") + r.Header.Get("A") })
	second := httplimit.ByFunc("second", func(r *http.Request) string {
		if c, err := r.Cookie("b"); err == nil {
			return c.Value
		}
		return ""
	})
	for _, tt := range []struct {
		name string
		key  httplimit.Key
		a, b []string
		same bool
	}{
		{"one address", httplimit.ByIP(), []string{"X-Forwarded-For", "203.0.113.7"}, []string{"X-Forwarded-For", "::ffff:203.0.113.7"}, true},
		{"two addresses", httplimit.ByIP(), []string{"X-Forwarded-For", "203.0.113.7"}, []string{"X-Forwarded-For", "203.0.113.8"}, false},
		{"one /64", httplimit.ByIP(), []string{"X-Forwarded-For", "2001:db8::1"}, []string{"X-Forwarded-For", "2001:db8::2"}, true},
		{"two /64", httplimit.ByIP(), []string{"X-Forwarded-For", "2001:db8::1"}, []string{"X-Forwarded-For", "2001:db8:0:1::1"}, false},
		{"one API key in two headers", httplimit.ByAPIKey(), []string{"Authorization", "Bearer k1"}, []string{"X-API-Key", "k1"}, true},
		{"two API keys", httplimit.ByAPIKey(), []string{"X-API-Key", "k1"}, []string{"X-API-Key", "k2"}, false},
		{"one user", httplimit.ByUser(user), []string{UserHeader, "ann", "X-Tenant", "a"}, []string{UserHeader, "ann", "X-Tenant", "b"}, true},
		{"two users", httplimit.ByUser(user), []string{UserHeader, "ann"}, []string{UserHeader, "bob"}, false},
		{"one tenant", tenant, []string{"x-tenant", "a"}, []string{"X-TENANT", "a"}, true},
		{"two tenants", tenant, []string{"X-Tenant", "a"}, []string{"X-Tenant", "b"}, false},
		{"two, ambiguous when joined", httplimit.Combine(first, second), []string{"A", "x|y", "Cookie", "b=z"}, []string{"A", "x", "Cookie", "b=y|z"}, false},
		{"everyone", httplimit.Everyone(), []string{UserHeader, "ann"}, []string{UserHeader, "bob"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSubject(t, mk, trusted, httplimit.Limit(tt.key, one("rule")))
			s.want([]int{200}, tt.a...)
			code := http.StatusOK
			if tt.same {
				code = http.StatusTooManyRequests
			}
			s.want([]int{code}, tt.b...)
		})
	}
}

func missing(t *testing.T, mk Maker) {
	for _, tt := range []struct {
		name      string
		key       httplimit.Key
		opts      []httplimit.Option
		codes     []int
		challenge string
		says      string
	}{
		{"no API key", httplimit.ByAPIKey(), nil, []int{401, 401}, "Bearer", "Authorization or X-Api-Key"},
		{"no API key in the one header", httplimit.ByAPIKey(), []httplimit.Option{httplimit.APIKeyHeaders("x-key")}, []int{401, 401}, `ApiKey header="X-Key"`, "X-Key"},
		{"no user", httplimit.ByUser(user), nil, []int{401, 401}, "Bearer", "no user"},
		{"no tenant", httplimit.ByHeader("X-Tenant"), nil, []int{400, 400}, "", "x-tenant"},
		{"passes", httplimit.ByAPIKey(), []httplimit.Option{httplimit.OnMissing(httplimit.PassMissing)}, []int{200, 200}, "", ""},
		{"by address", httplimit.ByAPIKey(), []httplimit.Option{httplimit.OnMissing(httplimit.CountMissingByIP)}, []int{200, 429}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSubject(t, mk, append(tt.opts, trusted, httplimit.Limit(tt.key, one("rule")))...)
			for i, code := range tt.codes {
				a := s.get()
				if a.status != code || a.header.Get("Www-Authenticate") != tt.challenge || !strings.Contains(a.body, tt.says) {
					t.Errorf("request %d: %d %s\n%s", i+1, a.status, a.body, a.lines())
				}
			}
		})
	}
	t.Run("several words for an API key", func(t *testing.T) {
		s := newSubject(t, mk, httplimit.Limit(httplimit.ByAPIKey(), one("rule")), httplimit.OnMissing(httplimit.PassMissing))
		s.want([]int{200}, "Authorization", "Bearer k1")
		for _, line := range []string{"Bearer k1 1", "Bearer k1 2", "Bearer\tk1"} {
			s.want([]int{400}, "Authorization", line)
		}
	})
	t.Run("too long to be counted by", func(t *testing.T) {
		// The servers of some frameworks take no headers of that length.
		long := httplimit.ByFunc("long", func(r *http.Request) string {
			return strings.Repeat(r.Header.Get("A"), policy.MaxValue) + r.Header.Get("B")
		})
		s := newSubject(t, mk, httplimit.Limit(long, one("rule")))
		s.want([]int{200}, "A", "a")
		s.want([]int{431}, "A", "a", "B", "b")
	})
}

func forwarded(t *testing.T, mk Maker) {
	for _, tt := range []struct {
		name   string
		opts   []httplimit.Option
		header []string
		want   string
	}{
		{"nobody is trusted", nil, []string{"X-Forwarded-For", "203.0.113.7"}, "127.0.0.1"},
		{"others are trusted", []httplimit.Option{httplimit.TrustProxies(httplimit.XForwardedFor, "10.0.0.0/8")}, []string{"X-Forwarded-For", "203.0.113.7"}, "127.0.0.1"},
		{"the peer is trusted", []httplimit.Option{trusted}, []string{"X-Forwarded-For", "203.0.113.7"}, "203.0.113.7"},
		{"what the client wrote", []httplimit.Option{trusted}, []string{"X-Forwarded-For", "1.1.1.1, 203.0.113.7"}, "203.0.113.7"},
		{"lines are one list", []httplimit.Option{trusted}, []string{"X-Forwarded-For", "1.1.1.1", "X-Forwarded-For", "203.0.113.7", "X-Forwarded-For", "127.0.0.2"}, "203.0.113.7"},
		{"Forwarded", []httplimit.Option{httplimit.TrustProxies(httplimit.Forwarded, "127.0.0.1")}, []string{"Forwarded", `for="[2001:db8::7]:99";proto=https`}, "2001:db8::/64"},
		{"a header with one address", []httplimit.Option{httplimit.TrustProxies("x-real-ip", "127.0.0.1")}, []string{"X-Real-IP", "203.0.113.7"}, "203.0.113.7"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := new(Recorder)
			s := newSubjectOn(t, mk, store, append(tt.opts, httplimit.Limit(httplimit.ByIP(), one("rule")))...)
			s.want([]int{200}, tt.header...)
			if got := store.Keys(); !slices.Equal(got, []string{tt.want}) {
				t.Errorf("counted under %q, want %q", got, tt.want)
			}
		})
	}
}

func secrets(t *testing.T, mk Maker) {
	store := new(Recorder)
	limit := httplimit.Limit(httplimit.ByAPIKey(), one("rule"))
	plain, keyed := newSubjectOn(t, mk, store, limit), newSubjectOn(t, mk, store, limit, httplimit.HashKey([]byte("0123456789abcdef")))
	plain.want([]int{200}, "X-API-Key", "sesame")
	plain.want([]int{200}, "Authorization", "Bearer sesame")
	keyed.want([]int{200}, "X-API-Key", "sesame")
	keys := store.Keys()
	if len(keys) != 3 || keys[0] != keys[1] || keys[0] == keys[2] || strings.Contains(strings.Join(keys, " "), "sesame") {
		t.Errorf("counted under %q", keys)
	}
}

// facts looks at everything that a policy can be asked about.
func facts(t *testing.T, mk Maker) {
	var mu sync.Mutex // guards got, which the server writes and the test reads
	var got policy.Descriptor
	s := newSubject(t, mk, trusted, httplimit.Limit(httplimit.Everyone(), many("rule")),
		httplimit.Fact("query", func(r *http.Request) string { return r.URL.Query().Get("q") }),
		httplimit.Fact("user", func(r *http.Request) string { return user(r.Context()) }),
		httplimit.Fact("lines", func(r *http.Request) string { return strings.Join(r.Header.Values("X-Line"), "+") }),
		httplimit.Fact("proto", func(r *http.Request) string { return r.Proto }),
		httplimit.Describe(func(_ *http.Request, d policy.Descriptor) policy.Descriptor {
			mu.Lock()
			defer mu.Unlock()
			got = slices.Clone(d)
			return d
		}))
	a := s.ask(http.MethodGet, "/items/a%20b?q=x%26y&z=1", "", "Host", "Example.COM:8080", "X-Forwarded-For", "203.0.113.7",
		"Authorization", "bearer  k1 ", UserHeader, "ann", "X-Line", "1", "X-Line", "2")
	if a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []policy.Entry{
		{Name: "api_key", Value: "k1"},
		{Name: "ip", Value: "203.0.113.7"},
		{Name: "route", Value: s.Item},
		{Name: "method", Value: "GET"},
		{Name: "host", Value: "example.com"},
		{Name: "path", Value: "/items/a b"},
		{Name: "query", Value: "x&y"},
		{Name: "user", Value: "ann"},
		{Name: "lines", Value: "1+2"},
		{Name: "proto", Value: "HTTP/1.1"},
	} {
		if value, ok := got.Get(want.Name); !ok || value != want.Value {
			t.Errorf("%s is %q, want %q", want.Name, value, want.Value)
		}
	}
}

func routes(t *testing.T, mk Maker) {
	store := new(Recorder)
	s := newSubjectOn(t, mk, store, httplimit.Limit(httplimit.ByRoute(), many("rule")))
	for _, tt := range []struct{ method, path, want string }{
		{"GET", "/items/7", s.Item},
		{"GET", "/items/8?q=1", s.Item},
		{"POST", "/echo", s.Echo},
	} {
		s.ask(tt.method, tt.path, "")
		if got := store.Keys(); !slices.Equal(got, []string{tt.want}) {
			t.Errorf("%s %s is counted under %q, want %q", tt.method, tt.path, got, tt.want)
		}
	}
	// What no route serves: no counter by a name of the client's choosing. A
	// framework may turn such a request away before it comes to the limits.
	for _, tt := range []struct{ method, path string }{{"GET", "/else/1"}, {"GET", "/items"}, {"DELETE", "/echo"}, {"PROPFIND", "/items/7"}} {
		a := s.ask(tt.method, tt.path, "")
		for _, key := range store.Keys() {
			if key != httplimit.Unmatched {
				t.Errorf("%s %s is counted under %q", tt.method, tt.path, key)
			}
		}
		if a.status < 400 {
			t.Errorf("%s %s is served: %d", tt.method, tt.path, a.status)
		}
	}

	own := newSubjectOn(t, mk, store, httplimit.Limit(httplimit.ByRoute(), many("rule")),
		httplimit.Route(func(r *http.Request) string { return "mine " + r.URL.Path }))
	own.want([]int{200})
	if got := store.Keys(); !slices.Equal(got, []string{"mine /items/7"}) {
		t.Errorf("with a Route of its own: %q", got)
	}
}
