package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/storetest"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

func TestConformance(t *testing.T) {
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		client := dial(t, s)
		storetest.Run(t, func(t testing.TB, clock func() int64) headgate.Store {
			return stores.Open(t, client, clock)
		})
	})
}

// TestScriptsGone: a failover or SCRIPT FLUSH loses the scripts, and no decision.
func TestScriptsGone(t *testing.T) {
	rules := []*headgate.Rule{
		headgate.MustRule("bucket", headgate.Per(3, time.Hour)),
		headgate.MustRule("window", headgate.Sliding(3, time.Hour)),
	}
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		store := stores.Open(t, dial(t, s), nil)
		for _, rule := range rules {
			for want := int64(2); want >= 0; want-- {
				if _, err := s.Do(t.Context(), "SCRIPT", "FLUSH"); err != nil {
					t.Fatal(err)
				}
				if d := stores.Allow(t, store, rule, "k"); !d.Allowed || d.Remaining != want {
					t.Errorf("%s: got %+v, want %d remaining", rule, d, want)
				}
			}
			if d := stores.Allow(t, store, rule, "k"); d.Allowed {
				t.Errorf("%s: admitted a fourth", rule)
			}
		}
	})
}

// TestHangingServer: a call ends at its deadline, as an error that says so, and
// the store works again when the server does.
func TestHangingServer(t *testing.T) {
	rule := headgate.MustRule("r", headgate.Per(100, time.Hour))
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		store, err := redis.New(dial(t, s), redis.Timeout(50*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		limiter := headgate.New(store, rule)
		stores.Recovers(t, limiter) // once it is connected, in time
		s.Pause()
		_, err = limiter.Allow(t.Context(), "k")
		if !errors.Is(err, headgate.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want ErrUnavailable by the deadline", err)
		}
		s.Resume()
		stores.Recovers(t, limiter)
	})
}

// TestRestartedServer: the store connects again by itself.
func TestRestartedServer(t *testing.T) {
	rule := headgate.MustRule("r", headgate.Per(100, time.Hour))
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		limiter := headgate.New(stores.Open(t, dial(t, s), nil), rule)
		if _, err := limiter.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		s.Kill()
		if _, err := limiter.Allow(t.Context(), "k"); !errors.Is(err, headgate.ErrUnavailable) {
			t.Errorf("got %v from a killed server, want ErrUnavailable", err)
		}
		s.Restart()
		stores.Recovers(t, limiter)
	})
}

// TestServersClock: what this process takes the time to be changes nothing. The
// server's clock runs; ours is not asked.
func TestServersClock(t *testing.T) {
	rule := headgate.MustRule("r", headgate.Per(1, 200*time.Millisecond))
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		store := stores.Open(t, dial(t, s), nil)
		if d := stores.Allow(t, store, rule, "k"); !d.Allowed {
			t.Fatalf("got %+v, want it admitted", d)
		}
		var d headgate.Decision
		// A busy machine may take longer than it to ask twice.
		stores.Until(t, "it is denied", func() bool {
			d = stores.Allow(t, store, rule, "k")
			return !d.Allowed
		})
		if d.RetryAfter <= 0 || d.RetryAfter > 200*time.Millisecond {
			t.Fatalf("got %+v, want a denial for at most 200 ms", d)
		}
		time.Sleep(d.RetryAfter)
		if d := stores.Allow(t, store, rule, "k"); !d.Allowed {
			t.Errorf("denied after RetryAfter had passed: %+v", d)
		}
	})
}

// TestCountersExpire: a counter that is free again is gone from the server.
func TestCountersExpire(t *testing.T) {
	rules := []*headgate.Rule{
		headgate.MustRule("bucket", headgate.Per(10, 200*time.Millisecond)),
		headgate.MustRule("window", headgate.Sliding(10, 200*time.Millisecond)),
		headgate.MustRule("counter", headgate.Limit{Algorithm: headgate.SlidingCounter, Count: 10, Period: 100 * time.Millisecond}),
	}
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		store := stores.Open(t, dial(t, s), nil)
		for _, rule := range rules {
			stores.Allow(t, store, rule, "k")
		}
		stores.Until(t, "counters that are free are gone", func() bool {
			size, err := s.Do(t.Context(), "DBSIZE")
			if err != nil {
				t.Fatal(err)
			}
			return size == int64(0)
		})
	})
}

// TestForeignValue: a key of ours that holds something else is an error, not an
// admission.
func TestForeignValue(t *testing.T) {
	rule := headgate.MustRule("r", headgate.Per(1, time.Hour))
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		if _, err := s.Do(t.Context(), "RPUSH", "hg:r k", "x"); err != nil {
			t.Fatal(err)
		}
		store, err := redis.New(dial(t, s), redis.Timeout(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		_, err = headgate.New(store, rule).Allow(t.Context(), "k")
		if !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("got %v, want ErrUnavailable with the server's WRONGTYPE", err)
		}
	})
}

// TestFullServer: a server without memory refuses; nothing is admitted uncounted.
func TestFullServer(t *testing.T) {
	rule := headgate.MustRule("r", headgate.Sliding(1000, time.Hour))
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		store := stores.Open(t, dial(t, s), nil)
		limiter := headgate.New(store, rule)
		if _, err := limiter.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Do(t.Context(), "CONFIG", "SET", "maxmemory", "1"); err != nil {
			t.Fatal(err)
		}
		if _, err := limiter.Allow(t.Context(), "k"); !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("got %v, want ErrUnavailable with the server's OOM", err)
		}
		if _, err := s.Do(t.Context(), "CONFIG", "SET", "maxmemory", "0"); err != nil {
			t.Fatal(err)
		}
		if d, err := limiter.Allow(t.Context(), "k"); err != nil || d.Remaining != 998 {
			t.Errorf("got %+v, %v; want 998 remaining", d, err)
		}
	})
}

// TestOpen: the URL's password and database are used, and a wrong password is an
// error that does not repeat it.
func TestOpen(t *testing.T) {
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		store, err := redis.Open(t.Context(), stores.Patiently(strings.TrimSuffix(s.URL(), "/0")+"/3"), redis.Timeout(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		stores.Allow(t, store, headgate.MustRule("r", headgate.Per(1, time.Hour)), "k")
		info, err := s.Do(t.Context(), "INFO", "keyspace")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(info.(string), "db3:keys=1") {
			t.Errorf("the counter is not in database 3: %s", info)
		}
		_, err = redis.Open(t.Context(), stores.Patiently("redis://:wrong-password@"+s.Addr()))
		if !errors.Is(err, headgate.ErrUnavailable) || strings.Contains(err.Error(), "wrong-password") {
			t.Errorf("got %v, want ErrUnavailable without the password", err)
		}
	}, servers.Password("correct horse"))
}

// TestFloodOfHangingServer: however many calls come while the server hangs, each
// ends by its deadline or at once.
func TestFloodOfHangingServer(t *testing.T) {
	const callers, each = 64, 400 // with what comes before the deadline, far more than the client's queue holds
	rule := headgate.MustRule("r", headgate.Per(1_000_000, time.Hour))
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		store, err := redis.Open(t.Context(), stores.Patiently(s.URL()), redis.Timeout(20*time.Millisecond), redis.MaxPending(2000))
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		limiter := headgate.New(store, rule)
		s.Pause()
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				for range each {
					if _, err := limiter.Allow(t.Context(), "k"); !errors.Is(err, headgate.ErrUnavailable) {
						t.Errorf("got %v from a server that hangs, want ErrUnavailable", err)
						return
					}
				}
			})
		}
		stores.Ended(t, "calls end by their deadlines", stores.Waited(&all))
		s.Resume()
		stores.Recovers(t, limiter)
	})
}

// TestPlainLimits: limits of every kind and size but sliding windows and penalties, alone or several
// in one request, are decided by the short way of the script: it reads a counter whole, and only
// once.
func TestPlainLimits(t *testing.T) {
	limits := []headgate.Limit{
		headgate.PerMinute(100),
		headgate.Per(90_000, time.Minute), // no room for a mark: see algorithm/marks.go
		headgate.Per(1_000_000_000-63, 30*24*time.Hour).WithBurst(1000),
		{Algorithm: headgate.LeakyBucket, Count: 10_000_000, Period: time.Second},
		{Algorithm: headgate.FixedWindow, Count: 100, Period: time.Minute},
		{Algorithm: headgate.FixedWindow, Count: 100, Period: time.Minute, Align: headgate.AlignFirst},
		{Algorithm: headgate.FixedWindow, Count: 100, Align: headgate.AlignMonth},
		{Algorithm: headgate.SlidingCounter, Count: 100, Period: time.Hour},
	}
	rules := []*headgate.Rule{headgate.MustRule("all", limits...)}
	for i, l := range limits {
		rules = append(rules, headgate.MustRule(fmt.Sprintf("r%d", i), l))
	}
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		store := stores.Open(t, dial(t, s), nil)
		take := func(op headgate.Op, rules ...*headgate.Rule) {
			t.Helper()
			checks := make([]headgate.Check, len(rules))
			for i, r := range rules {
				checks[i] = headgate.Check{Rule: r, Key: "k", Cost: 1}
			}
			for _, command := range [][]string{{"GET", "x"}, {"GETRANGE", "x", "0", "1"}} { // so that they are counted
				if _, err := s.Do(t.Context(), command...); err != nil {
					t.Fatal(err)
				}
			}
			short, long := calls(t, s, "get"), calls(t, s, "getrange")
			for range 3 {
				ds, err := store.Take(t.Context(), op, checks, nil)
				if err != nil || !headgate.NewVerdict(ds).Allowed {
					t.Fatalf("%s of %v: %v, %v; want it admitted", op, rules, ds, err)
				}
			}
			short, long = calls(t, s, "get")-short, calls(t, s, "getrange")-long
			if short != 3*len(rules) || long != 0 {
				t.Errorf("3 times %s of %v read %d counters the short way and %d the long way, want %d and 0", op, rules, short, long, 3*len(rules))
			}
		}
		for _, r := range rules {
			take(headgate.OpTake, r)
			take(headgate.OpPeek, r)
		}
		take(headgate.OpTake, rules...)
	})
}
