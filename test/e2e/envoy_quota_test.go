package e2e

import (
	"context"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/test/servers"
)

// passed is a request that an Envoy has let through: it was admitted between two times.
type passed struct{ sent, received time.Duration }

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
				all = append(all, passed{sent, time.Since(began)})
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
// with one Redis assign to them. In no time do they let more pass than the limit has, while one of the
// servers is killed and the demand moves.
func TestEnvoyQuota(t *testing.T) {
	t.Parallel()
	redis := servers.Start(t, servers.Redis)
	var limiters [2]*server
	var proxies [3]*envoy
	for i := range limiters {
		limiters[i] = serve(t, "--grpc-listen", "127.0.0.1:0", "--config", filepath.Join(envoyExamples, "quota-limits.yml"), "--store", patiently(redis.URL()), "--store-timeout", "20s")
	}
	for i := range proxies {
		proxies[i] = startEnvoyWith(t, "quota.yaml", "8081", grpcAddress(t, limiters[i%2]))
	}
	began := time.Now()
	var all []passed
	for phase, rates := range [][]int{{150, 15, 5}, {5, 15, 150}} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		var mu sync.Mutex
		var running sync.WaitGroup
		for i, e := range proxies {
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
		if phase == 0 {
			limiters[1].stop(t) // The share of the second Envoy ends by itself.
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
