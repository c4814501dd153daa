package chaos

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/test/servers"
)

// regionsPolicy has two limits of all regions.
const regionsPolicy = `rules:
  - { name: tenant, per: [tenant], limits: [%d per 1s], scope: global, on_store_error: deny }
  - { name: window, per: [window], algorithm: sliding_window, limits: [50 per 1s], scope: global, on_store_error: deny }
`

const (
	regionsRate   = 100 // of the rule tenant, a second
	regionsWindow = 50  // of the rule window, within a second
	regionsLease  = 10 * time.Second
)

var (
	regionNames = []string{"eu", "us", "ap"}
	delays      = []time.Duration{time.Millisecond, 40 * time.Millisecond, 75 * time.Millisecond} // to the home, in one direction
)

// Regions is what came of three regions with one limit, and of the usual design beside them.
type Regions struct {
	Asked, Admitted int
	// Over is the most that was admitted beyond a limit in any time.
	Over float64
	// Early is which part of a load of 0.8 times the limit was denied, and Used which part of the limit
	// a load of twice the limit uses, when 90, 9 and 1 % of it come to the three regions. Even is that
	// for a third of three times the limit in each.
	Early, Used, Even float64
	// Moved is after how long 0.9 of the limit is used again when the demand has moved.
	Moved time.Duration
	// Calls are to the home by all regions, in a second, and CallsMore those for three times as many
	// requests.
	Calls, CallsMore float64
	// Usual is the part of the limit that the usual design admits beyond it, and UsualCut that while the lines are cut.
	Usual, UsualCut float64
}

// RegionsPlan says for how long each part of [RunRegions] lasts.
type RegionsPlan struct {
	Settle, Measure, Faults time.Duration
}

// continents are the regions, each with a Redis and two servers, and the home they share.
type continents struct {
	t       testing.TB
	policy  string
	home    *servers.Server
	replica *servers.Server
	leads   string // where the lines lead to
	lines   []*servers.Line
	stores  []*servers.Server
	clocks  []time.Duration
	nodes   [3][2]*regionServer
	began   time.Time
	mu      sync.Mutex // guards what follows
	passed  map[string][]Passed
	asked   int
}

// regionServer is a server that can be killed and started again at its address.
type regionServer struct {
	binary  string
	address string
	args    []string
	cmd     *exec.Cmd
}

func (s *regionServer) start(t testing.TB) {
	t.Helper()
	s.cmd = exec.Command(s.binary, s.args...)
	s.cmd.Env = slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "HEADGATE_") })
	servers.Bind(s.cmd)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

func (s *regionServer) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// startContinents starts all servers, 2, 80 and 150 ms from the home and back.
func startContinents(t testing.TB) *continents {
	t.Helper()
	binary, err := servers.Headgate()
	if err != nil {
		t.Fatal(err)
	}
	w := &continents{t: t, policy: filepath.Join(t.TempDir(), "policy.yml"), clocks: make([]time.Duration, 3), passed: make(map[string][]Passed)}
	w.limit(regionsRate)
	w.home = servers.Start(t, servers.Redis)
	w.replica = servers.Start(t, servers.Redis, servers.Directive("replicaof", "127.0.0.1", strconv.Itoa(w.home.Port())))
	w.leads = w.home.Addr()
	for i, name := range regionNames {
		line := servers.StartLine(t, w.leads, delays[i])
		store := servers.Start(t, servers.Redis)
		w.lines, w.stores = append(w.lines, line), append(w.stores, store)
		for j := range w.nodes[i] {
			address := "127.0.0.1:" + strconv.Itoa(servers.Port(t))
			w.nodes[i][j] = &regionServer{binary: binary, address: address, args: []string{
				"serve", "--listen", address, "--config", w.policy, "--store", store.URL() + "?connect_timeout=30s", "--region", name,
				"--regions", strings.Join(regionNames, ","), "--region-home", "redis://" + line.Addr() + "/0", "--region-lease", regionsLease.String(),
			}}
			w.nodes[i][j].start(t)
			t.Cleanup(w.nodes[i][j].kill)
		}
	}
	w.began = time.Now()
	for i := range w.nodes {
		for _, s := range w.nodes[i] {
			until(t, "the server at "+s.address+" answers", func() bool { return w.ask(t.Context(), s.address, "window", "ready") })
		}
	}
	return w
}

// limit writes the policy.
func (w *continents) limit(rate int) {
	if err := os.WriteFile(w.policy+".new", fmt.Appendf(nil, regionsPolicy, rate), 0o600); err != nil {
		w.t.Error(err)
	}
	if err := os.Rename(w.policy+".new", w.policy); err != nil {
		w.t.Error(err)
	}
}

// ask reports whether a request was admitted.
func (w *continents) ask(ctx context.Context, address, entry, value string) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/v1/check?status=true", strings.NewReader(fmt.Sprintf(`{"descriptor":{%q:%q}}`, entry, value)))
	if err != nil {
		return false
	}
	request.Header.Set("Content-Type", "application/json")
	sent := time.Since(w.began)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false // The server was killed.
	}
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	if response.StatusCode != http.StatusOK {
		return false
	}
	w.passed[entry+" "+value] = append(w.passed[entry+" "+value], Passed{sent, time.Since(w.began)})
	return true
}

// offer has requests come to the regions at rates, at random, for a time, and calls each for every tick
// of a second with how many were admitted in it. It returns how many came and how many were admitted.
func (w *continents) offer(d time.Duration, entry string, rates [3]float64, each func(admitted int) (stop bool)) (came, admitted int) {
	ctx, cancel := context.WithTimeout(w.t.Context(), d)
	defer cancel()
	var generators, requests sync.WaitGroup
	var mu sync.Mutex // guards came and admitted
	for i, rate := range rates {
		generators.Go(func() {
			next := time.Now()
			for {
				next = next.Add(time.Duration(rand.ExpFloat64() / rate * float64(time.Second)))
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Until(next)):
				}
				requests.Go(func() {
					ok := w.ask(w.t.Context(), w.nodes[i][rand.IntN(2)].address, entry, "acme")
					mu.Lock()
					defer mu.Unlock()
					if came++; ok {
						admitted++
					}
				})
			}
		})
	}
	if each != nil {
		for before := 0; ctx.Err() == nil; {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			mu.Lock()
			now := admitted
			mu.Unlock()
			if each(now - before) {
				cancel()
			}
			before = now
		}
	}
	generators.Wait()
	requests.Wait()
	return came, admitted
}

// calls is how many calls to the home the servers have made.
func (w *continents) calls() (sum float64) {
	w.t.Helper()
	for i := range w.nodes {
		for _, s := range w.nodes[i] {
			request, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "http://"+s.address+"/metrics", http.NoBody)
			if err != nil {
				w.t.Fatal(err)
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				w.t.Fatal(err)
			}
			text, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err != nil {
				w.t.Fatal(err)
			}
			_, rest, _ := strings.Cut(string(text), "\nheadgate_region_home_calls_total ")
			value, _, _ := strings.Cut(rest, "\n")
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				w.t.Fatalf("chaos: the calls to the home are %q", value)
			}
			sum += n
		}
	}
	return sum
}

// disturb does something to the regions at random.
func (w *continents) disturb(r *rand.Rand) (what string) {
	i := r.IntN(3)
	switch r.IntN(8) {
	case 0, 1:
		w.lines[i].Lead(w.leads, true)
		return "cut " + regionNames[i]
	case 2, 3:
		for _, l := range w.lines {
			l.Lead(w.leads, false)
			l.Lose(0)
		}
		return "all connected"
	case 4:
		w.lines[i].Lose(0.2)
		return "loses " + regionNames[i]
	case 5:
		s := w.nodes[i][r.IntN(2)]
		s.kill()
		s.start(w.t)
		return "killed " + regionNames[i]
	case 6:
		w.clocks[i] -= time.Duration(1+r.IntN(5)) * time.Second
		w.stores[i].SetClock(w.clocks[i])
		return "clock back " + regionNames[i]
	}
	rate := regionsRate - 40*r.IntN(2)
	w.limit(rate)
	for i := range w.nodes {
		for _, s := range w.nodes[i] {
			_ = s.cmd.Process.Signal(syscall.SIGHUP)
		}
	}
	return fmt.Sprint("limit ", rate)
}

// failover has the replica of the home take over, without what it had not heard.
func (w *continents) failover() {
	w.home.Kill()
	do(w.t, w.replica, "REPLICAOF", "NO", "ONE")
	w.leads = w.replica.Addr()
	for _, l := range w.lines {
		l.Lead(w.leads, false)
	}
}

// RunRegions runs three regions with a Redis and two servers each, and a home 2, 80 and 150 ms away. It
// measures how they use one limit, and then breaks lines, servers, clocks and the home at random. It
// fails the test if anything is admitted beyond a limit.
func RunRegions(t testing.TB, plan RegionsPlan) Regions {
	t.Helper()
	w, u := startContinents(t), startUsual(t)
	var r Regions
	var beside sync.WaitGroup
	beside.Go(func() { r.Usual, r.UsualCut = u.run(t.Context()) })
	skewed := func(times float64) [3]float64 {
		return [3]float64{0.9 * times * regionsRate, 0.09 * times * regionsRate, 0.01 * times * regionsRate}
	}
	used := func(n int) float64 { return float64(n) / regionsRate / plan.Measure.Seconds() }

	w.offer(plan.Settle, "tenant", skewed(0.8), nil)
	came, admitted := w.offer(plan.Measure, "tenant", skewed(0.8), nil)
	r.Early = float64(came-admitted) / float64(max(1, came))

	w.offer(plan.Settle, "tenant", skewed(2), nil)
	before := w.calls()
	_, admitted = w.offer(plan.Measure, "tenant", skewed(2), nil)
	r.Used, r.Calls = used(admitted), (w.calls()-before)/plan.Measure.Seconds()
	before = w.calls()
	w.offer(plan.Measure, "tenant", skewed(6), nil)
	r.CallsMore = (w.calls() - before) / plan.Measure.Seconds()

	moved := skewed(2)
	moved[0], moved[2] = moved[2], moved[0]
	w.offer(6*regionsLease, "tenant", moved, func(n int) bool {
		r.Moved += time.Second
		return n >= 0.9*regionsRate
	})
	w.offer(plan.Settle, "tenant", [3]float64{regionsRate, regionsRate, regionsRate}, nil)
	_, admitted = w.offer(plan.Measure, "tenant", [3]float64{regionsRate, regionsRate, regionsRate}, nil)
	r.Even = used(admitted)
	beside.Wait()

	var load sync.WaitGroup
	load.Go(func() { w.offer(plan.Faults, "tenant", [3]float64{60, 60, 60}, nil) })
	load.Go(func() { w.offer(plan.Faults, "window", [3]float64{30, 30, 30}, nil) })
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	for end, failed := time.Now().Add(plan.Faults), false; time.Now().Before(end); {
		if !failed && time.Until(end) < plan.Faults/2 {
			failed = true
			w.failover()
			t.Logf("%v: the home fails over", time.Since(w.began).Round(time.Second))
		}
		t.Logf("%v: %s", time.Since(w.began).Round(time.Second), w.disturb(random))
		time.Sleep(time.Duration(500+random.IntN(3000)) * time.Millisecond)
	}
	load.Wait()

	w.mu.Lock()
	defer w.mu.Unlock()
	r.Asked = w.asked
	for key, all := range w.passed {
		allows := Bucket(regionsRate, regionsRate)
		if strings.HasPrefix(key, "window") {
			allows = Window(regionsWindow, time.Second)
		}
		over := Over(all, allows)
		r.Admitted += len(all)
		r.Over = max(r.Over, over)
		if over > 0 {
			t.Errorf("chaos: %.1f units were admitted beyond the limit of %s, of %d", over, key, len(all))
		}
	}
	if r.Usual <= 0 || r.UsualCut <= 0 {
		t.Errorf("chaos: the usual design admits %+v and %+v of the limit too much: the comparison says nothing", r.Usual, r.UsualCut)
	}
	return r
}
