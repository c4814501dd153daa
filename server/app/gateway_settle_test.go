package app

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// TestGatewaySettles: the gateway file says what is settled, here the bytes of "/a ",
// four of which were estimated.
func TestGatewaySettles(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "gateway.yml")
	write(t, file, gatewayFile(shop(t).URL, "settle:\n  - { rule: traffic, per: 2, estimate: 4 }\n"))
	policy := filepath.Join(t.TempDir(), "policy.yml")
	write(t, policy, "rules:\n  - { name: traffic, algorithm: sliding_window, per: all, limits: [10 per 1h] }\n")
	r := start(t, Settings{PolicyFile: policy, Gateway: &GatewaySettings{Listen: "127.0.0.1:0", File: file}})
	for i, want := range []string{"6", "4", "2", "0"} {
		if response, text := r.passed(t, nil, "/a"); response.Header.Get("X-RateLimit-Remaining") != want || text != "/a " {
			t.Errorf("request %d is answered with %q, %v remaining, want %s", i, text, response.Header.Get("X-RateLimit-Remaining"), want)
		}
		// An answer goes out before it is settled.
		line := fmt.Sprintf("\n"+`headgate_gateway_settlements_total{result="settled"} %d`+"\n", i+1)
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
			if _, metrics := r.do(t, "GET", "/metrics", ""); strings.Contains(metrics, line) {
				break
			} else if time.Now().After(deadline) {
				t.Fatalf("the metrics lack %q:\n%s", line, metrics)
			}
		}
	}
	if response, _ := r.passed(t, nil, "/a"); response.StatusCode != 429 {
		t.Errorf("what the estimate does not fit into is answered with %s", response.Status)
	}
}

// forgetful is a store and no ledger.
type forgetful struct{ store headgate.Store }

func (f forgetful) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	return f.store.Take(ctx, op, checks, dst)
}

// TestGatewayCannotSettle: a store that remembers nothing is refused with a file that
// settles, and only with that.
func TestGatewayCannotSettle(t *testing.T) {
	t.Parallel()
	for more, want := range map[string]string{"": "", "settle: [{ rule: a }]\n": "which the store memory cannot"} {
		file := filepath.Join(t.TempDir(), "gateway.yml")
		write(t, file, gatewayFile("http://127.0.0.1:1", more))
		settings := &Settings{Store: memoryStore, Dialect: "x-ratelimit", Gateway: &GatewaySettings{File: file}}
		_, err := newGatewaySource(settings, nil, forgetful{memory.New()}).begin()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("with %q the error is %v, want %q", more, err, want)
		}
	}
}
