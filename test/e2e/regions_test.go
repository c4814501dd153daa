package e2e

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/test/chaos"
	"github.com/headgate/headgate/test/servers"
)

// asks asks servers in turn at a rate until the context ends.
func asks(ctx context.Context, t *testing.T, began time.Time, rate int, bases ...*server) (all []passed, came int) {
	t.Helper()
	var mu sync.Mutex
	var sending sync.WaitGroup
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for ; ctx.Err() == nil; came++ {
		base := bases[came%len(bases)].base
		sending.Go(func() {
			asking, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			request, err := http.NewRequestWithContext(asking, http.MethodPost, base+"/v1/check?status=true", bytes.NewReader([]byte(`{"descriptor": {"tenant": "acme"}}`)))
			if err != nil {
				t.Error(err)
				return
			}
			request.Header.Set("Content-Type", "application/json")
			sent := time.Since(began)
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return // A server was killed.
			}
			_, _ = io.Copy(io.Discard, response.Body)
			response.Body.Close()
			switch response.StatusCode {
			case http.StatusOK:
				mu.Lock()
				all = append(all, passed{Sent: sent, Received: time.Since(began)})
				mu.Unlock()
			case http.StatusTooManyRequests:
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
	return all, came
}

// TestRegions has servers of three regions, each with a Redis of its own, divide one limit by a home
// that is 2, 80 and 150 ms away. A server is killed, the demand moves, the home fails over, and a
// region is cut off. All together never admit more than the limit.
func TestRegions(t *testing.T) {
	t.Parallel()
	for _, home := range []string{"redis", "postgres"} {
		t.Run(home, func(t *testing.T) {
			t.Parallel()
			testRegions(t, home)
		})
	}
}

func testRegions(t *testing.T, home string) {
	var address, url, next string
	var failover func()
	if home == "redis" {
		primary := servers.Start(t, servers.Redis)
		replica := servers.Start(t, servers.Redis, servers.Directive("replicaof", "127.0.0.1", strconv.Itoa(primary.Port())))
		address, next = primary.Addr(), replica.Addr()
		url = "redis://HOST/0"
		failover = func() {
			primary.Kill()
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			if _, err := replica.Do(ctx, "REPLICAOF", "NO", "ONE"); err != nil {
				t.Error(err)
			}
		}
	} else {
		database := servers.StartPostgres(t)
		address, next = database.Addr(), database.Addr()
		url = strings.Replace(database.URL(), address, "HOST", 1)
		failover = func() {}
	}
	names := []string{"eu", "us", "ap"}
	var lines [3]*servers.Line
	var regions [3][]*server
	for i, name := range names {
		lines[i] = servers.StartLine(t, address, []time.Duration{1, 40, 75}[i]*time.Millisecond)
		redis := servers.Start(t, servers.Redis)
		for range 2 {
			regions[i] = append(regions[i], serve(t, "--config", filepath.Join("..", "..", "examples", "regions", "limits.yml"),
				"--store", patiently(redis.URL()), "--region", name, "--regions", strings.Join(names, ","),
				"--region-home", strings.Replace(url, "HOST", lines[i].Addr(), 1), "--region-lease", "5s"))
		}
	}
	began := time.Now()
	var all []passed
	for phase, rates := range [][]int{{150, 15, 5}, {5, 15, 150}} {
		ctx, cancel := context.WithTimeout(t.Context(), 16*time.Second)
		var mu sync.Mutex
		var running sync.WaitGroup
		running.Go(func() {
			select {
			case <-time.After(8 * time.Second):
			case <-ctx.Done():
			}
			if phase == 0 {
				if err := regions[0][0].cmd.Process.Kill(); err != nil {
					t.Error(err)
				}
				return
			}
			failover()
			for i, l := range lines {
				l.Lead(next, i == 1) // The second region is cut off as well.
			}
		})
		for i := range regions {
			running.Go(func() {
				got, came := asks(ctx, t, began, rates[i], regions[i]...)
				t.Logf("phase %d, %s: %d of %d admitted", phase+1, names[i], len(got), came)
				if len(got) == 0 {
					t.Errorf("phase %d: nothing was admitted in %s", phase+1, names[i])
				}
				mu.Lock()
				defer mu.Unlock()
				all = append(all, got...)
			})
		}
		running.Wait()
		cancel()
	}
	checkBound(t, all, 100, 100)
	t.Logf("%d requests were admitted in %v", len(all), time.Since(began))
}

// checkBound fails if more passed in any time than rate and burst allow.
func checkBound(t *testing.T, all []passed, rate, burst float64) {
	t.Helper()
	if over := chaos.Over(all, chaos.Bucket(rate, burst)); over > 0 {
		t.Fatalf("some time has %.1f requests too many, of %d", over, len(all))
	}
}

// TestRegionHomes: a home is secured as any store is, and may be the primary of Sentinels. A region is
// lent what it asks for, also when the primary has failed over.
func TestRegionHomes(t *testing.T) {
	for _, c := range []struct {
		name  string
		start func(t *testing.T) (url string, failover func())
	}{
		{"secured", func(t *testing.T) (string, func()) {
			return servers.Start(t, servers.Redis, servers.TLS(servers.NewCertificates(t)), servers.Password("open sesame")).URL(), nil
		}},
		{"Sentinel", func(t *testing.T) (string, func()) {
			s := servers.StartSentinel(t, servers.Redis)
			return s.URL(), func() {
				old := s.Primary()
				old.Kill()
				s.AwaitFailover(old)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			url, failover := c.start(t)
			var regions []*server
			for _, name := range []string{"eu", "us"} {
				regions = append(regions, serve(t, "--config", filepath.Join("..", "..", "examples", "regions", "limits.yml"), "--store", patiently(servers.Start(t, servers.Redis).URL()),
					"--region", name, "--regions", "eu,us", "--region-home", url, "--region-lease", "2s"))
			}
			// A region's own part is 2 units a second.
			lent := func(s *server) func() bool {
				return func() bool {
					admitted := 0
					for began := time.Now(); time.Since(began) < time.Second; time.Sleep(10 * time.Millisecond) {
						if a, err := s.ask(http.DefaultClient, "/v1/check?status=true", `{"descriptor": {"tenant": "acme"}}`); err == nil && a.status == http.StatusOK {
							admitted++
						}
					}
					return admitted > 20
				}
			}
			until(t, "eu is lent what it asks for", lent(regions[0]))
			if failover != nil {
				failover()
				until(t, "us is lent what it asks for after the failover", lent(regions[1]))
			}
		})
	}
}
