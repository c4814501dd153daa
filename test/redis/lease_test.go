package redis_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/lease"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// leaserURL makes this test binary a process that takes from the store at the URL by
// leases; leaserCounts is the file in which it counts.
const (
	leaserURL    = "HEADGATE_TEST_LEASER_URL"
	leaserCounts = "HEADGATE_TEST_LEASER_COUNTS"
)

const (
	leasers       = 4      // processes
	leaserCallers = 4      // goroutines of each of them for each rule
	leasedUnits   = 12_000 // of each rule
)

// leasedRules are limits that hardly refill within a test, of every algorithm that
// can be leased.
func leasedRules() []*headgate.Rule {
	long := 300 * 24 * time.Hour
	return []*headgate.Rule{
		headgate.MustRule("lease.bucket", headgate.Per(leasedUnits, long)),
		headgate.MustRule("lease.windows", headgate.Sliding(leasedUnits, long), headgate.Sliding(2*leasedUnits, long/2)),
		headgate.MustRule("lease.fixed", headgate.Limit{Algorithm: headgate.FixedWindow, Count: leasedUnits, Period: long, Align: headgate.AlignFirst}),
		headgate.MustRule("lease.counter", headgate.Limit{Algorithm: headgate.SlidingCounter, Count: leasedUnits, Period: long}),
	}
}

// counters are numbers in a file, which stay there if the process is killed: what was admitted of
// each rule, and at last what of all that was admitted by leases.
func counters(path string) ([]atomic.Int64, error) {
	n := len(leasedRules()) + 1
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(int64(8 * n)); err != nil {
		return nil, err
	}
	shared, err := syscall.Mmap(int(f.Fd()), 0, 8*n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*atomic.Int64)(unsafe.Pointer(&shared[0])), n), nil
}

// leaser takes single units of all rules until each caller was denied so often that
// nothing can come back any more.
func leaser(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	counts, err := counters(os.Getenv(leaserCounts))
	if err != nil {
		return err
	}
	store, err := redis.Open(ctx, stores.Patiently(url), redis.Timeout(time.Minute))
	if err != nil {
		return err
	}
	defer store.Close()
	leases, err := lease.New(store, lease.Options{Nodes: func() int64 { return leasers }})
	if err != nil {
		return err
	}
	var failure atomic.Pointer[error]
	var all sync.WaitGroup
	for i, rule := range leasedRules() {
		checks := []headgate.Check{{Rule: rule, Key: "shared", Hints: headgate.Hints{Consistency: headgate.Leased}}}
		for range leaserCallers {
			all.Go(func() {
				// Not by the clock: who was held up has not been denied meanwhile.
				for denied := 0; denied < 100; {
					out, err := leases.Store().Take(ctx, headgate.OpTake, checks, nil)
					switch {
					case err != nil:
						failure.Store(&err)
						return
					case headgate.NewVerdict(out).Allowed:
						counts[i].Add(1)
						if out[0].Source == headgate.SourceLease {
							counts[len(counts)-1].Add(1)
						}
						denied = 0
						time.Sleep(20 * time.Microsecond)
					default:
						denied++
						time.Sleep(40 * time.Millisecond)
					}
				}
			})
		}
	}
	all.Wait()
	if err := failure.Load(); err != nil {
		return *err
	}
	return leases.Close(ctx)
}

// TestLeasesOfProcesses: several processes lease from one server, and one of them is
// killed while it holds units. Together they are never admitted more than the limit,
// and hardly less: what the killed one held is lost, which is at most its share. It is the processes
// that lease.
func TestLeasesOfProcesses(t *testing.T) {
	onOneKind(t, servers.Valkey, func(t *testing.T, s *servers.Server) {
		rules := leasedRules()
		dir := t.TempDir()
		admitted := make([]int64, len(rules)+1)
		var all sync.WaitGroup
		var mu sync.Mutex // guards admitted
		for n := range leasers {
			path := filepath.Join(dir, strconv.Itoa(n))
			counts, err := counters(path)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), leaserURL+"="+s.URL(), leaserCounts+"="+path)
			problems := new(strings.Builder)
			cmd.Stderr = problems
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				if n == 0 {
					killWhen(cmd, counts)
				}
				if err := cmd.Wait(); err != nil && n != 0 {
					t.Errorf("leaser %d: %v: %s", n, err, problems)
				}
				mu.Lock()
				defer mu.Unlock()
				for i := range counts {
					admitted[i] += counts[i].Load()
				}
			})
		}
		all.Wait()
		for i, rule := range rules {
			// Another share is for a call that a busy machine cut off, and the rest for parts
			// of units that buckets do not take back.
			const share = leasedUnits / (2 * leasers)
			const least = leasedUnits - 2*share - 100
			if got := admitted[i]; got > leasedUnits || got < least {
				t.Errorf("%s: %d units were admitted, at most %d may be, and at least %d", rule.Name(), got, leasedUnits, least)
			}
		}
		// Not by each process: one that a busy machine starts late finds nothing left.
		if admitted[len(rules)] == 0 {
			t.Error("nothing was leased")
		}
		t.Logf("admitted of %d, and by leases: %v", leasedUnits, admitted)
	})
}

// killWhen kills a process that is in the middle of all rules.
func killWhen(cmd *exec.Cmd, counts []atomic.Int64) {
	for tries := 0; tries < 120_000; tries++ {
		busy := true
		for i := range counts[:len(counts)-1] { // the last is no rule's
			busy = busy && counts[i].Load() >= 300
		}
		if busy {
			break
		}
		time.Sleep(time.Millisecond)
	}
	// If it has ended already, Wait tells.
	_ = cmd.Process.Kill()
}
