package redis_test

import (
	"context"
	"errors"
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

// TestCombinedDeadlines: on a server that hangs each caller's time ends by itself,
// whatever that of the others; what was charged is what the server was sent.
func TestCombinedDeadlines(t *testing.T) {
	const callers = 90
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		for _, rule := range combined(10_000) {
			store := stores.OpenURL(t, s.URL(), combining, redis.Timeout(30*time.Second))
			limiter := headgate.New(store, rule)
			together(callers, func(int) {
				if _, err := limiter.Allow(t.Context(), "k"); err != nil {
					t.Error(err)
				}
			})
			s.Pause()
			var answered atomic.Int64
			var patient sync.WaitGroup
			for range callers {
				patient.Go(func() {
					if _, err := limiter.Allow(t.Context(), "k"); err != nil {
						t.Errorf("%s: %v to one who had time", rule, err)
					} else {
						answered.Add(1)
					}
				})
			}
			together(callers, func(i int) {
				// Shorter than the store's: that of a caller is heeded.
				ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
				want := context.Canceled
				switch i % 3 {
				case 0:
					cancel()
				case 1:
					time.AfterFunc(100*time.Millisecond, cancel)
				default:
					ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
					want = context.DeadlineExceeded
				}
				defer cancel()
				_, err := limiter.Allow(ctx, "k")
				if !errors.Is(err, headgate.ErrUnavailable) || !errors.Is(err, want) {
					t.Errorf("%s: got %v, want ErrUnavailable and %v", rule, err, want)
				}
			})
			s.Resume()
			patient.Wait()
			d, err := limiter.Peek(t.Context(), "k", 1)
			if err != nil {
				t.Fatal(err)
			}
			least := callers + answered.Load()
			if used := 10_000 - d.Remaining; used < least || used > least+callers {
				t.Errorf("%s: %d units are in use, want %d and up to %d more", rule, used, least, callers)
			}
		}
	})
}

// TestCombinedKilledServer: a server that dies under load fails its callers, one that
// comes back serves them, and no answer is anybody else's.
func TestCombinedKilledServer(t *testing.T) {
	const callers = 64
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		store := stores.OpenURL(t, s.URL(), combining, redis.Timeout(10*time.Second))
		rules := combined(900_000)
		var stopped atomic.Bool
		defer stopped.Store(true)
		var failed, decided atomic.Int64
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				for !stopped.Load() {
					rule := rules[i%len(rules)]
					out, err := store.Take(context.Background(), headgate.OpTake, []headgate.Check{{Rule: rule, Key: "k"}}, nil)
					switch {
					case err == nil && len(out) == len(rule.Limits()) && out[0].Rule == rule && out[0].Allowed:
						decided.Add(1)
					case errors.Is(err, headgate.ErrUnavailable):
						failed.Add(1)
						time.Sleep(time.Millisecond) // a port where nobody listens is quick to say so
					default:
						t.Errorf("got %+v, %v", out, err)
						return
					}
				}
			})
		}
		more := func(what string, n *atomic.Int64) {
			from := n.Load()
			stores.Until(t, what, func() bool { return t.Failed() || n.Load() > from+callers })
		}
		more("decisions", &decided)
		for range 2 {
			s.Kill()
			more("failures", &failed)
			s.Restart()
			more("decisions", &decided)
		}
		stopped.Store(true)
		stores.Ended(t, "all calls have ended", stores.Waited(&all))
		stores.Until(t, "nobody waits for work", func() bool { return combiners() == 0 })
	})
}

// TestCombinedClose: whoever waits when the store is closed gets an error, and nothing
// goes on.
func TestCombinedClose(t *testing.T) {
	const callers = 100
	rule := headgate.MustRule("r", headgate.Per(1_000_000, 300*24*time.Hour))
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		store := stores.OpenURL(t, s.URL(), combining, redis.Timeout(10*time.Minute))
		limiter := headgate.New(store, rule)
		if _, err := limiter.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		s.Pause()
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				if _, err := limiter.Allow(context.Background(), "k"); !errors.Is(err, headgate.ErrUnavailable) {
					t.Errorf("got %v, want ErrUnavailable", err)
				}
			})
		}
		// One call is enough for all callers if they came before it left.
		stores.Until(t, "calls are on their way", func() bool { return combiners() > 0 })
		store.Close()
		if n := combiners(); n != 0 {
			t.Errorf("%d goroutines make calls for a store that was closed", n)
		}
		stores.Ended(t, "all calls have ended", stores.Waited(&all))
		s.Resume()
		if _, err := limiter.Allow(t.Context(), "k"); !errors.Is(err, headgate.ErrUnavailable) {
			t.Errorf("got %v from a store that was closed, want ErrUnavailable", err)
		}
	})
}

// TestCombinedCrossSlot: on a server that takes the keys of one slot only, each decision
// gets a call of its own.
func TestCombinedCrossSlot(t *testing.T) {
	const callers = 50
	c := servers.StartCluster(t, servers.Redis)
	node := c.Nodes[0]
	store := stores.Open(t, dial(t, node), nil, combining)
	rule := headgate.MustRule("r", headgate.Per(10, 300*24*time.Hour))
	var keys []string
	for i := 0; len(keys) < callers; i++ {
		key := "k" + strconv.Itoa(i)
		slot, err := node.Do(t.Context(), "CLUSTER", "KEYSLOT", store.Prefix()+"r "+key)
		if err != nil {
			t.Fatal(err)
		}
		if c.Owner(uint16(slot.(int64))) == node {
			keys = append(keys, key)
		}
	}
	limiter := headgate.New(store, rule)
	for want := int64(9); want > 6; want-- {
		together(callers, func(i int) {
			if d, err := limiter.Allow(t.Context(), keys[i]); err != nil || d.Remaining != want {
				t.Errorf("got %+v, %v; want %d remaining", d, err, want)
			}
		})
	}
	before := callsOn(t, node)
	together(callers, func(i int) { _, _ = limiter.Allow(t.Context(), keys[i]) })
	if made := callsOn(t, node) - before; made != callers {
		t.Errorf("%d calls for %d decisions", made, callers)
	}
}
