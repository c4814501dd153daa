package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/test/servers"
)

const sharedPolicy = `
rules:
  - name: bucket
    match: { kind: bucket }
    per: [api_key]
    limits: [50 per 300d]
  - name: windows
    match: { kind: windows }
    per: [api_key]
    algorithm: sliding_window
    limits: [60 per 300d, 40 per 100d]
`

// admittedTogether asks both servers from many clients at once, and returns how many
// requests were admitted.
func admittedTogether(t *testing.T, nodes []*server, body string) int64 {
	t.Helper()
	var admitted atomic.Int64
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			client := &http.Client{Transport: new(http.Transport)}
			defer client.CloseIdleConnections()
			for range 15 {
				a, err := nodes[c%len(nodes)].ask(client, "/v1/check?status=true", body)
				switch {
				case err == nil && a.status == http.StatusOK:
					admitted.Add(1)
				case err != nil || a.status != http.StatusTooManyRequests:
					t.Errorf("%s: %d %s, %v", body, a.status, a.text, err)
					return
				}
			}
		})
	}
	clients.Wait()
	return admitted.Load()
}

// TestOtherStores: two servers share limits exactly in PostgreSQL and in memcached, and
// what one of these cannot do is refused in words.
func TestOtherStores(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{
		"postgres":  servers.StartPostgres(t).URL(),
		"memcached": servers.StartMemcached(t, 64).URL(),
	} {
		t.Run(name, func(t *testing.T) {
			policy := policyFile(t, sharedPolicy)
			nodes := make([]*server, 2)
			for i := range nodes {
				nodes[i] = serve(t, "--config", policy, "--store", url, "--store-timeout", "30s", "--hash-key", hashKey)
			}
			for kind, want := range map[string]int64{"bucket": 50, "windows": 40} {
				if got := admittedTogether(t, nodes, fmt.Sprintf(`{"descriptor":{"kind":%q,"api_key":"k1"}}`, kind)); got != want {
					t.Errorf("%s: %d units were admitted together, want exactly %d", kind, got, want)
				}
			}
			made := nodes[0].post(t, "/v1/reserve", `{"checks":[{"rule":"bucket","key":"reserved","cost":20}]}`)
			if name == "memcached" {
				if made.status != http.StatusNotImplemented || !strings.Contains(made.text, "does not remember requests") {
					t.Errorf("a reservation is answered with %d %s", made.status, made.text)
				}
				several := nodes[0].post(t, "/v1/check", `{"checks":[{"rule":"bucket","key":"a"},{"rule":"windows","key":"a"}]}`)
				if several.status != http.StatusUnprocessableEntity || !strings.Contains(several.text, "takes at most 1 at once") {
					t.Errorf("two checks are answered with %d %s", several.status, several.text)
				}
				return
			}
			var answer struct {
				Reservation string `json:"reservation"`
			}
			if err := json.Unmarshal([]byte(made.text), &answer); err != nil || made.status != http.StatusOK || answer.Reservation == "" {
				t.Fatalf("a reservation is answered with %d %s (%v)", made.status, made.text, err)
			}
			// The other server settles it.
			if a := nodes[1].post(t, "/v1/settle", fmt.Sprintf(`{"reservation":%q,"cost":5}`, answer.Reservation)); a.status != http.StatusOK {
				t.Fatalf("its settlement is answered with %d %s", a.status, a.text)
			}
			if v := nodes[0].check(t, `{"checks":[{"rule":"bucket","key":"reserved"}]}`); v.Decisions[0].Remaining != 44 {
				t.Errorf("%+v after 5 units and one, want 44 remaining", v)
			}
		})
	}
}
