package topologies

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
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

// callers are requests that go on whatever happens to the store.
type callers struct {
	t       *testing.T
	stopped atomic.Bool
	all     sync.WaitGroup
	answers atomic.Int64 // the store's
	refused atomic.Int64 // calls that failed
	row     atomic.Int64 // answers since the last failure
}

const calling = 16 // goroutines

// call sends requests with one counter and with two, over all slots.
func call(t *testing.T, store headgate.Store) *callers {
	c := &callers{t: t}
	one := headgate.MustRule("one", headgate.PerSecond(1_000_000))
	other := headgate.MustRule("other", headgate.Sliding(1_000_000, time.Second))
	for i := range calling {
		c.all.Go(func() {
			for n := 0; !c.stopped.Load(); n++ {
				checks := []headgate.Check{{Rule: one, Key: strconv.Itoa((i*7919 + n) % 997)}}
				if n%2 == 0 {
					checks = append(checks, headgate.Check{Rule: other, Key: strconv.Itoa(n % 991)})
				}
				out, err := store.Take(t.Context(), headgate.OpTake, checks, nil)
				switch v := headgate.NewVerdict(out); {
				case err == nil && v.Allowed:
					c.answers.Add(1)
					c.row.Add(1)
				case errors.Is(err, headgate.ErrUnavailable):
					c.refused.Add(1)
					c.row.Store(0)
				default:
					t.Errorf("got %v, %v; want an admission, or that the store is not available", v, err)
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	return c
}

// well waits until the store has answered many calls in a row.
func (c *callers) well(what string) {
	c.t.Helper()
	c.row.Store(0)
	stores.Until(c.t, what, func() bool { return c.row.Load() > 12*calling })
}

// failing waits until calls fail.
func (c *callers) failing(what string) {
	c.t.Helper()
	before := c.refused.Load()
	stores.Until(c.t, what, func() bool { return c.refused.Load() > before })
}

// end waits for the callers: none of them may be stuck.
func (c *callers) end() {
	c.t.Helper()
	c.stopped.Store(true)
	stores.Ended(c.t, "no caller is stuck in the store", stores.Waited(&c.all))
	c.t.Logf("%d calls were answered, %d failed", c.answers.Load(), c.refused.Load())
}

// labelled counts the tests whose goroutines have a label.
var labelled atomic.Int64

// leavesNothing runs a test that opens a store and returns it, closes the store, and sees to
// it that none of its goroutines is left. Other tests run at the same time, so those that
// this one begins have a label.
func leavesNothing(t *testing.T, test func() *redis.Store) {
	t.Helper()
	value := "test-" + strconv.FormatInt(labelled.Add(1), 10)
	label := strconv.Quote("test") + ":" + strconv.Quote(value)
	left := func() bool {
		var all strings.Builder
		if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
			t.Fatal(err)
		}
		for stack := range strings.SplitSeq(all.String(), "\n\n") {
			if strings.Contains(stack, label) &&
				(strings.Contains(stack, "rueidis") || strings.Contains(stack, "headgate/store/redis.")) {
				return true
			}
		}
		return false
	}
	pprof.Do(t.Context(), pprof.Labels("test", value), func(context.Context) {
		store := test()
		if !left() {
			t.Error("the goroutines of an open store are not seen")
		}
		store.Close()
	})
	stores.Until(t, "all goroutines of the store have ended", func() bool {
		time.Sleep(20 * time.Millisecond) // to look is dear
		return !left()
	})
}

// fault is something that befalls servers, which are well again when it is over.
type fault[S any] struct {
	name string
	// both says that both kinds of servers meet it. Valkey meets all faults. In test/chaos Redis
	// meets those that it does not meet here, and more.
	both bool
	run  func(c *callers, s S)
}

// faulty opens a store, runs the fault under traffic, and sees to it that nothing is
// left behind.
func faulty(t *testing.T, url string, fault func(c *callers)) {
	t.Helper()
	leavesNothing(t, func() *redis.Store {
		store := stores.OpenBriskly(t, url, 250*time.Millisecond)
		c := call(t, store)
		defer c.stopped.Store(true)
		c.well("the store answers")
		fault(c)
		c.well("the store has recovered")
		c.end()
		return store
	})
}

// connectionsTo is how often the servers have been connected to.
func connectionsTo(t *testing.T, all []*servers.Server) (sum int) {
	t.Helper()
	for _, s := range all {
		info, err := s.Do(t.Context(), "INFO", "stats")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(fmt.Sprint(info), "total_connections_received:")
		n, _, _ := strings.Cut(rest, "\r")
		count, err := strconv.Atoi(n)
		if err != nil {
			t.Fatal(err)
		}
		sum += count
	}
	return sum
}

// oneByOne starts servers of each kind, which meet their faults, one after the other.
func oneByOne[S interface {
	URL() string
	AwaitWhole()
}](t *testing.T, faults []fault[S], start func(*testing.T, servers.Kind) S) {
	soak := stores.Soaking(t)
	eachKind(t, func(t *testing.T, kind servers.Kind) {
		t.Parallel()
		s := start(t, kind)
		for _, f := range faults {
			if kind != servers.Valkey && !f.both && !soak {
				continue // test/chaos has it.
			}
			if !t.Run(f.name, func(t *testing.T) {
				faulty(t, s.URL(), func(c *callers) { f.run(c, s) })
				s.AwaitWhole()
			}) {
				return // The next one would begin with what this one has left.
			}
		}
	})
}

// TestSentinelFailover: a primary that crashes, hangs or steps down costs errors
// until another one has taken its place, and nothing else. One set of servers meets all faults,
// one after the other.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	faults := []fault[*servers.Sentinel]{
		{"killed", false, func(c *callers, s *servers.Sentinel) {
			old := s.Primary()
			old.Kill()
			c.failing("calls fail while there is no primary")
			s.AwaitFailover(old)
			c.well("the store has found the new primary")
			old.Restart()
			s.AwaitWhole()
		}},
		{"stopped", false, func(c *callers, s *servers.Sentinel) {
			old := s.Primary()
			old.Pause()
			c.failing("calls fail while the primary hangs")
			s.AwaitFailover(old)
			c.well("the store has found the new primary")
			old.Resume()
			s.AwaitWhole()
		}},
		{"relieved", false, func(c *callers, s *servers.Sentinel) {
			old := s.Primary()
			servers.HandOver(c.t, func() bool { return s.Primary() != old }, s.Sentinels[0], "SENTINEL", "FAILOVER", servers.MasterName)
		}},
		{"paused", false, func(c *callers, s *servers.Sentinel) {
			store := stores.OpenBriskly(c.t, s.URL(), redis.DefaultTimeout)
			defer store.Close()
			one := s.Primary()
			stores.Pauses(c.t, store, []string{"k"}, 450*time.Millisecond, one.Pause, one.Resume)
		}},
		{"gone, with nobody in its place", false, func(c *callers, s *servers.Sentinel) {
			old, before := s.Primary(), connectionsTo(c.t, s.Sentinels)
			old.Kill()
			c.failing("calls fail while there is no primary")
			refused := c.refused.Load()
			stores.Until(c.t, "many calls have failed", func() bool { return c.refused.Load() > refused+50*calling })
			if now := connectionsTo(c.t, s.Sentinels); now > before+3*calling {
				c.t.Errorf("the Sentinels have been connected to %d times meanwhile", now-before)
			}
			old.Restart()
		}},
		{"without the Sentinels", true, func(c *callers, s *servers.Sentinel) {
			for _, one := range s.Sentinels {
				one.Kill()
			}
			c.well("the store needs no Sentinel while the primary stays")
			for _, one := range s.Sentinels {
				one.Restart()
			}
			s.AwaitWhole()
			old := s.Primary()
			old.Kill()
			s.AwaitFailover(old)
			c.well("the store has found the Sentinels again")
			old.Restart()
		}},
	}
	oneByOne(t, faults, func(t *testing.T, kind servers.Kind) *servers.Sentinel { return servers.StartSentinel(t, kind) })
}

// TestClusterFailover: so it is in a cluster.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	faults := []fault[*servers.Cluster]{
		// At first: a node does not vote about the same primary twice within two node timeouts,
		// which are long as long as nobody waits for a failover.
		{"relieved", false, func(c *callers, s *servers.Cluster) {
			old := s.Owner(0)
			servers.HandOver(c.t, func() bool { return s.Owner(0) != old }, s.ReplicaOf(old), "CLUSTER", "FAILOVER")
		}},
		{"killed", false, func(c *callers, s *servers.Cluster) {
			old := s.Owner(0)
			old.Kill()
			c.failing("calls fail while slots have no primary")
			s.AwaitFailover(0, old)
			c.well("the store has found the new primary")
			old.Restart()
			s.AwaitWhole()
		}},
		{"stopped", false, func(c *callers, s *servers.Cluster) {
			old := s.Owner(0)
			old.Pause()
			c.failing("calls fail while a primary hangs")
			s.AwaitFailover(0, old)
			c.well("the store has found the new primary")
			old.Resume()
			s.AwaitWhole()
		}},
		{"all of them stopped", true, func(c *callers, s *servers.Cluster) {
			for _, node := range s.Nodes {
				node.Pause()
			}
			c.failing("calls fail while the cluster hangs")
			for _, node := range s.Nodes {
				node.Resume()
			}
			s.AwaitWhole()
		}},
	}
	oneByOne(t, faults, func(t *testing.T, kind servers.Kind) *servers.Cluster { return servers.StartCluster(t, kind) })
}
