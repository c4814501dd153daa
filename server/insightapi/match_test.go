package insightapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/insightapi"
	"github.com/headgate/headgate/telemetry/insight"
)

// TestMatchOfKey puts what the page says of a key into a policy, where it has to be an override
// for the request that is counted under this key, and for none of the others. The page then
// shows that the key has the override.
func TestMatchOfKey(t *testing.T) {
	t.Parallel()
	recorder := insight.New(insight.Options{})
	t.Cleanup(recorder.Close)
	for _, tt := range []struct {
		per      string
		requests []policy.Descriptor
		unknown  bool
	}{
		{per: "[user]", requests: []policy.Descriptor{
			{{Name: "user", Value: "ada"}},
			{{Name: "user", Value: "ada*"}},
			{{Name: "user", Value: "ad*"}},
			{{Name: "user", Value: "present"}},
			{{Name: "user", Value: "10.0.0.0/8"}},
			{{Name: "user", Value: "#: {a}\"'\x1b\u202e\u00e9\U0001f4a3"}},
			{{Name: "user", Value: "yes"}},
			{{Name: "user", Value: "12"}},
		}},
		{per: "[ip/24/64]", requests: []policy.Descriptor{{{Name: "ip", Value: "203.0.113.66"}}, {{Name: "ip", Value: "2001:db8:1:2:3::4"}}, {{Name: "ip", Value: "2001:db8:1:3::4"}}}},
		{per: "[ip]", requests: []policy.Descriptor{{{Name: "ip", Value: "203.0.113.66"}}, {{Name: "ip", Value: "2001:db8::1"}}, {{Name: "ip", Value: "nowhere"}}}},
		{per: "[api_key]", requests: []policy.Descriptor{{{Name: "api_key", Value: "sesame"}}, {{Name: "api_key", Value: "simsim"}}}},
		{per: "[user, x:y]", requests: []policy.Descriptor{
			{{Name: "user", Value: "a|b"}, {Name: "x:y", Value: `c\`}}, {{Name: "user", Value: "a"}, {Name: "x:y", Value: `b|c\`}}, {{Name: "user", Value: "a|b"}, {Name: "x:y", Value: "d"}},
		}},
		{per: "[user]", requests: []policy.Descriptor{{{Name: "user", Value: "\xff"}}}, unknown: true},
		{per: "all", requests: []policy.Descriptor{{{Name: "user", Value: "ada"}}}, unknown: true},
	} {
		text := fmt.Sprintf("rules:\n  - name: api\n    per: %s\n    limits: [5 per 1m]\n", tt.per)
		set, err := config.Parse("policy", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		show := func(set *policy.Set, key string) (report insightapi.KeyReport) {
			t.Helper()
			h := insightapi.New(insightapi.Options{Recorder: recorder, Policy: func() decide.Policy { return decide.Policy{Set: set} }, Take: nothing})
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/insight/key?rule=api&key="+insight.Name{Raw: key}.ID(), nil))
			if err := json.Unmarshal(w.Body.Bytes(), &report); err != nil || w.Code != http.StatusOK {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			return report
		}
		for i, d := range tt.requests {
			checks, err := set.Match(d, 1, nil)
			if err != nil || len(checks) != 1 {
				t.Fatalf("%v: %v, %v", d, checks, err)
			}
			report := show(set, checks[0].Key)
			if tt.unknown {
				if report.Match != "" {
					t.Errorf("%v: %s", d, report.Match)
				}
				continue
			}
			with, err := config.Parse("policy", []byte(text+"    overrides:\n      - match: "+report.Match+"\n        limits: [500 per 1m]\n"))
			if err != nil {
				t.Fatalf("%v: %s: %v", d, report.Match, err)
			}
			if states := show(with, checks[0].Key).States; len(states) != 1 || states[0].Override != 1 || states[0].Capacity != 500 {
				t.Errorf("%v: the override %s is not shown: %+v", d, report.Match, states)
			}
			for j, other := range tt.requests {
				checks, err := with.Match(other, 1, nil)
				if err != nil {
					t.Fatal(err)
				}
				if got := checks[0].Rule.Limits()[0].Count == 500; got != (i == j) {
					t.Errorf("the override %s holds for %v: %v", report.Match, other, got)
				}
			}
		}
	}
}
