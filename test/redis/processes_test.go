package redis_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
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

// takerURL makes this test binary a process that takes from the store at the URL,
// instead of running tests.
const takerURL = "HEADGATE_TEST_TAKER_URL"

func TestMain(m *testing.M) {
	for name, process := range map[string]func(url string) error{takerURL: taker, leaserURL: leaser} {
		if url := os.Getenv(name); url != "" {
			if err := process(url); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	os.Exit(m.Run())
}

// contended are limits that hardly refill within a test, of every algorithm.
func contended() []*headgate.Rule {
	long := 300 * 24 * time.Hour
	return []*headgate.Rule{
		headgate.MustRule("bucket", headgate.Per(1000, long)),
		headgate.MustRule("windows", headgate.Sliding(1000, long), headgate.Sliding(900, long/2)),
		headgate.MustRule("fixed", headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1000, Period: long, Align: headgate.AlignFirst}),
		headgate.MustRule("counter", headgate.Limit{Algorithm: headgate.SlidingCounter, Count: 1000, Period: long}),
		headgate.MustRule("all",
			headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 500, Period: long},
			headgate.Sliding(700, long),
			headgate.Limit{Algorithm: headgate.FixedWindow, Count: 600, Period: long, Align: headgate.AlignFirst}),
	}
}

// expected is how many single units each of the contended rules admits.
var expected = map[string]int64{"bucket": 1000, "windows": 900, "fixed": 1000, "counter": 1000, "all": 500}

const (
	takers     = 4   // processes
	goroutines = 100 // in each of them
	attempts   = 5   // of each goroutine for each rule: 2,000 for a limit of at most 1,000
)

// taker takes single units of all contended rules from many goroutines, and
// prints how many it got.
func taker(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	store, err := redis.Open(ctx, stores.Patiently(url), redis.Timeout(time.Minute))
	if err != nil {
		return err
	}
	defer store.Close()
	for _, rule := range contended() {
		limiter := headgate.New(store, rule)
		var admitted atomic.Int64
		var failure atomic.Pointer[error]
		var all sync.WaitGroup
		for range goroutines {
			all.Go(func() {
				for range attempts {
					d, err := limiter.Allow(ctx, "shared")
					if err != nil {
						failure.Store(&err)
						return
					}
					if d.Allowed {
						admitted.Add(1)
					}
				}
			})
		}
		all.Wait()
		if err := failure.Load(); err != nil {
			return *err
		}
		fmt.Println(rule.Name(), admitted.Load())
	}
	return nil
}

// TestProcessesShareLimitsExactly starts several processes of many goroutines on
// one server: together they are admitted exactly what the limits allow.
func TestProcessesShareLimitsExactly(t *testing.T) {
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		got := map[string]int64{}
		var mu sync.Mutex // guards got
		var all sync.WaitGroup
		for range takers {
			all.Go(func() {
				cmd := exec.CommandContext(t.Context(), os.Args[0])
				cmd.Env = append(os.Environ(), takerURL+"="+s.URL())
				var problems strings.Builder
				cmd.Stderr = &problems
				out, err := cmd.Output()
				if err != nil {
					t.Errorf("taker: %v: %s", err, problems.String())
					return
				}
				lines := bufio.NewScanner(strings.NewReader(string(out)))
				for lines.Scan() {
					name, count, _ := strings.Cut(lines.Text(), " ")
					n, err := strconv.ParseInt(count, 10, 64)
					if err != nil {
						t.Errorf("taker printed %q", lines.Text())
						return
					}
					mu.Lock()
					got[name] += n
					mu.Unlock()
				}
			})
		}
		all.Wait()
		for name, want := range expected {
			if got[name] != want {
				t.Errorf("rule %s: %d processes were admitted %d units together, want exactly %d", name, takers, got[name], want)
			}
		}
	})
}
