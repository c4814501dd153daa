package insightapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/inprogress"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/insightapi"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/telemetry/insight"
)

// flowNode is an instance over a store of permits.
type flowNode struct {
	*httptest.Server
	permits *decide.Permits
	revoked []string
}

const nasty = "a\u202e</script>\x00\x1b[2J\xff"

func newFlowNode(t *testing.T, name string, held store.Permits, own bool, peers ...string) *flowNode {
	t.Helper()
	set, err := policy.New([]policy.Rule{
		{Name: "report", Per: []policy.Part{{Entry: "tenant"}}, InProgress: &policy.InProgress{Limit: 30, Shared: true, TTL: time.Minute}, Overrides: []policy.Override{{
			Match: []policy.Condition{{Entry: "tenant", Equals: []string{"acme"}}}, InProgress: 2,
		}}},
		{Name: "export", InProgress: &policy.InProgress{Limit: 1, Shared: true, TTL: time.Minute}},
		{Name: "by-key", Per: []policy.Part{{Entry: "api_key"}}, InProgress: &policy.InProgress{Limit: 5, Shared: true}},
		{Name: "here", Per: []policy.Part{{Entry: "user"}}, InProgress: &policy.InProgress{Limit: 3}},
	})
	if err != nil {
		t.Fatal(err)
	}
	rules := func() decide.Policy { return decide.Policy{Set: set} }
	recorder := insight.New(insight.Options{})
	t.Cleanup(recorder.Close)
	n := &flowNode{permits: &decide.Permits{Rules: rules, Store: held}}
	n.permits.Audit = func(of decide.PermitKey, holder, from string, answered bool) {
		n.revoked = append(n.revoked, fmt.Sprintf("%s|%s|%s|%t|%t", of.Rule, of.Key, holder, from != "", answered))
	}
	h := insightapi.New(insightapi.Options{
		Recorder: recorder, Name: name, Policy: rules, Take: nothing, Permits: n.permits, OwnPermits: own, Peers: &insightapi.Peers{URLs: peers},
		Uses: func(int) ([]insightapi.Use, int64) {
			return []insightapi.Use{{Rule: "here", Key: nasty, Limit: 3, InUse: 3, Waiting: 1}, {Rule: "report", Key: "used", Shared: true, InUse: 1}}, 7
		},
	})
	n.Server = httptest.NewServer(h)
	t.Cleanup(n.Close)
	return n
}

func (n *flowNode) acquire(t *testing.T, rule, key, holder string) {
	t.Helper()
	c := decide.PermitCall{Rule: rule, Key: key, Holder: holder, KeepMS: 5000, Given: decide.GivenRule | decide.GivenKey}
	if _, o := n.permits.Acquire(t.Context(), &c); o.Kind != decide.Decided {
		t.Fatal(o.Text(), c.Faults)
	}
}

func (n *flowNode) flow(t *testing.T, query string) (f insightapi.FlowReport) {
	t.Helper()
	n.send(t, http.MethodGet, "flow?"+query, "", &f)
	return f
}

func (n *flowNode) send(t *testing.T, method, path, body string, to any) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, n.URL+insightapi.Prefix+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(to); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode
}

func find(f insightapi.FlowReport, rule, key string) (found []insightapi.PermitUse) {
	for _, p := range f.Permits {
		if p.Rule == rule && p.Key.Raw == key {
			found = append(found, p)
		}
	}
	return found
}

// TestHolders: two instances over one store, or each with its own, say who holds which permits.
func TestHolders(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{false, true} {
		first, second := store.Permits(memory.New()), store.Permits(memory.New())
		if !own {
			second = first
		}
		b := newFlowNode(t, "b", second, own)
		a := newFlowNode(t, "a", first, own, b.URL)
		before := time.Now()
		a.acquire(t, "report", "acme", "one")
		b.acquire(t, "report", "acme", nasty)
		b.acquire(t, "report", "other", "three")
		a.acquire(t, "by-key", "a secret", "four")
		// Without a key it is found although no instance was asked for it.
		if _, err := first.Acquire(t.Context(), store.PermitRequest{Key: inprogress.StoreKey("export", ""), Holder: "a command", Limit: 1, TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		f := a.flow(t, "")
		acme := find(f, "report", "acme")
		if own {
			if len(acme) != 2 || len(acme[0].Holders) != 1 || len(acme[1].Holders) != 1 || acme[0].Instance == acme[1].Instance {
				t.Errorf("stores of their own: %+v", acme)
			}
		} else {
			a.acquire(t, "report", "acme", "late")
			if f, acme = a.flow(t, ""), find(a.flow(t, ""), "report", "acme"); len(acme) != 1 || acme[0].Limit != 2 || acme[0].InUse != 2 || acme[0].Instance != "" || len(acme[0].Holders) != 2 || len(acme[0].Waiters) != 0 && acme[0].Waiters[0].Holder.Raw != "late" {
				t.Fatalf("a common store: %+v", acme)
			}
			h := acme[0].Holders
			if h[0].Holder.Raw != "one" || h[1].Holder.Raw != nasty || h[0].Units != 1 || h[0].Since < before.UnixMilli()-1 || h[0].Since > time.Now().UnixMilli()+1 || h[0].ExpiresInMS <= 0 || h[0].ExpiresInMS > 60_000 {
				t.Errorf("the holders: %+v", h)
			}
		}
		if got := find(f, "export", ""); len(got) != 1 || got[0].Holders[0].Holder.Raw != "a command" || got[0].Limit != 1 {
			t.Errorf("a rule without keys: %+v", got)
		}
		if here := find(f, "here", nasty); len(here) != 2 || here[0].Shared || here[0].Instance == here[1].Instance || here[0].InUse != 3 {
			t.Errorf("what is in progress in the instances: %+v", here)
		}
		if f.Permits[0].InUse < f.Permits[0].Limit || f.MoreKeys != 14 {
			t.Errorf("the fullest is not the first: %+v, %d more", f.Permits[0], f.MoreKeys)
		}
		for _, p := range f.Permits {
			if strings.Contains(p.Key.Raw, "secret") {
				t.Errorf("a secret is shown: %+v", p)
			}
		}
		if f = a.flow(t, "limit=1"); len(f.Permits) != 1 || f.MoreKeys < 15 {
			t.Errorf("bounded: %d, %d more", len(f.Permits), f.MoreKeys)
		}
	}
}

// TestManyHolders: holders, waiters and keys that are too many to show are counted.
func TestManyHolders(t *testing.T) {
	t.Parallel()
	n := newFlowNode(t, "a", memory.New(), true)
	for i := range 60 {
		n.acquire(t, "report", "a lot", fmt.Sprintf("holder %02d", i))
	}
	for i := range 2000 {
		n.acquire(t, "report", fmt.Sprintf("key %04d", i), "one")
	}
	f := n.flow(t, "limit=500")
	if !f.Unlisted || len(f.Permits) > 300 || int64(len(f.Permits))+f.MoreKeys < 1024 {
		t.Errorf("%d keys, %d more, unlisted %t", len(f.Permits), f.MoreKeys, f.Unlisted)
	}
	many := find(n.flow(t, "limit=500"), "report", "a lot")
	if len(many) != 1 {
		t.Fatalf("%d keys of that name", len(many))
	}
	for _, p := range many {
		if p.InUse != 30 || len(p.Holders) != 20 || p.MoreHolders != 10 {
			t.Errorf("%d holders of %d, %d more", len(p.Holders), p.InUse, p.MoreHolders)
		}
	}
}

// TestRevoke needs the name of the rule, and tells the audit.
func TestRevoke(t *testing.T) {
	t.Parallel()
	n := newFlowNode(t, "a", memory.New(), true)
	n.acquire(t, "report", "acme", nasty)
	n.acquire(t, "by-key", "a secret", "four")
	id := func(text string) string { return insight.Name{Raw: text}.ID() }
	body := func(rule, key, holder, confirm string) string {
		return fmt.Sprintf(`{"rule":%q,"key":%q,"holder":%q,"confirm":%q}`, rule, id(key), holder, confirm)
	}
	for text, want := range map[string]int{
		`{`:                                   http.StatusBadRequest,
		body("report", "acme", id(nasty), ""): http.StatusUnprocessableEntity,
		body("report", "acme", "?", "report"): http.StatusBadRequest,
		body("report", "acme", id(strings.Repeat("x", 129)), "report"):         http.StatusBadRequest,
		body("here", "acme", id(nasty), "here"):                                http.StatusUnprocessableEntity,
		body("nothing", "acme", id(nasty), "nothing"):                          http.StatusNotFound,
		strings.Replace(body("report", "a", "x", "report"), "}", `,"a":1}`, 1): http.StatusBadRequest,
	} {
		var answer any
		if status := n.send(t, http.MethodPost, "revoke", text, &answer); status != want {
			t.Errorf("%s: %d %v, want %d", text, status, answer, want)
		}
	}
	if len(n.revoked) != 0 {
		t.Errorf("refused, and in the audit: %q", n.revoked)
	}
	hashed := ""
	for _, p := range n.flow(t, "").Permits {
		if p.Rule == "by-key" {
			hashed = p.Key.Raw
		}
	}
	for _, tt := range []struct {
		rule, key, holder string
		want              bool
	}{{"report", "acme", nasty, true}, {"report", "acme", "nobody", false}, {"by-key", hashed, "four", true}} {
		var answer struct{ Revoked bool }
		if status := n.send(t, http.MethodPost, "revoke", body(tt.rule, tt.key, id(tt.holder), tt.rule), &answer); status != http.StatusOK || answer.Revoked != tt.want {
			t.Errorf("%+v: %d %+v", tt, status, answer)
		}
	}
	if want := []string{"report|acme|" + nasty + "|true|true", "report|acme|nobody|true|true", "by-key|" + hashed + "|four|true|true"}; fmt.Sprint(n.revoked) != fmt.Sprint(want) {
		t.Errorf("the audit: %q", n.revoked)
	}
	for _, p := range n.flow(t, "").Permits {
		for _, holder := range p.Holders {
			if !holder.Revoked {
				t.Errorf("not revoked: %+v", p)
			}
		}
	}
}

// away is a store that does not answer.
type away struct{ store.Permits }

func (away) Holders(context.Context, string) (store.PermitHolders, error) {
	return store.PermitHolders{}, fmt.Errorf("a secret address: %w", headgate.ErrUnavailable)
}

func (away) Revoke(context.Context, string, string) (bool, error) {
	return false, errors.Join(headgate.ErrUnavailable)
}

// TestHoldersAway: while the store does not answer, the page says so.
func TestHoldersAway(t *testing.T) {
	t.Parallel()
	n := newFlowNode(t, "a", away{}, false)
	f := n.flow(t, "")
	if got := find(f, "report", "used"); len(got) != 1 || got[0].Error != "the store did not answer in time" {
		t.Errorf("%+v", got)
	}
	var answer struct{ Detail string }
	if status := n.send(t, http.MethodPost, "revoke", `{"rule":"export","key":"","holder":"eA","confirm":"export"}`, &answer); status != http.StatusServiceUnavailable || answer.Detail == "" {
		t.Errorf("%d %+v", status, answer)
	}
}
