package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/memory"
)

// softSet has rules that warn, one that does not, and one in shadow.
func softSet(t *testing.T) *policy.Set {
	t.Helper()
	per := []policy.Part{{Entry: "api_key"}}
	set, err := policy.New([]policy.Rule{
		{Limits: headgate.MustRule("api", headgate.Sliding(4, time.Hour), headgate.Sliding(100, 24*time.Hour)), Per: per, Soft: 50},
		{Limits: headgate.MustRule("mail", headgate.Sliding(5, time.Hour)), Per: per, Soft: 80},
		{Limits: headgate.MustRule("quiet", headgate.Sliding(4, time.Hour)), Per: per},
		{Limits: headgate.MustRule("tried", headgate.Sliding(1, time.Hour)), Per: per, Soft: 99, Mode: policy.ModeShadow},
	}, policy.HashKey([]byte("0123456789abcdef")))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestWarning: admitted requests are told which limits they have nearly used up, in
// the headers of each dialect, and the hook too.
func TestWarning(t *testing.T) {
	const name, plain = "X-Ratelimit-Warning", "Ratelimit-Warning"
	for dialect, header := range map[httplimit.Dialect]string{
		httplimit.XRateLimit: name, httplimit.RateLimitTriple: plain, httplimit.Draft11: plain, httplimit.NoHeaders: "",
	} {
		var told []string
		limit, err := httplimit.New(memory.New(), httplimit.Policy(softSet(t)), httplimit.Headers(dialect), httplimit.Observe(httplimit.Hooks{
			Soft: func(_ *http.Request, d headgate.Decision) { told = append(told, d.Rule.Name()+" "+d.Limit.String()) },
		}))
		if err != nil {
			t.Fatal(err)
		}
		handler := limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for i, step := range []struct {
			code int
			want string
			told []string
		}{
			{200, "", []string{"tried 1 per 1h"}},
			{200, `"api per 1h"`, []string{"api 4 per 1h"}},
			{200, `"api per 1h"`, []string{"api 4 per 1h"}},
			{200, `"api per 1h", "mail"`, []string{"api 4 per 1h", "mail 5 per 1h"}},
			{429, "", nil},
		} {
			told = nil
			r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
			r.Header.Set("X-Api-Key", "k1")
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			got := w.Header()[name]
			if header != name {
				if got != nil {
					t.Errorf("%v, request %d: %s is %q", dialect, i+1, name, got)
				}
				got = w.Header()[plain]
			}
			want := []string{step.want}
			if step.want == "" || header == "" {
				want = nil
			}
			if w.Code != step.code || !slices.Equal(got, want) || !slices.Equal(told, step.told) {
				t.Errorf("%v, request %d: %d, %q, told %q; want %d, %q, %q", dialect, i+1, w.Code, got, told, step.code, want, step.told)
			}
		}
	}
}

// TestOldHashKey: while the hash key is being changed, two nodes with either key
// admit what one would.
func TestOldHashKey(t *testing.T) {
	store := memory.New()
	node := func(opts ...httplimit.Option) http.Handler {
		limit, err := httplimit.New(store, append(opts, httplimit.Limit(httplimit.ByAPIKey(), headgate.MustRule("key", headgate.Sliding(4, time.Hour))))...)
		if err != nil {
			t.Fatal(err)
		}
		return limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	}
	before, after := []byte("0123456789abcdef"), []byte("fedcba9876543210")
	nodes := []http.Handler{node(httplimit.HashKey(before)), node(httplimit.HashKey(after), httplimit.OldHashKey(before))}
	served := 0
	for i := range 10 {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Header.Set("X-Api-Key", "k1")
		w := httptest.NewRecorder()
		nodes[i%2].ServeHTTP(w, r)
		if w.Code == http.StatusOK {
			served++
		}
	}
	if served != 4 {
		t.Errorf("%d were served, want 4", served)
	}
	if _, err := httplimit.New(store, httplimit.Limit(httplimit.ByAPIKey(), headgate.MustRule("key", headgate.PerSecond(1))), httplimit.OldHashKey([]byte("short"))); err == nil {
		t.Error("a short key is taken")
	}
}
