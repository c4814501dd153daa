package topologies

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/denycache"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// node is a process as far as the store is concerned: connections of its own, and a
// memory of denials that it trusts for so long that only the others end it.
type node struct {
	*redis.Store
	denials *denycache.Layer
}

func newNode(t *testing.T, url string) *node {
	t.Helper()
	store := stores.OpenURL(t, url, redis.Prefix("nodes:"))
	denials, err := denycache.New(store, denycache.Options{Bus: store, Trust: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{store, denials}
	t.Cleanup(func() { denials.Close(context.Background()) }) // before the store's
	n.listens(t)
	return n
}

func (n *node) listens(t *testing.T) {
	t.Helper()
	stores.Until(t, "a node hears the others", func() bool { return n.denials.Stats().Listening })
}

// take asks a node, again while the servers are busy with themselves.
func (n *node) take(t *testing.T, op headgate.Op, c headgate.Check) headgate.Verdict {
	t.Helper()
	var got []headgate.Decision
	again(t, func() (err error) {
		got, err = n.denials.Store().Take(t.Context(), op, []headgate.Check{c}, nil)
		return err
	})
	return headgate.NewVerdict(got)
}

// again does something until it works: after a failover the last connections to who is
// gone are noticed by those who use them.
func again(t *testing.T, try func() error) {
	t.Helper()
	const most = 2 * time.Minute
	for end := time.Now().Add(most); ; time.Sleep(50 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %v: %v", most, err)
		}
	}
}

// deny has a node deny a check from memory.
func (n *node) deny(t *testing.T, c headgate.Check) {
	t.Helper()
	for range 1000 {
		if v := n.take(t, headgate.OpTake, c); !v.Allowed && v.Decisions[0].Source == headgate.SourceCache {
			return
		}
	}
	t.Fatal("it is never denied from memory")
}

// admits waits until a node admits a check that another has freed, and returns after how long it did.
func (n *node) admits(t *testing.T, c headgate.Check, by *node) time.Duration {
	t.Helper()
	start := time.Now()
	for time.Since(start) < 2*time.Minute {
		if n.take(t, headgate.OpTake, c).Allowed {
			return time.Since(start)
		}
		time.Sleep(100 * time.Microsecond)
	}
	t.Fatalf("denied for two minutes: %+v, freed by %+v", n.denials.Stats(), by.denials.Stats())
	return 0
}

func remembered(rule string) headgate.Check {
	return headgate.Check{Rule: headgate.MustRule(rule, headgate.PerHour(3)), Key: "k", Hints: headgate.Hints{DenyCache: headgate.DenyCacheOn}}
}

// freedEverywhere has one node free a key in every way, and the other notice.
func freedEverywhere(t *testing.T, here, there *node) {
	ledger := here.denials.Store().(headgate.Ledger)
	for name, free := range map[string]func(headgate.Check, headgate.Reservation) error{
		"refund": func(c headgate.Check, _ headgate.Reservation) error {
			_, err := ledger.Take(t.Context(), headgate.OpRefund, []headgate.Check{c}, nil)
			return err
		},
		"reset": func(c headgate.Check, _ headgate.Reservation) error {
			_, err := ledger.Take(t.Context(), headgate.OpReset, []headgate.Check{c}, nil)
			return err
		},
		"settle": func(_ headgate.Check, r headgate.Reservation) error {
			_, err := ledger.Settle(t.Context(), r, []int64{1}, nil)
			return err
		},
		"cancel": func(_ headgate.Check, r headgate.Reservation) error {
			r, err := ledger.Recall(t.Context(), r.ID)
			if err != nil {
				return err
			}
			_, err = ledger.Settle(t.Context(), r, []int64{0}, nil)
			return err
		},
	} {
		var slowest time.Duration
		for i := range 3 {
			c := remembered("r")
			c.Key = fmt.Sprint(name, i, " of ", stores.Fresh())
			two := c
			two.Cost = 2
			var r headgate.Reservation
			again(t, func() (err error) { // with an ID, so that it is charged once
				r, _, err = ledger.Reserve(t.Context(), headgate.Terms{ID: c.Key}, []headgate.Check{two}, nil)
				return err
			})
			here.deny(t, c)
			there.deny(t, c)
			again(t, func() error { return free(c, r) })
			slowest = max(slowest, there.admits(t, c, here))
		}
		t.Logf("%s: admitted by the other node after %v at most", name, slowest)
	}
}

// TestFreedOnAllNodes: what one node frees is admitted by the other, on real servers.
func TestFreedOnAllNodes(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, kind servers.Kind) {
		t.Run("single", func(t *testing.T) {
			s := servers.Start(t, kind)
			here, there := newNode(t, s.URL()), newNode(t, s.URL())
			freedEverywhere(t, here, there)
			t.Run("connections lost", func(t *testing.T) {
				c := remembered("lost")
				there.deny(t, c)
				// Freed by somebody who tells nobody, while nobody is connected.
				stores.Do(t, s, "CLIENT", "KILL", "TYPE", "normal")
				stores.Do(t, s, "CLIENT", "KILL", "TYPE", "pubsub")
				stores.Do(t, s, "DEL", "nodes:lost k")
				there.admits(t, c, here)
				there.listens(t)
				here.listens(t)
				freedEverywhere(t, here, there)
			})
		})
		t.Run("sentinel", func(t *testing.T) {
			s := servers.StartSentinel(t, kind)
			here, there := newNode(t, s.URL()), newNode(t, s.URL())
			old := s.Primary()
			old.Kill()
			s.AwaitFailover(old)
			here.take(t, headgate.OpTake, remembered("well"))
			there.take(t, headgate.OpTake, remembered("well"))
			here.listens(t)
			there.listens(t)
			freedEverywhere(t, here, there)
		})
		t.Run("cluster", func(t *testing.T) {
			c := servers.StartCluster(t, kind)
			here, there := newNode(t, c.URL()), newNode(t, c.URL())
			freedEverywhere(t, here, there)
			const slot = 7
			old := c.Owner(slot)
			old.Kill()
			c.AwaitFailover(slot, old)
			c.AwaitWhole() // of those who are left, who pass messages on
			for i := range 30 {
				again := remembered("well")
				again.Key = fmt.Sprint(i)
				here.take(t, headgate.OpTake, again)
				there.take(t, headgate.OpTake, again)
			}
			here.listens(t)
			there.listens(t)
			freedEverywhere(t, here, there)
		})
	})
}

// TestNewsNeedNoPermission: a user who may not publish loses nothing but the news.
func TestNewsNeedNoPermission(t *testing.T) {
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		var rules []string
		for _, rule := range documented(t, "headgate") {
			if !strings.HasPrefix(rule, "&") && rule != "+publish" && rule != "+subscribe" {
				rules = append(rules, rule)
			}
		}
		stores.Do(t, s, append([]string{"ACL", "SETUSER", "headgate", "reset", "on", ">geheim"}, rules...)...)
		store, err := redis.Open(t.Context(), stores.Patiently(as(t, s.URL(), "headgate", "geheim")), redis.Timeout(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		denials, err := denycache.New(store, denycache.Options{Bus: store})
		if err != nil {
			t.Fatal(err)
		}
		defer denials.Close(t.Context())
		c := remembered("r")
		n := &node{store, denials}
		n.deny(t, c)
		n.take(t, headgate.OpReset, c)
		if !n.take(t, headgate.OpTake, c).Allowed {
			t.Error("denied after a reset")
		}
		stores.Until(t, "something is dropped", func() bool { return denials.Stats().Dropped > 0 })
		if status := denials.Stats(); status.Listening || !errors.Is(status.Error, headgate.ErrUnavailable) || !strings.Contains(status.Error.Error(), "NOPERM") {
			t.Errorf("%+v, want that the server does not permit it", status)
		}
	}, servers.Password("admin"))
}

// answeredBy is how often scripts were called, as the server counts.
func answeredBy(t *testing.T, s *servers.Server) int64 {
	t.Helper()
	info, err := s.Do(t.Context(), "INFO", "commandstats")
	if err != nil {
		t.Fatal(err)
	}
	var total int64
	for line := range strings.Lines(info.(string)) {
		for _, name := range []string{"cmdstat_evalsha:", "cmdstat_eval:"} {
			var n int64
			if rest, ok := strings.CutPrefix(line, name); ok {
				if _, err := fmt.Sscanf(rest, "calls=%d", &n); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				total += n
			}
		}
	}
	return total
}

// TestFloodOfDenied: of a flood of one denied key the server sees almost nothing.
func TestFloodOfDenied(t *testing.T) {
	const callers, each = 32, 500
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		n := newNode(t, s.URL())
		c := remembered("flood")
		n.deny(t, c)
		before := answeredBy(t, s)
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range each {
					got, err := n.denials.Store().Take(t.Context(), headgate.OpTake, []headgate.Check{c}, nil)
					if err != nil || headgate.NewVerdict(got).Allowed {
						t.Errorf("got %+v, %v; want a denial", got, err)
						return
					}
				}
			})
		}
		all.Wait()
		if asked := answeredBy(t, s) - before; asked*100 >= callers*each {
			t.Errorf("the server answered %d of %d requests, want less than a hundredth", asked, callers*each)
		} else {
			t.Logf("the server answered %d of %d requests", asked, callers*each)
		}
	})
}
