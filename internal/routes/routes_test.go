package routes

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/policy"
)

func rule(name string, conditions ...policy.Condition) policy.Rule {
	return policy.Rule{Limits: headgate.MustRule(name, headgate.PerHour(1)), Match: conditions}
}

func newSet(t *testing.T, rules []policy.Rule, opts ...policy.Option) *policy.Set {
	t.Helper()
	set, err := policy.New(rules, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// everywhere names routes wherever a policy can.
func everywhere(t *testing.T) *policy.Set {
	t.Helper()
	tariff := policy.Rule{Name: "tariff", Tariff: &policy.Tariff{Entry: "route", Tiers: []policy.Tier{
		{Value: "GET /tariff", Limits: headgate.MustRule("tariff", headgate.PerHour(2))},
	}, Other: headgate.MustRule("tariff", headgate.PerHour(1))}}
	costs := rule("costs")
	costs.Costs = &policy.Costs{Entry: "route", Values: map[string]int64{"POST /export": 20, "GET /items/{id}": 2}, Other: 1}
	override := rule("override")
	override.Overrides = []policy.Override{{Match: []policy.Condition{policy.Equal("route", "GET /override/{x}")}, Limits: headgate.MustRule("override", headgate.PerHour(2))}}
	return newSet(t, []policy.Rule{
		rule("equal", policy.Equal("route", "GET /items/{id}", "no pattern", "api.example.com/host")),
		rule("below", policy.Prefix("route", "GET /v1/", "PUT ", "GET /name", "DELETE /names/of")),
		rule("other", policy.Equal("path", "/other")),
		tariff, costs, override,
	},
		policy.Denied(policy.ListEntry{Name: "denied", Match: []policy.Condition{policy.Equal("route", "GET /denied/")}}),
		policy.Allowed(policy.ListEntry{Name: "allowed", Match: []policy.Condition{policy.Equal("route", "GET /allowed")}}))
}

func TestOf(t *testing.T) {
	t.Parallel()
	n, problems := New(everywhere(t), 0, "GET /given/{id}")
	if problems != nil || !n.More() {
		t.Fatalf("problems %q, more %v", problems, n.More())
	}
	for _, tt := range []struct{ method, url, want string }{
		{"GET", "/items/7", "GET /items/{id}"},
		{"HEAD", "/items/7?x", "GET /items/{id}"},
		{"GET", "/items/a%2Fb", "GET /items/{id}"},
		{"GET", "//items//7", "GET /items/{id}"},
		{"POST", "/items/7", Unmatched},
		{"GET", "/items/7/8", Unmatched},
		{"GET", "//api.example.com/host", Unmatched},
		{"GET", "http://api.example.com/host", "api.example.com/host"},
		{"GET", "http://api.example.com:8443/host", "api.example.com/host"},
		{"GET", "http://example.com/host", Unmatched},
		{"GET", "/v1/a/b", "GET /v1/"},
		{"GET", "/v1", "GET /v1/"},
		{"PUT", "/anything", "PUT /"},
		{"GET", "/names", "GET /name*"},
		{"GET", "//names", "GET /name*"},
		{"DELETE", "/names/of/all", "DELETE /names/of*"},
		{"DELETE", "/names", Unmatched},
		{"GET", "/tariff", "GET /tariff"},
		{"POST", "/export", "POST /export"},
		{"GET", "/override/1", "GET /override/{x}"},
		{"GET", "/denied/a", "GET /denied/"},
		{"GET", "/allowed", "GET /allowed"},
		{"GET", "/given/7", "GET /given/{id}"},
		{"GET", "/other", Unmatched},
		{"FROB", "/items/7", Unmatched},
	} {
		u, err := url.ParseRequestURI(tt.url) // "//x" is a path
		if err != nil {
			t.Fatal(err)
		}
		p, wrong := spelling.Read(u.EscapedPath(), spelling.EncodedSlashes|spelling.LeadingSlashes)
		if wrong != nil {
			t.Fatal(wrong)
		}
		if got := n.Of(&http.Request{Method: tt.method, Host: u.Host, URL: &url.URL{Path: u.Path, RawPath: u.RawPath}}, &p); got != tt.want {
			t.Errorf("%s %s is %q, want %q", tt.method, tt.url, got, tt.want)
		}
	}
}

// A beginning that cannot be a pattern beside the others is looked at after them.
func TestBeginningsBesidePatterns(t *testing.T) {
	t.Parallel()
	n, problems := New(newSet(t, []policy.Rule{
		rule("any", policy.Equal("route", "/any")),
		rule("below", policy.Prefix("route", "PATCH ", "GET /v", "GET /v9", "PATCH /own/")),
	}), 0)
	if problems != nil {
		t.Fatal(problems)
	}
	for request, want := range map[string]string{
		"PATCH /items/7": "PATCH *",
		"PATCH /any":     "/any",
		"PATCH /own/7":   "PATCH /own/",
		"GET /v2/x":      "GET /v*",
		"GET /v9/x":      "GET /v9*",
		"GET /else":      Unmatched,
	} {
		method, path, _ := strings.Cut(request, " ")
		if got := n.Of(&http.Request{Method: method, URL: &url.URL{Path: path}}, &spelling.Path{Text: path}); got != want {
			t.Errorf("%s is %q, want %q", request, got, want)
		}
	}
}

func TestWithoutRoutes(t *testing.T) {
	t.Parallel()
	n, problems := New(newSet(t, []policy.Rule{rule("other", policy.Equal("path", "/other"))}), 0)
	if got := n.Of(&http.Request{Method: "GET", URL: &url.URL{Path: "/"}}, &spelling.Path{Text: "/"}); got != Unmatched || problems != nil || n.More() {
		t.Errorf("%q, problems %q, more %v", got, problems, n.More())
	}
}

func TestProblems(t *testing.T) {
	t.Parallel()
	set := newSet(t, []policy.Rule{
		rule("a", policy.Equal("route", "GET /{", "GET /a/{x}", "GET /a/{y}")),
		rule("b", policy.Equal("route", "GET /b/{x}/c"), policy.Prefix("route", "GET /{z}/y/")),
	})
	n, problems := New(set, 0)
	all := strings.Join(problems, "\n")
	for _, want := range []string{`rule "a": the route "GET /{" is no pattern such as GET /items/{id}: `, `rule "a": the route "GET /a/{y}" conflicts with "GET /a/{x}"`, `rule "b": the route "GET /{z}/y/" conflicts with "GET /b/{x}/c"`} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not among the problems:\n%s", want, all)
		}
	}
	if got := n.Of(&http.Request{Method: "GET", URL: &url.URL{Path: "/a/7"}}, &spelling.Path{Text: "/a/7"}); got != "GET /a/{x}" {
		t.Errorf("the patterns that are fine give %q", got)
	}
}

// TestPatternsAsWritten: what ServeMux takes for a pattern is found, by its text, however
// it is spaced and whatever letters its host has.
func TestPatternsAsWritten(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"GET Api.Example/a", "GET  Api.Example/a", "GET\tApi.Example/a", "GET \t/a", "Api.Example/a"} {
		var table Table
		if problem := table.Add(pattern); problem != "" {
			t.Errorf("%q: %s", pattern, problem)
		}
		r := &http.Request{Method: http.MethodGet, Host: "api.example", URL: &url.URL{Path: "/a"}}
		if got := table.Find(r, &spelling.Path{Text: "/a"}); got != pattern {
			t.Errorf("%q is found as %q", pattern, got)
		}
	}
}

func TestTwoReadings(t *testing.T) {
	t.Parallel()
	n, problems := New(newSet(t, []policy.Rule{rule("a", policy.Equal("route", "/items/{id}", "/items/special", "/token"))}), 0)
	if problems != nil {
		t.Fatal(problems)
	}
	for raw, want := range map[string]string{
		"/token;a=b":     "/token",      // with the parameters it is of none
		"/other;a=b":     Unmatched,     // so it is in both ways
		"/items/7;a=b":   "/items/{id}", // so it is in both ways
		"/items/;a=b":    "/items/{id}", // without the parameters it is of none
		"/items/special": "/items/special",
	} {
		p, wrong := spelling.Read(raw, 0)
		if wrong != nil {
			t.Fatal(wrong)
		}
		if got, wrong := n.Find(&http.Request{Method: "GET", URL: &url.URL{Path: raw}}, &p); got != want || wrong != nil {
			t.Errorf("%s is of %q, %v; want %q", raw, got, wrong, want)
		}
	}
	p, _ := spelling.Read("/items/special;a", 0)
	if got, wrong := n.Find(&http.Request{Method: "GET", URL: &url.URL{}}, &p); wrong == nil || wrong.Reason != spelling.Parameters || wrong.At != 15 {
		t.Errorf("what is of two routes is of %q, %v", got, wrong)
	}
}
