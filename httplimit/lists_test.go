package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/memory"
)

// TestPolicyLists: a request on the deny list is turned away before the store is
// asked, and one on the allow list passes without being counted.
func TestPolicyLists(t *testing.T) {
	set, err := policy.New(
		[]policy.Rule{{Per: []policy.Part{{Entry: "api_key"}}, Limits: headgate.MustRule("client", headgate.Per(1, time.Hour))}},
		policy.HashKey([]byte("0123456789abcdef")),
		policy.Denied(policy.ListEntry{Name: "scanner", Match: []policy.Condition{policy.Prefix("path", "/wp-")}}),
		policy.Allowed(policy.ListEntry{Name: "partner", Match: []policy.Condition{policy.Equal("api_key", "gold")}}),
	)
	if err != nil {
		t.Fatal(err)
	}
	limit, err := httplimit.New(memory.New(), httplimit.Policy(set))
	if err != nil {
		t.Fatal(err)
	}
	handler := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	steps := []struct {
		path, key string
		want      int
	}{
		{"/a", "k1", http.StatusOK},
		{"/a", "k1", http.StatusTooManyRequests},
		{"/wp-login.php", "k2", http.StatusForbidden},
		{"/wp-login.php", "gold", http.StatusForbidden},
		{"/a", "gold", http.StatusOK},
		{"/a", "gold", http.StatusOK},
		{"/a", "k2", http.StatusOK},
	}
	for i, step := range steps {
		r := httptest.NewRequest(http.MethodGet, step.path, http.NoBody)
		r.Header.Set("X-Api-Key", step.key)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != step.want {
			t.Errorf("step %d, %s as %s: got %d, want %d", i, step.path, step.key, w.Code, step.want)
		}
	}
}

// TestPolicyTariffs: the table of subjects says who has which tier; the client
// need not, and cannot.
func TestPolicyTariffs(t *testing.T) {
	set, err := policy.New(
		[]policy.Rule{{
			Name: "api", Per: []policy.Part{{Entry: "api_key"}},
			Tariff: &policy.Tariff{Entry: "tier", Tiers: []policy.Tier{
				{Value: "pro", Limits: headgate.MustRule("api", headgate.Per(3, time.Hour))},
			}, Other: headgate.MustRule("api", headgate.Per(1, time.Hour))},
		}},
		policy.HashKey([]byte("0123456789abcdef")),
		policy.SubjectTable(policy.Subjects{By: "api_key", Table: []policy.Subject{
			{Key: "gold", Entries: []policy.Entry{{Name: "tier", Value: "pro"}}},
		}}),
	)
	if err != nil {
		t.Fatal(err)
	}
	limit, err := httplimit.New(memory.New(), httplimit.Policy(set))
	if err != nil {
		t.Fatal(err)
	}
	handler := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for key, want := range map[string]int{"gold": 3, "free": 1} {
		admitted := 0
		for range 5 {
			r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
			r.Header.Set("X-Api-Key", key)
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if w.Code == http.StatusOK {
				admitted++
			}
		}
		if admitted != want {
			t.Errorf("%s: %d of 5 admitted, want %d", key, admitted, want)
		}
	}
}
