package httplimittest

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
)

// Cases about what goes wrong, and who is told.

func storeErrors(t *testing.T, mk Maker) {
	for _, tt := range []struct {
		name string
		err  error
		opts []httplimit.Option
		code int
		want string // the headers
	}{
		{"open", headgate.ErrUnavailable, nil, 200, ""},
		{"open with a note", headgate.ErrUnavailable, []httplimit.Option{httplimit.UnenforcedHeader("x-ratelimit-unenforced")}, 200, "X-Ratelimit-Unenforced: store-unavailable"},
		{"closed", headgate.ErrUnavailable, []httplimit.Option{httplimit.OnStoreError(httplimit.FailClosed)}, 503, "Cache-Control: no-store\nRetry-After: 5\nX-Content-Type-Options: nosniff"},
		{"a mistake is never let in", &headgate.InvalidError{Subject: "request", Problems: headgate.Problems{{Text: "too much"}}}, nil, 500, "Cache-Control: no-store\nX-Content-Type-Options: nosniff"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			failed := make(chan error, 1)
			s := newSubjectOn(t, mk, failing{fmt.Errorf("take: %w", tt.err)}, append(tt.opts, httplimit.Limit(httplimit.ByIP(), one("rule")),
				httplimit.Observe(httplimit.Hooks{Failed: func(_ *http.Request, err error) { failed <- err }}))...)
			a := s.get()
			if a.status != tt.code || a.lines() != tt.want || (a.body == "item 7") != (tt.code == 200) {
				t.Errorf("%d %s\n%s\nwant %d\n%s", a.status, a.body, a.lines(), tt.code, tt.want)
			}
			if err := <-failed; !errors.Is(err, tt.err) {
				t.Errorf("the hook was told %v", err)
			}
		})
	}
}

// ruleErrors: a rule that says deny has its way, whatever the option says of all
// others. One that says something else needs a store that does it.
func ruleErrors(t *testing.T, mk Maker) {
	for _, tt := range []struct {
		rule policy.Rule
		code int
	}{
		{policy.Rule{}, 200},
		{policy.Rule{Hints: headgate.Hints{OnError: headgate.OnErrorAllow}}, 200},
		{policy.Rule{Hints: headgate.Hints{OnError: headgate.OnErrorDeny}}, 503},
		{policy.Rule{Hints: headgate.Hints{OnError: headgate.OnErrorDeny}, Mode: policy.ModeShadow}, 200},
	} {
		tt.rule.Limits = one("rule")
		set, err := policy.New([]policy.Rule{tt.rule, {Limits: one("other")}})
		if err != nil {
			t.Fatal(err)
		}
		s := newSubjectOn(t, mk, failing{headgate.ErrUnavailable}, httplimit.Policy(set))
		if a := s.get(); a.status != tt.code {
			t.Errorf("a rule that says %q, mode %v: %d, want %d", tt.rule.OnError, tt.rule.Mode, a.status, tt.code)
		}
	}
}

func hooks(t *testing.T, mk Maker) {
	var mu sync.Mutex // guards told
	var told []string
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprintf(format, args...))
	}
	s := newSubject(t, mk, trusted, httplimit.Limit(httplimit.ByHeader("X-Tenant"), one("rule")), httplimit.Observe(httplimit.Hooks{
		Denied: func(r *http.Request, v headgate.Verdict) {
			note("denied %s %s?%s of %s: %v %d", r.Method, r.URL.Path, r.URL.RawQuery, r.Header.Get("X-Tenant"), v.Allowed, len(v.Decisions))
		},
		Missing: func(r *http.Request, entry string) { note("missing %s of %s", entry, r.RequestURI) },
	}))
	s.ask(http.MethodGet, "/items/7?x=1", "", "X-Tenant", "a")
	s.ask(http.MethodGet, "/items/7?x=2", "", "X-Tenant", "a")
	s.ask(http.MethodGet, "/items/7?x=3", "")
	mu.Lock()
	defer mu.Unlock()
	const want = "denied GET /items/7?x=2 of a: false 1\nmissing x-tenant of /items/7?x=3"
	if got := strings.Join(told, "\n"); got != want {
		t.Errorf("the hooks were told\n%s\nwant\n%s", got, want)
	}
}

func mistakes(t *testing.T, mk Maker) {
	_, err := mk(t, newSite(), nil, httplimit.Limit(httplimit.ByIP()), httplimit.IPv6Prefix(129))
	var invalid *headgate.InvalidError
	if !errors.As(err, &invalid) {
		t.Fatalf("the error is %v, want a *headgate.InvalidError", err)
	}
	for _, want := range []string{"the store is nil", "Limit 1 has no rule", "IPv6Prefix is 129"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not among the mistakes: %v", want, err)
		}
	}
}
