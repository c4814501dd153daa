package httpapi

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/explain"
)

// TestExplain: the answer says what binds the request and where that stands, and
// nothing is charged for it.
func TestExplain(t *testing.T) {
	f := newFake(t)
	h := New(over(f), Options{})
	const body = `{"descriptor":{"route":"POST /v1/token","api_key":"geheim"},"cost":2}`
	var e explain.Explanation
	for range 9 {
		w := post(h, "/v1/explain", body)
		e = explain.Explanation{}
		if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%d %s, %v", w.Code, w.Body, err)
		}
		if strings.Contains(w.Body.String(), "geheim") {
			t.Fatalf("a secret in %s", w.Body)
		}
	}
	if e.Verdict == nil || !e.Verdict.Allowed || len(e.Rules) != 3 || e.Cost != 2 {
		t.Fatalf("%+v", e)
	}
	for i, binds := range []bool{true, false, false} {
		if r := &e.Rules[i]; r.Binds != binds || r.Binds == (r.Why != "") {
			t.Errorf("rule %s: binds %t because %q", r.Rule, r.Binds, r.Why)
		}
	}
	if limits := e.Rules[0].Limits; limits[0].State.Remaining != 18 || limits[1].State.Remaining != 3 {
		t.Errorf("%+v, %+v", limits[0].State, limits[1].State)
	}
	if w := post(h, "/v1/explain", strings.ReplaceAll(body, "2}", "6}")); !strings.Contains(w.Body.String(), `"verdict":{"allowed":false,"rule":"auth.createToken","limit":"5 per 3s","retry_after_ms":-1}`) {
		t.Errorf("a cost that never fits: %s", w.Body)
	}
}

func TestExplainMistakes(t *testing.T) {
	h := New(over(newFake(t)), Options{})
	for body, want := range map[string]string{
		`{"checks":[{"rule":"x","key":""}]}`:         `"field":"checks"`,
		`{"descriptor":{},"cost":0}`:                 `"field":"cost"`,
		`{"descriptor":{"x":1}}`:                     `"field":"descriptor.x"`,
		`{"checks":[{"rule":"x","key":""}],"cost":1`: `not JSON`,
	} {
		if w := post(h, "/v1/explain", body); w.Code < 400 || w.Code > 422 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s, want %s", body, w.Code, w.Body, want)
		}
	}
	if w := post(h, "/v1/explain?status=true", `{"descriptor":{}}`); w.Code != http.StatusBadRequest {
		t.Errorf("a parameter: %d %s", w.Code, w.Body)
	}
}

// TestExplainDocument holds what a policy with everything in it says of requests
// against the schema.
func TestExplainDocument(t *testing.T) {
	rule := func(count int64) *headgate.Rule {
		return headgate.MustRule("api", headgate.Sliding(count, time.Minute))
	}
	pos := policy.Position{File: "a.yaml", Line: 3, Column: 4}
	set, err := policy.New([]policy.Rule{
		{
			Name: "api", Per: []policy.Part{{Entry: "api_key"}}, Soft: 50, Pos: pos,
			Tariff:    &policy.Tariff{Entry: "tier", Tiers: []policy.Tier{{Value: "free", Limits: rule(2)}}, Other: rule(3)},
			Overrides: []policy.Override{{Match: []policy.Condition{policy.Equal("ip", "203.0.113.9")}, Limits: rule(9)}},
		},
		{Limits: headgate.MustRule("trial", headgate.PerSecond(1)), Mode: policy.ModeShadow},
		{Limits: headgate.MustRule("rollout", headgate.PerSecond(1)), Per: []policy.Part{{Entry: "ip"}}, Enforce: 1},
		{Limits: headgate.MustRule("sized", headgate.PerSecond(1)), Match: []policy.Condition{policy.Present("x")}, Costs: &policy.Costs{Entry: "x", Per: 1}},
		{Limits: headgate.MustRule("named", headgate.PerSecond(1)), Direct: true},
	},
		policy.SubjectTable(policy.Subjects{By: "user", Table: []policy.Subject{{Key: "anna", Entries: []policy.Entry{{Name: "tier", Value: "free"}}}}}),
		policy.Denied(policy.ListEntry{Name: "bad", Match: []policy.Condition{policy.Equal("ip", "198.51.100.1")}, Pos: pos}),
		policy.Allowed(policy.ListEntry{Name: "good", Match: []policy.Condition{policy.Equal("ip", "192.0.2.1")}}),
	)
	if err != nil {
		t.Fatal(err)
	}
	f := newFake(t)
	f.set = set
	h := New(over(f), Options{})
	d := newDocument(t)
	for body, want := range map[string]string{
		`{"descriptor":{"user":"anna","tier":"pro","api_key":"geheim","ip":"203.0.113.1"},"cost":2}`: `"tier":"free"`,
		`{"descriptor":{"api_key":"geheim","ip":"203.0.113.9"}}`:                                     `"override":1`,
		`{"descriptor":{"ip":"198.51.100.1"}}`:                                                       `"denied":{"name":"bad","pos":`,
		`{"descriptor":{"ip":"192.0.2.1"}}`:                                                          `"allowed":{"name":"good"}`,
		`{"descriptor":{"x":"many"}}`:                                                                `"error":"`,
		`{"descriptor":{},"cost":5}`:                                                                 `"shadow":true`,
	} {
		w := post(h, "/v1/explain", body)
		if wrong := d.response(http.MethodPost, "/v1/explain", w); wrong != "" {
			t.Error(wrong)
		}
		if text := w.Body.String(); !strings.Contains(text, want) || strings.Contains(text, "geheim") {
			t.Errorf("%s: %s, want %s", body, text, want)
		}
	}
}
