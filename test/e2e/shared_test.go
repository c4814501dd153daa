package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/test/servers"
)

// longPolicy has limits that hardly refill within a test, of every algorithm.
const longPolicy = `
rules:
  - name: bucket
    match: { kind: bucket }
    per: [api_key]
    limits: [200 per 300d]
  - name: windows
    match: { kind: windows }
    per: [api_key]
    algorithm: sliding_window
    limits: [200 per 300d, 150 per 100d]
  - name: first
    match: { kind: mixed }
    per: [api_key]
    limits:
      - 120 per 300d from first request
      - { algorithm: sliding_counter, count: 400, period: 300d }
  - name: second
    match: { kind: mixed }
    per: all
    limits: [{ algorithm: leaky_bucket, count: 100, period: 300d }]
limits:
  - name: named
    config:
      - limit: 180
        period: 8640000
`

const (
	secret  = "sk_live_geheim"
	hashKey = "0123456789abcdef-geheim"
)

// Two servers on one store, many clients on both: together they are admitted
// exactly what the limits allow, whichever way they ask.
func TestTwoServersShareLimitsExactly(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, store *servers.Server) {
		policy := policyFile(t, longPolicy)
		nodes := make([]*server, 2)
		for i := range nodes {
			nodes[i] = serve(t, "--config", policy, "--store", patiently(store.URL()), "--store-timeout", "30s", "--hash-key", hashKey, "--access-log")
		}
		descriptor := func(kind string) string {
			return fmt.Sprintf(`{"descriptor":{"kind":%q,"api_key":%q}}`, kind, secret)
		}
		named := func(rule, key string) string {
			return fmt.Sprintf(`{"checks":[{"rule":%q,"key":%q}]}`, rule, key)
		}
		tests := []struct {
			name   string
			bodies []string // asked in turn: all of them reach the same counters
			want   int64
		}{
			{"token bucket", []string{descriptor("bucket"), named("bucket", secret)}, 200},
			{"sliding windows", []string{descriptor("windows"), named("windows", secret)}, 150},
			{"two rules of three algorithms", []string{descriptor("mixed")}, 100},
			{"short form", []string{named("named", "user42")}, 180},
		}
		for _, tt := range tests {
			var allowed atomic.Int64
			var clients sync.WaitGroup
			for c := range 24 {
				clients.Go(func() {
					client := &http.Client{Transport: new(http.Transport)}
					defer client.CloseIdleConnections()
					for i := range 20 {
						a, err := nodes[c%2].ask(client, "/v1/check?status=true", tt.bodies[i%len(tt.bodies)])
						switch {
						case err == nil && a.status == http.StatusOK:
							allowed.Add(1)
						case err != nil || a.status != http.StatusTooManyRequests:
							t.Errorf("%s: %d %s, %v", tt.name, a.status, a.text, err)
							return
						}
					}
				})
			}
			clients.Wait()
			if got := allowed.Load(); got != tt.want {
				t.Errorf("%s: %d units were admitted together, want exactly %d", tt.name, got, tt.want)
			}
		}

		keys, err := store.Do(t.Context(), "KEYS", "*")
		if err != nil {
			t.Fatal(err)
		}
		places := map[string]string{"the store's keys": fmt.Sprint(keys)}
		for i, s := range nodes {
			for _, path := range []string{"/metrics", "/v1/rules", "/openapi.json"} {
				places[fmt.Sprintf("%s of server %d", path, i+1)] = s.get(t, path).text
			}
			if code := s.stop(t); code != 0 {
				t.Errorf("exit code %d", code)
			}
			places[fmt.Sprintf("the log of server %d", i+1)] = s.logged()
		}
		for place, text := range places {
			if strings.Contains(text, "geheim") || text == "" {
				t.Errorf("a secret, or nothing, stands in %s:\n%s", place, text)
			}
		}
	}, servers.Password("geheim"))
}

// A store that goes away is told by every answer, the log and /readyz, and comes
// back by itself.
func TestStoreGoesAndComesBack(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, store *servers.Server) {
		s := serve(t, "--store", patiently(store.URL()))
		store.Kill()
		a := s.post(t, "/v1/check", user)
		if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "1" || a.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("without the store: %d %v %s", a.status, a.header, a.text)
		}
		if a := s.get(t, "/readyz"); a.status != http.StatusServiceUnavailable {
			t.Errorf("readyz without the store: %d", a.status)
		}
		if a := s.get(t, "/healthz"); a.status != http.StatusOK {
			t.Errorf("healthz without the store: %d", a.status)
		}
		until(t, "the store is not asked any more", func() bool {
			s.post(t, "/v1/check", user)
			return s.metric(t, isOpen) == 1
		})
		store.Restart()
		until(t, "the store decides", func() bool { return s.post(t, "/v1/check", user).status == http.StatusOK })
		until(t, "the server is ready", func() bool { return s.get(t, "/readyz").status == http.StatusOK })
		s.await(t, isClosed, 1)
		// The log is whole when the server has ended.
		if code := s.stop(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
		for _, want := range []string{"the store has not answered a request, which got no decision", "the store does not answer; rules do what on_store_error says", "the store answers again", "the store decides again"} {
			if !strings.Contains(s.logged(), want) {
				t.Errorf("the log lacks %q:\n%s", want, s.logged())
			}
		}
	})
}
