package redis_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/async"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// asyncNodes is how many share a server, each with connections of its own.
const asyncNodes = 16

// asyncNode is an Async around a store of its own on the server.
func asyncNode(t *testing.T, s *servers.Server, options async.Options) *async.Layer {
	t.Helper()
	a, err := async.New(stores.OpenURL(t, s.URL(), redis.Prefix("hg:")), options)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// admittedAt is when a unit was admitted, in microseconds since the Unix epoch.
type admittedAt int64

// asyncLoad asks nodes from several goroutines for single units, for a while and until
// at least so many were admitted: on a busy machine reports take their time.
func asyncLoad(t *testing.T, nodes []*async.Layer, c headgate.Check, length, pause time.Duration, least int64) (admitted []admittedAt, asked int) {
	t.Helper()
	var mu sync.Mutex // guards admitted and asked
	var all sync.WaitGroup
	var count atomic.Int64 // admitted
	start := time.Now()
	over := func() bool {
		took := time.Since(start)
		return took >= length && (count.Load() >= least || took >= 2*time.Minute)
	}
	for _, a := range nodes {
		store := a.Store()
		for range 2 {
			all.Go(func() {
				var mine []admittedAt
				var dst []headgate.Decision
				n := 0
				for ; !over(); time.Sleep(pause) {
					var err error
					if dst, err = store.Take(t.Context(), headgate.OpTake, []headgate.Check{c}, dst[:0]); err != nil {
						t.Error(err)
						return
					}
					n++
					if dst[0].Allowed {
						count.Add(1)
					}
					switch at := time.Now().UnixMicro(); {
					case !dst[0].Allowed:
					case dst[0].Source == headgate.SourceStore:
						mine = append(mine, admittedAt(dst[0].At))
					default:
						mine = append(mine, admittedAt(at))
					}
				}
				mu.Lock()
				defer mu.Unlock()
				admitted, asked = append(admitted, mine...), asked+n
			})
		}
	}
	all.Wait()
	slices.SortFunc(admitted, func(a, b admittedAt) int { return cmp.Compare(a, b) })
	return admitted, asked
}

// TestAsyncNodesShareALimit: sixteen nodes on one server, asked for more than a limit
// admits, exceed it by no more than docs/consistency.md says at any instant, and in
// the end the server knows of every unit. What reports do is the nodes' own work, so that each
// limit meets one kind of server.
func TestAsyncNodesShareALimit(t *testing.T) {
	const rate, length = 2000, 1500 * time.Millisecond
	long := 300 * 24 * time.Hour
	for i, limit := range []headgate.Limit{
		headgate.PerSecond(rate),
		headgate.Per(rate, long),
		headgate.Sliding(rate, long),
		{Algorithm: headgate.FixedWindow, Count: rate, Period: long, Align: headgate.AlignFirst},
		{Algorithm: headgate.SlidingCounter, Count: rate, Period: long},
	} {
		t.Run(fmt.Sprint(limit.Algorithm, " ", limit.Period), func(t *testing.T) {
			kind := servers.Kinds()[i%len(servers.Kinds())]
			t.Run(string(kind), func(t *testing.T) {
				s := servers.Start(t, kind)
				c := headgate.Check{Rule: headgate.MustRule("r", limit), Key: "k", Hints: headgate.Hints{Consistency: headgate.Async}}
				var nodes []*async.Layer
				for range asyncNodes {
					nodes = append(nodes, asyncNode(t, s, async.Options{}))
				}
				admitted, asked := asyncLoad(t, nodes, c, length, 4*time.Millisecond, rate*95/100)
				local := int64(0)
				for _, a := range nodes {
					local += a.Stats().Local
					if err := a.Close(t.Context()); err != nil {
						t.Error(err)
					}
				}
				refill := 0.0 // units in a microsecond
				if limit.Algorithm == headgate.TokenBucket {
					refill = float64(limit.Count) / float64(limit.Period.Microseconds())
				}
				used, worst, last := 0.0, 0.0, admittedAt(0)
				for _, at := range admitted {
					used = max(0, used-refill*float64(at-last)) + 1
					last = at
					worst = max(worst, used-rate)
				}
				stale := 3 * float64(async.DefaultInterval.Microseconds())
				bound := asyncNodes*async.DefaultPart*rate + (asyncNodes+1)*refill*stale
				t.Logf("%d of %d admitted, %d checks from memory; %.0f too many, at most %.0f", len(admitted), asked, local, worst, bound)
				if worst > bound {
					t.Errorf("%.0f units too many, at most %.0f", worst, bound)
				}
				if len(admitted) < rate*95/100 { // the last ones take some reports
					t.Errorf("%d of %d requests were admitted, and the limit is %d", len(admitted), asked, rate)
				}
				if local < int64(asked)/3 {
					t.Errorf("%d of %d checks were decided from memory", local, asked)
				}
				if refill*1e6 > 1 {
					return // What has been refilled since is not known here.
				}
				// Units that were not admitted fit; those that were do not.
				a := asyncNode(t, s, async.Options{})
				defer closeAsync(t, a)
				c.Consistency = headgate.Strict
				d, err := a.Store().Take(t.Context(), headgate.OpPeek, []headgate.Check{c}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if want := max(0, rate-int64(len(admitted))); d[0].Remaining != want {
					t.Errorf("the server has %d left after %d of %d", d[0].Remaining, len(admitted), rate)
				}
			})
		})
	}
}

// TestAsyncRefundsElsewhere: every unit that is refunded at another node comes back, although
// the node that admitted it has not reported it yet.
func TestAsyncRefundsElsewhere(t *testing.T) {
	// A refund waits for the reports of two intervals. A busy machine holds reports up.
	options := async.Options{Interval: time.Second}
	t.Parallel()
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		t.Parallel()
		here, there := asyncNode(t, s, options), asyncNode(t, s, options)
		defer closeAsync(t, here)
		defer closeAsync(t, there)
		store := stores.OpenURL(t, s.URL(), redis.Prefix("hg:"))
		for _, limit := range []headgate.Limit{headgate.Per(100_000, 300*24*time.Hour), headgate.Sliding(100_000, time.Hour)} {
			c := headgate.Check{Rule: headgate.MustRule("refunds"+limit.Algorithm.String(), limit), Key: "k", Hints: headgate.Hints{Consistency: headgate.Async}}
			for range 300 {
				d, err := here.Store().Take(t.Context(), headgate.OpTake, []headgate.Check{c}, nil)
				if err != nil || !d[0].Allowed {
					t.Fatal(d, err)
				}
				back := c
				back.At = d[0].At
				if _, err := there.Store().Take(t.Context(), headgate.OpRefund, []headgate.Check{back}, nil); err != nil {
					t.Fatal(err)
				}
			}
			stores.Until(t, "that all units are back", func() bool {
				d, err := store.Take(t.Context(), headgate.OpPeek, []headgate.Check{c}, nil)
				return err == nil && d[0].Remaining == limit.Capacity()
			})
		}
	})
}

func closeAsync(t *testing.T, a *async.Layer) {
	t.Helper()
	if err := a.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAsyncLongRun: whatever was admitted too much is paid back: over a longer time
// sixteen nodes admit what the limit does, to one in a hundred. It is the nodes that pay: the kind of
// the server changes nothing.
func TestAsyncLongRun(t *testing.T) {
	const rate, length = 500, 4 * time.Second
	onOneKind(t, servers.Valkey, func(t *testing.T, s *servers.Server) {
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.PerSecond(rate)), Key: "k", Hints: headgate.Hints{Consistency: headgate.Async}}
		var nodes []*async.Layer
		for range asyncNodes {
			a := asyncNode(t, s, async.Options{Part: 1}) // as much too many as can be
			defer closeAsync(t, a)
			nodes = append(nodes, a)
		}
		var admitted []admittedAt
		asked, least := 0, int64(1)
		// Where a busy machine holds reports up, what was admitted meanwhile is paid back
		// in the next round.
		for round := range 6 {
			more, n := asyncLoad(t, nodes, c, length, 4*time.Millisecond, least)
			admitted, asked, least = append(admitted, more...), asked+n, 0
			if t.Failed() || len(admitted) == 0 {
				t.Fatalf("%d of %d were admitted", len(admitted), asked)
			}
			passed := time.Duration(admitted[len(admitted)-1]-admitted[0]) * time.Microsecond
			may := rate + rate*passed.Seconds()
			t.Logf("%d of %d admitted in %v, may be %.0f", len(admitted), asked, passed, may)
			// What nodes may hold at the end comes on top: by then nobody has paid it back.
			most := 1.01*may + rate*3*async.DefaultInterval.Seconds()
			if float64(len(admitted)) <= most {
				return
			}
			t.Logf("round %d: %d units were admitted in %v, at most %.0f may be", round, len(admitted), passed, most)
		}
		t.Error("what was admitted too much is not paid back")
	})
}

// TestAsyncThroughAnOutage: nodes go on for some reports while the server stands
// still, then say that it is unavailable, and know what they owe when it is back.
func TestAsyncThroughAnOutage(t *testing.T) {
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		patient := stores.OpenURL(t, s.URL(), redis.Prefix("hg:"))
		a, err := async.New(stores.OpenURL(t, s.URL(), redis.Prefix("hg:"), redis.Timeout(2*time.Second)), async.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer closeAsync(t, a)
		c := []headgate.Check{{Rule: headgate.MustRule("r", headgate.Per(100_000, 300*24*time.Hour)), Key: "k", Hints: headgate.Hints{Consistency: headgate.Async}}}
		admitted := int64(0)
		var last error
		var by headgate.Source
		defer func() {
			if t.Failed() {
				t.Logf("the last decision was of source %v, error %v; %+v", by, last, a.Stats())
			}
		}()
		take := func() (headgate.Source, error) {
			d, err := a.Store().Take(t.Context(), headgate.OpTake, c, nil)
			if last = err; err != nil {
				return 0, err
			}
			by = d[0].Source
			if d[0].Allowed {
				admitted++
			}
			return d[0].Source, nil
		}
		stores.Until(t, "decisions from memory", func() bool {
			source, err := take()
			return err == nil && source == headgate.SourceAsync
		})
		s.Pause()
		stores.Until(t, "that the server is missed", func() bool {
			_, err := take()
			return errors.Is(err, headgate.ErrUnavailable)
		})
		s.Resume()
		stores.Until(t, "decisions from memory", func() bool {
			source, err := take()
			return err == nil && source == headgate.SourceAsync
		})
		stores.Until(t, "that all is reported", func() bool { return a.Stats().Unreported == 0 })
		d, err := patient.Take(t.Context(), headgate.OpPeek, c, nil)
		if err != nil {
			t.Fatal(err)
		}
		// A call that was cut off may have counted, or not.
		if used, doubtful := 100_000-d[0].Remaining, a.Stats().Doubtful; used+doubtful < admitted {
			t.Errorf("%d were admitted, and the server knows of %d; of %d it may know", admitted, used, doubtful)
		}
	})
}
