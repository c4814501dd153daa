package insightapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/insightapi"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/telemetry/insight"
)

// node is an instance with a store of its own.
type node struct {
	*httptest.Server
	handler  *insightapi.Handler
	store    headgate.Store
	recorder *insight.Recorder
	audit    *insightapi.Audit
	set      *policy.Set
}

const token = "an admin's token" //nolint:gosec // of the test

func newNode(t *testing.T, name string, peers ...string) *node {
	t.Helper()
	return nodeWith(t, insightapi.Options{Name: name}, peers...)
}

func nodeWith(t *testing.T, o insightapi.Options, peers ...string) *node {
	t.Helper()
	free, pro := headgate.MustRule("api", headgate.PerMinute(2)), headgate.MustRule("api", headgate.PerMinute(100))
	set, err := policy.New([]policy.Rule{
		{Limits: headgate.MustRule("login", headgate.Sliding(3, time.Minute), headgate.Per(100, time.Hour)), Per: []policy.Part{{Entry: "user"}}},
		{Name: "api", Per: []policy.Part{{Entry: "user"}}, Tariff: &policy.Tariff{Entry: "tier", Tiers: []policy.Tier{{Value: "pro", Limits: pro}}, Other: free}},
		{Limits: headgate.MustRule("keys", headgate.Sliding(2, time.Minute)), Per: []policy.Part{{Entry: "api_key"}}},
		{Limits: headgate.MustRule("hosts", headgate.Sliding(1, time.Minute)), Per: []policy.Part{{Entry: policy.AddressEntry}}},
	}, policy.SubjectTable(policy.Subjects{Table: []policy.Subject{
		{Key: "key-of-acme", Entries: []policy.Entry{{Name: "tenant", Value: "acme"}}}, {Key: "key-of-others", Entries: []policy.Entry{{Name: "tenant", Value: "others"}}},
	}}), policy.Denied(policy.ListEntry{Name: "scanners", Match: []policy.Condition{policy.Network(policy.AddressEntry, netip.MustParsePrefix("198.51.100.0/24"))}}))
	if err != nil {
		t.Fatal(err)
	}
	n := &node{recorder: insight.New(insight.Options{}), audit: new(insightapi.Audit), set: set}
	t.Cleanup(n.recorder.Close)
	n.store = headgate.Observe(memory.New(), n.recorder.Hooks())
	o.Recorder, o.Audit = n.recorder, n.audit
	o.Policy = func() decide.Policy { return decide.Policy{Set: set, Version: 7, Hash: "abc"} }
	o.Take = func(ctx context.Context, op headgate.Op, checks []headgate.Check) ([]headgate.Decision, error) {
		return n.store.Take(ctx, op, checks, nil)
	}
	o.Peers = &insightapi.Peers{URLs: peers, Token: token}
	h := insightapi.New(o)
	n.handler = h
	n.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(n.Close)
	return n
}

// take takes a unit so many times.
func (n *node) take(t *testing.T, rule, key string, times int) {
	t.Helper()
	for range times {
		checks := []headgate.Check{{Rule: n.set.Rule(rule).Limits, Key: key}}
		if _, err := n.store.Take(context.Background(), headgate.OpTake, checks, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// ask asks, and returns the status.
func (n *node) ask(t *testing.T, method, path, body string, to any) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, n.URL+insightapi.Prefix+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := n.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(to); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return response.StatusCode
}

func TestInstancesAreMerged(t *testing.T) {
	t.Parallel()
	second := newNode(t, "second")
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	first := newNode(t, "first", second.URL, other.URL, gone.URL)
	first.take(t, "login", "alice", 5)
	second.take(t, "login", "alice", 4)
	second.take(t, "login", "bob", 1)

	var now insightapi.Now
	if status := first.ask(t, "GET", "now", "", &now); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	if len(now.Rules) != 1 || now.Rules[0].Allowed != 7 || now.Rules[0].Denied != 3 {
		t.Errorf("rules: %+v", now.Rules)
	}
	if fmt.Sprintln(now.Instances[0].Name, now.Instances[1].Name, now.Instances[0].OK, now.Instances[1].OK, now.Instances[2].OK, now.Instances[3].OK) != "first second true true false false\n" {
		t.Errorf("instances: %+v", now.Instances)
	}
	if e := now.Instances[2].Error; e != "it answers with status 404" {
		t.Errorf("the one that is no instance: %q", e)
	}
	if e := now.Instances[3].Error; !strings.HasPrefix(e, "it does not answer: ") {
		t.Errorf("the one that is gone: %q", e)
	}
	var rule insightapi.RuleReport
	first.ask(t, "GET", "rule?rule=login", "", &rule)
	if len(rule.Rule.Denied.Keys) != 1 || rule.Rule.Denied.Keys[0].Count != 3 || len(rule.Use.Keys) != 2 || rule.Policy.Limits[0] != "3 per 1m" {
		t.Errorf("the rule: %+v", rule)
	}
	var clients insightapi.Clients
	first.ask(t, "GET", "clients?rule=login&range=5m", "", &clients)
	if len(clients.Rows) != 2 || clients.Rows[0].Key.Raw != "alice" || clients.Rows[0].Use[4]+clients.Rows[0].Use[3] != 6 {
		t.Errorf("clients: %+v", clients)
	}
	var denials, more insightapi.Denials
	first.ask(t, "GET", "denials", "", &denials)
	if len(denials.Denials) != 2 || denials.Denials[0].Node == denials.Denials[1].Node {
		t.Errorf("denials: %+v", denials)
	}
	second.take(t, "login", "bob", 3)
	first.ask(t, "GET", "denials?after="+url.QueryEscape(denials.Next), "", &more)
	if len(more.Denials) != 1 || more.Denials[0].Key.Raw != "bob" {
		t.Errorf("denials after these: %+v", more)
	}
	// An instance that is named twice, or is the one that asks, counts once.
	second.take(t, "api", "x", 1)
	third := newNode(t, "third", second.URL, second.URL)
	third.ask(t, "GET", "now", "", &now)
	if len(now.Instances) != 2 || now.Rules[len(now.Rules)-1].Allowed != 1 {
		t.Errorf("an instance that is named twice: %+v", now)
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	n := newNode(t, "only")
	key := "<b>\x00\u202e" + strings.Repeat("k", 900)
	n.take(t, "login", key, 5)
	n.take(t, "api", key, 1)
	id := insight.Name{Raw: key}.ID()
	var report insightapi.KeyReport
	n.ask(t, "GET", "key?rule=login&key="+id, "", &report)
	if len(report.States) != 3 || report.States[0].Limit != "3 per 1m" || report.States[0].Remaining != 0 || report.States[0].RetryAfterMS < 50_000 || report.States[1].Remaining != 97 {
		t.Errorf("states: %+v", report.States)
	}
	if s := report.States[2]; s.Rule != "api" || s.Tier != "" || s.Capacity != 2 || s.Remaining != 1 {
		t.Errorf("the rule that counts by the same: %+v", s)
	}
	if len(report.Denials) != 1 || report.Key.Raw != key || report.Counts[0].Denied.Count != 2 {
		t.Errorf("the key: %+v", report)
	}

	var problem struct{ Detail string }
	for body, status := range map[string]int{
		`{"rule":"login","key":"` + id + `"}`:                       http.StatusUnprocessableEntity,
		`{"rule":"login","key":"` + id + `","confirm":"yes"}`:       http.StatusUnprocessableEntity,
		`{"rule":"nothing","key":"` + id + `","confirm":"nothing"}`: http.StatusNotFound,
		`{"rule":"login","key":"%","confirm":"login"}`:              http.StatusBadRequest,
		`[]`: http.StatusBadRequest,
	} {
		if got := n.ask(t, "POST", "reset", body, &problem); got != status || problem.Detail == "" {
			t.Errorf("%s: status %d, %q", body, got, problem.Detail)
		}
	}
	if got := len(n.audit.Entries()); got != 0 {
		t.Errorf("%d entries before anything was done", got)
	}
	var done struct{ Reset []string }
	if got := n.ask(t, "POST", "reset", `{"rule":"login","key":"`+id+`","confirm":"login"}`, &done); got != http.StatusOK || len(done.Reset) != 1 {
		t.Errorf("status %d, %v", got, done.Reset)
	}
	report = insightapi.KeyReport{}
	n.ask(t, "GET", "key?rule=login&key="+id, "", &report)
	if report.States[0].Remaining != 3 || report.States[1].Remaining != 100 {
		t.Errorf("after the reset: %+v", report.States)
	}
	if e := n.audit.Entries(); len(e) != 1 || e[0].What != "reset" || !e[0].OK || strings.ContainsAny(e[0].Detail, "\x00\u202e") {
		t.Errorf("the audit: %+v", e)
	}
}

// nothing is a store that says nothing.
func nothing(context.Context, headgate.Op, []headgate.Check) ([]headgate.Decision, error) {
	return nil, nil
}

// states asks for the state of a key under a rule.
func states(t *testing.T, h *insightapi.Handler, rule, key, tier string) []insightapi.State {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/insight/key?rule="+rule+"&tier="+tier+"&key="+insight.Name{Raw: key}.ID(), nil))
	var report insightapi.KeyReport
	if err := json.Unmarshal(w.Body.Bytes(), &report); err != nil || w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", rule, w.Code, w.Body)
	}
	return slices.DeleteFunc(report.States, func(s insightapi.State) bool { return s.Rule != rule })
}

// TestFrees compares when units are said to become free with when they do.
func TestFrees(t *testing.T) {
	t.Parallel()
	var now atomic.Int64
	now.Store(1_800_000_000_000_000)
	store := memory.New(memory.Clock(now.Load))
	user := []policy.Part{{Entry: "user"}}
	var rules []policy.Rule
	for name, limits := range map[string][]headgate.Limit{
		"sliding": {headgate.Sliding(5, time.Minute), headgate.Sliding(100, time.Hour)},
		"bucket":  {headgate.PerMinute(40)},
		"fixed":   {{Count: 7, Period: time.Minute, Algorithm: headgate.FixedWindow}},
		"leaky":   {{Count: 30, Period: time.Minute, Burst: 12, Algorithm: headgate.LeakyBucket}},
	} {
		rules = append(rules, policy.Rule{Limits: headgate.MustRule(name, limits...), Per: user, Match: []policy.Condition{{Entry: "route", Equals: []string{name}}}})
	}
	set, err := policy.New(rules)
	if err != nil {
		t.Fatal(err)
	}
	recorder := insight.New(insight.Options{})
	t.Cleanup(recorder.Close)
	h := insightapi.New(insightapi.Options{
		Recorder: recorder, Policy: func() decide.Policy { return decide.Policy{Set: set} },
		Take: func(ctx context.Context, op headgate.Op, checks []headgate.Check) ([]headgate.Decision, error) {
			return store.Take(ctx, op, checks, nil)
		},
	})
	random := rand.New(rand.NewPCG(1, 2))
	for i := range rules {
		name, limits := rules[i].Limits.Name(), rules[i].Limits
		for trial := range 8 {
			key := fmt.Sprint(trial)
			for range 2 + random.IntN(60) {
				now.Add(random.Int64N(2_000_000))
				if _, err := store.Take(t.Context(), headgate.OpTake, []headgate.Check{{Rule: limits, Key: key, Cost: 1 + random.Int64N(2)}}, nil); err != nil {
					t.Fatal(err)
				}
			}
			at := now.Load()
			remaining := func(after int64, limit int) int64 {
				now.Store(at + after)
				defer now.Store(at)
				d, err := store.Take(t.Context(), headgate.OpPeek, []headgate.Check{{Rule: limits, Key: key, Cost: 1}}, nil)
				if err != nil {
					t.Fatal(err)
				}
				return d[limit].Remaining
			}
			found := states(t, h, name, key, "")
			if len(found) != len(limits.Limits()) {
				t.Fatalf("%s: %d states", name, len(found))
			}
			for limit, s := range found {
				free, before := s.Remaining, int64(-1)
				for _, f := range s.Frees {
					free += f.Units
					if got := remaining(f.AfterMS*1000, limit); got < free || f.AfterMS <= before || f.Units < 1 {
						t.Errorf("%s: after %d ms %d units are free, not %d: %+v", s.Limit, f.AfterMS, got, free, s.Frees)
					}
					if got := remaining(max(f.AfterMS-1, 0)*1000, limit); got >= free && f.AfterMS > 0 {
						t.Errorf("%s: already after %d ms %d units are free: %+v", s.Limit, f.AfterMS-1, got, s.Frees)
					}
					before = f.AfterMS
				}
				if free != s.Capacity || len(s.Frees) > 20 {
					t.Errorf("%s: %d of %d units become free: %+v", s.Limit, free, s.Capacity, s.Frees)
				}
			}
		}
	}
}

// TestStateOfOverride: a key that an override is for is shown with its limits, and a rule that
// only bounds what is in progress has none.
func TestStateOfOverride(t *testing.T) {
	t.Parallel()
	user := []policy.Part{{Entry: "user"}}
	set, err := policy.New([]policy.Rule{
		{
			Name: "api", Per: user, Tariff: &policy.Tariff{Entry: "tier", Tiers: []policy.Tier{{Value: "pro", Limits: headgate.MustRule("api", headgate.PerMinute(50))}}},
			Overrides: []policy.Override{{Match: []policy.Condition{{Entry: "user", Equals: []string{"ada"}}}, Limits: headgate.MustRule("api", headgate.PerMinute(500))}},
		},
		{Name: "busy", Per: user, InProgress: &policy.InProgress{Limit: 3}},
	})
	if err != nil {
		t.Fatal(err)
	}
	recorder := insight.New(insight.Options{})
	t.Cleanup(recorder.Close)
	store := memory.New()
	h := insightapi.New(insightapi.Options{
		Recorder: recorder, Policy: func() decide.Policy { return decide.Policy{Set: set} },
		Take: func(ctx context.Context, op headgate.Op, checks []headgate.Check) ([]headgate.Decision, error) {
			return store.Take(ctx, op, checks, nil)
		},
	})
	for _, tt := range []struct {
		rule, key, tier string
		capacity        int64 // zero for no states
		override        int
	}{{"api", "ada", "", 500, 1}, {"api", "bob", "pro", 50, 0}, {"api", "bob", "", 0, 0}, {"busy", "bob", "", 0, 0}} {
		found := states(t, h, tt.rule, tt.key, tt.tier)
		if len(found) != min(int(tt.capacity), 1) || len(found) > 0 && (found[0].Capacity != tt.capacity || found[0].Override != tt.override) {
			t.Errorf("%s of %s: %+v", tt.rule, tt.key, found)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/insight/reset", strings.NewReader(`{"rule":"busy","key":"","confirm":"busy"}`)))
	if w.Code != http.StatusUnprocessableEntity {
		t.Errorf("a reset of a rule without limits: %d %s", w.Code, w.Body)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	n := newNode(t, "only")
	for path, status := range map[string]int{
		"nothing": 404, "now?range=1s": 400, "now?range=x": 400, "now?limit=0": 400, "now?limit=501": 400, "now?%zz": 400,
		"rule": 400, "rule?rule=x": 404, "clients": 400, "key?rule=login&key=!": 400, "key?rule=x&key=": 404, "denials?after=x": 400, "denials?key=!": 400, "reset": 405,
		"store": 200, "policy": 200, "flow": 200, "audit": 200, "openapi.json": 200, "rule?rule=api": 200, "clients?rule=api": 200,
	} {
		var problem struct{ Detail string }
		if got := n.ask(t, "GET", path, "", &problem); got != status || status >= 400 && problem.Detail == "" {
			t.Errorf("%s: status %d, %q", path, got, problem.Detail)
		}
	}
}

// TestNames has a name with several addresses, and one with none.
func TestNames(t *testing.T) {
	t.Parallel()
	second := newNode(t, "second")
	u, _ := url.Parse(second.URL)
	first := newNode(t, "first")
	h := insightapi.New(insightapi.Options{
		Recorder: first.recorder, Name: "first", Policy: func() decide.Policy { return decide.Policy{Set: first.set} },
		Peers: &insightapi.Peers{URLs: []string{"http://all.internal:" + u.Port(), "http://none.internal:1"}, Token: token, Resolve: func(_ context.Context, host string) ([]string, error) {
			if host == "all.internal" {
				return []string{"127.0.0.1", "127.0.0.1"}, nil
			}
			return nil, fmt.Errorf("no such host %s", host)
		}},
	})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/insight/flow", nil))
	var report insightapi.FlowReport
	if err := json.Unmarshal(w.Body.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Instances) != 3 || !report.Instances[1].OK || report.Instances[2].OK || report.Instances[2].Error != "its name has no address" {
		t.Errorf("instances: %+v", report.Instances)
	}
}

// TestRedirect has a peer that sends whoever asks somewhere else.
func TestRedirect(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") != "" {
			t.Error("the token went to another place than the peer")
		}
	}))
	defer elsewhere.Close()
	peer := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer peer.Close()
	n := newNode(t, "first", peer.URL)
	var now insightapi.Now
	n.ask(t, "GET", "now", "", &now)
	if len(now.Instances) != 2 || now.Instances[1].OK || now.Instances[1].Error != "it answers with status 307" || asked.Load() != 0 {
		t.Errorf("instances: %+v, asked elsewhere %d times", now.Instances, asked.Load())
	}
}

// TestFind: a client is found by address, part, secret and subject, on all instances; without any, those
// are answered that are limited most.
func TestFind(t *testing.T) {
	t.Parallel()
	second := newNode(t, "second")
	first := newNode(t, "first", second.URL)
	hash := first.set.Hash("api_key", "key-of-acme")
	first.take(t, "login", "alice", 5)
	second.take(t, "login", "alice", 4)
	first.take(t, "keys", hash, 4)
	second.take(t, "hosts", "203.0.113.9", 1)
	second.take(t, "hosts", "203.0.113.90", 2)
	for _, test := range []struct{ q, want string }{
		{"", "login/alice 3 denied; keys/" + hash + " 2 denied (tenant acme); hosts/203.0.113.90 1 denied"},
		{"ALI", "login/alice 3 denied"},
		{"key-of-acme", "keys/" + hash + " 2 denied (tenant acme)"},
		{hash, "keys/" + hash + " 2 denied (tenant acme)"},
		{"acme", "keys/" + hash + " 2 denied (tenant acme)"},
		{"203.0.113.9", "hosts/203.0.113.9 0 denied"},
		{"::ffff:203.0.113.9", "hosts/203.0.113.9 0 denied"},
		{"192.0.2.1", "hosts/192.0.2.1 0 denied, unseen"},
		{"key-of-others", "keys/" + first.set.Hash("api_key", "key-of-others") + " 0 denied (tenant others), unseen"},
		{"nobody", ""},
	} {
		var found insightapi.Found
		if status := first.ask(t, "POST", "find?limit=9", fmt.Sprintf(`{"q":%q}`, test.q), &found); status != http.StatusOK {
			t.Fatalf("%q: status %d", test.q, status)
		}
		var texts []string
		for _, c := range found.Clients {
			text := fmt.Sprintf("%s/%s %d denied", c.Rule, c.Key.Raw, c.Denied)
			if c.Known != "" {
				text += " (" + c.Known + ")"
			}
			if c.Unseen {
				text += ", unseen"
			}
			texts = append(texts, text)
		}
		if got := strings.Join(texts, "; "); got != test.want {
			t.Errorf("%q finds %q, want %q", test.q, got, test.want)
		}
	}
	var found insightapi.Found
	first.ask(t, "POST", "find", `{"q":"198.51.100.7"}`, &found)
	if len(found.Lists) != 1 || found.Lists[0] != "deny list: scanners" {
		t.Errorf("lists: %q", found.Lists)
	}
	var key insightapi.KeyReport
	first.ask(t, "GET", "key?rule=login&key="+insight.Name{Raw: "alice"}.ID(), "", &key)
	if len(key.Counts) != 1 || key.Counts[0].Denied.Count != 3 || key.Counts[0].Asked[len(key.Counts[0].Asked)-1]+key.Counts[0].Asked[len(key.Counts[0].Asked)-2] != 9 {
		t.Errorf("the counts of all instances: %+v", key.Counts)
	}
	if len(key.Answers) != 7 || key.Answers[1].Text != "login, by its limit 3 per 1m." || !strings.Contains(key.Answers[5].Text, "9 per 1m instead of 3 per 1m: it asked for 9 units in 2 minutes") {
		t.Errorf("answers: %+v", key.Answers)
	}
	var marks insightapi.Marks
	if first.ask(t, "GET", "marks", "", &marks); len(marks.Marks) != 2 || marks.Marks[1].Kind != "start" {
		t.Errorf("marks: %+v", marks)
	}
}
