package topologies

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// openCluster opens a store on a cluster, with a prefix of its own.
func openCluster(t *testing.T, c *servers.Cluster, timeout time.Duration) (*redis.Store, string) {
	t.Helper()
	prefix := "c" + strconv.FormatInt(stores.Fresh(), 10) + ":"
	return stores.OpenURL(t, c.URL(), redis.Prefix(prefix), redis.Timeout(timeout)), prefix
}

// slot asks for a key's slot.
func slot(t *testing.T, c *servers.Cluster, key string) uint16 {
	t.Helper()
	reply, err := c.Nodes[0].Do(t.Context(), "CLUSTER", "KEYSLOT", key)
	if err != nil {
		t.Fatal(err)
	}
	return uint16(reply.(int64))
}

// checksOn returns checks of one rule each, whose counters are on the given servers.
func checksOn(t *testing.T, c *servers.Cluster, prefix string, limit int64, owners ...*servers.Server) []headgate.Check {
	t.Helper()
	var checks []headgate.Check
	for i, owner := range owners {
		rule := headgate.MustRule("on"+strconv.Itoa(i), headgate.Limit{Algorithm: headgate.FixedWindow, Count: limit, Period: 300 * 24 * time.Hour, Align: headgate.AlignFirst})
		for n := 0; len(checks) == i; n++ {
			if key := strconv.Itoa(n); c.Owner(slot(t, c, prefix+rule.Name()+" "+key)) == owner {
				checks = append(checks, headgate.Check{Rule: rule, Key: key})
			}
		}
	}
	return checks
}

func peek(t *testing.T, store headgate.Store, c headgate.Check) int64 {
	t.Helper()
	out, err := store.Take(t.Context(), headgate.OpPeek, []headgate.Check{c}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out[0].Remaining
}

func take(t *testing.T, store headgate.Store, checks ...headgate.Check) headgate.Verdict {
	t.Helper()
	out, err := store.Take(t.Context(), headgate.OpTake, checks, nil)
	if err != nil {
		t.Fatal(err)
	}
	return headgate.NewVerdict(out)
}

// TestCluster runs tests on one cluster of each kind, one after another. Each leaves the cluster as
// it has found it. Those that try what the store does between nodes run with one kind, and in
// `make soak` with both: each node does its part as a single server does, and package redis and
// TestTopologiesConform try that with every kind.
func TestCluster(t *testing.T) {
	t.Parallel()
	const one, every = false, true
	eachKind(t, func(t *testing.T, kind servers.Kind) {
		t.Parallel()
		c := servers.StartCluster(t, kind)
		for _, test := range []struct {
			name  string
			every bool // kind of server
			run   func(*testing.T, *servers.Cluster)
		}{
			{"a tag keeps counters together", one, tag},
			{"keys do not steer", one, keysDoNotSteer},
			{"scripts gone", one, scriptsGone},
			{"suspects", one, suspects},
			{"reservations over slots", one, reservationsOverSlots},
			{"repeated after a failure", every, repeatedAfterFailure},
			{"refused too early", one, refusedTooEarly},
			{"refunds admit nothing", one, refundsAdmitNothing},
			{"observer", every, observesNodes},
			{"mistaken topology", every, mistakenTopology},
			{"a password changes", every, passwordChanges},
			{"a slot on its way", every, slotOnItsWay},
			{"slots move under traffic", every, slotsMoveUnderTraffic},
			{"groups are given back", one, groupsAreGivenBack},
			{"a node hangs", one, nodeHangs},
			{"a node pauses", one, nodePauses},
			{"slots are down", every, slotsAreDown},
		} {
			if kind != servers.Valkey && !test.every && !stores.Soaking(t) {
				continue
			}
			if !t.Run(test.name, func(t *testing.T) { test.run(t, c) }) {
				return // The next one would begin with what this one has left.
			}
		}
	})
}

// groupsAreGivenBack: where one node does not answer, what the others charged is
// given back, although the caller's time is up.
func groupsAreGivenBack(t *testing.T, c *servers.Cluster) {
	patient, prefix := openCluster(t, c, 30*time.Second)
	// To give back has as long as a call.
	store := stores.OpenURL(t, c.URL(), redis.Prefix(prefix), redis.Timeout(2*time.Second))
	checks := checksOn(t, c, prefix, 100, c.Nodes[0], c.Nodes[1], c.Nodes[2])
	if v := take(t, patient, checks...); !v.Allowed || v.Decisions[0].Remaining != 99 || v.Decisions[2].Check != 2 {
		t.Fatalf("got %+v, want it admitted", v)
	}
	stores.Until(t, "the other store is connected to all", func() bool {
		_, err := store.Take(t.Context(), headgate.OpPeek, checks, nil)
		return err == nil
	})
	c.Nodes[1].Pause()
	for range 3 {
		out, err := store.Take(t.Context(), headgate.OpTake, checks, nil)
		if !errors.Is(err, headgate.ErrUnavailable) || len(out) != 0 {
			t.Errorf("got %v, %v; want ErrUnavailable", out, err)
		}
	}
	for _, i := range []int{0, 2} {
		stores.Until(t, "the units were given back", func() bool { return peek(t, patient, checks[i]) == 99 })
	}
	c.Nodes[1].Resume()
	c.AwaitWhole()
	stores.Until(t, "the node takes requests again", func() bool {
		out, err := patient.Take(t.Context(), headgate.OpPeek, checks[1:2], nil)
		return err == nil && out[0].Remaining >= 96 // calls that were not answered may have counted
	})
}

// slotOnItsWay: while a slot moves, its counters are on two nodes. Requests with
// several of them are decided as ever, and nothing is counted twice.
func slotOnItsWay(t *testing.T, c *servers.Cluster) {
	store, prefix := openCluster(t, c, 30*time.Second)
	tagged := func(name string, limits ...headgate.Limit) *headgate.Rule {
		rule, err := headgate.MustRule(name, limits...).WithTag("here")
		if err != nil {
			t.Fatal(err)
		}
		return rule
	}
	checks := []headgate.Check{
		{Rule: tagged("a", headgate.Per(100, 300*24*time.Hour)), Key: "k"},
		{Rule: tagged("b", headgate.Sliding(100, time.Hour)), Key: "k"},
		{Rule: tagged("few", headgate.Sliding(8, time.Hour)), Key: "k", Cost: 2},
	}
	want := int64(100)
	step := func(doing string) {
		t.Helper()
		want--
		v := take(t, store, checks[:2]...)
		if !v.Allowed || v.Decisions[0].Remaining != want || v.Decisions[1].Remaining != want {
			t.Errorf("%s: got %+v, want %d left of each", doing, v, want)
		}
	}
	step("before")
	from := c.Owner(slot(t, c, "{here}"))
	m := c.Migrate(slot(t, c, "{here}"), c.Nodes[(indexOf(c, from)+1)%3])
	step("all keys are where they were")
	m.MoveKey(prefix + "a{here} k")
	step("one key has moved")

	want -= 4
	for range 4 {
		if v := take(t, store, checks...); !v.Allowed {
			t.Errorf("with a third counter, which is new: %+v", v)
		}
	}
	if v := take(t, store, checks...); v.Allowed {
		t.Errorf("got %+v, want it denied by the third", v)
	}
	step("after a denial")
	m.MoveKey(prefix + "b{here} k")
	step("two keys have moved")
	if err := forget(t, store, checks[2:]...); err != nil {
		t.Error(err)
	}
	m.Finish()
	step("all have moved")
	if owner := c.Owner(slot(t, c, "{here}")); owner != m.To {
		t.Errorf("the slot is at %s, want %s", owner.Addr(), m.To.Addr())
	}
	if left := peek(t, store, checks[2]); left != 8 {
		t.Errorf("%d are left of what was reset, want 8", left)
	}
}

func indexOf(c *servers.Cluster, s *servers.Server) int {
	for i, node := range c.Nodes {
		if node == s {
			return i
		}
	}
	return -1
}

func forget(t *testing.T, store headgate.Store, checks ...headgate.Check) error {
	t.Helper()
	_, err := store.Take(t.Context(), headgate.OpReset, checks, nil)
	return err
}

// slotsMoveUnderTraffic: no call fails and none is counted twice while slots go
// from node to node.
func slotsMoveUnderTraffic(t *testing.T, c *servers.Cluster) {
	const limit = 10_000_000
	store, prefix := openCluster(t, c, 30*time.Second)
	checks := checksOn(t, c, prefix, limit, c.Nodes[0], c.Nodes[1])
	moving := slot(t, c, prefix+checks[0].Rule.Name()+" "+checks[0].Key)
	var taken atomic.Int64
	stop := crowd(t, 8, func(int, int) bool {
		out, err := store.Take(t.Context(), headgate.OpTake, checks, nil)
		if v := headgate.NewVerdict(out); err != nil || !v.Allowed {
			t.Errorf("got %+v, %v", v, err)
			return false
		}
		taken.Add(1)
		return true
	})
	defer stop()
	for i := range 6 {
		c.Migrate(moving, c.Nodes[(i+1)%3]).Finish()
	}
	stop()
	for i := range checks {
		if left := peek(t, store, checks[i]); left != limit-taken.Load() {
			t.Errorf("after %d requests %d are left of %d", taken.Load(), left, limit)
		}
	}
	t.Logf("%d requests", taken.Load())
}

// slotsAreDown: where nobody serves a slot, requests fail at once, and succeed
// when somebody does.
func slotsAreDown(t *testing.T, c *servers.Cluster) {
	store, prefix := openCluster(t, c, 5*time.Second)
	checks := checksOn(t, c, prefix, 100, c.Nodes[1])
	c.Impatient()
	c.Nodes[0].Kill()
	c.Nodes[3].Kill()
	stores.Until(t, "the cluster is down", func() bool {
		_, err := store.Take(t.Context(), headgate.OpTake, checks, nil)
		return errors.Is(err, headgate.ErrUnavailable) && strings.Contains(err.Error(), "CLUSTERDOWN")
	})
	stores.Until(t, "a node answers", func() bool { return store.Ping(t.Context()) == nil })
	c.Nodes[0].Restart()
	c.Nodes[3].Restart()
	c.AwaitWhole()
	stores.Until(t, "the cluster answers", func() bool {
		_, err := store.Take(t.Context(), headgate.OpTake, checks, nil)
		return err == nil
	})
}

// scriptsGone: the nodes forget the scripts, and no decision is lost.
func scriptsGone(t *testing.T, c *servers.Cluster) {
	store, prefix := openCluster(t, c, 30*time.Second)
	checks := checksOn(t, c, prefix, 3, c.Nodes[0], c.Nodes[1])
	for want := int64(2); want >= -1; want-- {
		for _, node := range c.Nodes {
			stores.Do(t, node, "SCRIPT", "FLUSH")
		}
		if v := take(t, store, checks...); v.Allowed != (want >= 0) || v.Decisions[0].Remaining != max(want, 0) {
			t.Errorf("got %+v, want %d remaining", v, want)
		}
	}
}

// keysDoNotSteer: what stands in a key has no say in where its counter is kept.
func keysDoNotSteer(t *testing.T, c *servers.Cluster) {
	store, prefix := openCluster(t, c, 30*time.Second)
	rule := headgate.MustRule("r", headgate.PerHour(10))
	for _, node := range c.Nodes[:3] {
		stores.Do(t, node, "FLUSHALL")
	}
	for n := range 300 {
		// Without care, all of these are in the slot of "victim".
		for _, key := range []string{"{victim}%d", "}{victim}%d", "{victim}}%d", "%%7Bvictim%%7D%d"} {
			if d := stores.Allow(t, store, rule, fmt.Sprintf(key, n)); !d.Allowed || d.Remaining != 9 {
				t.Fatalf("%q shares its counter: %+v", fmt.Sprintf(key, n), d)
			}
		}
	}
	sizes := make([]int64, 3)
	for i, node := range c.Nodes[:3] {
		size, err := node.Do(t.Context(), "DBSIZE")
		if err != nil {
			t.Fatal(err)
		}
		if sizes[i] = size.(int64); sizes[i] < 300 {
			t.Errorf("node %d has %d of 1200 counters", i, sizes[i])
		}
	}
	if name, err := c.Owner(slot(t, c, prefix+"r %7Bvictim%7D1")).Do(t.Context(), "EXISTS", prefix+"r %7Bvictim%7D1"); err != nil || name != int64(1) {
		t.Errorf("the counter of {victim}1 does not have the name that the documentation says: %v, %v", name, err)
	}
	if left := sizes[0] + sizes[1] + sizes[2]; left != 1200 {
		t.Errorf("there are %d counters, want 1200", left)
	}
}

// suspects: what is denied again and again holds no units of others meanwhile:
// they are only looked at.
func suspects(t *testing.T, c *servers.Cluster) {
	const requests = 20
	store, prefix := openCluster(t, c, 30*time.Second)
	checks := checksOn(t, c, prefix, 100, c.Nodes[0], c.Nodes[1], c.Nodes[2])
	once := &checks[1]
	once.Rule = headgate.MustRule(once.Rule.Name(), headgate.Sliding(2, 300*24*time.Hour))
	var start time.Time // of the last request before those that are counted
	for i, allowed := range []bool{true, true, false} {
		start = time.Now()
		if v := take(t, store, checks...); v.Allowed != allowed || v.Decisions[0].Remaining != int64(99-min(i, 1)) {
			t.Errorf("request %d: got %+v", i+1, v)
		}
	}
	before := stores.ScriptCalls(t, c.Nodes...)
	for range requests {
		take(t, store, checks...)
	}
	// Who stands still for a second forgets the suspicion, and asks 5 times.
	forgotten := int(time.Since(start) / time.Second)
	if got := stores.ScriptCalls(t, c.Nodes...) - before; got < 3*requests || got > 3*requests+2*forgotten {
		t.Errorf("%d requests were %d calls, want 3 each, but for %d at most: nothing to give back", requests, got, forgotten)
	}
	// The suspicion is wrong: the request is admitted, in two steps.
	if err := forget(t, store, *once); err != nil {
		t.Fatal(err)
	}
	if v := take(t, store, checks...); !v.Allowed || v.Decisions[0].Remaining != 97 || v.Decisions[1].Remaining != 1 || v.Decisions[2].Remaining != 97 {
		t.Errorf("got %+v, want it admitted", v)
	}
}

// tag: the counters of rules with one tag are on one node, and a request under
// them is one call.
func tag(t *testing.T, c *servers.Cluster) {
	store, prefix := openCluster(t, c, 30*time.Second)
	var checks []headgate.Check
	for i := range 5 {
		rule, err := headgate.MustRule("r"+strconv.Itoa(i), headgate.PerHour(1000)).WithTag("orders")
		if err != nil {
			t.Fatal(err)
		}
		checks = append(checks, headgate.Check{Rule: rule, Key: "{k}" + strconv.Itoa(i)})
	}
	owner := c.Owner(slot(t, c, "{orders}"))
	take(t, store, checks...)
	before := stores.ScriptCalls(t, c.Nodes...)
	const requests = 20
	for range requests {
		take(t, store, checks...)
	}
	if got := stores.ScriptCalls(t, c.Nodes...) - before; got != requests {
		t.Errorf("%d requests were %d calls", requests, got)
	}
	for _, check := range checks {
		name := prefix + check.Rule.Name() + "{orders} " + strings.NewReplacer("{", "%7B", "}", "%7D").Replace(check.Key)
		if found, err := owner.Do(t.Context(), "EXISTS", name); err != nil || found != int64(1) {
			t.Errorf("%s is not where its tag says: %v, %v", name, found, err)
		}
	}
}
