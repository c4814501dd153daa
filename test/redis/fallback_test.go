package redis_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/fallback"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// fallbackNode is a node: a fallback around a store of its own on the server, with a
// deadline for its calls.
func fallbackNode(t *testing.T, s *servers.Server, timeout time.Duration, options fallback.Options) *fallback.Layer {
	t.Helper()
	store := stores.OpenBriskly(t, s.URL(), timeout)
	options.Local = memory.New()
	f, err := fallback.New(store, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close(context.Background()) })
	return f
}

// traffic asks from many goroutines until it is told to stop. Each must get a decision.
type traffic struct {
	bySource [5]atomic.Int64
	admitted atomic.Int64
	stopped  atomic.Bool
	all      sync.WaitGroup
}

func (l *traffic) start(t *testing.T, callers int, store headgate.Store, c headgate.Check) {
	for range callers {
		l.all.Go(func() {
			var dst []headgate.Decision
			for !l.stopped.Load() {
				var err error
				if dst, err = store.Take(t.Context(), headgate.OpTake, []headgate.Check{c}, dst[:0]); err != nil {
					t.Errorf("no decision: %v", err)
					return
				}
				l.bySource[dst[0].Source].Add(1)
				if dst[0].Allowed {
					l.admitted.Add(1)
				}
				time.Sleep(time.Millisecond) // it would take all of the processor
				if dst[0].Source != headgate.SourceStore {
					time.Sleep(4 * time.Millisecond)
				}
			}
		})
	}
}

func (l *traffic) stop() {
	l.stopped.Store(true)
	l.all.Wait()
}

func (l *traffic) by(s headgate.Source) int64 { return l.bySource[s].Load() }

// TestFallbackFaults: under load, whatever befalls the server, every request gets a
// decision, nothing piles up, and the server decides again when it can.
func TestFallbackFaults(t *testing.T) {
	for _, fault := range []struct {
		name       string
		begin, end func(t *testing.T, s *servers.Server)
	}{
		{"killed", func(_ *testing.T, s *servers.Server) { s.Kill() }, func(_ *testing.T, s *servers.Server) { s.Restart() }},
		{"stopped", func(_ *testing.T, s *servers.Server) { s.Pause() }, func(_ *testing.T, s *servers.Server) { s.Resume() }},
		{"read-only", func(t *testing.T, s *servers.Server) { stores.Do(t, s, "REPLICAOF", "127.0.0.1", "1") }, func(t *testing.T, s *servers.Server) { stores.Do(t, s, "REPLICAOF", "NO", "ONE") }},
		{"full", func(t *testing.T, s *servers.Server) { stores.Do(t, s, "CONFIG", "SET", "maxmemory", "1") }, func(t *testing.T, s *servers.Server) { stores.Do(t, s, "CONFIG", "SET", "maxmemory", "0") }},
	} {
		t.Run(fault.name, func(t *testing.T) {
			servers.Each(t, func(t *testing.T, s *servers.Server) {
				f := fallbackNode(t, s, 100*time.Millisecond, fallback.Options{Default: headgate.OnErrorLocal, Beat: 50 * time.Millisecond})
				var l traffic
				l.start(t, 32, f.Store(), headgate.Check{Rule: headgate.MustRule("r", headgate.PerSecond(1_000_000)), Key: "k"})
				defer l.stop()
				stores.Until(t, "decisions of the store", func() bool { return l.by(headgate.SourceStore) > 1000 })
				opened := f.Stats().Opened // on a machine that is busy
				fault.begin(t, s)
				stores.Until(t, "an open breaker", func() bool { return f.Stats().State == fallback.Open })
				goroutines, decided := runtime.NumGoroutine(), l.by(headgate.SourceStore)
				failed := f.Stats().ProbesFailed
				stores.Until(t, "probes that fail", func() bool { return f.Stats().ProbesFailed >= failed+5 })
				if now := runtime.NumGoroutine(); now > goroutines+10 {
					t.Errorf("%d goroutines, and %d before", now, goroutines)
				}
				if s := f.Stats(); s.State != fallback.Open || s.Opened > opened+3 || l.by(headgate.SourceStore) > decided+100 {
					t.Errorf("while it lasts: %+v", s)
				}
				fault.end(t, s)
				stores.Until(t, "a closed breaker", func() bool { return f.Stats().State == fallback.Closed })
				again := l.by(headgate.SourceStore)
				stores.Until(t, "decisions of the store", func() bool { return l.by(headgate.SourceStore) > again+1000 })
				stores.Until(t, "that nothing is owed", func() bool { return f.Stats().Debts == 0 || f.Stats().State != fallback.Closed })
			})
		})
	}
}

// TestFallbackOfSeveralNodes: nodes count each other through the server, and share
// the limit when it is gone. What they admitted is charged when it is back.
func TestFallbackOfSeveralNodes(t *testing.T) {
	const nodes, before, limit = 4, 20, 100
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.Sliding(limit, time.Hour)), Key: "k"}
		var all []*fallback.Layer
		for range nodes {
			// Far more than a busy machine holds one up, of both: a node that is missed has
			// no share, and a call that misses its deadline is decided by another's.
			all = append(all, fallbackNode(t, s, 10*time.Second, fallback.Options{Default: headgate.OnErrorLocal, Beat: 2 * time.Second}))
		}
		for _, f := range all {
			stores.Until(t, "that all are counted", func() bool { return f.Stats().Nodes == nodes })
		}
		spend := func(most int) (admitted int) {
			for i := range most {
				d, err := all[i%nodes].Store().Take(t.Context(), headgate.OpTake, []headgate.Check{c}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if d[0].Allowed {
					admitted++
				}
			}
			return admitted
		}
		if got := spend(before); got != before {
			t.Fatalf("%d of %d were admitted by the store", got, before)
		}
		s.Pause()
		other := []headgate.Check{{Rule: headgate.MustRule("other", headgate.PerSecond(1000)), Key: "k"}}
		for _, f := range all {
			stores.Until(t, "an open breaker", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				_, _ = f.Store().Take(ctx, headgate.OpTake, other, nil)
				return f.Stats().State == fallback.Open
			})
		}
		// Each has admitted 5 of its 25.
		if got := spend(10 * limit); got != limit-before {
			t.Errorf("without the store %d were admitted, want %d", got, limit-before)
		}
		s.Resume()
		for _, f := range all {
			stores.Until(t, "a closed breaker, and nothing owed", func() bool { return f.Stats().State == fallback.Closed && f.Stats().Debts == 0 })
		}
		if got := spend(10 * limit); got != 0 {
			t.Errorf("%d were admitted besides when the store was back", got)
		}
	})
}

// TestFallbackLearns: a server that comes back empty gives nobody a fresh start.
func TestFallbackLearns(t *testing.T) {
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		f := fallbackNode(t, s, 10*time.Second, fallback.Options{Learn: time.Hour, Default: headgate.OnErrorAllow, Beat: 50 * time.Millisecond})
		// It was empty when we came, too.
		stores.Until(t, "learning", func() bool { return f.Stats().Learning })
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.Sliding(50, time.Hour)), Key: "k"}
		var first traffic
		first.start(t, 8, f.Store(), c)
		defer first.stop()
		stores.Until(t, "50 admitted", func() bool { return first.admitted.Load() >= 50 })
		s.Kill()
		s.Restart()
		stores.Until(t, "a closed breaker", func() bool { return f.Stats().State == fallback.Closed })
		first.stop()
		if got := first.admitted.Load() - first.by(headgate.SourceOpen); got != 50 {
			t.Errorf("%d units of 50 were admitted over an empty restart, and %d let in meanwhile", got, first.by(headgate.SourceOpen))
		}
	})
}

// TestFallbackOfARestrictedUser: where nodes cannot be counted, requests are decided
// all the same.
func TestFallbackOfARestrictedUser(t *testing.T) {
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		stores.Do(t, s, "ACL", "SETUSER", "limited", "on", ">secret", "~hg:*", "+@all", "-zadd")
		store := stores.OpenURL(t, strings.Replace(s.URL(), "redis://", "redis://limited:secret@", 1), redis.Prefix("hg:"))
		if _, _, err := store.Members(t.Context(), "n", time.Second); !errors.Is(err, headgate.ErrUnavailable) {
			t.Errorf("members: %v", err)
		}
		f, err := fallback.New(store, fallback.Options{Local: memory.New(), Nodes: 3})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close(t.Context())
		for range 20 {
			if d := stores.Allow(t, f.Store(), headgate.MustRule("r", headgate.PerHour(100)), "k"); d.Source != headgate.SourceStore {
				t.Fatalf("got %+v", d)
			}
		}
		if s := f.Stats(); s.State != fallback.Closed || s.NodesError == nil || s.Nodes != 3 {
			t.Errorf("got %+v", s)
		}
	})
}

// TestPause: a server that answers nothing for a moment costs no call its decision, with the
// defaults.
func TestPause(t *testing.T) {
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		store := stores.OpenBriskly(t, s.URL(), redis.DefaultTimeout)
		stores.Pauses(t, store, []string{"k"}, 450*time.Millisecond, s.Pause, s.Resume)
	})
}
