package memcached_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memcached"
	"github.com/headgate/headgate/store/storetest"
	"github.com/headgate/headgate/test/servers"
)

// prefixes gives every store of a test its own counters on the shared server.
var prefixes atomic.Int64

// open returns a store with counters of its own. A nil clock is this process's; another one
// steps, and is followed at once.
func open(t testing.TB, s *servers.Memcached, clock func() int64, options ...memcached.Option) *memcached.Store {
	t.Helper()
	options = append([]memcached.Option{
		memcached.Prefix(fmt.Sprintf("t%d:", prefixes.Add(1))), memcached.Timeout(30 * time.Second),
	}, options...)
	if clock != nil {
		options = append(options, memcached.Clock(clock), memcached.Skew(0))
	}
	store, err := memcached.Open(t.Context(), s.URL(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// TestConformance: the suite, but for requests of several checks and those that have
// an id.
func TestConformance(t *testing.T) {
	s := servers.StartMemcached(t, 256)
	storetest.RunSingle(t, func(t testing.TB, clock func() int64) headgate.Store { return open(t, s, clock) })
}

// TestHistories holds the store against the model and the oracle. What is decided is computed in this
// process, by code that store/cas holds to both at length: here it is to come back as it was written.
func TestHistories(t *testing.T) {
	total := storetest.Steps(t, 2_400)
	const length = 250
	s := servers.StartMemcached(t, 256)
	storetest.HistoriesSingle(t, func(t testing.TB, clock func() int64) headgate.Store { return open(t, s, clock) },
		1, max(1, total/length), length)
}

// TestSeveralChecks: what cannot be charged all or nothing is refused, in words that
// say why, and charges nothing.
func TestSeveralChecks(t *testing.T) {
	s := servers.StartMemcached(t, 64)
	store := open(t, s, nil)
	a, b := headgate.MustRule("a", headgate.PerHour(9)), headgate.MustRule("b", headgate.PerHour(9))
	_, err := store.Take(t.Context(), headgate.OpTake, []headgate.Check{{Rule: a}, {Rule: b}}, nil)
	var invalid *headgate.InvalidError
	if !errors.As(err, &invalid) || !strings.Contains(err.Error(), "2 checks") || !strings.Contains(err.Error(), "at most 1") {
		t.Errorf("got %v, want an *InvalidError that names both numbers", err)
	}
	for _, r := range []*headgate.Rule{a, b} {
		if d, err := headgate.New(store, r).Peek(t.Context(), "", 1); err != nil || d.Remaining != 9 {
			t.Errorf("%d remain, %v; want 9", d.Remaining, err)
		}
	}
	if _, ok := any(store).(headgate.Ledger); ok {
		t.Error("the store says that it is a ledger, and has no way to be one")
	}
}

// TestProcesses: stores that share nothing but the server admit exactly the limit
// together, of every kind.
func TestProcesses(t *testing.T) {
	const stores, callers, tries, limit = 4, 16, 12, 200
	s := servers.StartMemcached(t, 64)
	prefix := memcached.Prefix("together:")
	var all []*memcached.Store
	for range stores {
		all = append(all, open(t, s, nil, prefix))
	}
	for _, l := range []headgate.Limit{
		headgate.PerHour(limit), // refills one in 18 s
		headgate.Sliding(limit, time.Hour),
		{Algorithm: headgate.FixedWindow, Count: limit, Period: time.Hour, Align: headgate.AlignFirst},
		{Algorithm: headgate.SlidingCounter, Count: limit, Period: 24 * time.Hour},
	} {
		t.Run(l.Algorithm.String(), func(t *testing.T) {
			rule := headgate.MustRule("r-"+l.Algorithm.String(), l)
			var admitted, failed atomic.Int64
			var wg sync.WaitGroup
			begin := time.Now()
			for i := range stores * callers {
				wg.Go(func() {
					limiter := headgate.New(all[i%stores], rule)
					for range tries {
						switch d, err := limiter.Allow(t.Context(), "k"); {
						case err != nil:
							t.Log(err)
							failed.Add(1)
						case d.Allowed:
							admitted.Add(1)
						}
					}
				})
			}
			wg.Wait()
			refilled := int64(0)
			if l.Algorithm == headgate.TokenBucket {
				refilled = int64(time.Since(begin)/(18*time.Second)) + 1
			}
			if n := admitted.Load(); n < limit || n > limit+refilled || failed.Load() != 0 {
				t.Errorf("%d were admitted and %d failed, want %d and none", n, failed.Load(), limit)
			}
		})
	}
}

// TestServerGone: while the server is away every call is an error that says so, within
// its deadline, and when it is back so is the store, with nothing remembered.
func TestServerGone(t *testing.T) {
	s := servers.StartMemcached(t, 64)
	store := open(t, s, nil, memcached.Timeout(300*time.Millisecond))
	limiter := headgate.New(store, headgate.MustRule("r", headgate.PerHour(9)))
	recovers(t, limiter)
	for name, fault := range map[string]struct{ begin, end func() }{
		"killed": {s.Kill, s.Restart},
		"hangs":  {s.Pause, s.Resume},
	} {
		fault.begin()
		for range 3 {
			if _, err := limiter.Allow(t.Context(), "k"); !errors.Is(err, headgate.ErrUnavailable) {
				t.Errorf("%s: got %v, want ErrUnavailable", name, err)
			}
		}
		fault.end()
		recovers(t, limiter)
	}
}

func recovers(t *testing.T, limiter *headgate.Limiter) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		_, err := limiter.Peek(t.Context(), "k", 1)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the store does not come back: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestRestart: a restart leaves connections that are none, and fails no call that comes
// later.
func TestRestart(t *testing.T) {
	s := servers.StartMemcached(t, 64)
	limiter := headgate.New(open(t, s, nil), headgate.MustRule("r", headgate.PerHour(9)))
	var all sync.WaitGroup
	for i := range 64 { // several connections
		all.Go(func() {
			if _, err := limiter.Allow(t.Context(), strconv.Itoa(i)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	s.Restart()
	for i := range 64 {
		if d, err := limiter.Allow(t.Context(), strconv.Itoa(i)); err != nil || d.Remaining != 8 {
			t.Errorf("call %d: %d remain, %v; want 8", i, d.Remaining, err)
		}
	}
}

// TestCancelled: who gives up is answered at once, however long the server takes.
func TestCancelled(t *testing.T) {
	s := servers.StartMemcached(t, 64)
	limiter := headgate.New(open(t, s, nil, memcached.Timeout(5*time.Second)), headgate.MustRule("r", headgate.PerHour(9)))
	recovers(t, limiter)
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := limiter.Allow(ctx, "k"); !errors.Is(err, headgate.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want ErrUnavailable and DeadlineExceeded", err)
	}
	s.Resume()
	recovers(t, limiter)
}

// TestHostileBytes: whatever is stored under a counter's name, the store neither panics
// nor takes it for a fresh counter, and a reset mends it.
func TestHostileBytes(t *testing.T) {
	s := servers.StartMemcached(t, 64)
	store := open(t, s, nil)
	limiter := headgate.New(store, headgate.MustRule("r", headgate.PerHour(9)))
	if _, err := limiter.Allow(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	client := memcache.New(s.Addr())
	defer client.Close()
	for i, text := range []string{"", "0", "\xff\xff", "\x01", "\x01\xff", strings.Repeat("x", 5000)} {
		// The one key that there is, for the name of counters is not for others to know.
		for _, key := range keys(t, s) {
			if err := client.Set(&memcache.Item{Key: key, Value: []byte(text)}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := limiter.Allow(t.Context(), "k"); !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), "cannot be read") {
			t.Errorf("value %d: got %v, want an error that says so", i, err)
		}
	}
	if err := limiter.Reset(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if d, err := limiter.Allow(t.Context(), "k"); err != nil || d.Remaining != 8 {
		t.Errorf("after a reset %d remain, %v; want 8", d.Remaining, err)
	}
}

// TestFullServer: a server that was started with -M refuses what it has no room for,
// which is every charge, and says how counters stand.
func TestFullServer(t *testing.T) {
	s := servers.StartMemcached(t, 2, "-M")
	store := open(t, s, nil)
	r := headgate.MustRule("r", headgate.PerHour(9))
	limiter := headgate.New(store, r)
	const most = 100_000
	for i := range most {
		_, err := limiter.Allow(t.Context(), strconv.Itoa(i))
		if err == nil {
			continue
		}
		if !errors.Is(err, headgate.ErrUnavailable) {
			t.Fatalf("got %v, want ErrUnavailable", err)
		}
		if _, err := limiter.Allow(t.Context(), "0"); !errors.Is(err, headgate.ErrUnavailable) {
			t.Errorf("charging the first counter: %v, want ErrUnavailable", err)
		}
		if d, err := limiter.Peek(t.Context(), "0", 1); err != nil || d.Remaining != 8 {
			t.Errorf("of the first counter %d remain, %v; want 8", d.Remaining, err)
		}
		return
	}
	t.Errorf("two megabytes had room for %d counters", most)
}
