package topologies

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// spreaderURL makes this test binary a process that takes requests over several slots
// from the store at the URL, instead of running tests.
const spreaderURL = "HEADGATE_TEST_SPREADER_URL"

func TestMain(m *testing.M) {
	if url := os.Getenv(spreaderURL); url != "" {
		if err := spreader(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// spread are checks whose counters are in different slots of a cluster, and admit
// no more than spreadLimit requests together.
func spread() []headgate.Check {
	long := 300 * 24 * time.Hour
	return []headgate.Check{
		{Rule: headgate.MustRule("everyone", headgate.Per(1000, long)), Key: ""},
		{Rule: headgate.MustRule("client", headgate.Sliding(spreadLimit, long), headgate.Sliding(950, long/2)), Key: "c1"},
		{Rule: headgate.MustRule("route", headgate.Limit{Algorithm: headgate.FixedWindow, Count: 980, Period: long, Align: headgate.AlignFirst}), Key: "POST /"},
		{Rule: headgate.MustRule("tried", headgate.Per(5, long)), Key: "", Shadow: true},
	}
}

const spreadLimit = 900

// spreader takes requests over several slots from many goroutines, and prints a line
// for each that is admitted.
func spreader(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	store, err := redis.Open(ctx, stores.Patiently(url), redis.Timeout(time.Minute))
	if err != nil {
		return err
	}
	defer store.Close()
	var failure atomic.Pointer[error]
	var all sync.WaitGroup
	for range spreaders {
		all.Go(func() {
			for range attempts {
				out, err := store.Take(ctx, headgate.OpTake, spread(), nil)
				if err != nil {
					failure.Store(&err)
					return
				}
				if v := headgate.NewVerdict(out); v.Allowed {
					// One write each, so that none is lost with the process.
					os.Stdout.WriteString("admitted\n")
				}
			}
		})
	}
	all.Wait()
	if err := failure.Load(); err != nil {
		return *err
	}
	return nil
}

const (
	takers    = 4  // processes
	spreaders = 25 // goroutines in each of them
	attempts  = 20 // of each goroutine: 2,000 for a limit of 900
)

// startSpreader starts a process, and adds to admitted what it prints. The process
// is waited for by calling what is returned.
func startSpreader(t *testing.T, url string, admitted *atomic.Int64) (*exec.Cmd, func() error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), spreaderURL+"="+url)
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, func() error {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			admitted.Add(1)
		}
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("%w: %s", err, problems.String())
		}
		return nil
	}
}

// drain takes what is left, and returns how much it was.
func drain(t *testing.T, store headgate.Store) int64 {
	t.Helper()
	for n := int64(0); ; n++ {
		out, err := store.Take(t.Context(), headgate.OpTake, spread(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if v := headgate.NewVerdict(out); !v.Allowed {
			return n
		}
	}
}

// TestProcessesShareSlotsExactly: requests whose counters are on several nodes are
// admitted exactly as often as the limits allow, and what was taken for those that
// were denied has been given back to the last unit.
func TestProcessesShareSlotsExactly(t *testing.T) {
	oneKind(t, func(t *testing.T, kind servers.Kind) {
		c := servers.StartCluster(t, kind)
		inDifferentSlots(t, c)
		var admitted atomic.Int64
		var all sync.WaitGroup
		for range takers {
			_, wait := startSpreader(t, c.URL(), &admitted)
			all.Go(func() {
				if err := wait(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		store, err := redis.Open(t.Context(), stores.Patiently(c.URL()), redis.Timeout(30*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		left := drain(t, store)
		t.Logf("of %d attempts %d were admitted, %d refused too early for want of a later one", takers*spreaders*attempts, admitted.Load(), left)
		if got := admitted.Load() + left; got != spreadLimit {
			t.Errorf("%d processes were admitted %d times, and %d times more when they had ended; want %d together", takers, admitted.Load(), left, spreadLimit)
		}
		checks := spread()
		out, err := store.Take(t.Context(), headgate.OpPeek, checks, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []int64{100, 0, 50, 80, 0} {
			d := &out[i]
			// A bucket keeps what it refilled in the meantime of what was given back: a
			// fraction of a unit here, if anything was given back at all.
			fraction := i == 0 && d.Remaining == want-1
			if d.Remaining != want && !fraction {
				t.Errorf("%s, limit %v: %d are left, want %d", d.Rule, d.Limit, d.Remaining, want)
			}
		}
	})
}

// TestProcessesDieBetweenSlots: processes that are killed while their requests are on
// some nodes and not on others have never admitted too much.
func TestProcessesDieBetweenSlots(t *testing.T) {
	const kills = 8
	c := servers.StartCluster(t, servers.Valkey)
	var admitted atomic.Int64
	for i := range kills {
		before := admitted.Load()
		cmd, wait := startSpreader(t, c.URL(), &admitted)
		over := make(chan error, 1)
		go func() { over <- wait() }()
		stores.Until(t, "some are admitted", func() bool { return admitted.Load() >= before+int64(10+3*i) })
		_ = cmd.Process.Kill()
		var killed *exec.ExitError
		if err := stores.Ended(t, "the process has ended", over); err != nil && !errors.As(err, &killed) {
			t.Fatal(err)
		}
	}
	store, err := redis.Open(t.Context(), stores.Patiently(c.URL()), redis.Timeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	left := drain(t, store)
	total := admitted.Load() + left
	t.Logf("%d were admitted by %d processes that were killed, %d afterwards: %d of %d lost", admitted.Load(), kills, left, spreadLimit-total, spreadLimit)
	if total > spreadLimit {
		t.Errorf("%d were admitted, and %d when all processes had ended; want %d at most", admitted.Load(), left, spreadLimit)
	}
	if most := int64(kills * spreaders); spreadLimit-total > most {
		t.Errorf("%d units are lost; at most those of the %d requests that were on their way may be", spreadLimit-total, most)
	}
}

// refusedTooEarly: what a request is refused too early for is at most what others
// hold that are just being denied, and all of it can be had in the end.
func refusedTooEarly(t *testing.T, c *servers.Cluster) {
	const limit, others = 500, 16
	store, prefix := openCluster(t, c, 30*time.Second)
	checks := checksOn(t, c, prefix, limit, c.Nodes[0], c.Nodes[1])
	everyone := checks[:1]
	stop := crowd(t, others, func(i, n int) bool {
		out, err := store.Take(t.Context(), headgate.OpTake, []headgate.Check{everyone[0], denied(i, n)}, nil)
		if v := headgate.NewVerdict(out); err != nil || v.Allowed {
			t.Errorf("got %+v, %v; want a denial", v, err)
			return false
		}
		return true
	})
	defer stop()
	taken, early := int64(0), 0
	for taken < limit-others {
		v := take(t, store, everyone...)
		if !v.Allowed {
			t.Fatalf("refused with %d of %d left; at most %d are held", limit-taken, limit, others)
		}
		taken++
	}
	for range 10 * others {
		if v := take(t, store, everyone...); v.Allowed {
			taken++
		} else if taken < limit {
			early++
		}
	}
	stop()
	for take(t, store, everyone...).Allowed {
		taken++
	}
	if taken != limit {
		t.Errorf("%d were admitted in all, want %d", taken, limit)
	}
	t.Logf("of the last %d units, %d attempts were refused too early", others, early)
}

// denied is a check that nothing admits, and that has not been denied before: its
// cost is above the limit, and its key its own.
func denied(caller, n int) headgate.Check {
	return headgate.Check{Rule: denies, Key: fmt.Sprint(caller, " ", n), Cost: 2}
}

var denies = headgate.MustRule("denies", headgate.PerHour(1))

// refundsAdmitNothing: a bucket refills while requests that will be denied hold
// units of it. What is given back to it must not be what it has refilled anyway.
func refundsAdmitNothing(t *testing.T, c *servers.Cluster) {
	const rate, burst, callers = 2000, 5, 8
	store, prefix := openCluster(t, c, 30*time.Second)
	checks := checksOn(t, c, prefix, 1, c.Nodes[0])
	checks[0].Rule = headgate.MustRule(checks[0].Rule.Name(), headgate.PerSecond(rate).WithBurst(burst))
	var mu sync.Mutex
	var admitted []int64 // when
	stop := make(chan struct{})
	var all sync.WaitGroup
	for i := range 2 * callers {
		all.Go(func() {
			ask := checks
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if i%2 == 1 { // half of them are always denied
					ask = []headgate.Check{checks[0], denied(i, n)}
				}
				out, err := store.Take(t.Context(), headgate.OpTake, ask, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if headgate.NewVerdict(out).Allowed {
					mu.Lock()
					admitted = append(admitted, int64(out[0].At))
					mu.Unlock()
				}
				if len(ask) == 1 && n%(2*burst) == 0 {
					time.Sleep(3 * time.Millisecond) // the bucket fills, and all come at once
				}
			}
		})
	}
	long := 1500 * time.Millisecond
	if stores.Soaking(t) {
		long = time.Minute
	}
	time.Sleep(long)
	close(stop)
	all.Wait()
	slices.Sort(admitted)
	// From any moment on, the burst and what has been refilled since.
	least, worst := math.Inf(1), math.Inf(-1)
	for i, at := range admitted {
		since := float64(at-admitted[0]) * rate / 1e6
		least = min(least, float64(i)-since)
		worst = max(worst, float64(i+1)-since-least)
	}
	t.Logf("%d admitted; at the most %.2f beyond what had been refilled", len(admitted), worst)
	if worst > burst+0.01 {
		t.Errorf("%.2f units were admitted beyond what had been refilled, want %d at most", worst, burst)
	}
}

// inDifferentSlots makes sure that the test tests what it should.
func inDifferentSlots(t *testing.T, c *servers.Cluster) {
	t.Helper()
	owners := make(map[*servers.Server]bool)
	for _, check := range spread() {
		slot, err := c.Nodes[0].Do(t.Context(), "CLUSTER", "KEYSLOT", "hg:"+check.Rule.Name()+" "+check.Key)
		if err != nil {
			t.Fatal(err)
		}
		owners[c.Owner(uint16(slot.(int64)))] = true
	}
	if len(owners) < 2 {
		t.Fatal("all counters are on one node")
	}
}
