package e2e

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/test/servers"
)

// failurePolicy has a rule for each thing to do while the store does not answer.
const failurePolicy = `
rules:
  - name: counted
    match: { kind: counted }
    per: [user]
    algorithm: sliding_window
    limits: [40 per 1h]
    on_store_error: local
  - name: let_in
    match: { kind: let_in }
    per: all
    limits: [1000000 per 1h]
    on_store_error: allow
  - name: turned_away
    match: { kind: turned_away }
    per: all
    limits: [1000000 per 1h]
`

// patience is a deadline that a store which is well never misses, however busy the
// machine is.
const patience = "5s"

// ofKind is the body of a check.
func ofKind(kind, user string) string {
	return fmt.Sprintf(`{"descriptor":{"kind":%q,"user":%q}}`, kind, user)
}

// metric is the value of one series, or -1 if there is none.
func (s *server) metric(t *testing.T, series string) float64 {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(s.get(t, "/metrics").text)
	if m == nil {
		return -1
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// await waits until a series has the value.
func (s *server) await(t *testing.T, series string, want float64) {
	t.Helper()
	until(t, fmt.Sprint(series, " is ", want), func() bool {
		if s.metric(t, series) == want {
			return true
		}
		time.Sleep(100 * time.Millisecond) // All metrics are written for each look.
		return false
	})
}

const (
	isOpen   = `headgate_store_breaker_state{state="open"}`
	isClosed = `headgate_store_breaker_state{state="closed"}`
)

// TestRulesWithoutTheStore: under load, whatever befalls the store, each rule does
// what it says, two servers share a limit, and all is as before when it is over.
func TestRulesWithoutTheStore(t *testing.T) {
	t.Parallel()
	for _, fault := range []struct {
		name       string
		begin, end func(*servers.Server)
		empty      bool // the store loses its data
	}{
		{"killed", (*servers.Server).Kill, (*servers.Server).Restart, true},
		{"stopped", (*servers.Server).Pause, (*servers.Server).Resume, false},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			servers.Each(t, func(t *testing.T, store *servers.Server) {
				policy := policyFile(t, failurePolicy)
				nodes := make([]*server, 2)
				for i := range nodes {
					nodes[i] = serve(t, "--config", policy, "--store", patiently(store.URL()), "--store-timeout", patience)
				}
				for _, s := range nodes {
					s.await(t, "headgate_instances", 2)
				}
				var stop atomic.Bool
				defer stop.Store(true)
				var clients sync.WaitGroup
				var refused atomic.Int64
				for i := range 8 {
					clients.Go(func() {
						client := &http.Client{Transport: new(http.Transport)}
						defer client.CloseIdleConnections()
						for n := 0; !stop.Load(); n++ {
							kind := []string{"counted", "let_in", "turned_away"}[n%3]
							a, err := nodes[i%2].ask(client, "/v1/check", ofKind(kind, "loaded"))
							switch {
							case err != nil:
								t.Errorf("%s: %v", kind, err)
								return
							case a.status == http.StatusServiceUnavailable && kind == "turned_away":
								refused.Add(1)
							case a.status != http.StatusOK:
								t.Errorf("%s: %d %s", kind, a.status, a.text)
								return
							}
							// Much more would show nothing else, and take the processors from other tests.
							time.Sleep(40 * time.Millisecond)
						}
					})
				}
				// spend asks of both servers in turn, and returns how many were admitted.
				spend := func(user string) (admitted int) {
					for i := range 100 {
						if nodes[i%2].check(t, ofKind("counted", user)).Allowed {
							admitted++
						}
					}
					return admitted
				}
				if got := spend("before"); got != 40 {
					t.Errorf("the store admitted %d of 40", got)
				}
				if took := fmt.Sprintf(`headgate_store_node_duration_seconds_count{node=%q,op="take"}`, store.Addr()); nodes[0].metric(t, took) == 0 {
					t.Errorf("%s is 0 after the store was asked", took)
				}
				fault.begin(store)
				for _, s := range nodes {
					s.await(t, isOpen, 1)
					for kind, want := range map[string]string{"counted": `"source":"local"`, "let_in": `"source":"open"`} {
						if a := s.post(t, "/v1/check", ofKind(kind, kind)); a.status != http.StatusOK || !strings.Contains(a.text, want) {
							t.Errorf("%s: %d %s, want %s", kind, a.status, a.text, want)
						}
					}
					if a := s.post(t, "/v1/check", ofKind("turned_away", "x")); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "1" {
						t.Errorf("turned away: %d %s", a.status, a.text)
					}
					if a := s.get(t, "/readyz"); a.status != http.StatusOK || !strings.Contains(a.text, "the store does not answer") {
						t.Errorf("readyz: %d %s", a.status, a.text)
					}
				}
				if got := spend("during"); got != 40 {
					t.Errorf("two servers admitted %d of 40 together", got)
				}
				if got := spend("before"); got != 0 {
					t.Errorf("of a key that was spent two servers admitted %d", got)
				}
				until(t, "a client is turned away", func() bool { return refused.Load() > 0 })
				fault.end(store)
				for _, s := range nodes {
					s.await(t, isClosed, 1)
					s.await(t, "headgate_store_debts", 0)
				}
				if got := spend("during"); got != 0 {
					t.Errorf("the store admitted %d of a key that was spent without it", got)
				}
				// The others' clocks run on: what the store has lost is lost without --learn.
				if got, want := spend("before"), map[bool]int{true: 40, false: 0}[fault.empty]; got != want {
					t.Errorf("the store admitted %d of a key that was spent before, want %d", got, want)
				}
				stop.Store(true)
				clients.Wait()
				for i, s := range nodes {
					if a := s.post(t, "/v1/check", ofKind("turned_away", "x")); a.status != http.StatusOK || strings.Contains(a.text, "source") {
						t.Errorf("afterwards: %d %s", a.status, a.text)
					}
					for _, series := range []string{"headgate_store_probes_total{result=\"answered\"}", "headgate_store_handed_back_units_total", `headgate_requests_without_store_total{by="local"}`, `headgate_decisions_by_source_total{source="open"}`} {
						if s.metric(t, series) <= 0 {
							t.Errorf("server %d: %s is %v", i+1, series, s.metric(t, series))
						}
					}
					if code := s.stop(t); code != 0 {
						t.Errorf("exit code %d", code)
					}
					// Once for each change, with hundreds of requests in between.
					for _, line := range []string{"the store does not answer; rules do what on_store_error says", "the store decides again"} {
						if n := strings.Count(s.logged(), line); n != 1 {
							t.Errorf("server %d says %d times %q:\n%s", i+1, n, line, s.logged())
						}
					}
				}
			})
		})
	}
}

// TestEmptyRestartUnderLearning: a store that comes back empty gives nobody a fresh
// start.
func TestEmptyRestartUnderLearning(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, store *servers.Server) {
		s := serve(t, "--config", policyFile(t, failurePolicy), "--store", patiently(store.URL()), "--store-timeout", patience, "--learn", "1h")
		spend := func() (admitted int) {
			for range 50 {
				if s.check(t, ofKind("counted", "k")).Allowed {
					admitted++
				}
			}
			return admitted
		}
		if got := spend(); got != 40 {
			t.Errorf("%d of 40 were admitted at first", got)
		}
		store.Kill()
		until(t, "the store is not asked any more", func() bool {
			s.check(t, ofKind("let_in", "k"))
			return s.metric(t, isOpen) == 1
		})
		store.Restart()
		s.await(t, isClosed, 1)
		if got := spend(); got != 0 {
			t.Errorf("%d were admitted besides after an empty restart", got)
		}
		if s.metric(t, "headgate_store_learning") != 1 {
			t.Error("it does not learn")
		}
		if a := s.get(t, "/readyz"); a.status != http.StatusOK || !strings.Contains(a.text, "has lost its data") {
			t.Errorf("readyz: %d %s", a.status, a.text)
		}
		s.stop(t)
	})
}

// TestDefaultForRules: what rules do that do not say it is a flag.
func TestDefaultForRules(t *testing.T) {
	t.Parallel()
	store := servers.Start(t, servers.Redis)
	policy := policyFile(t, "rules: [{ name: r, per: all, limits: [1000000 per 1h] }]")
	modes := map[string]*server{}
	for _, mode := range []string{"allow", "deny", "local"} {
		modes[mode] = serve(t, "--config", policy, "--store", patiently(store.URL()), "--store-timeout", patience, "--on-store-error", mode)
	}
	store.Kill()
	for mode, want := range map[string]struct {
		status, ready int
		text          string
	}{
		"allow": {http.StatusOK, http.StatusOK, `"source":"open"`},
		"local": {http.StatusOK, http.StatusOK, `"source":"local"`},
		"deny":  {http.StatusServiceUnavailable, http.StatusServiceUnavailable, "temporary-reduced-capacity"},
	} {
		s := modes[mode]
		// The breaker opens when requests were refused for a while, so they go on until then.
		until(t, "the breaker opens", func() bool {
			if a := s.post(t, "/v1/check", `{"descriptor":{"x":"y"}}`); a.status != want.status || !strings.Contains(a.text, want.text) {
				t.Errorf("%s: %d %s", mode, a.status, a.text)
			}
			return s.metric(t, isOpen) == 1
		})
		if a := s.get(t, "/readyz"); a.status != want.ready {
			t.Errorf("%s: readyz is %d %s", mode, a.status, a.text)
		}
		if code := s.stop(t); code != 0 {
			t.Errorf("%s: exit code %d", mode, code)
		}
	}
	if r := runProgram(t, "serve", "--store", patiently(store.URL()), "--on-store-error", "open", "--learn", "2h"); r.code != 2 || !strings.Contains(r.stderr, `--on-store-error: "open" is not one of allow, deny, local`) || !strings.Contains(r.stderr, "learn: is 2h0m0s") {
		t.Errorf("mistakes: %d %s", r.code, r.stderr)
	}
}
