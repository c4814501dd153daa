package topologies

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// nodeHangs: while one primary of a cluster hangs and nobody takes its place,
// its counters cost some requests their deadline, and the rest nothing: they fail at
// once, nothing piles up, and the other nodes answer. So it ends when the node is back.
func nodeHangs(t *testing.T, c *servers.Cluster) {
	leavesNothing(t, func() *redis.Store { return hangs(t, c) })
}

// hangs opens a store, and has a primary of the cluster hang and come back.
func hangs(t *testing.T, c *servers.Cluster) *redis.Store {
	t.Helper()
	const callers = 256
	store := stores.OpenBriskly(t, c.URL(), 250*time.Millisecond)
	rule := headgate.MustRule("r", headgate.PerSecond(1_000_000))
	hung := c.Owner(0)
	// Keys whose counters are on the node that is to hang, and keys of the others.
	var its, theirs []string
	for n := 0; len(its) < 20 || len(theirs) < 40; n++ {
		if key := strconv.Itoa(n); c.Owner(slot(t, c, "hg:"+rule.Name()+" "+key)) == hung {
			its = append(its, key)
		} else {
			theirs = append(theirs, key)
		}
	}
	hung.Pause()

	var answered, late, atOnce atomic.Int64 // late are calls of the node that hangs
	var row atomic.Int64                    // answers since the last failure
	var stopped atomic.Bool
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for n := 0; !stopped.Load(); n++ {
				keys, hangs := theirs, (i+n)%3 == 0
				if hangs {
					keys = its
				}
				_, err := store.Take(t.Context(), headgate.OpTake, []headgate.Check{{Rule: rule, Key: keys[(i+n)/3%len(keys)]}}, nil)
				if row.Add(1); err != nil {
					row.Store(0)
				}
				switch {
				case err == nil:
					answered.Add(1)
				case errors.Is(err, context.DeadlineExceeded):
					// On a busy machine a node that is well is late as well.
					if hangs {
						late.Add(1)
					}
				case errors.Is(err, headgate.ErrUnavailable):
					atOnce.Add(1)
				default:
					t.Errorf("got %v", err)
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	defer stopped.Store(true)
	// By then it is known where the slots are, and that nobody is at home.
	stores.Until(t, "calls fail at once", func() bool { return atOnce.Load() > callers })
	most, before, answersBefore := runtime.NumGoroutine(), atOnce.Load(), answered.Load()
	lateBefore := late.Load()
	stores.Until(t, "many calls that fail at once", func() bool {
		most = max(most, runtime.NumGoroutine())
		return atOnce.Load() > before+20*callers && answered.Load() > answersBefore+callers
	})
	if n, others := late.Load()-lateBefore, atOnce.Load()-before; n > others/4 {
		t.Errorf("%d calls waited for their deadline, and %d failed at once", n, others)
	}
	if most > 8*callers {
		t.Errorf("there were %d goroutines, of %d callers", most, callers)
	}
	hung.Resume()
	row.Store(0)
	stores.Until(t, "no call fails any more", func() bool { return row.Load() > 4*callers })
	stopped.Store(true)
	stores.Ended(t, "no caller is stuck in the store", stores.Waited(&all))
	return store
}

// nodePauses: a primary that answers nothing for a moment costs no call its decision, with the
// defaults.
func nodePauses(t *testing.T, c *servers.Cluster) {
	var keys []string
	for n := range 100 {
		keys = append(keys, strconv.Itoa(n))
	}
	one := c.Owner(0)
	stores.Pauses(t, stores.OpenBriskly(t, c.URL(), redis.DefaultTimeout), keys, 450*time.Millisecond, one.Pause, one.Resume)
	c.AwaitWhole()
}
