package e2e

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/test/chaos"
	"github.com/headgate/headgate/test/servers"
)

// passed is a request that an Envoy has let through: it was admitted between two times.
type passed = chaos.Passed

// load sends requests at a rate until the context ends, and returns those that passed.
func (e *envoy) load(ctx context.Context, t *testing.T, began time.Time, rate int) (all []passed, denied int) {
	t.Helper()
	var mu sync.Mutex
	var sending sync.WaitGroup
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for ctx.Err() == nil {
		sending.Go(func() {
			asking, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			request, err := http.NewRequestWithContext(asking, http.MethodGet, e.base+"/", http.NoBody)
			if err != nil {
				t.Error(err)
				return
			}
			request.Header.Set("X-Tenant", "acme")
			sent := time.Since(began)
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Error(err)
				return
			}
			response.Body.Close()
			mu.Lock()
			defer mu.Unlock()
			switch response.StatusCode {
			case http.StatusOK:
				all = append(all, passed{Sent: sent, Received: time.Since(began)})
			case http.StatusTooManyRequests:
				denied++
			default:
				t.Errorf("status %s", response.Status)
			}
		})
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	sending.Wait()
	return all, denied
}

// TestEnvoyQuota has three Envoys limit by themselves, with the shares of one limit that two servers
// with one Redis assign to them. In no time do they let more pass than the limit has, while the policy
// is changed and read again, an Envoy and a server are killed, the stream of another Envoy is cut, and
// the demand moves.
func TestEnvoyQuota(t *testing.T) {
	t.Parallel()
	redis := servers.Start(t, servers.Redis)
	var limiters [2]*server
	var proxies [3]*envoy
	limits, err := os.ReadFile(filepath.Join(envoyExamples, "quota-limits.yml"))
	if err != nil {
		t.Fatal(err)
	}
	policy := policyFile(t, string(limits))
	for i := range limiters {
		limiters[i] = serve(t, "--grpc-listen", "127.0.0.1:0", "--config", policy, "--store", patiently(redis.URL()), "--store-timeout", "20s")
	}
	// The first Envoy has a line to the first server that can be cut.
	first := grpcAddress(t, limiters[0])
	line := servers.StartLine(t, first, 0)
	for i, address := range []string{line.Addr(), grpcAddress(t, limiters[1]), first} {
		proxies[i] = startEnvoyWith(t, "quota.yaml", "8081", address)
	}
	// reload changes the limit, which is never more than the first one.
	reload := func(limit string) {
		text := strings.Replace(string(limits), "[100 per 1s]", "["+limit+"]", 1)
		if err := errors.Join(os.WriteFile(policy+".new", []byte(text), 0o600), os.Rename(policy+".new", policy)); err != nil {
			t.Error(err)
		}
		for _, l := range limiters {
			_ = l.cmd.Process.Signal(syscall.SIGHUP)
		}
	}
	during := []func(){
		func() {
			reload("60 per 1s")
			time.Sleep(4 * time.Second)
			reload("100 per 1s")
		},
		func() {
			line.Lead(first, true)
			time.Sleep(2 * time.Second)
			line.Lead(first, false)
		},
	}
	began := time.Now()
	var all []passed
	for phase, rates := range [][]int{{150, 15, 5}, {5, 0, 150}} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		var mu sync.Mutex
		var running sync.WaitGroup
		running.Go(func() {
			time.Sleep(8 * time.Second)
			during[phase]()
		})
		for i, e := range proxies {
			if rates[i] == 0 {
				continue
			}
			running.Go(func() {
				got, denied := e.load(ctx, t, began, rates[i])
				t.Logf("phase %d, Envoy %d: %d requests a second, %d passed, %d denied", phase+1, i+1, rates[i], len(got), denied)
				if len(got) == 0 && i != 1 {
					t.Errorf("phase %d: nothing passed Envoy %d", phase+1, i+1)
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, got...)
			})
		}
		running.Wait()
		cancel()
		if phase == 0 { // The share of the second Envoy ends by itself.
			proxies[1].kill()
			if err := limiters[1].cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	checkBound(t, all, 100, 100)
	t.Logf("%d requests passed in %v", len(all), time.Since(began))
}

// TestEnvoyQuotaAlone is the control: each of three Envoys is assigned the whole limit, by a server of
// its own. Together they let more pass than the limit has.
func TestEnvoyQuotaAlone(t *testing.T) {
	t.Parallel()
	var running sync.WaitGroup
	var sum atomic.Int64
	began := time.Now()
	var proxies [3]*envoy
	for i := range proxies {
		limiter := serve(t, "--grpc-listen", "127.0.0.1:0", "--config", filepath.Join(envoyExamples, "quota-limits.yml"))
		proxies[i] = startEnvoyWith(t, "quota.yaml", "8081", grpcAddress(t, limiter))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	first := time.Now()
	for _, e := range proxies {
		running.Go(func() {
			got, _ := e.load(ctx, t, began, 100)
			sum.Add(int64(len(got)))
		})
	}
	running.Wait()
	took := time.Since(first)
	most := 100 + 100*took.Seconds()
	t.Logf("%d requests passed in %v, which is %.1f times the limit", sum.Load(), took, float64(sum.Load())/most)
	if float64(sum.Load()) <= most {
		t.Errorf("%d requests passed, and the limit has %.0f: the comparison says nothing", sum.Load(), most)
	}
}
