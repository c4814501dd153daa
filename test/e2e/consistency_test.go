package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/test/servers"
)

const consistencyPolicy = `
rules:
  - name: leased
    match: { kind: leased }
    per: [user]
    limits: [600 per 1m]
    consistency: leased
  - name: async
    match: { kind: async }
    per: [user]
    limits: [600 per 1m]
    consistency: async
  - name: remembered
    match: { kind: remembered }
    per: [user]
    limits: [3 per 1h]
    deny_cache: on
  - name: asked
    match: { kind: asked }
    per: [user]
    limits: [3 per 1h]
`

// TestConsistency: two servers on one store, each rule counted as it says. Leases and
// reports save calls, nobody gets too much of what is leased, and a denial that is
// remembered is forgotten when another server resets the key.
func TestConsistency(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, store *servers.Server) {
		policy := policyFile(t, consistencyPolicy)
		nodes := make([]*server, 2)
		for i := range nodes {
			nodes[i] = serve(t, "--config", policy, "--store", patiently(store.URL()), "--store-timeout", "30s")
		}
		for _, s := range nodes {
			s.await(t, "headgate_deny_cache_listening", 1)
		}
		bySource := func(source string) (n float64) {
			for _, s := range nodes {
				n += max(0, s.metric(t, fmt.Sprintf("headgate_decisions_by_source_total{source=%q}", source)))
			}
			return n
		}

		for kind, source := range map[string]string{"leased": "lease", "async": "async"} {
			began := time.Now()
			var admitted atomic.Int64
			var clients sync.WaitGroup
			for c := range 8 {
				clients.Go(func() {
					client := &http.Client{Transport: new(http.Transport)}
					defer client.CloseIdleConnections()
					for range 250 {
						a, err := nodes[c%2].ask(client, "/v1/check?status=true", ofKind(kind, "busy"))
						switch {
						case err == nil && a.status == http.StatusOK:
							admitted.Add(1)
						case err != nil || a.status != http.StatusTooManyRequests:
							t.Errorf("%s: %d %s, %v", kind, a.status, a.text, err)
							return
						}
					}
				})
			}
			clients.Wait()
			// Ten come back in a second.
			most := 600 + int64(10*time.Since(began).Seconds()) + 1
			if got := admitted.Load(); kind == "leased" && got > most || got > 2*most || got < 400 {
				t.Errorf("%s: %d of 2,000 were admitted, its limit is %d", kind, got, most)
			}
			if bySource(source) == 0 {
				t.Errorf("%s: no decision was made by %s", kind, source)
			}
		}

		deny := func(kind string) {
			t.Helper()
			for i := range 10 {
				if v := nodes[0].check(t, ofKind(kind, "greedy")); v.Allowed != (i < 3) {
					t.Fatalf("%s: request %d: %+v", kind, i+1, v)
				}
			}
		}
		before := bySource("deny_cache")
		deny("asked")
		if n := bySource("deny_cache") - before; n != 0 {
			t.Errorf("%v denials were remembered of a rule that does not say so", n)
		}
		deny("remembered")
		if n := bySource("deny_cache") - before; n != 6 {
			t.Errorf("%v of 7 denials were answered from memory, want all but the first", n)
		}
		if a := nodes[1].post(t, "/v1/reset", ofKind("remembered", "greedy")); a.status != http.StatusOK && a.status != http.StatusNoContent {
			t.Fatalf("the reset is answered with %d %s", a.status, a.text)
		}
		// The message takes a moment. Without it the denial would be believed for ten
		// seconds.
		reset := time.Now()
		for !nodes[0].check(t, ofKind("remembered", "greedy")).Allowed {
			if time.Since(reset) > 8*time.Second {
				t.Fatal("the key is still denied from memory")
			}
			time.Sleep(5 * time.Millisecond)
		}
		for _, s := range nodes {
			if code := s.stop(t); code != 0 {
				t.Errorf("exit code %d: %s", code, s.logged())
			}
		}
	})
}
