package config

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// TestDocs: each file in examples/rules stands in docs/rules.md as it is, loads,
// meets the schema and gives lint nothing to say. With -update the page gets the
// files' text.
func TestDocs(t *testing.T) {
	const page = "../docs/rules.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	quoted := make(map[string]bool)
	block := regexp.MustCompile("(?s)<!-- (examples/rules/[a-z]+\\.yml) -->\n```yaml\n.*?```\n")
	want := block.ReplaceAllFunc(text, func(b []byte) []byte {
		name := string(block.FindSubmatch(b)[1])
		quoted[name] = true
		data, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(name)))
		if err != nil {
			t.Error(err)
		}
		return fmt.Appendf(nil, "<!-- %s -->\n```yaml\n%s```\n", name, data)
	})
	golden(t, page, want)
	if n := bytes.Count(text, []byte("```yaml")); n != len(quoted) {
		t.Errorf("%s has %d blocks of YAML, of which %d are files", page, n, len(quoted))
	}

	s := compiledSchema(t)
	for file, data := range fixtures(t, "../examples/rules/*.yml") {
		name := path.Join("examples/rules", filepath.Base(file))
		if !quoted[name] {
			t.Errorf("%s is not in %s", name, page)
		}
		set, err := Parse(name, data, policy.WithHashKey(make([]byte, 32)))
		if err != nil {
			t.Error(err)
			continue
		}
		if err := meets(s, data); err != nil {
			t.Errorf("the schema refuses %s:\n%v", name, err)
		}
		// The first example is one rule; the second shows what catches the rest.
		for _, w := range policy.Lint(set) {
			if w.Code != policy.CodeUncaught || name != "examples/rules/login.yml" {
				t.Error(w)
			}
		}
	}
	for _, warning := range []string{policy.CodeNeverBinds, policy.CodeNeverMatches, policy.CodeNeverFits, policy.CodeUncaught, policy.CodePlainHash} {
		if !bytes.Contains(text, []byte("| `"+warning+"` |")) {
			t.Errorf("%s does not tell of %s", page, warning)
		}
	}
}

// TestExamplesBind: the examples do what the page says of them.
func TestExamplesBind(t *testing.T) {
	for _, c := range []struct {
		file string
		d    policy.Descriptor
		want string
	}{
		{"login", policy.Descriptor{{Name: "route", Value: "POST /v1/token"}, {Name: "api_key", Value: "k1"}}, "login"},
		{"login", policy.Descriptor{{Name: "route", Value: "POST /v1/token"}}, ""},
		{"login", policy.Descriptor{{Name: "route", Value: "GET /v1/token"}, {Name: "api_key", Value: "k1"}}, ""},
		{"identity", policy.Descriptor{{Name: "api_key", Value: "k1"}, {Name: "ip", Value: "192.0.2.1"}}, "client everyone"},
		{"identity", policy.Descriptor{{Name: "ip", Value: "2001:db8::1"}}, "anonymous=2001:db8::/64 everyone"},
		{"match", policy.Descriptor{{Name: "country", Value: "DE"}, {Name: "route", Value: "GET /v1/search"}}, "search v1"},
		{"match", policy.Descriptor{{Name: "country", Value: "FR"}, {Name: "method", Value: "PUT"}}, "write foreign"},
		{"match", policy.Descriptor{{Name: "country", Value: "AT"}, {Name: "route", Value: "GET /v1/reports/7"}}, "reports v1"},
		{"match", policy.Descriptor{{Name: "country", Value: "AT"}, {Name: "route", Value: "GET /v1/health"}}, ""},
		{"match", policy.Descriptor{{Name: "country", Value: "AT"}, {Name: "user", Value: "ada"}}, "staff"},
		{"match", policy.Descriptor{{Name: "country", Value: "AT"}, {Name: "user", Value: "ada"}, {Name: "tenant", Value: "t"}}, ""},
		{"match", policy.Descriptor{{Name: "plan", Value: "*"}}, "foreign literal"},
		{"calendar", policy.Descriptor{{Name: "tenant", Value: "t1"}}, "plan=t1"},
		{"calendar", nil, "trial"},
		{"mixed", policy.Descriptor{{Name: "partner", Value: "p|1"}, {Name: "route", Value: "GET /"}}, `partner=p\|1|GET /`},
		{"cost", policy.Descriptor{{Name: "user", Value: "ada"}, {Name: "route", Value: "POST /v1/reports"}}, "api=ada report=ada*10"},
		{"short", policy.Descriptor{{Name: "user", Value: "ada"}}, ""},
		{"shared", policy.Descriptor{{Name: "route", Value: "POST /x"}}, "write"},
	} {
		set, err := Load(filepath.Join("../examples/rules", c.file+".yml"))
		if err != nil {
			t.Error(err)
			continue
		}
		checks, err := set.Match(c.d, 1, nil)
		if err != nil {
			t.Error(err)
		}
		var got []string
		for _, check := range checks {
			got = append(got, binding(&check))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v is bound by %q, want %q", c.file, c.d, got, c.want)
		}
	}
	set, err := Load("../examples/rules/short.yml")
	if err != nil {
		t.Fatal(err)
	}
	if check, err := set.Check("auth.createToken", "user42", 1); err != nil || check.Rule.String() != "auth.createToken (20 per 1m, 5 per 3s)" {
		t.Errorf("the short form has %v, %v", check.Rule, err)
	}
}

// binding writes a check as rule=key*cost, hashed and empty keys and a cost of
// one left out.
func binding(c *headgate.Check) string {
	text := c.Rule.Name()
	if c.Key != "" && text != "login" && text != "client" {
		text += "=" + c.Key
	}
	if c.Cost != 1 {
		text += fmt.Sprintf("*%d", c.Cost)
	}
	return text
}
