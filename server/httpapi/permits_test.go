package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// permitPolicy has a rule for each client, one for all, one that measures, and one that
// does not count over all processes.
func permitPolicy(t testing.TB) *policy.Set {
	t.Helper()
	one := func(name string, shared bool, per ...policy.Part) policy.Rule {
		p := &policy.InProgress{Limit: 1, Shared: shared}
		if shared {
			p.Wait, p.TTL = time.Minute, time.Minute
		}
		return policy.Rule{Name: name, Per: per, InProgress: p}
	}
	tenant := policy.Part{Entry: "tenant"}
	shadow := one("shadow", true, tenant)
	shadow.Mode = policy.ModeShadow
	open := one("open", true)
	open.OnError = headgate.OnErrorAllow
	set, err := policy.New([]policy.Rule{one("report", true, tenant), one("all", true), shadow, open, one("here", false, tenant)})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// failing is permits whose calls fail, if err is set.
type failing struct {
	store.Permits
	err error
}

func (f *failing) Acquire(ctx context.Context, r store.PermitRequest) (store.PermitAnswer, error) {
	if f.err != nil {
		return store.PermitAnswer{}, f.err
	}
	return f.Permits.Acquire(ctx, r)
}

func (f *failing) Renew(ctx context.Context, key, holder string, epoch int64, ttl time.Duration) (store.Lease, error) {
	if f.err != nil {
		return store.Lease{}, f.err
	}
	return f.Permits.Renew(ctx, key, holder, epoch, ttl)
}

func (f *failing) Release(ctx context.Context, key, holder string, epoch int64) (bool, error) {
	if f.err != nil {
		return false, f.err
	}
	return f.Permits.Release(ctx, key, holder, epoch)
}

func (f *failing) Holders(ctx context.Context, key string) (store.PermitHolders, error) {
	if f.err != nil {
		return store.PermitHolders{}, f.err
	}
	return f.Permits.Holders(ctx, key)
}

func (f *failing) Revoke(ctx context.Context, key, holder string) (bool, error) {
	if f.err != nil {
		return false, f.err
	}
	return f.Permits.Revoke(ctx, key, holder)
}

// newPermits returns permits in memory by the policy above.
func newPermits(t testing.TB) (*decide.Permits, *failing) {
	t.Helper()
	set, f := permitPolicy(t), &failing{Permits: memory.New()}
	return &decide.Permits{Rules: func() decide.Policy { return decide.Policy{Set: set, Version: 1} }, Store: f}, f
}

// heldPermits are permits of which "holder" has the one of tenant k and the one of all, and
// those of tenants r, whose permit is revoked.
func heldPermits(t testing.TB) (*decide.Permits, *failing) {
	t.Helper()
	p, f := newPermits(t)
	for _, c := range []*decide.PermitCall{{Rule: "report", Key: "k"}, {Rule: "report", Key: "r"}, {Rule: "all"}} {
		c.Given, c.Holder = decide.GivenRule|decide.GivenKey, "holder"
		if a, o := p.Acquire(t.Context(), c); !a.Allowed {
			t.Fatalf("%+v", o)
		}
	}
	if there, err := f.Revoke(t.Context(), "report r", "holder"); !there || err != nil {
		t.Fatal(there, err)
	}
	return p, f
}

// permitAnswer is what answers may have.
type permitAnswer struct {
	Allowed, Shadow, Waiting, Released, Revoked bool
	Source                                      string
	Permit                                      *struct {
		Holder  string
		Epoch   int64
		Slots   []int
		Expires int64 `json:"expires_in_ms"`
		TTL     int64 `json:"ttl_ms"`
		Revoked bool
	}
	Ahead, Line int
	InUse       int64 `json:"in_use"`
	Limit       int64
	Retry       int64 `json:"retry_after_ms"`
	Detail      string
}

func asked(t *testing.T, h http.Handler, call, body string) (int, permitAnswer) {
	t.Helper()
	w := post(h, "/v1/permits/"+call, body)
	return w.Code, readPermit(t, w)
}

func readPermit(t *testing.T, w *httptest.ResponseRecorder) (a permitAnswer) {
	t.Helper()
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	return a
}

func ask(rule, key, holder, more string) string {
	return fmt.Sprintf(`{"rule":%q,"key":%q,"holder":%q%s}`, rule, key, holder, more)
}

// A permit is taken, taken again by the same holder, renewed, released and released again.
func TestPermitLife(t *testing.T) {
	t.Parallel()
	p, _ := newPermits(t)
	h := New(over(newFake(t)), Options{Permits: p})
	status, first := asked(t, h, "acquire", ask("report", "k", "a", ""))
	if status != 200 || !first.Allowed || first.Permit == nil || first.Permit.Holder != "a" || len(first.Permit.Slots) != 1 || first.Permit.TTL != 60_000 ||
		first.Permit.Expires < 50_000 || first.InUse != 1 || first.Limit != 1 || first.Retry != 0 {
		t.Fatalf("%d %+v", status, first)
	}
	if _, again := asked(t, h, "acquire", ask("report", "k", "a", "")); !again.Allowed || again.Permit.Epoch != first.Permit.Epoch || again.InUse != 1 {
		t.Errorf("asked again: %+v", again)
	}
	if _, other := asked(t, h, "acquire", ask("report", "k", "b", "")); other.Allowed || other.Waiting || other.Permit != nil || other.InUse != 1 || other.Retry != 1000 {
		t.Errorf("another holder: %+v", other)
	}
	if _, elsewhere := asked(t, h, "acquire", ask("report", "l", "b", `,"ttl_ms":5000`)); !elsewhere.Allowed || elsewhere.Permit.TTL != 5000 {
		t.Errorf("another key: %+v", elsewhere)
	}
	if _, long := asked(t, h, "acquire", ask("report", "m", "b", `,"ttl_ms":3600000`)); !long.Allowed || long.Permit.TTL != 60_000 {
		t.Errorf("a longer ttl than the rule's: %+v", long)
	}
	epoch := fmt.Sprintf(`,"epoch":%d`, first.Permit.Epoch)
	if status, renewed := asked(t, h, "renew", ask("report", "k", "a", epoch+`,"ttl_ms":7000`)); status != 200 || renewed.Permit.Epoch != first.Permit.Epoch || renewed.Permit.TTL != 7000 {
		t.Errorf("renewed: %d %+v", status, renewed)
	}
	if status, ended := asked(t, h, "renew", ask("report", "k", "a", `,"epoch":17`)); status != http.StatusGone || ended.Revoked {
		t.Errorf("renewed with another epoch: %d %+v", status, ended)
	}
	for i, want := range []bool{true, false} {
		if status, released := asked(t, h, "release", ask("report", "k", "a", epoch)); status != 200 || released.Released != want {
			t.Errorf("release %d: %d %+v", i+1, status, released)
		}
	}
	if _, next := asked(t, h, "acquire", ask("report", "k", "b", "")); !next.Allowed || next.Permit.Epoch <= first.Permit.Epoch {
		t.Errorf("the next holder: %+v after %+v", next, first)
	}
	// Whatever the holder has goes without an epoch, too.
	if _, released := asked(t, h, "release", ask("report", "k", "b", "")); !released.Released {
		t.Errorf("released without an epoch: %+v", released)
	}
}

// Who waits gets the permit that becomes free, or a place in line that is kept.
func TestPermitWait(t *testing.T) {
	t.Parallel()
	p, f := heldPermits(t)
	h := New(over(newFake(t)), Options{Permits: p})
	var waiting sync.WaitGroup
	got := make(chan permitAnswer, 1)
	waiting.Go(func() {
		_, a := asked(t, h, "acquire", ask("report", "k", "next", `,"wait_ms":60000`))
		got <- a
	})
	inLine := func() bool {
		held, err := f.Holders(t.Context(), "report k")
		return err == nil && len(held.Waiting) == 1
	}
	for deadline := time.Now().Add(2 * time.Minute); !inLine(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody waits")
		}
	}
	if _, a := asked(t, h, "acquire", ask("report", "k", "third", `,"keep_ms":10000`)); !a.Waiting || a.Ahead != 1 || a.Line != 2 || a.Retry <= 0 || a.Retry > 1000 {
		t.Errorf("with a place in line: %+v", a)
	}
	if _, a := asked(t, h, "release", ask("report", "k", "holder", "")); !a.Released {
		t.Errorf("released: %+v", a)
	}
	waiting.Wait()
	if a := <-got; !a.Allowed || a.Permit == nil || a.Permit.Holder != "next" {
		t.Errorf("who waits: %+v", a)
	}
	// The place is given up by a release without an epoch.
	if _, a := asked(t, h, "release", ask("report", "k", "third", "")); !a.Released {
		t.Errorf("the place in line: %+v", a)
	}
	// A wait that ends without a permit leaves nothing in line.
	if _, a := asked(t, h, "acquire", ask("report", "k", "fourth", `,"wait_ms":1`)); a.Allowed || a.Waiting || a.Line != 0 {
		t.Errorf("after a wait: %+v", a)
	}
	// A caller that hangs up while it waits ends the wait, and is answered nothing.
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/permits/acquire", strings.NewReader(ask("report", "k", "fifth", `,"wait_ms":60000`)))
	r.Header.Set("Content-Type", "application/json")
	cancel()
	if w := serve(h, r); w.Body.Len() != 0 {
		t.Errorf("a caller that is gone is answered with %d %s", w.Code, w.Body)
	}
	// A server that is being shut down lets nobody wait.
	ending := make(chan struct{})
	close(ending)
	p.Ending = ending
	if _, a := asked(t, h, "acquire", ask("report", "k", "sixth", `,"wait_ms":60000`)); a.Allowed || a.Waiting {
		t.Errorf("at the end of the server: %+v", a)
	}
}

// A rule that only measures lets work begin without a permit, and so does one that admits
// while its store does not answer.
func TestPermitWithoutLease(t *testing.T) {
	t.Parallel()
	p, f := newPermits(t)
	h := New(over(newFake(t)), Options{Permits: p})
	if _, a := asked(t, h, "acquire", ask("shadow", "k", "a", "")); !a.Allowed || a.Shadow || a.Permit == nil {
		t.Errorf("in shadow, free: %+v", a)
	}
	if _, a := asked(t, h, "acquire", ask("shadow", "k", "b", `,"wait_ms":60000`)); !a.Allowed || !a.Shadow || a.Permit != nil {
		t.Errorf("in shadow, in use: %+v", a)
	}
	f.err = headgate.ErrUnavailable
	if _, a := asked(t, h, "acquire", ask("shadow", "k", "b", "")); !a.Allowed || !a.Shadow {
		t.Errorf("in shadow, without an answer: %+v", a)
	}
	if _, a := asked(t, h, "acquire", ask("open", "", "a", "")); !a.Allowed || a.Source != "open" || a.Permit != nil {
		t.Errorf("open, without an answer: %+v", a)
	}
	if status, a := asked(t, h, "acquire", ask("report", "k", "a", "")); status != http.StatusServiceUnavailable || a.Allowed || !strings.Contains(a.Detail, "same holder") {
		t.Errorf("without an answer: %d %+v", status, a)
	}
	f.err = errors.New("something else")
	if status, a := asked(t, h, "acquire", ask("open", "", "a", "")); status != http.StatusServiceUnavailable || a.Allowed {
		t.Errorf("after another error: %d %+v", status, a)
	}
}

func TestPermitRefusals(t *testing.T) {
	t.Parallel()
	p, _ := heldPermits(t)
	const token = "open sesame"
	h := New(over(newFake(t)), Options{Permits: p, Admin: Admin{Token: token}})
	for _, c := range []struct {
		call, body string
		status     int
		want       string // part of the answer
	}{
		{"acquire", ``, 400, `"rule\", \"key\" and \"holder\""`},
		{"acquire", `{"rule":"report","rule":"all"}`, 400, `"errors":[{"field":"rule","detail":"is given twice"}]`},
		{"acquire", ask("report", "k", "a", `,"epoch":1`), 400, `the fields are rule, key, holder, cost, ttl_ms, wait_ms and keep_ms`},
		{"renew", ask("report", "k", "a", `,"epoch":"1"`), 400, `must be a whole number, not`},
		{"acquire", `{"rule":"report","holder":"a"}`, 422, `"field":"key","detail":"is missing`},
		{"acquire", `{}`, 422, `"the request has 3 mistakes"`},
		{"acquire", ask("report", "k", strings.Repeat("a", 129), ""), 422, `"field":"holder","detail":"has 129 bytes, must have 1 to 128"`},
		{"acquire", ask("report", "k", "a", `,"cost":0`), 422, `"field":"cost","detail":"is 0, must be 1 to 1000000000"`},
		{"acquire", ask("report", "k", "a", `,"cost":2`), 422, `"field":"cost","detail":"takes 2 of what may be in progress, which is 1"`},
		{"acquire", ask("report", "k", "a", `,"ttl_ms":99`), 422, `"field":"ttl_ms","detail":"is 99, must be 100 to 3600000`},
		{"acquire", ask("report", "k", "a", `,"wait_ms":-1,"keep_ms":1`), 422, `2 mistakes`},
		{"acquire", ask("nothing", "k", "a", ""), 404, `GET /v1/rules lists the rules`},
		{"acquire", ask("here", "k", "a", ""), 422, `"field":"rule","detail":"counts what is in progress in each process by itself; give its in_progress shared: true"`},
		{"acquire", ask("report", "", "a", ""), 422, `"field":"key"`},
		{"acquire", ask("all", "k", "a", ""), 422, `"field":"key"`},
		{"acquire?status=true", ask("report", "k", "a", ""), 429, `One request is in progress under`},
		{"acquire?status=true", ask("all", "", "a", ""), 503, `"allowed":false`},
		{"acquire?at=true", ask("all", "", "a", ""), 400, `"field":"query.at"`},
		{"acquire", ask("report", "r", "holder", ""), 410, `"revoked":true`},
		{"renew", ask("report", "k", "a", ""), 422, `"field":"epoch"`},
		{"renew", ask("report", "k", "a", `,"epoch":1`), 410, `it has ended, or was released`},
		{"release", ask("report", "k", "a", `,"epoch":-1`), 422, `"field":"epoch"`},
	} {
		path, query, _ := strings.Cut(c.call, "?")
		w := post(h, "/v1/permits/"+path+"?"+query, c.body)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s %s: %d %s, want %d with %s", c.call, c.body, w.Code, w.Body, c.status, c.want)
		}
		if (w.Code == 429 || w.Code == 503) && w.Header().Get("Retry-After") != "1" {
			t.Errorf("%s %s: Retry-After is %q", c.call, c.body, w.Header().Get("Retry-After"))
		}
	}
	without := New(over(newFake(t)), Options{})
	if w := post(without, "/v1/permits/acquire", ask("report", "k", "a", "")); w.Code != http.StatusNotImplemented {
		t.Errorf("without permits: %d %s", w.Code, w.Body)
	}
}

// Holders are shown to admins, who may revoke what they hold.
func TestPermitAdmin(t *testing.T) {
	t.Parallel()
	p, _ := heldPermits(t)
	const token = "open sesame"
	h := New(over(newFake(t)), Options{Permits: p, Admin: Admin{Token: token}})
	do := func(h http.Handler, method, path, body, token string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+token)
		return serve(h, r)
	}
	const list, revoke = "/v1/permits/holders?rule=report&key=k", "/v1/permits/revoke"
	nobodys := New(over(newFake(t)), Options{Permits: p})
	for _, c := range []struct {
		h      http.Handler
		token  string
		status int
	}{{h, "geheim", 401}, {nobodys, "", 403}} {
		for _, w := range []*httptest.ResponseRecorder{
			do(c.h, http.MethodGet, list, "", c.token), do(c.h, http.MethodPost, revoke, ask("report", "k", "holder", ""), c.token),
		} {
			if w.Code != c.status {
				t.Errorf("token %q: %d %s", c.token, w.Code, w.Body)
			}
		}
	}
	type shown struct {
		InUse   int64 `json:"in_use"`
		Limit   int64
		Permits []struct {
			Holder  string
			Revoked bool
		}
		Waiting []struct{ Holder string }
	}
	holders := func() (s shown) {
		w := do(h, http.MethodGet, list, "", token)
		if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || w.Code != 200 {
			t.Fatalf("%d %s: %v", w.Code, w.Body, err)
		}
		return s
	}
	if s := holders(); s.InUse != 1 || s.Limit != 1 || len(s.Permits) != 1 || s.Permits[0].Holder != "holder" || s.Permits[0].Revoked || len(s.Waiting) != 0 {
		t.Errorf("holders: %+v", s)
	}
	for holder, want := range map[string]string{"holder": "{\"revoked\":true}\n", "nobody": "{\"revoked\":false}\n"} {
		if w := do(h, http.MethodPost, revoke, ask("report", "k", holder, ""), token); w.Code != 200 || w.Body.String() != want {
			t.Errorf("revoking %s: %d %s", holder, w.Code, w.Body)
		}
	}
	if s := holders(); len(s.Permits) != 1 || !s.Permits[0].Revoked {
		t.Errorf("holders after that: %+v", s)
	}
	for query, status := range map[string]int{"?rule=report": 422, "?rule=report&rule=all&key=k": 400, "?rule=report&key=k&x=1": 400, "?rule=none&key=": 404, "?%": 400} {
		if w := do(h, http.MethodGet, "/v1/permits/holders"+query, "", token); w.Code != status {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
	}
}
