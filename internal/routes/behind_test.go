package routes

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/policy"
)

// What the servers behind take for the same path is of the same route.
func TestBehind(t *testing.T) {
	t.Parallel()
	set := newSet(t, []policy.Rule{rule("a", policy.Equal("route", "POST /login", "POST /members/{ID}"), policy.Prefix("route", "POST /admin/", "POST /v"))}, policy.Behind("express"))
	n, problems := New(set, 0)
	if problems != nil {
		t.Fatal(problems)
	}
	for raw, want := range map[string]string{
		"/login": "POST /login", "/LOGIN/": "POST /login", "/Members/7/": "POST /members/{ID}", "/Admin": "POST /admin/", "/admin/X": "POST /admin/", "/V2": "POST /v*", "/other": Unmatched,
	} {
		p, wrong := spelling.Read(raw, n.Forms())
		if wrong != nil {
			t.Fatal(wrong)
		}
		if got, wrong := n.Find(&http.Request{Method: "POST", URL: &url.URL{Path: raw}}, &p); got != want || wrong != nil {
			t.Errorf("%s is of %q, %v; want %q", raw, got, wrong, want)
		}
	}
	if n, _ := New(set, spelling.ExactCase); n.Forms()&spelling.IgnoreCase != 0 {
		t.Error("what is known goes before what is said")
	}
}

// Routes and paths that no request is read as are mistakes.
func TestWhatIsNeverRead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		behind string
		c      policy.Condition
		want   string // "" is no problem
	}{
		{"express", policy.Equal("route", "POST /Login"), `"POST /Login" is the same as "POST /login"`},
		{"express", policy.Equal("route", "POST /login/{$}"), `"POST /login/{$}" is the same as "POST /login"`},
		{"express", policy.Equal("route", "POST /{$}"), ""},
		{"express", policy.Prefix("route", "POST /Admin/"), `"POST /Admin/*" is the same as "POST /admin/*"`},
		{"express", policy.Equal("path", "/login/"), `"/login/" is the same as "/login"`},
		{"express", policy.Prefix("path", "/admin/"), `write [/admin, /admin/*]`},
		{"express", policy.Condition{Entry: "path", Equals: []string{"/admin"}, Prefixes: []string{"/admin/"}}, ""},
		{"rails", policy.Equal("route", "GET /feed.xml"), `"GET /feed.xml" is the same as "GET /feed"`},
		{"php", policy.Equal("route", "POST /index.php"), `"POST /index.php" is the same as "POST /{$}"`},
		{"php", policy.Equal("route", "POST /login.php/x"), `"POST /login.php/x" is the same as "POST /login.php"`},
		{"php", policy.Equal("route", "POST /login.php", "POST /Login"), ""},
		{"go", policy.Equal("route", "POST /Login", "POST /login/{$}"), ""},
	} {
		_, problems := New(newSet(t, []policy.Rule{rule("a", tt.c)}, policy.Behind(tt.behind)), 0)
		if text := strings.Join(problems, "\n"); (text == "") != (tt.want == "") || !strings.Contains(text, tt.want) {
			t.Errorf("behind %s: the problem of %v is %q, want %q", tt.behind, tt.c, text, tt.want)
		}
	}
}

// TestUnsaid: who has rules for routes is told to say what is behind, unless the policy or the door
// says it.
func TestUnsaid(t *testing.T) {
	route, other := []policy.Rule{rule("login", policy.Equal("route", "POST /login"))}, []policy.Rule{rule("all")}
	for _, test := range []struct {
		name  string
		rules []policy.Rule
		said  spelling.Forms
		opts  []policy.Option
		told  bool
	}{
		{"nothing is said", route, 0, nil, true},
		{"no routes", other, 0, nil, false},
		{"the policy says it", route, 0, []policy.Option{policy.Behind("express")}, false},
		{"the policy says any", route, 0, []policy.Option{policy.Behind("any")}, false},
		{"the door says it", route, spelling.ExactCase | spelling.ExactSlash, nil, false},
	} {
		names, problems := New(newSet(t, test.rules, test.opts...), test.said)
		if told := names.Unsaid(); told != test.told || problems != nil {
			t.Errorf("%s: told %v, %q", test.name, told, problems)
		}
	}
}
