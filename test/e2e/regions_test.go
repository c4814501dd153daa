package e2e

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/test/servers"
)

// line is a long line to a server. It can be cut, and lead to another server.
type line struct {
	delay time.Duration // in one direction
	mu    sync.Mutex
	to    string
	cut   bool
	conns []net.Conn
}

// startLine returns a line, and the address at which it begins.
func startLine(t *testing.T, to string, delay time.Duration) (*line, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{to: to, delay: delay}
	t.Cleanup(func() { listener.Close(); l.set(true, to) })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			l.mu.Lock()
			far, err := net.Dial("tcp", l.to)
			if l.cut || err != nil {
				near.Close()
				if err == nil {
					far.Close()
				}
			} else {
				l.conns = append(l.conns, near, far)
				go l.carry(near, far)
				go l.carry(far, near)
			}
			l.mu.Unlock()
		}
	}()
	return l, listener.Addr().String()
}

// carry delivers what is said, after the delay.
func (l *line) carry(from, to net.Conn) {
	type said struct {
		what []byte
		when time.Time
	}
	way := make(chan said, 1024)
	go func() {
		defer to.Close()
		for s := range way {
			time.Sleep(time.Until(s.when))
			if _, err := to.Write(s.what); err != nil {
				break
			}
		}
		for range way { // The rest is lost.
		}
	}()
	defer close(way)
	for {
		buffer := make([]byte, 32<<10)
		n, err := from.Read(buffer)
		if n > 0 {
			way <- said{buffer[:n], time.Now().Add(l.delay)}
		}
		if err != nil {
			return
		}
	}
}

// set ends all connections. New ones lead to a server, unless the line is cut.
func (l *line) set(cut bool, to string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.to = cut, to
	for _, c := range l.conns {
		c.Close()
	}
	l.conns = nil
}

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
				all = append(all, passed{sent, time.Since(began)})
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
	var lines [3]*line
	var regions [3][]*server
	for i, name := range names {
		var at string
		lines[i], at = startLine(t, address, []time.Duration{1, 40, 75}[i]*time.Millisecond)
		redis := servers.Start(t, servers.Redis)
		for range 2 {
			regions[i] = append(regions[i], serve(t, "--config", filepath.Join("..", "..", "examples", "regions", "limits.yml"),
				"--store", patiently(redis.URL()), "--region", name, "--regions", strings.Join(names, ","),
				"--region-home", strings.Replace(url, "HOST", at, 1), "--region-lease", "5s"))
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
				l.set(i == 1, next) // The second region is cut off as well.
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
	// Of those that were received by each time, how many were sent at or after each other time?
	slices.SortFunc(all, func(a, b passed) int { return cmp.Compare(a.received, b.received) })
	var sent []time.Duration // in descending order
	for _, p := range all {
		at, _ := slices.BinarySearchFunc(sent, p.sent, func(a, b time.Duration) int { return cmp.Compare(b, a) })
		sent = slices.Insert(sent, at, p.sent)
		for n, from := range sent[at:] {
			if most := burst + rate*(p.received-from).Seconds(); float64(at+n+1) > most+1e-6 {
				t.Fatalf("%d requests passed between %v and %v, want at most %.1f", at+n+1, from, p.received, most)
			}
		}
	}
}
