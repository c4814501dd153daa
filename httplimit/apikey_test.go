package httplimit

import (
	"net/http"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// No spelling of one key gets past its limit, nor past the deny list, whatever is done
// with requests that have none; and what does not look at keys is not troubled.
func TestUnclearAPIKey(t *testing.T) {
	t.Parallel()
	spellings := []string{"Bearer k1 1", "Bearer k1 2", "Bearer 1 k1", "bearer k1\t", "Bearer\tk1", " Bearer k1", "Bearer k1\u00a01", "\xa0Bearer k1", "Bearer k1"}
	set := func(rules []policy.Rule, options ...policy.Option) Option {
		s, err := policy.New(rules, options...)
		if err != nil {
			t.Fatal(err)
		}
		return Policy(s)
	}
	byKey := policy.Rule{Limits: one("key"), Per: []policy.Part{{Entry: "api_key"}}}
	denied := policy.Denied(policy.ListEntry{Name: "key", Match: []policy.Condition{policy.Equal("api_key", "k1")}})
	for _, tt := range []struct {
		name string
		want int // how many of them are let in
		opts []Option
	}{
		{"missing", 1, []Option{Limit(ByAPIKey(), one("rule"))}},
		{"missing passes", 1, []Option{Limit(ByAPIKey(), one("rule")), OnMissing(PassMissing)}},
		{"missing by address", 1, []Option{Limit(ByAPIKey(), one("rule")), OnMissing(CountMissingByIP)}},
		{"a policy", 1, []Option{set([]policy.Rule{byKey})}},
		{"a deny list", 0, []Option{set([]policy.Rule{byKey}, denied)}},
		{"another header", len(spellings), []Option{Limit(ByAPIKey(), many("rule")), APIKeyHeaders("X-Key")}},
		{"another identity", len(spellings), []Option{Limit(ByIP(), many("rule"))}},
		{"a fact of the service's own", len(spellings), []Option{Limit(ByFunc("api_key", func(r *http.Request) string { return "k" }), many("rule"))}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			told := 0
			h := mustNew(t, newClock().store(), append(tt.opts, Observe(Hooks{Missing: func(*http.Request, string) { told++ }}))...)
			in, unclear := 0, 0
			for i, line := range spellings {
				w := ask(h, "1.1.1.1:1", "Authorization", line, "X-Api-Key", strings.Repeat("x", i+1), "X-Key", "k")
				switch w.Code {
				case http.StatusOK:
					in++
				case http.StatusBadRequest:
					unclear++
					if !strings.Contains(w.Body.String(), "two ways") || w.Header().Get("Content-Type") != "application/problem+json" {
						t.Errorf("%q: %s", line, w.Body)
					}
				}
			}
			if in != tt.want || told != unclear {
				t.Errorf("%d were let in, want %d; %d were unclear, and the hook was told of %d", in, tt.want, unclear, told)
			}
		})
	}
}

func many(name string) *headgate.Rule { return headgate.MustRule(name, headgate.PerHour(100)) }
