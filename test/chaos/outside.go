package chaos

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/jackc/pgx/v5/pgxpool"
	redisclient "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/test/servers"
)

// outsidePolicy has a rule for each way to count. None of them decides without the store, so that
// whatever the store does not answer is seen. The limits deny nothing, but for spent.
const outsidePolicy = `
rules:
  - { name: strict, match: { kind: absent }, per: all, limits: [100000000 per 1h], on_store_error: deny }
  - { name: each, match: { kind: each }, per: [user], limits: [100000000 per 1h], on_store_error: deny }
  - { name: leased, match: { kind: leased }, per: [user], limits: [100000000 per 1h], consistency: leased, on_store_error: deny }
  - { name: async, match: { kind: async }, per: [user], limits: [100000000 per 1h], consistency: async, on_store_error: deny }
  - { name: spent, match: { kind: spent }, per: [user], limits: [1 per 1h], deny_cache: on, on_store_error: deny }
`

// permitPolicy is for stores that keep permits.
const permitPolicy = `  - { name: work, match: { kind: work }, per: [user], in_progress: { limit: 100, shared: true, ttl: 30s }, on_store_error: deny }
`

// ratePerSecond is how many requests come in a second. They do not wait for one another.
const ratePerSecond = 500

// Outside is what users of a store see who run the program with its defaults.
type Outside struct {
	Store string
	Short []Stop
	Long  Stop          // the long one
	First time.Duration // from the end of the long stop to the first answer
	// Beside is what came of a compiler with eight processes on the same processors.
	Beside Stop
	// Goroutines and Memory are the most during the long stop. Before are those before it.
	Goroutines, GoroutinesBefore int
	MiB, MiBBefore               int
}

// Stop is what came of the store being stopped for a time, once or several times a second apart.
type Stop struct {
	Lasts      time.Duration
	Times      int
	Arrived    int // requests that came while it was stopped
	Unanswered int // requests that got no decision
	Slowest    time.Duration
	By         map[string]int // how many of Unanswered came which way
	late       time.Duration  // how much later than meant a request was sent, at most
	longest    time.Duration  // that the store was stopped
	first      time.Duration  // from the end of the stop to the first answer that the store had to decide
	slow       int            // requests without a decision while the store was slow by itself
}

// OutsideStores are the names for [RunOutside].
func OutsideStores() []string {
	return []string{"Redis", "Sentinel", "Cluster", "PostgreSQL", "memcached"}
}

// stoppable is a store of which one server is stopped.
type stoppable struct {
	url           string
	permits       bool
	pause, resume func()
	ping          func(ctx context.Context) error
}

func startStoppable(t testing.TB, name string) stoppable {
	t.Helper()
	switch name {
	case "Redis":
		s := servers.Start(t, servers.Redis)
		return stoppable{s.URL(), true, s.Pause, s.Resume, pinging(s)}
	case "Sentinel":
		s := servers.StartSentinel(t, servers.Redis)
		for _, one := range s.Sentinels { // as long as by default
			do(t, one, "SENTINEL", "SET", servers.MasterName, "down-after-milliseconds", "30000")
		}
		return stoppable{s.URL(), true, s.Primary().Pause, s.Primary().Resume, pinging(s.Primary())}
	case "Cluster":
		c := servers.StartCluster(t, servers.Redis)
		for _, one := range c.Nodes {
			do(t, one, "CONFIG", "SET", "cluster-node-timeout", "60000")
		}
		return stoppable{c.URL(), true, c.Owner(0).Pause, c.Owner(0).Resume, pinging(c.Owner(0))}
	case "PostgreSQL":
		p := servers.StartPostgres(t)
		pool, err := pgxpool.New(t.Context(), p.URL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		return stoppable{p.URL(), true, p.Pause, p.Resume, pool.Ping}
	}
	m := servers.StartMemcached(t, 64)
	asked := memcache.New(m.Addr())
	asked.Timeout = time.Second
	t.Cleanup(func() { _ = asked.Close() })
	return stoppable{m.URL(), false, m.Pause, m.Resume, func(context.Context) error { return asked.Ping() }}
}

func pinging(s *servers.Server) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := s.Do(ctx, "PING")
		return err
	}
}

// outside is a running server, a gateway, and the ways to ask them.
type outside struct {
	t    testing.TB
	base string
	ways []way
	slow [][2]time.Time // when the store took more than 100 ms to answer a ping, while a compiler ran
}

// way is one way to ask. ask returns an error if there is no decision.
type way struct {
	name string
	ask  func(ctx context.Context, n int) error
}

// RunOutside runs headgate serve and headgate gateway on a store, with their defaults, sends 500
// requests a second by all doors and in all ways to count, and stops the store each of these times,
// four times a second apart, and then once for long. It fails the test if what is promised does not hold.
func RunOutside(t testing.TB, name string, stops []time.Duration, long time.Duration) Outside {
	t.Helper()
	store := startStoppable(t, name)
	o := startOutside(t, store)
	r := Outside{Store: name}
	for _, lasts := range stops {
		stop := o.stopped(store, lasts, 4)
		for range 2 { // What else the machine does may make a stop longer than it is meant to be.
			if stop.late < 40*time.Millisecond && stop.longest < lasts+40*time.Millisecond {
				break
			}
			stop = o.stopped(store, lasts, 4)
		}
		r.Short = append(r.Short, stop)
		bound := 0.0
		if lasts > 100*time.Millisecond {
			bound = 1.2
		}
		if float64(stop.Unanswered) > bound*float64(stop.Arrived) && stop.late < 40*time.Millisecond && stop.longest < lasts+40*time.Millisecond {
			t.Errorf("%s stopped for %v: %d requests got no decision, and %d came meanwhile: %v", name, lasts, stop.Unanswered, stop.Arrived, stop.By)
		}
	}
	if long > 0 {
		o.long(store, long, &r)
		o.beside(store, &r)
	}
	return r
}

// beside has a compiler with eight processes run on the same processors for a while. What
// requests cost while the store itself took more than 100 ms to answer is not counted: nobody can
// decide then what the store has not decided.
func (o *outside) beside(store stoppable, r *Outside) {
	const lasts = 15 * time.Second
	r.Beside = o.sum(lasts, 1, func() (from, to []time.Time) {
		ctx, cancel := context.WithTimeout(o.t.Context(), lasts)
		defer cancel()
		from = []time.Time{time.Now()}
		cache := o.t.TempDir()
		var pings sync.WaitGroup
		defer pings.Wait()
		pings.Go(func() {
			for ctx.Err() == nil {
				asked := time.Now()
				if err := store.ping(ctx); err != nil || time.Since(asked) > 100*time.Millisecond {
					o.slow = append(o.slow, [2]time.Time{asked, time.Now()})
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
		for ctx.Err() == nil {
			cmd := exec.CommandContext(ctx, "go", "build", "-a", "-p", "8", "std")
			cmd.Env, cmd.WaitDelay = append(os.Environ(), "GOCACHE="+cache), 10*time.Second
			servers.Bind(cmd)
			if out, err := cmd.CombinedOutput(); err != nil && ctx.Err() == nil {
				o.t.Fatalf("chaos: go build: %v: %s", err, out)
			}
		}
		return from, []time.Time{time.Now()}
	})
	if r.Beside.Unanswered*1000 > r.Beside.Arrived && r.Beside.late < 100*time.Millisecond {
		o.t.Errorf("%s beside a compiler: %d of %d requests got no decision: %v", r.Store, r.Beside.Unanswered, r.Beside.Arrived, r.Beside.By)
	}
}

func startOutside(t testing.TB, store stoppable) *outside {
	t.Helper()
	dir := t.TempDir()
	policy := outsidePolicy
	if store.permits {
		policy += permitPolicy
	}
	file := filepath.Join(dir, "policy.yml")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	behind := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(behind.Close)
	said := program(t, "serve", "--config", file, "--store", store.url, "--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0", "--resp-listen", "127.0.0.1:0")
	o := &outside{t: t, base: said("msg=serving address=")}
	gate := program(t, "gateway", "--config", file, "--store", store.url, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
		"--upstream", behind.URL)(`msg="passing requests on" address=`)

	web := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1024}}
	t.Cleanup(web.CloseIdleConnections)
	send := func(ctx context.Context, url, body string) error {
		method := http.MethodGet
		if body != "" {
			method = http.MethodPost
		}
		request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := web.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusTooManyRequests {
			return fmt.Errorf("%s: %s", response.Status, text)
		}
		return err
	}
	check := func(kind string) way {
		return way{"HTTP, " + kind, func(ctx context.Context, n int) error {
			return send(ctx, o.base+"/v1/check", fmt.Sprintf(`{"descriptor":{"kind":%q,"user":"u%d"}}`, kind, n%64))
		}}
	}
	api, err := client.New(said(`msg="serving gRPC" address=`), client.Plaintext())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	resp := redisclient.NewClient(&redisclient.Options{
		Addr: said(`msg="serving RESP" address=`), PoolSize: 1024, MaxRetries: -1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = resp.Close() })
	o.ways = []way{
		check("each"), check("leased"), check("async"), check("spent"),
		{"gRPC", func(ctx context.Context, n int) error {
			_, err := api.Check(ctx, &headgatev1.CheckRequest{Entries: map[string]string{"kind": "each", "user": "u" + strconv.Itoa(n%64)}})
			return err
		}},
		{"RESP", func(ctx context.Context, n int) error {
			return resp.Do(ctx, "HG.CHECK", "each", "u"+strconv.Itoa(n%64)).Err()
		}},
		{"gateway", func(ctx context.Context, _ int) error { return send(ctx, gate+"/", "") }},
	}
	if store.permits {
		o.ways = append(o.ways, way{"permits", func(ctx context.Context, n int) error {
			permit := fmt.Sprintf(`{"rule":"work","key":"u%d","holder":"h%d"}`, n%64, n)
			if err := send(ctx, o.base+"/v1/permits/acquire", permit); err != nil {
				return err
			}
			return send(ctx, o.base+"/v1/permits/release", permit)
		}})
	}
	for _, way := range o.ways {
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if err := way.ask(t.Context(), 0); err == nil {
				break
			} else if time.Now().After(end) {
				t.Fatalf("chaos: %s: %v", way.name, err)
			}
		}
	}
	return o
}

// program runs headgate with these words until the test ends. The function that it returns waits
// until the program has said an address, and returns what stands behind the mark.
func program(t testing.TB, args ...string) func(mark string) string {
	t.Helper()
	binary, err := servers.Headgate()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, binary, args...)
	servers.Bind(cmd)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "HEADGATE_") })
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // guards log
	var log bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			mu.Lock()
			log.WriteString(lines.Text() + "\n")
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-read
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the log of headgate %s:\n%s", args[0], log.String())
		}
	})
	return func(mark string) (address string) {
		until(t, "headgate "+args[0]+" says "+mark, func() bool {
			mu.Lock()
			defer mu.Unlock()
			if _, rest, ok := strings.Cut(log.String(), mark); ok {
				address, _, _ = strings.Cut(rest, "\n")
				address, _, _ = strings.Cut(address, " ")
			}
			return address != ""
		})
		return address
	}
}

// answered is a request that has ended.
type answered struct {
	way      string
	from, to time.Time
	err      error
}

// load sends requests until it is stopped, and returns what became of them, in the order of their ends.
func (o *outside) load() (stop func() (all []answered, late time.Duration)) {
	var halted atomic.Bool
	var requests, sending sync.WaitGroup
	var mu sync.Mutex // guards all
	var all []answered
	late := time.Duration(0)
	sending.Go(func() {
		for n, began := 0, time.Now(); !halted.Load(); n++ {
			next := time.Duration(n) * time.Second / ratePerSecond
			time.Sleep(next - time.Since(began))
			late = max(late, time.Since(began)-next)
			requests.Go(func() {
				way := o.ways[n%len(o.ways)]
				ctx, cancel := context.WithTimeout(o.t.Context(), 10*time.Second)
				defer cancel()
				a := answered{way: way.name, from: time.Now()}
				a.err = way.ask(ctx, n)
				a.to = time.Now()
				mu.Lock()
				defer mu.Unlock()
				all = append(all, a)
			})
		}
	})
	return func() ([]answered, time.Duration) {
		halted.Store(true)
		sending.Wait()
		requests.Wait()
		return all, late
	}
}

func (o *outside) stopped(store stoppable, lasts time.Duration, times int) Stop {
	return o.sum(lasts, times, func() (from, to []time.Time) {
		for range times {
			time.Sleep(time.Second - min(lasts, time.Second)/2)
			from = append(from, time.Now())
			store.pause()
			time.Sleep(lasts)
			store.resume()
			to = append(to, time.Now())
		}
		time.Sleep(time.Second)
		return from, to
	})
}

// sum counts what became of the requests that came during a fault.
func (o *outside) sum(lasts time.Duration, times int, fault func() (from, to []time.Time)) Stop {
	stop := o.load()
	from, to := fault()
	all, late := stop()
	s := Stop{Lasts: lasts, Times: times, By: make(map[string]int), late: late}
	for i := range from {
		s.longest = max(s.longest, to[i].Sub(from[i]))
	}
	for _, a := range all {
		for i := range from {
			if a.from.After(from[i]) && a.from.Before(to[i]) {
				s.Arrived++
			}
		}
		if after := a.to.Sub(to[len(to)-1]); a.err == nil && strict(a.way) && after > 0 && (s.first == 0 || after < s.first) {
			s.first = after
		}
		if a.err == nil {
			s.Slowest = max(s.Slowest, a.to.Sub(a.from))
			continue
		}
		if slices.ContainsFunc(o.slow, func(w [2]time.Time) bool { return a.from.Before(w[1]) && a.to.After(w[0]) }) {
			s.slow++
			continue
		}
		if s.Unanswered++; s.By[a.way] == 0 {
			o.t.Logf("%v, %s: %v after %v", lasts, a.way, a.err, a.to.Sub(a.from))
		}
		s.By[a.way]++
	}
	return s
}

// strict reports whether the store decides each request that comes this way.
func strict(way string) bool {
	return way == "HTTP, each" || way == "gRPC" || way == "RESP" || way == "gateway"
}

// long stops the store once, for long.
func (o *outside) long(store stoppable, lasts time.Duration, r *Outside) {
	r.GoroutinesBefore, r.MiBBefore = o.uses()
	r.Long = o.sum(lasts, 1, func() (from, to []time.Time) {
		time.Sleep(time.Second)
		from = []time.Time{time.Now()}
		store.pause()
		for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
			goroutines, mib := o.uses()
			r.Goroutines, r.MiB = max(r.Goroutines, goroutines), max(r.MiB, mib)
		}
		store.resume()
		resumed := time.Now()
		time.Sleep(3 * time.Second)
		return from, []time.Time{resumed}
	})
	r.First = r.Long.first
	if r.Goroutines > r.GoroutinesBefore+2*ratePerSecond || r.MiB > r.MiBBefore+64 {
		o.t.Errorf("%s stopped for %v: %d goroutines and %d MiB, before %d and %d", r.Store, lasts, r.Goroutines, r.MiB, r.GoroutinesBefore, r.MiBBefore)
	}
}

var (
	goroutines = regexp.MustCompile(`(?m)^go_goroutines (\S+)$`)
	resident   = regexp.MustCompile(`(?m)^process_resident_memory_bytes (\S+)$`)
)

// uses returns how many goroutines and MiB the server has.
func (o *outside) uses() (routines, mib int) {
	o.t.Helper()
	response, err := http.Get(o.base + "/metrics")
	if err != nil {
		o.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		o.t.Fatal(err)
	}
	number := func(of *regexp.Regexp) int {
		m := of.FindSubmatch(text)
		if m == nil {
			o.t.Fatalf("chaos: /metrics lacks %v", of)
		}
		n, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			o.t.Fatal(err)
		}
		return int(n)
	}
	return number(goroutines), number(resident) >> 20
}
