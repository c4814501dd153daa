package httplimit_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/memory"
)

func setOf(t testing.TB, rules ...policy.Rule) *policy.Set {
	t.Helper()
	set, err := policy.New(rules)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestPolicyChanges: a middleware decides by the set that is in force, what was used stays used,
// and a set that the middleware could not keep to changes nothing.
func TestPolicyChanges(t *testing.T) {
	t.Parallel()
	byMethod := func(count int64) policy.Rule {
		return policy.Rule{Limits: headgate.MustRule("api", headgate.Sliding(count, headgate.MaxPeriod)), Per: []policy.Part{{Entry: "method"}}, Soft: 99}
	}
	rules := policy.NewSource(setOf(t, byMethod(2)))
	tenant := httplimit.Fact("tenant", func(r *http.Request) string { return r.Header.Get("Tenant") })
	limit, err := httplimit.New(memory.New(), httplimit.PolicyFrom(rules), tenant,
		httplimit.Limit(httplimit.Everyone(), headgate.MustRule("mine", headgate.PerSecond(1_000_000))))
	if err != nil {
		t.Fatal(err)
	}
	h := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	get := func(tenant string) (status int, warning string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if tenant != "" {
			r.Header.Set("Tenant", tenant)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Header().Get("X-RateLimit-Warning")
	}
	expect := func(what string, tenant string, want ...int) {
		t.Helper()
		for i, status := range want {
			if got, _ := get(tenant); got != status {
				t.Errorf("%s: request %d is answered with %d, want %d", what, i+1, got, status)
			}
		}
	}
	expect("at first", "", 200, 200, 429)
	if err := rules.Swap(setOf(t, byMethod(3))); err != nil {
		t.Fatal(err)
	}
	if status, warning := get(""); status != 200 || !strings.Contains(warning, "api") {
		t.Errorf("the last unit: %d, warning %q", status, warning)
	}
	expect("a higher count", "", 429)

	for name, bad := range map[string]*policy.Set{
		`the policy's rules need the entries user, which nothing finds`: setOf(t, policy.Rule{Limits: headgate.MustRule("u", headgate.PerSecond(1)), Per: []policy.Part{{Entry: "user"}}}),
		`the rule "mine" is one that the program has made as well`:      setOf(t, policy.Rule{Limits: headgate.MustRule("mine", headgate.PerSecond(1))}),
		`counts what is in progress over all processes`:                 setOf(t, policy.Rule{Name: "r", InProgress: &policy.InProgress{Limit: 1, Shared: true}}),
	} {
		before := rules.Set()
		var invalid *headgate.InvalidError
		if err := rules.Swap(bad); !errors.As(err, &invalid) || !strings.Contains(err.Error(), name) || rules.Set() != before {
			t.Errorf("%s: %v", name, err)
		}
	}
	expect("after bad sets", "", 429)

	// The new set looks at an entry that the old one did not need, and bounds what is in progress.
	if err := rules.Swap(setOf(t,
		policy.Rule{Limits: headgate.MustRule("tenant", headgate.Sliding(1, headgate.MaxPeriod)), Per: []policy.Part{{Entry: "tenant"}}},
		policy.Rule{Name: "one", InProgress: &policy.InProgress{Limit: 1}})); err != nil {
		t.Fatal(err)
	}
	expect("another entry", "acme", 200, 429)
	expect("without the entry", "", 200, 200)
	if err := rules.Swap(setOf(t)); err != nil {
		t.Fatal(err)
	}
	expect("without rules", "acme", 200)

	if _, err := httplimit.New(memory.New(), httplimit.PolicyFrom(nil)); err == nil || !strings.Contains(err.Error(), "make one with policy.NewSource") {
		t.Errorf("without a source: %v", err)
	}
}

// TestPolicyUntil: a middleware that was made for a while refuses no set after that, goes on
// deciding by the set that it has, and the source lets go of it.
func TestPolicyUntil(t *testing.T) {
	t.Parallel()
	rules := policy.NewSource(setOf(t, policy.Rule{Limits: headgate.MustRule("one", headgate.Sliding(1, headgate.MaxPeriod))}))
	needsTenant := setOf(t, policy.Rule{Limits: headgate.MustRule("tenant", headgate.PerSecond(1)), Per: []policy.Part{{Entry: "tenant"}}})
	ctx, leave := context.WithCancel(t.Context())
	store := new(*memory.Store)
	*store = memory.New()
	limit, err := httplimit.New(*store, httplimit.PolicyFrom(rules.Until(ctx)), httplimit.Cost(func(*http.Request) int64 {
		runtime.KeepAlive(store)
		return 1
	}))
	if err != nil {
		t.Fatal(err)
	}
	if err := rules.Swap(needsTenant); err == nil {
		t.Error("the middleware does not find tenants, and has let the set pass")
	}
	leave()
	if err := rules.Swap(needsTenant); err != nil {
		t.Errorf("after the middleware has left: %v", err)
	}
	h := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil)); w.Code != want {
			t.Errorf("by the set that it has: %d, want %d", w.Code, want)
		}
	}
	gone := weak.Make(store)
	for deadline := time.Now().Add(2 * time.Minute); gone.Value() != nil; time.Sleep(time.Millisecond) {
		if runtime.GC(); time.Now().After(deadline) {
			t.Fatal("the source keeps a middleware that has left")
		}
	}
	runtime.KeepAlive(rules)
}

// TestPolicyChangesUnderWay: requests that meet a change are decided by one of the two sets.
func TestPolicyChangesUnderWay(t *testing.T) {
	t.Parallel()
	sets := []*policy.Set{
		setOf(t, policy.Rule{Limits: headgate.MustRule("a", headgate.PerSecond(1_000_000)), Per: []policy.Part{{Entry: "method"}}, ChargeOn: policy.Statuses{{First: 500, Last: 599}}}),
		setOf(t, policy.Rule{Limits: headgate.MustRule("b", headgate.PerSecond(1_000_000)), Per: []policy.Part{{Entry: "ip"}}, InProgress: &policy.InProgress{Limit: 1000}}),
	}
	rules := policy.NewSource(sets[0])
	limit, err := httplimit.New(memory.New(), httplimit.PolicyFrom(rules))
	if err != nil {
		t.Fatal(err)
	}
	h := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 300 {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
				if w.Code != http.StatusOK {
					t.Errorf("answered with %d", w.Code)
				}
			}
		})
	}
	for i := range 100 {
		if err := rules.Swap(sets[i%2]); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
}
