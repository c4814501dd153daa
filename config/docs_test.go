package config

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/lint"
)

// TestDocs: each file in examples/rules stands in docs/rules.md as it is, or is linked from it, loads,
// meets the schema and gives lint nothing to say. With -update the page gets the
// files' text.
func TestDocs(t *testing.T) {
	const page = "../docs/rules.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	quoted := make(map[string]bool)
	block := regexp.MustCompile("(?s)<!-- (examples/rules/[a-z]+\\.(yml|csv)) -->\n```[a-z]+\n.*?```\n")
	want := block.ReplaceAllFunc(text, func(b []byte) []byte {
		found := block.FindSubmatch(b)
		name, language := string(found[1]), string(found[2])
		if language == "yml" {
			language = "yaml"
		}
		quoted[name] = true
		data, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(name)))
		if err != nil {
			t.Error(err)
		}
		return fmt.Appendf(nil, "<!-- %s -->\n```%s\n%s```\n", name, language, data)
	})
	golden(t, page, want)
	if n := bytes.Count(text, []byte("```yaml")) + bytes.Count(text, []byte("```csv")); n != len(quoted) {
		t.Errorf("%s has %d blocks of YAML and CSV, of which %d are files", page, n, len(quoted))
	}

	s := compiledSchema(t)
	for file, data := range fixtures(t, "../examples/rules/*.yml") {
		name := path.Join("examples/rules", filepath.Base(file))
		if !quoted[name] && !bytes.Contains(text, []byte("](../"+name+")")) {
			t.Errorf("%s is neither in %s nor linked from it", name, page)
		}
		set, err := Load(file, policy.HashKey(make([]byte, 32)))
		if err != nil {
			t.Error(err)
			continue
		}
		if err := meets(s, data); err != nil {
			t.Errorf("the schema refuses %s:\n%v", name, err)
		}
		// The first example is one rule; the second shows what catches the rest.
		for _, w := range lint.Warnings(set) {
			if w.Code != lint.Uncaught || name != "examples/rules/login.yml" {
				t.Error(w)
			}
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
		{"login", facts("route=POST /login,ip=2001:db8::1,user=ada,api_key=k1"), "login-address=2001:db8::/64 login-user=ada"},
		{"login", facts("route=POST /login,ip=2001:db8::2,api_key=k2"), "login-address=2001:db8::/64"},
		{"login", facts("route=GET /login,ip=192.0.2.1,user=ada"), ""},
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
		{"tariff", facts("client=c1,tier=pro"), "api=c1 50"},
		{"tariff", facts("client=c1"), "api=c1 30"},
		{"ways", facts("client=acme,tier=gold"), "api=acme 600"},
		{"ways", facts("client=c9,tier=pro"), "api=c9 60"},
		{"ways", facts("client=big"), "api=big 5000"},
		{"clients", facts("client=c2"), "api=c2 600"},
		{"lists", facts("ip=203.0.113.7,user=ada"), "denied by scanners"},
		{"lists", facts("user=mallory"), "denied by mallory"},
		{"lists", facts("route=GET /health,ip=10.1.2.3"), "allowed by monitoring"},
		{"lists", facts("route=GET /health,ip=203.0.113.7"), "denied by scanners"},
		{"lists", facts("user=ada,ip=192.0.2.1"), "client=ada 100"},
		{"costs", facts("user=ada,route=GET /search"), "requests=ada*5 100 traffic=ada 10000"},
		{"costs", facts("user=ada,route=GET /health,bytes=4097"), "traffic=ada*5 10000"},
		{"levels", facts("tenant=t,user=ada,ip=192.0.2.1,route=POST /v1/export"), "address=192.0.2.1 300 user=ada 60 tenant=t 1000 export=t 5 everyone 100000"},
		{"levels", facts("ip=2001:db8::1"), "address=2001:db8::/64 300 everyone 100000"},
		{"like", facts("user=ada,route=POST /v1/mail"), "mail=ada 50"},
		{"like", facts("user=ada,route=POST /v1/sms"), "sms=ada*5 50"},
		{"modes", facts("user=ada"), "api=ada 100 per-second=ada 10 shadow"},
		{"modes", facts("user=u3"), "api=u3 100 per-second=u3 10"},
		{"modes", facts("route=GET /search"), "search 50 shadow"},
		{"ignore", facts("user=ada"), "internal=ada 100"},
		{"short", policy.Descriptor{{Name: "user", Value: "ada"}}, ""},
		{"shared", policy.Descriptor{{Name: "route", Value: "POST /x"}}, "write"},
	} {
		set, err := Load(filepath.Join("../examples/rules", c.file+".yml"))
		if err != nil {
			t.Error(err)
			continue
		}
		out, err := set.Decide(c.d, 1, nil)
		if err != nil {
			t.Error(err)
		}
		var got []string
		if out.Denied != nil {
			got = append(got, "denied by "+out.Denied.Name)
		}
		if out.Allowed != nil {
			got = append(got, "allowed by "+out.Allowed.Name)
		}
		// Files that show which limits apply are tested for them.
		counts := slices.Contains([]string{"tariff", "ways", "clients", "lists", "costs", "levels", "like", "modes", "ignore"}, c.file)
		for i := range out.Checks {
			text := binding(&out.Checks[i])
			if counts {
				text += fmt.Sprintf(" %d", out.Checks[i].Rule.Limits()[0].Count)
			}
			if out.Checks[i].Shadow {
				text += " shadow"
			}
			got = append(got, text)
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

// facts reads "name=value,name=value".
func facts(text string) policy.Descriptor {
	var d policy.Descriptor
	for one := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(one, "=")
		d = append(d, policy.Entry{Name: name, Value: value})
	}
	return d
}

// binding writes a check as rule=key*cost, hashed and empty keys and a cost of
// one left out.
func binding(c *headgate.Check) string {
	text := c.Rule.Name()
	if c.Key != "" && len(c.Key) != 22 {
		text += "=" + c.Key
	}
	if c.Cost != 1 {
		text += fmt.Sprintf("*%d", c.Cost)
	}
	return text
}
