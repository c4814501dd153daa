package gateway

import (
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/policy"
)

// setOf is a set of rules, each for one of the conditions.
func setOf(t *testing.T, conditions ...policy.Condition) *policy.Set {
	t.Helper()
	var rules []policy.Rule
	for i, c := range conditions {
		rules = append(rules, policy.Rule{Match: []policy.Condition{c}, Limits: headgate.MustRule(string(rune('a'+i)), headgate.PerHour(1))})
	}
	set, err := policy.New(rules)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// A policy whose routes cannot be found is refused before it is in force.
func TestCheck(t *testing.T) {
	t.Parallel()
	o := to("http://127.0.0.1:1")
	o.Routes = []gatewayfile.Route{{Pattern: "GET /a/{x}/b"}, {Pattern: "GET /c/{x}/d", Name: "named"}}
	g, err := New(t.Context(), decider(t, nil), o)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	err = g.Check(setOf(t, policy.Equal("route", "GET /{", "GET /a/b/{y}")))
	for _, want := range []string{`rule "a": the route "GET /{" is no pattern`, `rule "a": the route "GET /a/b/{y}" conflicts with "GET /a/{x}/b"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q in it", err, want)
		}
	}
	if err := g.Check(setOf(t, policy.Equal("route", "GET /x", "GET /c/d/{y}"))); err != nil {
		t.Error(err)
	}
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	routed := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(name)) }
	}
	o := Options{
		Settings: gatewayfile.Settings{
			Upstreams: []gatewayfile.Upstream{
				{Name: "main", Targets: []string{upstream(t, routed("main")).URL}},
				{Name: "other", Targets: []string{upstream(t, routed("other")).URL}},
			},
			Routes: []gatewayfile.Route{
				{Pattern: "GET /items/{id}"},
				{Pattern: "/reports/", Name: "reports", Upstream: "other"},
				{Pattern: "admin.example/", Upstream: "other"},
			},
		},
	}
	rules := []policy.Rule{
		{Match: []policy.Condition{policy.Equal("route", "reports")}, Limits: headgate.MustRule("reports", headgate.PerHour(1))},
		{Per: []policy.Part{{Entry: "route"}}, Limits: headgate.MustRule("each", headgate.PerHour(2))},
		// A rule may look more closely than the routes do.
		{Match: []policy.Condition{policy.Equal("route", "GET /items/special")}, Limits: headgate.MustRule("special", headgate.PerHour(1))},
	}
	g := serveGateway(t, decider(t, rules), o)
	c := client(t)
	for i, tt := range []struct {
		method, path string
		status       int
		text         string
	}{
		{"GET", "/items/1", 200, "main"},
		{"GET", "/items/2", 200, "main"},
		{"GET", "/items/3", 429, ""}, // the route has two, whatever the item
		{"GET", "/items/special", 200, "main"},
		{"GET", "/items/special", 429, ""},
		{"GET", "/reports/x", 200, "other"},
		{"GET", "/reports/y", 429, ""},
		{"POST", "/items/1", 404, ""},
		{"GET", "/nothing", 404, ""},
		{"GET", "/nothing/else", 429, ""}, // guessing is limited too
	} {
		a := ask(t, c, tt.method, g.url+tt.path, nil)
		if a.StatusCode != tt.status || tt.text != "" && a.text != tt.text {
			t.Errorf("request %d, %s %s: %s %q, want %d %q", i+1, tt.method, tt.path, a.Status, a.text, tt.status, tt.text)
		}
	}
	if a := get(t, c, g.url+"/nothing", "Host: admin.example"); a.text != "other" {
		t.Errorf("the other host is answered with %s %q", a.Status, a.text)
	}
}

// A path that some servers read as another one does not get past the rules for
// that.
func TestPathsThatCanBeReadInTwoWays(t *testing.T) {
	t.Parallel()
	rules := []policy.Rule{{Match: []policy.Condition{policy.Equal("route", "/admin/{rest...}")}, Limits: headgate.MustRule("admin", headgate.PerHour(1))}}
	g := serveGateway(t, decider(t, rules), to(upstream(t, hello).URL))
	for path, status := range map[string]int{
		"/admin%2Fx":              400,
		"/admin%2fx":              400,
		"/public/%2e%2e/admin/x":  400,
		"/public/..%2fadmin/x":    400,
		"/public/%252e%252e/x":    400,
		"/admin%5Cx":              400,
		"/admin%255cx":            400,
		"/admin;a=b/x":            400,
		"/%61dmin/x":              200, // the route's, and plain once it is read
		"/items/@scope%2Fpackage": 400,
		"//admin/x":               400,
		"/x//y":                   200,
		"/caf%C3%A9":              200,
		"/100%25":                 200,
		"/a;b=c":                  200,
	} {
		res, err := http.ReadResponse(raw(t, g.addr, "GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n"), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != status {
			t.Errorf("%s is answered with %s, want %d", path, res.Status, status)
		}
	}
}

// A policy whose routes were never checked does what it can.
func TestPolicyThatWasNotChecked(t *testing.T) {
	t.Parallel()
	rules := []policy.Rule{
		{Match: []policy.Condition{policy.Equal("route", "GET /{")}, Limits: headgate.MustRule("a", headgate.PerHour(1))},
		{Match: []policy.Condition{policy.Equal("kind", "x")}, Limits: headgate.MustRule("b", headgate.PerHour(1))},
	}
	g := serveGateway(t, decider(t, rules), to(upstream(t, hello).URL))
	get(t, client(t), g.url+"/").wants(t, 200)
	for _, want := range []string{"names a route that cannot be found", "looks at entries that no request will have\" entries=kind"} {
		if !strings.Contains(g.log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, g.log)
		}
	}
}

func TestEntriesThatTheTableAdds(t *testing.T) {
	t.Parallel()
	rule := perKey(1)
	rule.Match = []policy.Condition{policy.Equal("tier", "free")}
	d := decider(t, []policy.Rule{rule}, policy.SubjectTable(policy.Subjects{Table: []policy.Subject{{Key: "k", Entries: []policy.Entry{{Name: "tier", Value: "free"}}}}}))
	g := serveGateway(t, d, to(upstream(t, hello).URL))
	get(t, client(t), g.url+"/", "X-API-Key: k").wants(t, 200, "X-RateLimit-Limit: 1")
	if strings.Contains(g.log.String(), "no request will have") {
		t.Errorf("the log is %s", g.log)
	}
}
