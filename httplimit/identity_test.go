package httplimit

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// Each row sends two requests under a limit of one: same tells whether they
// share a counter.
func TestIdentity(t *testing.T) {
	t.Parallel()
	type message struct {
		remote string
		header []string
	}
	from := func(remote string, header ...string) message { return message{remote, header} }
	user := ByUser(func(ctx context.Context) string { s, _ := ctx.Value(userKey{}).(string); return s })
	for _, tt := range []struct {
		name string
		key  Key
		a, b message
		same bool
	}{
		{"one address, two ports", ByIP(), from("203.0.113.7:1"), from("203.0.113.7:2"), true},
		{"two addresses", ByIP(), from("203.0.113.7:1"), from("203.0.113.8:1"), false},
		{"mapped and plain", ByIP(), from("203.0.113.7:1"), from("[::ffff:203.0.113.7]:1"), true},
		{"one /64", ByIP(), from("[2001:db8:1:2::1]:1"), from("[2001:db8:1:2:ffff::9]:1"), true},
		{"two /64", ByIP(), from("[2001:db8:1:2::1]:1"), from("[2001:db8:1:3::1]:1"), false},
		{"two zones", ByIP(), from("[fe80::1%a]:1"), from("[fe80::1%b]:1"), true},
		{"a header that is not believed", ByIP(), from("203.0.113.7:1", "X-Forwarded-For", "1.1.1.1"), from("203.0.113.7:1", "X-Forwarded-For", "2.2.2.2"), true},
		{"forwarded", ByIP(), from("127.0.0.1:1", "X-Forwarded-For", "1.1.1.1"), from("127.0.0.1:1", "X-Forwarded-For", "2.2.2.2"), false},
		{"forwarded and forged", ByIP(), from("127.0.0.1:1", "X-Forwarded-For", "8.8.8.8, 1.1.1.1"), from("127.0.0.1:1", "X-Forwarded-For", "9.9.9.9, 1.1.1.1"), true},
		{"forwarded and direct", ByIP(), from("127.0.0.1:1", "X-Forwarded-For", "1.1.1.1"), from("1.1.1.1:1"), true},
		{"one API key in two headers", ByAPIKey(), from("1.1.1.1:1", "Authorization", "Bearer k1"), from("2.2.2.2:1", "X-API-Key", "k1"), true},
		{"the scheme in other letters", ByAPIKey(), from("1.1.1.1:1", "Authorization", "Bearer k1"), from("2.2.2.2:1", "Authorization", "bearer  k1 "), true},
		{"two API keys", ByAPIKey(), from("1.1.1.1:1", "X-API-Key", "k1"), from("1.1.1.1:1", "X-API-Key", "k2"), false},
		{"another scheme is no API key", ByAPIKey(), from("1.1.1.1:1", "Authorization", "Basic k1", "X-API-Key", "k1"), from("2.2.2.2:1", "X-API-Key", "k1"), true},
		{"a header", ByHeader("X-Tenant"), from("1.1.1.1:1", "X-Tenant", "a"), from("2.2.2.2:1", "X-Tenant", "a"), true},
		{"two values of a header", ByHeader("X-Tenant"), from("1.1.1.1:1", "X-Tenant", "a"), from("1.1.1.1:1", "X-Tenant", "b"), false},
		{"two long values", ByHeader("X-Tenant"), from("1.1.1.1:1", "X-Tenant", strings.Repeat("a", 2000)+"1"), from("1.1.1.1:1", "X-Tenant", strings.Repeat("a", 2000)+"2"), false},
		{"a user", user, from("1.1.1.1:1", "test-user", "ann"), from("2.2.2.2:1", "test-user", "ann"), true},
		{"two users", user, from("1.1.1.1:1", "test-user", "ann"), from("1.1.1.1:1", "test-user", "bob"), false},
		{"combined", Combine(user, ByIP()), from("1.1.1.1:1", "test-user", "ann"), from("1.1.1.1:9", "test-user", "ann"), true},
		{"combined, one differs", Combine(user, ByIP()), from("1.1.1.1:1", "test-user", "ann"), from("2.2.2.2:1", "test-user", "ann"), false},
		{"combined, ambiguous when joined", Combine(ByHeader("a"), ByHeader("b")), from("1.1.1.1:1", "a", "x|y", "b", "z"), from("1.1.1.1:1", "a", "x", "b", "y|z"), false},
		{"a route", ByRoute(), from("1.1.1.1:1"), from("2.2.2.2:1"), true},
		{"everyone", Everyone(), from("1.1.1.1:1"), from("2.2.2.2:1"), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := signIn(mustNew(t, newClock().store(), Limit(tt.key, one("rule")), TrustProxies(XForwardedFor, "127.0.0.0/8")))
			if w := ask(h, tt.a.remote, tt.a.header...); w.Code != 200 {
				t.Fatalf("the first request: %d %s", w.Code, w.Body)
			}
			want := 200
			if tt.same {
				want = 429
			}
			if w := ask(h, tt.b.remote, tt.b.header...); w.Code != want {
				t.Errorf("the second request: %d, want %d", w.Code, want)
			}
		})
	}
}

type userKey struct{}

// signIn stands for authentication: it puts the test's user into the context.
func signIn(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, r.Header.Get("test-user"))))
	})
}

func TestIPv6Prefix(t *testing.T) {
	t.Parallel()
	h := mustNew(t, newClock().store(), Limit(ByIP(), one("rule")), IPv6Prefix(128))
	for _, remote := range []string{"[2001:db8::1]:1", "[2001:db8::2]:1"} {
		if w := ask(h, remote); w.Code != 200 {
			t.Errorf("%s: %d", remote, w.Code)
		}
	}
}

func TestMissingIdentity(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		key       Key
		remote    string
		opts      []Option
		codes     []int // of two requests
		challenge string
		detail    string
	}{
		{"no API key", ByAPIKey(), "1.1.1.1:1", nil, []int{401, 401}, "Bearer", "Authorization or X-Api-Key"},
		{"no API key in the one header", ByAPIKey(), "1.1.1.1:1", []Option{APIKeyHeaders("x-key")}, []int{401, 401}, `ApiKey header="X-Key"`, "X-Key"},
		{"no user", ByUser(func(context.Context) string { return "" }), "1.1.1.1:1", nil, []int{401, 401}, "Bearer", "no user"},
		{"no tenant", ByHeader("X-Tenant"), "1.1.1.1:1", nil, []int{400, 400}, "", "x-tenant"},
		{"no address", ByIP(), "@", nil, []int{400, 400}, "", "ip"},
		{"half of a combination", Combine(ByIP(), ByHeader("X-Tenant")), "1.1.1.1:1", nil, []int{400, 400}, "", "x-tenant"},
		{"passes", ByAPIKey(), "1.1.1.1:1", []Option{OnMissing(PassMissing)}, []int{200, 200}, "", ""},
		{"passes, but not the other limit", ByAPIKey(), "1.1.1.1:1", []Option{OnMissing(PassMissing), Limit(ByIP(), one("ip"))}, []int{200, 429}, "", ""},
		{"by address", ByAPIKey(), "1.1.1.1:1", []Option{OnMissing(CountMissingByIP)}, []int{200, 429}, "", ""},
		{"by address, without one", ByAPIKey(), "@", []Option{OnMissing(CountMissingByIP)}, []int{401, 401}, "Bearer", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			told := 0
			opts := append([]Option{Limit(tt.key, one("rule")), Observe(Hooks{Missing: func(*http.Request, string) { told++ }})}, tt.opts...)
			h := mustNew(t, newClock().store(), opts...)
			for i, code := range tt.codes {
				w := ask(h, tt.remote)
				if w.Code != code || w.Header().Get("Www-Authenticate") != tt.challenge {
					t.Errorf("request %d: %d, challenge %q; want %d, %q", i+1, w.Code, w.Header().Get("Www-Authenticate"), code, tt.challenge)
				}
				if !strings.Contains(w.Body.String(), tt.detail) {
					t.Errorf("request %d: %s does not speak of %q", i+1, w.Body, tt.detail)
				}
			}
			if told != 2 {
				t.Errorf("the hook was called %d times, want 2", told)
			}
		})
	}
}

// A request without an API key that is counted by its address must not meet the
// counter of somebody who calls themself by that address.
func TestFallbackMeetsNoOther(t *testing.T) {
	t.Parallel()
	h := mustNew(t, newClock().store(), Limit(ByHeader("X-Tenant"), one("rule")), OnMissing(CountMissingByIP))
	for _, header := range [][]string{nil, {"X-Tenant", "1.1.1.1"}, {"X-Tenant", "ip:1.1.1.1"}} {
		if w := ask(h, "1.1.1.1:1", header...); w.Code != 200 {
			t.Errorf("%q: %d", header, w.Code)
		}
	}
	if w := ask(h, "2.2.2.2:1"); w.Code != 200 {
		t.Errorf("another address: %d", w.Code)
	}
}

func TestSecretsAreHashed(t *testing.T) {
	t.Parallel()
	var keys []string
	store := storeFunc(func(_ context.Context, _ headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
		for _, c := range checks {
			keys = append(keys, c.Key)
		}
		return dst, nil
	})
	rule := headgate.MustRule("rule", headgate.PerHour(9))
	set, err := policy.New([]policy.Rule{{Limits: headgate.MustRule("rule", headgate.PerHour(9)), Per: []policy.Part{{Entry: "api_key"}}}},
		policy.HashKey([]byte("0123456789abcdef")))
	if err != nil {
		t.Fatal(err)
	}
	ask(mustNew(t, store, Limit(ByAPIKey(), rule)), "1.1.1.1:1", "X-API-Key", "sesame")
	ask(mustNew(t, store, Limit(ByAPIKey(), rule), HashKey([]byte("0123456789abcdef"))), "1.1.1.1:1", "X-API-Key", "sesame")
	ask(mustNew(t, store, Policy(set)), "1.1.1.1:1", "X-API-Key", "sesame")
	if len(keys) != 3 || strings.Contains(strings.Join(keys, " "), "sesame") || keys[0] == keys[1] {
		t.Errorf("keys %q", keys)
	}
	if len(keys) == 3 && keys[1] != keys[2] {
		t.Errorf("a limit and a policy count one API key under %q and %q", keys[1], keys[2])
	}
}

func TestPolicyFacts(t *testing.T) {
	t.Parallel()
	var got policy.Descriptor
	set, err := policy.New([]policy.Rule{{
		Limits: one("rule"),
		Match:  []policy.Condition{policy.Equal("route", "GET /v1/items"), policy.Equal("host", "example.com")},
		Per:    []policy.Part{{Entry: "user"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	h := mustNew(t, newClock().store(), Policy(set),
		Fact("user", func(r *http.Request) string { return r.Header.Get("test-user") }),
		Describe(func(_ *http.Request, d policy.Descriptor) policy.Descriptor {
			got = slices.Clone(d)
			return append(d, policy.Entry{Name: "tier", Value: "free"})
		}))
	for i, tt := range []struct {
		header []string
		code   int
	}{
		{[]string{"test-user", "ann"}, 200},
		{[]string{"test-user", "ann"}, 429},
		{[]string{"test-user", "bob", "X-API-Key", "k"}, 200},
		{nil, 200},
		{nil, 200},
	} {
		if w := ask(h, "1.1.1.1:1", tt.header...); w.Code != tt.code {
			t.Errorf("request %d: %d, want %d", i+1, w.Code, tt.code)
		}
	}
	want := policy.Descriptor{{Name: "ip", Value: "1.1.1.1"}, {Name: "route", Value: "GET /v1/items"}, {Name: "method", Value: "GET"}, {Name: "host", Value: "example.com"}, {Name: "path", Value: "/v1/items"}}
	if !slices.Equal(got, want) {
		t.Errorf("facts %q, want %q", got, want)
	}
}

// What Describe returns may be the caller's own, and stays as it is.
func TestDescribeWithItsOwnSlice(t *testing.T) {
	t.Parallel()
	own := policy.Descriptor{{Name: "tenant", Value: "a"}}
	h := mustNew(t, newClock().store(),
		Limit(ByHeader("tenant"), one("rule")), OnMissing(CountMissingByIP),
		Describe(func(*http.Request, policy.Descriptor) policy.Descriptor { return own }))
	for i, code := range []int{200, 429, 429} {
		if w := ask(h, "1.1.1.1:1"); w.Code != code {
			t.Errorf("request %d: %d, want %d", i+1, w.Code, code)
		}
	}
	if len(own) != 1 || own[0].Value != "a" {
		t.Errorf("the caller's slice is now %q", own)
	}
}

// A fact takes the place of the built-in one, wherever that is used.
func TestFactReplacesAddress(t *testing.T) {
	t.Parallel()
	forged := Fact("ip", func(r *http.Request) string { return r.Header.Get("test-ip") })
	for name, opts := range map[string][]Option{
		"by address": {Limit(ByIP(), one("rule")), forged},
		"fallback":   {Limit(ByAPIKey(), one("rule")), forged, OnMissing(CountMissingByIP)},
	} {
		h := mustNew(t, newClock().store(), opts...)
		for i, tt := range []struct {
			ip   string
			code int
		}{{"2001:db8::1", 200}, {"2001:db8::2", 429}, {"::ffff:9.9.9.9", 200}, {"9.9.9.9", 429}} {
			if w := ask(h, "1.1.1.1:1", "test-ip", tt.ip); w.Code != tt.code {
				t.Errorf("%s, request %d: %d, want %d", name, i+1, w.Code, tt.code)
			}
		}
	}
}

func TestPolicyAndLimitsTogether(t *testing.T) {
	t.Parallel()
	set, err := policy.New([]policy.Rule{{Limits: headgate.MustRule("all", headgate.PerHour(2))}})
	if err != nil {
		t.Fatal(err)
	}
	h := mustNew(t, newClock().store(), Policy(set), Limit(ByIP(), one("client")))
	for i, tt := range []struct {
		remote string
		code   int
	}{
		{"1.1.1.1:1", 200}, {"1.1.1.1:1", 429}, {"2.2.2.2:1", 200}, {"3.3.3.3:1", 429},
	} {
		// The second is denied by its client's limit and must not be charged to
		// the other one.
		if w := ask(h, tt.remote); w.Code != tt.code {
			t.Errorf("request %d: %d, want %d", i+1, w.Code, tt.code)
		}
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	find := func(h func(http.Handler) http.Handler, mux *http.ServeMux, inside bool, method, target string) int {
		var all http.Handler = mux
		if inside {
			mux.Handle("GET /items/{id}", h(hello))
		} else {
			mux.Handle("GET /items/{id}", hello)
			all = h(mux)
		}
		w := httptest.NewRecorder()
		all.ServeHTTP(w, httptest.NewRequest(method, target, nil))
		all.ServeHTTP(w, httptest.NewRequest(method, target, nil))
		return w.Code
	}
	for _, tt := range []struct {
		name           string
		inside         bool
		asked          bool // by MuxRoute
		method, target string
		want           string
	}{
		{"inside the mux", true, false, "GET", "/items/7", "GET /items/{id}"},
		{"HEAD is served by GET", true, false, "HEAD", "/items/7", "GET /items/{id}"},
		{"outside, without help", false, false, "GET", "/items/7", "GET /items/7"},
		{"outside", false, true, "GET", "/items/7", "GET /items/{id}"},
		{"outside, no pattern", false, true, "GET", "/else", Unmatched},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			mux := http.NewServeMux()
			var key string
			store := storeFunc(func(_ context.Context, _ headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
				key = checks[0].Key
				return dst, nil
			})
			opts := []Option{Limit(ByRoute(), one("rule"))}
			if tt.asked {
				opts = append(opts, Route(MuxRoute(mux)))
			}
			h, err := New(store, opts...)
			if err != nil {
				t.Fatal(err)
			}
			find(h, mux, tt.inside, tt.method, tt.target)
			if key != tt.want {
				t.Errorf("route %q, want %q", key, tt.want)
			}
		})
	}
}
