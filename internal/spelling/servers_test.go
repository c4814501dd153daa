package spelling_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/internal/spelling/spellingtest"
)

// What real servers were seen to read is among what the attacks suppose, and no path is
// read as another one than a server reads it as, whatever is known of the server.
func TestRealServers(t *testing.T) {
	t.Parallel()
	servers, targets, err := spellingtest.Servers()
	if err != nil {
		t.Fatal(err)
	}
	type question struct {
		raw   string
		forms spelling.Forms
	}
	asProtected := make(map[question]map[string]bool) // it may be read as what these rules protect
	may := func(raw string, forms spelling.Forms, rule string) bool {
		q := question{raw, forms}
		if asProtected[q] == nil {
			asProtected[q] = make(map[string]bool)
			for _, reading := range spellingtest.Readings(raw, forms) {
				asProtected[q][spellingtest.Protected(reading)] = true
			}
		}
		return asProtected[q][rule]
	}
	reached := 0
	for _, s := range servers {
		for _, target := range targets {
			read, raw := s.Read[target], spellingtest.PathOf(target)
			if read != "token" && read != "admin" && read != "script" {
				continue
			}
			reached++
			if !may(raw, s.Forms, read) {
				t.Errorf("%s reads %q as %s, which is not among the readings by %v", s.Column, target, read, s.Forms.Words())
			}
			for _, forms := range append(someForms(), s.Forms) {
				// What is not said of the server is true of it only if it is refused.
				if forms |= s.Forms & folding; forms&^s.Forms != 0 {
					continue
				}
				p, wrong := spelling.Read(raw, forms)
				if wrong == nil && spellingtest.Protected(p.Text) != read && (p.Kept == nil || spellingtest.Protected(p.Kept.Text) != read) {
					t.Errorf("%s reads %q as %s, and by %v it is read as %q", s.Column, target, read, forms.Words(), p.Text)
				}
			}
		}
	}
	if len(servers) < 30 || reached < 1000 {
		t.Errorf("%d servers have answered %d requests as protected ones: the table is not whole", len(servers), reached)
	}
}

// Whatever more would be said of a server is not true of any of those that have its name, or
// makes no difference to what they were asked.
func TestNothingMoreIsKnown(t *testing.T) {
	t.Parallel()
	servers, targets, err := spellingtest.Servers()
	if err != nil {
		t.Fatal(err)
	}
	for form, what := range map[spelling.Forms]string{encoded: "%2f", leading: "//", spelling.OtherBytes: "%ff", spelling.IgnoreSlash: "/v1/token/", spelling.IgnoreCase: "/V1/token", spelling.CutExtensions: "/v1/token.json"} {
		shown := make(map[string]bool)
		for _, s := range servers {
			for _, target := range targets {
				read, raw := s.Read[target], spellingtest.PathOf(target)
				if read != "token" && read != "admin" && read != "script" {
					continue
				}
				with, without := s.Forms|form, s.Forms&^form
				if form&folding == 0 {
					with, without = without, with
				}
				// The reading of the server is one with the form, and not one without.
				of := func(forms spelling.Forms) bool {
					p, wrong := spelling.Read(raw, forms)
					return wrong != nil || spellingtest.Protected(p.Text) == read || p.Kept != nil
				}
				if of(with) && !of(without) {
					shown[s.Name] = true
				}
			}
		}
		for _, s := range servers {
			if has := s.Forms&form != 0; has != (shown[s.Name] == (form&folding != 0)) {
				t.Errorf("%s: %v is said to be %v of it, and paths with %s show that it is %v", s.Column, form.Words(), has, what, !has)
			}
		}
	}
}

// folding are the forms by which several paths are one.
const folding = spelling.IgnoreCase | spelling.IgnoreSlash | spelling.CutExtensions

func TestBehind(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		names []string
		want  spelling.Forms
	}{
		{nil, 0},
		{[]string{"tomcat"}, encoded | double | leading | cut | spelling.OtherBytes | spelling.KeptPathInfo},
		{[]string{"nginx", "koa"}, double | leading | kept | spelling.OtherBytes | spelling.KeptPathInfo | spelling.IgnoreCase | spelling.IgnoreSlash},
		{[]string{"koa", "jetty"}, encoded | double | leading | spelling.OtherBytes | spelling.KeptPathInfo | spelling.IgnoreCase | spelling.IgnoreSlash},
		{[]string{spelling.Any}, double | folding},
	} {
		if f, problem := spelling.Behind(tt.names...); f != tt.want || problem != "" {
			t.Errorf("%v: %v, %q; want %v", tt.names, f.Words(), problem, tt.want.Words())
		}
	}
	if _, problem := spelling.Behind("expres"); !strings.Contains(problem, `did you mean "express"?`) {
		t.Error(problem)
	}
	known, _ := spelling.Behind("express")
	if f := (spelling.ExactCase | cut).Or(known); f.Problem() != "" || f&(spelling.IgnoreCase|kept) != 0 || f&spelling.IgnoreSlash == 0 {
		t.Errorf("what is said and what is known are together %v, %s", f.Words(), f.Problem())
	}
}
