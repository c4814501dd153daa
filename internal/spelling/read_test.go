package spelling_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/internal/spelling/spellingtest"
)

const (
	encoded = spelling.EncodedSlashes
	double  = spelling.DoubleEncoding
	leading = spelling.LeadingSlashes
	cut     = spelling.CutParameters
	kept    = spelling.KeptParameters
	php     = spelling.CutPathInfo | spelling.FrontController
)

func TestRead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		raw         string
		forms       spelling.Forms
		text, whole string // whole is the other reading, with parameters
	}{
		{"", 0, "/", ""},
		{"/", 0, "/", ""},
		{"/v1/token", 0, "/v1/token", ""},
		{"/v1/token/", 0, "/v1/token/", ""},
		{"/-_.~!$&'()*+,=:@/a.b/..c/.d/e..", 0, "/-_.~!$&'()*+,=:@/a.b/..c/.d/e..", ""},
		{"/caf%C3%A9", 0, "/café", ""},
		{"/café", 0, "/café", ""},
		{"/a%20b", 0, "/a b", ""},
		{"/%61dmin/x", 0, "/admin/x", ""},
		{"/100%25", 0, "/100%", ""},
		{"/100%25zz", 0, "/100%zz", ""},
		{"/a%23b%3Fc", 0, "/a#b?c", ""},
		{"/caf%E9", spelling.OtherBytes, "/caf\xe9", ""}, // Latin-1
		{"/a//b", 0, "/a/b", ""},
		{"/a///b//", 0, "/a/b/", ""},
		{"/a[0]", 0, "/a[0]", ""},
		{"/a;b", 0, "/a", "/a;b"},
		{"/x//a%3bb", 0, "/x/a", "/x/a;b"},
		{"/a/;b", 0, "/a/", "/a/;b"},
		{"/;", 0, "/", "/;"},
		{"/a;b", kept, "/a;b", ""},
		{"/a;b/c", kept, "/a;b/c", ""},
		{"/..;/a", kept, "/..;/a", ""},
		{"/a;b", cut, "/a", ""},
		{"/a;b/c;d=e/", cut, "/a/c/", ""},
		{"/a;b/c%3Bd", cut, "/a/c", "/a/c;d"},
		{"/a/;b", cut, "/a/", ""},
		{"/a;%2f..%2f", cut | encoded, "/a", ""},
		{"/a%2Fb%5cc", encoded, "/a%2Fb%5Cc", ""},
		{"/%2fa", encoded, "/%2Fa", ""},
		{"/%2561", double, "/%2561", ""},
		{"/%252F", double | encoded, "/%252F", ""},
		{"/%2F", double | encoded, "/%2F", ""},
		{"//a", leading, "/a", ""},
		{"///", leading, "/", ""},
		{"/login.php", 0, "/login.php", ""},
		{"/a.photo/x", 0, "/a.photo/x", ""},
		{"/login.php/x", spelling.KeptPathInfo, "/login.php/x", ""},
		{"/login.php/x/y/", spelling.CutPathInfo, "/login.php", ""},
		{"/login%2ephp/x", spelling.CutPathInfo, "/login.php", ""},
		{"/sub/login.php//x", spelling.CutPathInfo, "/sub/login.php", ""},
		{"/index.php", spelling.FrontController, "/", ""},
		{"/index.php/", spelling.FrontController, "/", ""},
		{"/index.php/login", spelling.FrontController, "/login", ""},
		{"/index.phplogin", spelling.FrontController, "/login", ""},
		{"/index%2ephp/login/", spelling.FrontController, "/login/", ""},
		{"/index.php/login.php/x", php, "/login.php", ""},
		{"/index.php", spelling.CutPathInfo, "/index.php", ""},
		{"/Login/A", spelling.IgnoreCase, "/login/a", ""},
		{"/%4Cogin/%C3%89", spelling.IgnoreCase, "/login/é", ""},
		{"/\u212a\u03a3", spelling.IgnoreCase, "/\u212aσ", ""},
		{"/login/", spelling.IgnoreSlash, "/login", ""},
		{"/", spelling.IgnoreSlash, "/", ""},
		{"/%6cogin//", spelling.IgnoreSlash, "/login", ""},
		{"/login/;x", spelling.IgnoreSlash | cut, "/login", ""},
		{"/login.json", spelling.CutExtensions, "/login", ""},
		{"/login.a%2eb", spelling.CutExtensions, "/login", ""},
		{"/.env", spelling.CutExtensions, "/.env", ""},
		{"/v1.2/log%69n.json/", folding, "/v1.2/login", ""},
	} {
		p, err := spelling.Read(tt.raw, tt.forms)
		whole := ""
		if p.Kept != nil {
			whole = p.Kept.Text
		}
		if err != nil || p.Text != tt.text || whole != tt.whole {
			t.Errorf("%q is read as %q or %q, %v; want %q or %q", tt.raw, p.Text, whole, err, tt.text, tt.whole)
		}
		if u := p.URL(); err == nil && strings.Count(u.EscapedPath(), "/") != strings.Count(p.Text, "/") {
			t.Errorf("%q has the URL %q, which has other segments than %q", tt.raw, u.EscapedPath(), p.Text)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		raw    string
		forms  spelling.Forms
		reason spelling.Reason
		at     int
	}{
		{"admin", 0, spelling.NoPath, 1},
		{"*", 0, spelling.NoPath, 1},
		{"/v1/token#x", 0, spelling.Fragment, 10},
		{`/a\b`, encoded, spelling.Backslash, 3},
		{"/a b", 0, spelling.Control, 3},
		{"/a\tb", 0, spelling.Control, 3},
		{"/a%00", 0, spelling.Control, 3},
		{"/a%0ab", 0, spelling.Control, 3},
		{"/a/b%7F", 0, spelling.Control, 5},
		{"/a%", 0, spelling.Escape, 3},
		{"/a%2", 0, spelling.Escape, 3},
		{"/%zz", 0, spelling.Escape, 2},
		{"/%u002f", 0, spelling.Escape, 2},
		{"/x/..", 0, spelling.Dots, 4},
		{"/./x", 0, spelling.Dots, 2},
		{"/x/%2E%2e/y", 0, spelling.Dots, 4},
		{"/x/.%2e", 0, spelling.Dots, 4},
		{"/x/..;a/y", cut, spelling.Dots, 4},
		{"/x/..;a", 0, spelling.Dots, 4},
		{"/a%2f..%2fb", encoded, spelling.Dots, 2},
		{"/a%2fb", 0, spelling.Encoded, 3},
		{"/a/b%5Cc", 0, spelling.Encoded, 5},
		{"/v1/token;%2f..%2f..%2fx", 0, spelling.Encoded, 11},
		{"/v1/token;%2fx", encoded, spelling.Parameters, 10},
		{"/v1/token;%252f..", 0, spelling.Double, 11},
		{"/%2561dmin/%25zz", 0, spelling.Double, 2},
		{"/%25%36%31", 0, spelling.Double, 2},
		{"/%252561", 0, spelling.Double, 2},
		{"//a", 0, spelling.Leading, 2},
		{"/;a/b", 0, spelling.Parameters, 2},
		{"/;a/b", cut, spelling.Parameters, 2},
		{"/a;b/c", 0, spelling.Parameters, 3},
		{"/a%3bb/c", cut, spelling.Parameters, 3},
		{"/%c0%ae%c0%ae/x", 0, spelling.Overlong, 2},
		{"/a%e0%80%af", 0, spelling.Overlong, 3},
		{"/%f0%80%80%af", 0, spelling.Overlong, 2},
		{"/a/%f8%80%80%80%ae", 0, spelling.Overlong, 4},
		{"/%fc%80%80%80%80%af", 0, spelling.Overlong, 2},
		{"/%c0%ae", spelling.OtherBytes, spelling.Overlong, 2},
		{"/caf%E9", 0, spelling.Bytes, 5},
		{"/login%FF", 0, spelling.Bytes, 7},
		{"/l\x80ogin/x", 0, spelling.Bytes, 3},
		{"/a/%ed%a0%80", 0, spelling.Bytes, 4},
		{"/login%C3", 0, spelling.Bytes, 7},
		{"/login.php/x", 0, spelling.PathInfo, 2},
		{"/a/login.php/", 0, spelling.PathInfo, 4},
		{"/index.phplogin", spelling.CutPathInfo, spelling.PathInfo, 2},
		{"/login.php5", php, spelling.PathInfo, 2},
		{"/login.PHP/x", php, spelling.PathInfo, 2},
		{"/a.phtml/x", php, spelling.PathInfo, 2},
		{"/sub/index.php/login", spelling.FrontController, spelling.PathInfo, 6},
		{"/index.php/index.php/login", spelling.FrontController, spelling.PathInfo, 12},
		{"/index.php/index.php/login", php, spelling.PathInfo, 12},
		{"/sub/index.php/login", php, spelling.PathInfo, 6},
		{"/login.php;x/y", spelling.CutPathInfo | kept, spelling.PathInfo, 2},
		{"/index.php/login;x", spelling.FrontController, spelling.Parameters, 17},
	} {
		p, err := spelling.Read(tt.raw, tt.forms)
		if err == nil || err.Reason != tt.reason || err.At != tt.at {
			t.Errorf("%q is read as %q, %v; want %v at %d", tt.raw, p.Text, err, tt.reason, tt.at)
		}
		if err != nil && !strings.Contains(err.Error(), err.Reason.String()) {
			t.Errorf("%v does not say %v", err, err.Reason)
		}
	}
}

func TestMethod(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]bool{"GET": true, "M-SEARCH": true, "get": false, "Post": false} {
		if spelling.Method(method) != want {
			t.Errorf("%s: %v, want %v", method, !want, want)
		}
	}
}

func TestForms(t *testing.T) {
	t.Parallel()
	f, problem := spelling.ParseForms(spelling.Words()[:4])
	if want := encoded | double | leading | cut; f != want || problem != "" {
		t.Errorf("%b %s, want %b", f, problem, want)
	}
	for _, list := range [][]string{{"tomcat"}, {""}, {"cut_parameters", "kept_parameters"}, {"front_controller", "kept_path_info"}, {"exact_case", "ignore_case"}} {
		if _, problem := spelling.ParseForms(list); problem == "" {
			t.Errorf("%q is no mistake", list)
		}
	}
	if spelling.Forms(1<<15).Problem() == "" {
		t.Error("what nobody knows is no mistake")
	}
}

// someForms are none, each of them alone, and as many as may be said together. What is in
// between, the fuzz test tries.
func someForms() []spelling.Forms {
	return []spelling.Forms{
		0, encoded, double, leading, cut, kept, encoded | double | leading | cut, encoded | double | leading | kept,
		spelling.OtherBytes, php, spelling.KeptPathInfo, folding, php | folding | kept | double,
	}
}

// oneReading says how a path that is read could be taken for one that is protected, and
// is not read as that; "" if it could not.
func oneReading(raw string, forms spelling.Forms) string {
	raw = spellingtest.PathOf(raw)
	p, err := spelling.Read(raw, forms)
	if err != nil {
		return ""
	}
	as := []string{spellingtest.Protected(p.Text)}
	if forms&spelling.CutExtensions != 0 && p.Text == "/script" {
		as = append(as, "script") // Rules name it so.
	}
	if p.Kept != nil {
		as = append(as, spellingtest.Protected(p.Kept.Text))
	}
	if reading := spellingtest.GotAround(raw, forms, as...); reading != "" {
		return reading + ", and is read as " + p.Text
	}
	return ""
}

// No path that is read leads some server to a protected path that it is not read as.
func TestOneReading(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(11, 22))
	read := 0
	for range 2000 {
		raw := spellingtest.Spellings(random)
		for _, forms := range someForms() {
			if wrong := oneReading(raw, forms); wrong != "" {
				t.Errorf("%q with the forms %b may be taken for %s", raw, forms, wrong)
			}
			if _, err := spelling.Read(raw, forms); err == nil {
				read++
			}
		}
	}
	if read < 500 {
		t.Errorf("%d paths are read: the others show nothing", read)
	}
}

func FuzzRead(f *testing.F) {
	for _, raw := range []string{"/v1/token", "/v1/token;%2f..%2f..%2fx", "/admin/x/../../y", "//x/v1/token", "/%2561dmin/%25zz", "/v1/token#x", "/caf%C3%A9;a", "/%c0%ae/"} {
		f.Add(raw, uint16(0))
	}
	f.Fuzz(func(t *testing.T, raw string, bits uint16) {
		forms := spelling.Forms(bits)
		if len(raw) > 64 || forms.Problem() != "" {
			return
		}
		if wrong := oneReading(raw, forms); wrong != "" {
			t.Errorf("%q with the forms %b may be taken for %s", raw, forms, wrong)
		}
	})
}

// What nearly all paths are made of costs nothing.
func TestPlainPathsAllocateNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() {
		if _, err := spelling.Read("/v1/items/7", 0); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("a plain path allocates %v times", n)
	}
}
