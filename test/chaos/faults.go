package chaos

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	client "github.com/redis/go-redis/v9"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
)

// Fault is something that befalls a server.
type Fault struct {
	Name string
	On   []Topology
	do   func(*trial)
	// spares says that no call fails, unless the fault outlasts the store's deadline.
	spares bool
}

// Faults are those that are tried on a topology.
func Faults(on Topology) []Fault {
	return slices.DeleteFunc([]Fault{
		{"killed (`kill -9`)", []Topology{Standalone}, killedAlone, false},
		{"killed (`kill -9`)", []Topology{Sentinel, Cluster}, killed, false},
		{"killed, and back empty before the failover has ended", []Topology{Sentinel}, killedBack, false},
		{"stopped (SIGSTOP) for 0.3 s", Topologies(), pausedBriefly, true},
		{"stopped (SIGSTOP)", []Topology{Standalone}, stoppedAlone, false},
		{"stopped (SIGSTOP)", []Topology{Sentinel, Cluster}, stopped, false},
		{"cut off from all but the callers", []Topology{Sentinel}, cutOff, false},
		{"handed over (`SENTINEL FAILOVER`)", []Topology{Sentinel}, handedOver, true},
		{"handed over, with writes paused before (`CLIENT PAUSE`)", []Topology{Sentinel}, handedOverPaused, false},
		{"handed over (`CLUSTER FAILOVER`)", []Topology{Cluster}, handedOverCluster, true},
		{"cut off, with `min-replicas-to-write 1`", []Topology{Sentinel}, guarded(cutOff), false},
		{"`SENTINEL FAILOVER`, with `min-replicas-to-write 1`", []Topology{Sentinel}, guarded(handedOver), false},
		{"back empty before the failover has ended, with `min-replicas-to-write 1`", []Topology{Sentinel}, guarded(killedBack), false},
		{"memory full", Topologies(), full, false},
		{"read-only (`REPLICAOF`)", []Topology{Standalone}, readOnly, false},
		{"read-only (`min-replicas-to-write`)", []Topology{Sentinel, Cluster}, noReplicas, false},
		{"scripts flushed", Topologies(), flushed, true},
		{"slots on the move", []Topology{Cluster}, moving, true},
		{"restarted empty", Topologies(), emptied, false},
	}, func(f Fault) bool { return !slices.Contains(f.On, on) })
}

// killedAlone: a server that syncs each write to disk loses nothing.
func killedAlone(tr *trial) {
	tr.begin()
	tr.target.Kill()
	tr.mend()
	tr.target.Restart()
}

func killed(tr *trial) {
	tr.begin()
	tr.target.Kill()
	tr.succeeded()
	tr.target.Restart()
	tr.place.whole()
}

// killedBack: the old primary is started again at once when it has been replaced. The
// Sentinels that lead the failover announce it, and those who believe them count on it,
// from nothing, until it has been made a replica.
func killedBack(tr *trial) {
	tr.begin()
	tr.target.Kill()
	tr.gap = tr.units() + 2*callers
	tr.next = tr.place.successor(tr.slots[0], tr.target)
	tr.target.Restart()
	tr.place.whole()
	// It may have admitted whatever was asked of it, and forgotten that.
	tr.gap = max(tr.gap, tr.units())
}

// pausedBriefly: so long do a fork, a disk that syncs and a processor that others use keep a server
// busy. Nobody takes its place.
func pausedBriefly(tr *trial) {
	tr.begin()
	tr.target.Pause()
	time.Sleep(300 * time.Millisecond)
	tr.target.Resume()
	tr.mended = time.Since(tr.load.start)
}

func stoppedAlone(tr *trial) {
	tr.begin()
	tr.target.Pause()
	tr.mend()
	tr.target.Resume()
}

func stopped(tr *trial) {
	tr.begin()
	tr.target.Pause()
	tr.succeeded()
	tr.target.Resume()
	tr.place.whole()
}

// succeeded waits until another server has taken the place of the one that is gone,
// and measures what it does not have.
func (tr *trial) succeeded() {
	tr.t.Helper()
	last := tr.last()
	tr.next = tr.place.successor(tr.slots[0], tr.target)
	tr.gap = max(0, last-tr.marker.reached(tr.t, tr.next))
	tr.load.well(tr.t, "the store has found the new primary")
	tr.place.settled(tr.next)
}

// cutOff: neither the Sentinels nor the replicas reach the primary any more, but the
// callers do, over the connections that they have.
func cutOff(tr *trial) {
	const password = "only those who are connected"
	ctx, s := tr.t.Context(), tr.target
	tr.begin()
	do(tr.t, s, "CONFIG", "SET", "requirepass", password)
	inside := client.NewClient(&client.Options{Addr: s.Addr(), Password: password})
	defer inside.Close()
	list, err := inside.ClientList(ctx).Result()
	if err != nil {
		tr.t.Fatal(err)
	}
	for line := range strings.Lines(list) {
		if f := fields(line); strings.HasPrefix(f["name"], "sentinel-") || strings.Contains(f["flags"], "S") {
			// Who has gone by himself meanwhile need not be killed.
			_ = inside.ClientKillByFilter(ctx, "ID", f["id"]).Err()
		}
	}
	tr.next = tr.place.successor(tr.slots[0], s)
	reached := tr.marker.reached(tr.t, tr.next)
	tr.load.well(tr.t, "the store has found the new primary")
	until(tr.t, "nobody asks the old primary any more", func() bool {
		before := tr.used(password)
		time.Sleep(4 * tr.plan.Timeout)
		after := tr.used(password)
		tr.gap = max(0, after-reached)
		return before == after
	})
	if err := inside.ConfigSet(ctx, "requirepass", "").Err(); err != nil {
		tr.t.Fatal(err)
	}
	tr.place.whole()
}

// fields are the names and values of a line of CLIENT LIST.
func fields(line string) map[string]string {
	all := make(map[string]string)
	for _, field := range strings.Fields(line) {
		name, value, _ := strings.Cut(field, "=")
		all[name] = value
	}
	return all
}

// used is what the target has counted of all limits.
func (tr *trial) used(password string) int64 {
	tr.t.Helper()
	u := url.URL{Scheme: "redis", Host: tr.target.Addr(), User: url.UserPassword("default", password)}
	store, err := redis.Open(tr.t.Context(), u.String(), redis.Timeout(stuckAfter), redis.Prefix(tr.prefix))
	if err != nil {
		tr.t.Fatal(err)
	}
	defer store.Close()
	sum := int64(0)
	for _, check := range tr.load.checks {
		out, err := store.Take(tr.t.Context(), headgate.OpPeek, []headgate.Check{check}, nil)
		if err != nil {
			tr.t.Fatal(err)
		}
		sum += count - out[0].Remaining
	}
	return sum
}

// handedOver: a Sentinel makes a replica the primary while the old one still answers.
func handedOver(tr *trial) {
	tr.begin()
	tr.handOver(tr.place.sentinel.Sentinels[0], "SENTINEL", "FAILOVER", servers.MasterName)
	tr.relieved()
	tr.gap = max(0, tr.units()-tr.marker.reached(tr.t, tr.next))
	tr.place.whole()
}

// handedOverPaused: the primary takes no writes any more, its replicas have what it took
// before, and only then is it relieved. Nothing can be lost.
func handedOverPaused(tr *trial) {
	tr.begin()
	do(tr.t, tr.target, "CLIENT", "PAUSE", strconv.FormatInt(stuckAfter.Milliseconds(), 10), "WRITE")
	until(tr.t, "the replicas have all", func() bool {
		info := replication(tr.t, tr.target)
		_, rest, _ := strings.Cut(info, "master_repl_offset:")
		offset, _, _ := strings.Cut(rest, "\r\n")
		return strings.Count(info, "state=online,offset="+offset+",") == len(tr.place.all())-1
	})
	tr.handOver(tr.place.sentinel.Sentinels[0], "SENTINEL", "FAILOVER", servers.MasterName)
	tr.load.well(tr.t, "the store has found the new primary")
	// What the Sentinels told the old one to do waits as well.
	do(tr.t, tr.target, "CLIENT", "UNPAUSE")
	tr.relieved()
	tr.place.whole()
}

// handOver has a server put another one in the place of the primary.
func (tr *trial) handOver(s *servers.Server, command ...string) {
	tr.t.Helper()
	servers.HandOver(tr.t, func() bool { return tr.place.primary(tr.slots[0]) != tr.target }, s, command...)
	tr.next = tr.place.successor(tr.slots[0], tr.target)
}

// relieved waits until the old primary is a replica.
func (tr *trial) relieved() {
	tr.t.Helper()
	until(tr.t, "the old primary is a replica", func() bool {
		// On the way there a Sentinel breaks all connections to it.
		info, err := tr.target.Do(tr.t.Context(), "INFO", "replication")
		return err == nil && strings.Contains(fmt.Sprint(info), "role:slave")
	})
}

// handedOverCluster: the old primary waits until the new one has everything.
func handedOverCluster(tr *trial) {
	replica := tr.place.replica(tr.target)
	tr.begin()
	tr.handOver(replica, "CLUSTER", "FAILOVER")
	tr.place.whole()
}

// guarded is a fault on servers that take no writes when no replica follows them.
func guarded(fault func(*trial)) func(*trial) {
	return func(tr *trial) {
		demand := func(replicas string) {
			for _, s := range tr.place.all() {
				do(tr.t, s, "CONFIG", "SET", "min-replicas-to-write", replicas)
				// For one that is started again.
				do(tr.t, s, "CONFIG", "REWRITE")
			}
		}
		demand("1")
		fault(tr)
		demand("0")
	}
}

func full(tr *trial) {
	tr.begin()
	do(tr.t, tr.target, "CONFIG", "SET", "maxmemory", "1", "maxmemory-policy", "noeviction")
	tr.mend()
	do(tr.t, tr.target, "CONFIG", "SET", "maxmemory", "0")
}

func readOnly(tr *trial) {
	tr.begin()
	do(tr.t, tr.target, "REPLICAOF", "127.0.0.1", "1")
	tr.mend()
	do(tr.t, tr.target, "REPLICAOF", "NO", "ONE")
}

func noReplicas(tr *trial) {
	tr.begin()
	do(tr.t, tr.target, "CONFIG", "SET", "min-replicas-to-write", "9")
	tr.mend()
	do(tr.t, tr.target, "CONFIG", "SET", "min-replicas-to-write", "0")
}

// flushed: all primaries forget the scripts again and again.
func flushed(tr *trial) {
	primaries := tr.place.primaries()
	tr.begin()
	for end := time.Now().Add(tr.plan.Hold); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for _, s := range primaries {
			do(tr.t, s, "SCRIPT", "FLUSH")
		}
	}
	tr.mended = time.Since(tr.load.start)
}

// moving: slots with counters go from primary to primary, again and again.
func moving(tr *trial) {
	primaries := tr.place.primaries()
	tr.begin()
	for n, end := 0, time.Now().Add(tr.plan.Hold); time.Now().Before(end); n++ {
		slot := tr.slots[tr.hit[n%len(tr.hit)]]
		from := tr.place.cluster.Owner(slot)
		next := primaries[(slices.Index(primaries, from)+1)%len(primaries)]
		tr.place.cluster.Migrate(slot, next).Finish()
	}
	tr.mended = time.Since(tr.load.start)
	tr.place.whole()
	tr.next = tr.place.primary(tr.slots[0])
}

// emptied: the server comes back without its data. On Sentinel and Cluster it does so
// before anybody has noticed, and its replicas empty themselves to follow it.
func emptied(tr *trial) {
	dir := do(tr.t, tr.target, "CONFIG", "GET", "dir").([]any)[1].(string)
	tr.begin()
	tr.target.Kill()
	// Each caller may have one answer that he has not counted yet, of two units.
	tr.gap = tr.units() + 2*callers
	if err := os.RemoveAll(filepath.Join(dir, "appendonlydir")); err != nil {
		tr.t.Fatal(err)
	}
	tr.target.Restart()
	tr.place.whole()
}
