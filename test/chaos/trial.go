package chaos

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
)

// Plan is how long the parts of a trial take.
type Plan struct {
	Timeout time.Duration // the store's deadline
	Before  time.Duration // load before the fault
	Hold    time.Duration // how long a fault lasts that does not end by itself
	After   time.Duration // load after it
	Pause   time.Duration // of each caller between two requests, at least a millisecond
	// Row is how many requests of each caller must succeed one after another until the store counts
	// as well.
	Row int
}

// Result is what a trial has measured.
type Result struct {
	Fault    string
	Topology Topology
	Kind     servers.Kind

	Requests int // that began after the fault
	Failed   int
	Words    []string // the kinds of the failures, the most frequent first
	// Lasted is the time from the fault until it was mended by hand; 0 if the
	// servers were left to mend it themselves.
	Lasted time.Duration
	// First is the time from the fault to the first success, after a failure, of a
	// request under the limits of the server that the fault befell; Steady that to
	// the end of the last failure before half a second without any. Both are 0 if
	// nothing failed.
	First, Steady time.Duration
	Longest       time.Duration // that any request took

	// Over is how many units were admitted beyond the limits, Gap how many the
	// servers can have lost.
	Over, Gap  int64
	Goroutines int // how many more there were while the fault lasted, at most
}

// trial is one fault on its way.
type trial struct {
	t     testing.TB
	place *Place
	plan  Plan
	load  *load
	// slots are those of the limits, on a cluster. The fault befalls the server that
	// has the first one, and of the limits those in hit.
	slots  []uint16
	target *servers.Server
	hit    []int
	marker *marker
	prefix string

	from, mended time.Duration // since the start of the load
	gap          int64
	next         *servers.Server // who took the target's place; nil if nobody was to
}

// Run holds one trial. It fails the test if the store does not recover, if anything
// is stuck, or if more is admitted than the servers can have lost. A place has room for
// one trial at a time.
func Run(t testing.TB, p *Place, fault Fault, plan Plan) Result {
	t.Helper()
	goroutines := runtime.NumGoroutine()
	p.trials++
	prefix := "chaos" + strconv.Itoa(p.trials) + ":"
	store, err := redis.Open(t.Context(), p.url(), redis.Timeout(plan.Timeout), redis.Prefix(prefix))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	tr := &trial{t: t, place: p, plan: plan, prefix: prefix, load: startLoad(t.Context(), store, max(plan.Pause, time.Millisecond), plan.Row*callers)}
	defer tr.load.stopped.Store(true)
	tr.load.well(t, "the store answers")
	tr.aim()
	time.Sleep(plan.Before)

	before := runtime.NumGoroutine()
	watched, enough := context.WithCancel(t.Context())
	defer enough()
	most := watchGoroutines(watched)
	fault.do(tr)
	tr.load.well(t, "the store has recovered")
	time.Sleep(plan.After)
	tr.marker.end()
	enough()
	tr.load.end(t)
	tr.again()
	result := tr.result()
	result.Fault, result.Goroutines = fault.Name, max(0, most()-before)
	result.Over, result.Gap = tr.load.drain(t.Context(), t), tr.gap
	if result.Over > result.Gap {
		t.Errorf("chaos: %s, %s, %s: %d units were admitted beyond the limits, and the servers can have lost %d",
			p.Topology, p.Kind, fault.Name, result.Over, result.Gap)
	}
	// On a machine so busy that calls mostly end by their deadline, those that the old server has not
	// read by then end with its connection.
	if fault.spares && result.Failed > 0 && result.Words[0] != "deadline" {
		t.Errorf("chaos: %s, %s, %s: %d of %d calls failed, and none should: %v", p.Topology, p.Kind, fault.Name, result.Failed, result.Requests, result.Words)
	}
	store.Close()
	text := ""
	defer func() {
		if t.Failed() {
			t.Logf("the goroutines after the store was closed:\n%s", text)
		}
	}()
	until(t, "all goroutines of the store have ended", func() bool {
		time.Sleep(20 * time.Millisecond) // To look is dear.
		stacks := make([]byte, 4<<20)
		text = string(stacks[:runtime.Stack(stacks, true)])
		return !strings.Contains(text, "rueidis") && !strings.Contains(text, "headgate/store/redis.") && runtime.NumGoroutine() <= goroutines
	})
	p.whole()
	return result
}

// aim finds the server that the fault is to befall, and begins to mark it.
func (tr *trial) aim() {
	tr.t.Helper()
	name := func(i int) string {
		return tr.prefix + tr.load.checks[i].Rule.Name() + " " + tr.load.checks[i].Key
	}
	for i := range tr.load.checks {
		tr.slots = append(tr.slots, tr.place.slot(name(i)))
	}
	tr.target = tr.place.primary(tr.slots[0])
	for i, slot := range tr.slots {
		if tr.place.primary(slot) == tr.target {
			tr.hit = append(tr.hit, i)
		}
	}
	// In the same slot as the counter.
	tr.marker = mark(tr.t.Context(), tr.target, "{"+name(0)+"}marker", tr.units)
}

// again widens the gap if there was another failover than the one that was asked for: on
// a machine that is busy a server can be missed that is well. The marker does not tell
// what was lost then.
func (tr *trial) again() {
	tr.t.Helper()
	expected := tr.next
	if expected == nil {
		expected = tr.target
	}
	if now := tr.place.primary(tr.slots[0]); now != expected {
		tr.t.Logf("chaos: %s is the primary and not %s: there was another failover", now.Addr(), expected.Addr())
		tr.gap = max(tr.gap, tr.units()+2*callers)
	}
}

// units are what callers were admitted under the limits that the fault befalls.
func (tr *trial) units() int64 { return tr.load.units(tr.hit) }

// begin notes that the fault begins.
func (tr *trial) begin() { tr.from = time.Since(tr.load.start) }

// mend waits as long as the fault is to last, and notes that it ends.
func (tr *trial) mend() {
	time.Sleep(tr.plan.Hold)
	tr.mended = time.Since(tr.load.start)
}

// last is what the server that has just gone has admitted: answers may still be on
// their way to the callers.
func (tr *trial) last() int64 {
	const quiet = 300 * time.Millisecond
	units := tr.units()
	for since := time.Now(); time.Since(since) < quiet; time.Sleep(10 * time.Millisecond) {
		if now := tr.units(); now != units {
			units, since = now, time.Now()
		}
		if time.Since(tr.load.start)-tr.from > 10*quiet {
			break // The next server answers already; its units only widen the gap.
		}
	}
	return units
}

// result sums up what became of the requests.
func (tr *trial) result() Result {
	r := Result{Topology: tr.place.Topology, Kind: tr.place.Kind}
	if tr.mended > 0 {
		r.Lasted = tr.mended - tr.from
	}
	const steady = 500 * time.Millisecond
	var failed time.Duration // when the last request failed
	hit := func(e event) bool {
		return slices.Contains(tr.hit, int(e.first)) || slices.Contains(tr.hit, int(e.second))
	}
	struck, settled := false, false
	words := make(map[string]int)
	for _, e := range tr.load.events {
		if e.at-e.took < tr.from {
			continue // It was on its way when the fault began.
		}
		r.Requests++
		r.Longest = max(r.Longest, e.took)
		settled = settled || r.First > 0 && e.at-failed > steady && e.at > max(tr.mended, tr.from)+steady
		switch {
		case e.word != "":
			r.Failed++
			words[e.word]++
			failed = e.at
			struck = struck || hit(e)
			if !settled {
				r.Steady = e.at - tr.from
			}
		case struck && r.First == 0 && hit(e):
			r.First = e.at - tr.from
		}
	}
	r.Words = slices.SortedFunc(maps.Keys(words), func(a, b string) int {
		if words[a] != words[b] {
			return words[b] - words[a]
		}
		return strings.Compare(a, b)
	})
	return r
}

// watchGoroutines returns a function that tells how many there were at most so far.
func watchGoroutines(ctx context.Context) func() int {
	var most atomic.Int64
	go func() {
		for ctx.Err() == nil {
			most.Store(max(most.Load(), int64(runtime.NumGoroutine())))
			time.Sleep(10 * time.Millisecond)
		}
	}()
	return func() int { return int(most.Load()) }
}
