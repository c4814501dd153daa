package topologies

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// seen is what an observer was told: calls and failures by node and operation.
type seen struct {
	mu       sync.Mutex // guards both
	calls    map[string]int
	failures map[string]int
}

func (s *seen) observe(node, op string, took time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if took <= 0 {
		op = "no time"
	}
	s.calls[node+" "+op]++
	if err != nil {
		s.failures[node]++
	}
}

func (s *seen) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls, s.failures = map[string]int{}, map[string]int{}
}

func (s *seen) now() (calls, failures map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.calls), maps.Clone(s.failures)
}

// TestObserver: each call is told with the node that served it; on a cluster that is
// the slot's.
func TestObserver(t *testing.T) {
	rule := headgate.MustRule("r", headgate.PerHour(1000))
	eachKind(t, func(t *testing.T, kind servers.Kind) {
		t.Run("single", func(t *testing.T) {
			s := servers.Start(t, kind)
			all := &seen{}
			all.clear()
			store := stores.OpenURL(t, s.URL(), redis.Observe(all.observe))
			check := []headgate.Check{{Rule: rule, Key: "k"}}
			all.clear()
			for range 3 {
				for _, op := range []headgate.Op{headgate.OpTake, headgate.OpRefund, headgate.OpReset} {
					if _, err := store.Take(t.Context(), op, check, nil); err != nil {
						t.Fatal(err)
					}
				}
			}
			calls, failures := all.now()
			want := map[string]int{s.Addr() + " take": 3, s.Addr() + " refund": 3, s.Addr() + " reset": 3}
			if !maps.Equal(calls, want) || len(failures) > 0 {
				t.Errorf("got %v and failures %v, want %v", calls, failures, want)
			}
			s.Kill()
			if _, err := store.Take(t.Context(), headgate.OpTake, check, nil); err == nil {
				t.Error("a server that is gone has answered")
			}
			if _, failures = all.now(); failures[s.Addr()] < 1 || len(failures) > 1 { // each time that it was made again
				t.Errorf("failures are %v, want some of %s", failures, s.Addr())
			}
		})
	})
}

// observesNodes: on a cluster the node that serves a call is the slot's.
func observesNodes(t *testing.T, c *servers.Cluster) {
	rule := headgate.MustRule("r", headgate.PerHour(1000))
	all := &seen{}
	all.clear()
	store := stores.OpenURL(t, c.URL(), redis.Observe(all.observe))
	take := func() {
		for i := range 60 {
			if _, err := store.Take(t.Context(), headgate.OpTake, []headgate.Check{{Rule: rule, Key: fmt.Sprint(i)}}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 600 { // until it is known where the slots are
		all.clear()
		take()
		if calls, _ := all.now(); calls[" take"] == 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	calls, _ := all.now()
	total := 0
	for name, n := range calls {
		node, _ := strings.CutSuffix(name, " take")
		owner := false
		for _, slot := range []uint16{0, 8000, 16000} {
			owner = owner || c.Owner(slot).Addr() == node
		}
		if !owner {
			t.Errorf("%d calls of %q, which is no primary", n, name)
		}
		total += n
	}
	if total != 60 || len(calls) != 3 {
		t.Errorf("got %v, want 60 calls of three nodes", calls)
	}
}
