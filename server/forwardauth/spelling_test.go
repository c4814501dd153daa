package forwardauth

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/internal/spelling/spellingtest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// attacked is a handler that is asked about spellings, one after the other.
type attacked struct {
	*asked
	http.Handler
	parameters string
	forms      spelling.Forms
	rules      []string // that the last request was counted under
}

// Take implements [decide.Decider].
func (a *attacked) Take(ctx context.Context, ask *decide.Ask, dst []headgate.Decision) ([]headgate.Decision, error) {
	for i := range ask.Checks {
		a.rules = append(a.rules, ask.Checks[i].Rule.Name())
	}
	return a.asked.Take(ctx, ask, dst)
}

// attackedBy returns one for each way to protect paths and each list of forms.
func attackedBy(t testing.TB, forms ...string) (all []*attacked) {
	t.Helper()
	for _, entry := range []string{"route", "path"} {
		prefix := map[string]string{"route": "POST "}[entry]
		token, admin := rule(perHour("token", headgate.MaxCount)), rule(perHour("admin", headgate.MaxCount))
		token.Match = []policy.Condition{policy.Equal(entry, prefix+"/v1/token")}
		admin.Match = []policy.Condition{policy.Prefix(entry, prefix+"/admin/")}
		if entry == "path" {
			admin.Match[0].Equals = []string{"/admin"}
		}
		script := rule(perHour("script", headgate.MaxCount))
		script.Match = []policy.Condition{policy.Equal(entry, prefix+"/script.php")}
		for _, words := range forms {
			a := &attacked{asked: newAsked(t, []policy.Rule{token, admin, script})}
			a.Handler = New(a, Options{})
			if words != "" {
				a.parameters = "paths=" + words
				a.forms, _ = spelling.ParseForms(strings.Split(words, ","))
			}
			all = append(all, a)
		}
	}
	return all
}

// send asks about a request for the target, which the proxy passes on as it is. It
// reports whether it may pass, and fails the test if the application may take it for one
// that was not counted.
func (a *attacked) send(t *testing.T, target string) bool {
	t.Helper()
	a.rules = nil
	w := ask(a, a.parameters, "X-Forwarded-Method", "POST", "X-Forwarded-Uri", target)
	if w.Code != http.StatusOK {
		return false
	}
	if read := spellingtest.GotAround(target, a.forms, a.rules...); read != "" {
		t.Errorf("%q passes, counted under %q, and may be taken for %q by servers of the forms %b", target, a.rules, read, a.forms)
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
	random := rand.New(rand.NewPCG(11, 2))
	for range 1000 {
		targets = append(targets, spellingtest.Spellings(random))
	}
	for _, a := range attackedBy(t, "", "encoded_slashes,cut_parameters", "encoded_slashes,double_encoding,leading_slashes,kept_parameters",
		"kept_parameters,other_bytes,cut_path_info,front_controller,ignore_case,ignore_slash") {
		passed := 0
		for _, target := range targets {
			if a.send(t, target) {
				passed++
			}
		}
		if passed < len(targets)/20 {
			t.Errorf("%d of %d pass: the others show nothing", passed, len(targets))
		}
	}
}

func FuzzSpellings(f *testing.F) {
	all := attackedBy(f, "", "encoded_slashes,double_encoding,cut_parameters")
	_, targets, err := spellingtest.Servers()
	if err != nil {
		f.Fatal(err)
	}
	for _, target := range targets {
		f.Add(target)
	}
	f.Fuzz(func(t *testing.T, target string) {
		if target == "" || len(target) > 64 {
			return
		}
		for _, a := range all {
			a.send(t, target)
		}
	})
}

// Where nothing looks at paths they are the application's to read.
func TestSpellingsThatDoNotMatter(t *testing.T) {
	t.Parallel()
	h := New(newAsked(t, []policy.Rule{rule(perHour("client", 100), "ip")}), Options{})
	for _, target := range []string{"//x/../y", "/a%2Fb;c/%252e", "/a#b"} {
		if w := ask(h, "", "X-Forwarded-Uri", target, "X-Forwarded-Method", "get"); w.Code != http.StatusOK {
			t.Errorf("%q: %d %s", target, w.Code, w.Body)
		}
	}
}
