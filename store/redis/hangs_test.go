package redis

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/bubbletest"
)

// TestHangs: a node hangs whose calls end by their deadline for a while, many in a row.
// The others are asked as before.
func TestHangs(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		const timeout = 40 * time.Millisecond
		s := &Store{clustered: new(clustered), deadlines: deadlines{timeout: timeout}, pending: pending{most: 1 << 20}}
		where := func(nodes ...string) {
			p := &places{until: time.Now().Add(time.Hour), nodes: nodes, slots: make([]uint16, slotCount)}
			for i := range p.slots {
				p.slots[i] = uint16(1 + i%len(nodes))
			}
			s.observing.places.Store(p)
		}
		where("a:1", "b:1")
		key := map[string]string{}
		for _, k := range []string{"k", "l", "m", "n", "o", "p"} {
			key[s.placesNow().node(slotOf(k))] = k
		}
		// calls makes calls that begin and end together, and returns how many were admitted.
		calls := func(node string, n int, lasts time.Duration, end error) (admitted int) {
			t.Helper()
			var began []time.Time
			for range n {
				if at, err := s.begin(key[node]); err == nil {
					began = append(began, at)
				}
			}
			time.Sleep(lasts)
			for _, at := range began {
				s.end(key[node], at, end)
			}
			return len(began)
		}
		all := func(what string, node string, n int, lasts time.Duration, end error) {
			t.Helper()
			if got := calls(node, n, lasts, end); got != n {
				t.Errorf("%s: %d of %d calls were admitted", what, got, n)
			}
		}
		late := context.DeadlineExceeded
		for range 3 * silentCalls {
			all("callers without time", "a:1", 1, timeout/8, late)
		}
		all("many late at once", "a:1", 3*silentCalls, timeout, late)
		time.Sleep(time.Minute)
		all("a while after that", "a:1", 1, timeout, rueidis.ErrClosing)
		all("an answer", "a:1", 1, time.Millisecond, nil)
		for range 10 {
			all("few", "a:1", silentCalls/16, timeout, late)
		}
		all("an answer", "a:1", 1, time.Millisecond, nil)
		for range 10 {
			all("until it hangs", "a:1", silentCalls/10, timeout, late)
		}
		all("until it hangs", "a:1", silentCalls, timeout, late)
		for range 20 {
			if n := calls("a:1", 100, hangProbeEvery, late); n != 1 {
				t.Errorf("%d calls to a node that hangs, want a probe", n)
			}
			all("the other", "b:1", 100, time.Millisecond, nil)
		}
		if n := calls("a:1", 100, time.Millisecond, nil); n != 1 {
			t.Errorf("%d calls to a node that hangs, want a probe", n)
		}
		all("when the probe was answered", "a:1", 100, time.Millisecond, nil)
		if n := s.clustered.hangs.some.Load(); n != 0 {
			t.Errorf("%d nodes owe answers", n)
		}
		calls("a:1", silentCalls, timeout, late)
		s.clustered.hangs.keep([]string{"b:1"})
		if n := s.clustered.hangs.some.Load(); n != 0 || len(s.clustered.hangs.of) != 0 {
			t.Errorf("%d nodes owe answers, %d are known, when those are gone", n, len(s.clustered.hangs.of))
		}
	})
}
