package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

const user = `{"checks":[{"rule":"auth.createToken","key":"user42"}]}`

// What a newcomer does first: start the server, ask until it says no.
func TestFirstSteps(t *testing.T) {
	t.Parallel()
	s := serve(t)
	user, denials := firstChecks(t, s)
	if v := s.check(t, `{"descriptor": {"api_key": "k1", "user": "ada", "ip": "203.0.113.10", "route": "POST /login"}, "cost": 1}`); !v.Allowed || len(v.Decisions) != 3 {
		t.Errorf("by descriptor: %+v", v)
	}
	if v := s.check(t, strings.Replace(user, "}", `,"cost":6}`, 1)); v.Allowed || v.RetryAfterMS != -1 {
		t.Errorf("a cost that never fits: %+v", v)
	}
	s.post(t, "/v1/reset", user)
	if v := s.check(t, user); !v.Allowed || v.Decisions[1].Remaining != 4 {
		t.Errorf("after a reset: %+v", v)
	}
	s.post(t, "/v1/refund", user)
	if v := parse(t, s.post(t, "/v1/peek", user).text); !v.Allowed || v.Decisions[1].Remaining != 5 {
		t.Errorf("after a refund: %+v", v)
	}
	for _, path := range []string{"/healthz", "/readyz", "/v1/rules", "/openapi.json", "/metrics"} {
		if a := s.get(t, path); a.status != http.StatusOK {
			t.Errorf("%s: %d %s", path, a.status, a.text)
		}
	}
	if n := s.metric(t, `headgate_decisions_total{limit="5 per 3s",outcome="denied",rule="auth.createToken"}`); n != denials+1 {
		t.Errorf("%v denials are counted, want %v", n, denials+1)
	}
	if code := s.stop(t); code != 0 {
		t.Errorf("exit code %d:\n%s", code, s.logged())
	}
}

// firstChecks takes all of the sample's small limit, and returns the body that did, and
// how often it was denied. A unit of it comes back after 600 ms: where a busy machine
// takes longer, what was said proves nothing, and another key is asked for.
func firstChecks(t *testing.T, s *server) (body string, denials float64) {
	t.Helper()
	const comesBack = 600 * time.Millisecond
	for tries := range 200 {
		user := strings.Replace(user, "user42", fmt.Sprint("user", 42+tries), 1)
		start := time.Now()
		var all []verdict
		for range 6 {
			v := s.check(t, user)
			if all = append(all, v); !v.Allowed {
				denials++
			}
		}
		a := s.post(t, "/v1/check?status=true", user)
		if a.status == http.StatusTooManyRequests {
			denials++
		}
		if time.Since(start) >= comesBack {
			continue
		}
		for i, v := range all[:5] {
			if !v.Allowed || v.RetryAfterMS != 0 || len(v.Decisions) != 2 || v.Decisions[1].Remaining != int64(4-i) {
				t.Fatalf("check %d: %+v", i+1, v)
			}
		}
		denied := all[5]
		if denied.Allowed || denied.DeniedBy.Rule != "auth.createToken" || denied.DeniedBy.Limit != "5 per 3s" || denied.RetryAfterMS < 1 || denied.RetryAfterMS > 3000 {
			t.Errorf("the sixth check: %+v", denied)
		}
		if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" || a.header.Get("X-RateLimit-Limit") != "5" || a.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("with a status: %d %v", a.status, a.header)
		}
		return user, denials
	}
	t.Fatalf("seven checks take longer than %v", comesBack)
	return "", 0
}

// A server that is told to end under load answers every request that it got:
// each caller goes on until it is asked to leave, and none is cut off.
func TestShutdownUnderLoad(t *testing.T) {
	t.Parallel()
	s := serve(t, "--drain-delay", "5s")
	var callers sync.WaitGroup
	busy := make(chan struct{}, 16)
	for range cap(busy) {
		callers.Go(func() {
			client := &http.Client{Transport: new(http.Transport)}
			defer client.CloseIdleConnections()
			for i := 0; ; i++ {
				a, err := s.ask(client, "/v1/check", `{"descriptor":{"ip":"203.0.113.10"}}`)
				if i == 0 {
					busy <- struct{}{}
				}
				if err != nil || a.status != http.StatusOK {
					t.Errorf("a request was answered with %d %s, %v", a.status, a.text, err)
					return
				}
				if a.closed {
					return
				}
			}
		})
	}
	for range cap(busy) {
		<-busy
	}
	code := s.stop(t)
	callers.Wait()
	if code != 0 {
		t.Errorf("exit code %d:\n%s", code, s.logged())
	}
}
