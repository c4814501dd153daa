package redis_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/storetest"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// combining has every decision shared that can be.
var combining = redis.Combining(1)

// together runs f in so many goroutines at once.
func together(n int, f func(i int)) {
	var start, done sync.WaitGroup
	start.Add(1)
	for i := range n {
		done.Go(func() {
			start.Wait()
			f(i)
		})
	}
	start.Done()
	done.Wait()
}

// callsOn is how many script calls a server has had.
func callsOn(t *testing.T, s *servers.Server) int {
	t.Helper()
	return stores.ScriptCalls(t, s)
}

// combiners is how many goroutines are making shared calls.
func combiners() int {
	b := make([]byte, 1<<20)
	for n := runtime.Stack(b, true); ; n = runtime.Stack(b, true) {
		if n < len(b) {
			return strings.Count(string(b[:n]), "redis.(*combiner).run(")
		}
		b = make([]byte, 2*len(b))
	}
}

// combined are rules whose decisions can be shared.
func combined(limit int64) []*headgate.Rule {
	return []*headgate.Rule{
		headgate.MustRule("bucket", headgate.Per(limit, 300*24*time.Hour)),
		headgate.MustRule("buckets", headgate.Per(limit, 300*24*time.Hour), headgate.Per(limit+9, 365*24*time.Hour)),
		headgate.MustRule("windows", headgate.Sliding(limit, time.Hour), headgate.Sliding(limit+9, 2*time.Hour)),
		headgate.MustRule("others", headgate.Per(limit, 300*24*time.Hour), headgate.Sliding(limit+9, time.Hour),
			headgate.Limit{Algorithm: headgate.FixedWindow, Count: limit + 9, Period: 300 * 24 * time.Hour, Align: headgate.AlignFirst}),
	}
}

// TestCombinedConforms: the vectors, and the histories against the model and the oracle, with every
// decision that can be decided by a shared call. What is new is the store's, and one script. With
// TestCombinedHistories and TestCombinedHotKey, these go through all of it. The whole suite runs in
// `make soak`; TestConformance runs it with a call for each decision.
func TestCombinedConforms(t *testing.T) {
	const length, lanes = 500, 4
	each := max(1, storetest.Steps(t, 8_000)/length/lanes/4)
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		client := dial(t, s)
		mk := func(t testing.TB, clock func() int64) headgate.Store { return stores.Open(t, client, clock, combining) }
		if stores.Soaking(t) {
			storetest.Run(t, mk)
		} else {
			storetest.RunVectors(t, mk)
		}
		for lane := range lanes {
			t.Run(strconv.Itoa(lane), func(t *testing.T) {
				t.Parallel()
				storetest.Histories(t, mk, uint64(100+lane), each, length)
			})
		}
	})
}

// TestCombinedHistories: many callers at once, each with keys of his own, get from
// shared calls bit for bit what calls of their own and the model answer.
func TestCombinedHistories(t *testing.T) {
	const callers = 48
	rounds := max(150, storetest.Steps(t, 8_000)/callers/20)
	var rules []*headgate.Rule
	for i, limits := range [][]headgate.Limit{
		{headgate.Per(20, 10*time.Second)},
		{headgate.Per(7, 3*time.Second).WithBurst(11)},
		{headgate.Per(1_000_003, time.Hour).WithBurst(12)},
		{headgate.Per(1000, time.Second).WithBurst(9), headgate.Per(50, time.Minute), headgate.Per(70, time.Hour)},
		{{Algorithm: headgate.LeakyBucket, Count: 30, Period: 10 * time.Second}},
		{headgate.Sliding(9, 3*time.Second)},
		{headgate.Sliding(9, 3*time.Second), headgate.Sliding(30, time.Minute), headgate.Sliding(25, 20*time.Second)},
		{{Algorithm: headgate.FixedWindow, Count: 12, Period: 5 * time.Second}},
		{headgate.Per(20, 10*time.Second), headgate.Sliding(30, time.Minute)},
	} {
		rules = append(rules, headgate.MustRule("r"+strconv.Itoa(i), limits...))
	}
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		client := dial(t, s)
		clock := storetest.NewClock(storetest.Epoch)
		stores := []headgate.Store{
			stores.Open(t, client, clock.Now, combining), stores.Open(t, client, clock.Now, redis.Combining(0)), storetest.NewModel(clock.Now),
		}
		rng := rand.New(rand.NewPCG(11, 5))
		answers := make([][3][]headgate.Decision, callers)
		before, denied := callsOn(t, s), 0
		for round := range rounds {
			if rng.IntN(40) == 0 {
				clock.Add(-time.Duration(rng.Int64N(int64(time.Second))))
			} else if rng.IntN(3) == 0 {
				clock.Add(time.Duration(rng.Int64N(int64(time.Second / 2))))
			}
			questions, ops := make([][]headgate.Check, callers), make([]headgate.Op, callers)
			for i := range questions {
				if rng.IntN(8) == 0 {
					ops[i] = headgate.OpPeek
				}
				// Most requests have one check.
				for _, n := range rng.Perm(len(rules))[:1+max(0, rng.IntN(6)-3)] {
					questions[i] = append(questions[i], headgate.Check{
						Rule: rules[n], Key: "k" + strconv.Itoa(i),
						Cost: 1 + rng.Int64N(1+rng.Int64N(9)), Shadow: rng.IntN(8) == 0,
					})
				}
			}
			for n, store := range stores {
				together(callers, func(i int) {
					var err error
					answers[i][n], err = store.Take(context.Background(), ops[i], questions[i], answers[i][n][:0])
					if err != nil {
						t.Errorf("%T: %v", store, err)
					}
				})
			}
			for i, a := range answers {
				if !reflect.DeepEqual(a[0], a[1]) || !reflect.DeepEqual(a[0], a[2]) {
					t.Fatalf("round %d: %+v at %d:\nshared %+v\nown    %+v\nmodel  %+v", round, questions[i], clock.Now(), a[0], a[1], a[2])
				}
				if !headgate.NewVerdict(a[0]).Allowed {
					denied++
				}
			}
		}
		all := callers * rounds
		if made := callsOn(t, s) - before; made > all+all/2 {
			t.Errorf("%d script calls for twice %d decisions, which half of the time can be shared: they are not", made, all)
		}
		if denied < all/20 || denied > all*19/20 {
			t.Errorf("%d of %d were denied: the rules do not test what they should", denied, all)
		}
	})
}

// TestCombinedHotKey: decisions about one key are made one after the other: each that
// is admitted finds one unit less left, and as many are admitted as there are.
func TestCombinedHotKey(t *testing.T) {
	const callers, each, limit = 128, 10, 700
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		for _, rule := range combined(limit) {
			limiter := headgate.New(stores.Open(t, dial(t, s), nil, combining), rule)
			var found [limit]atomic.Int64
			var admitted atomic.Int64
			before := callsOn(t, s)
			together(callers, func(int) {
				for range each {
					d, err := limiter.Allow(t.Context(), "k")
					switch {
					case err != nil:
						t.Errorf("%s: %v", rule, err)
					case d.Allowed:
						admitted.Add(1)
						found[d.Remaining].Add(1)
					}
				}
			})
			if admitted.Load() != limit {
				t.Errorf("%s: %d were admitted, want %d", rule, admitted.Load(), limit)
			}
			for left := range found {
				if n := found[left].Load(); n != 1 {
					t.Errorf("%s: %d were told that %d units are left", rule, n, left)
				}
			}
			if made := callsOn(t, s) - before; made > callers*each/2 {
				t.Errorf("%s: %d script calls for %d decisions", rule, made, callers*each)
			}
		}
	})
}

// TestCombinedForeignValues: a counter that holds something else, or was written under
// other limits, is its own business: it gets the answer that a call of its own gets,
// and what is decided by the same call is decided.
func TestCombinedForeignValues(t *testing.T) {
	const callers = 60
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		for _, rule := range combined(1000) {
			client := dial(t, s)
			shared := stores.Open(t, client, nil, combining)
			for i := range callers {
				key := shared.Prefix() + rule.Name() + " k" + strconv.Itoa(i)
				switch i % 6 {
				case 1:
					stores.Do(t, s, "RPUSH", key, "x")
				case 2:
					stores.Do(t, s, "SET", key, "x")
				case 3: // charged under more limits
					more := headgate.MustRule(rule.Name(), append([]headgate.Limit{headgate.Per(500, 200*24*time.Hour)}, rule.Limits()...)...)
					stores.Allow(t, shared, more, "k"+strconv.Itoa(i))
				}
			}
			own, err := redis.New(client, redis.Prefix(shared.Prefix()), redis.Timeout(30*time.Second), redis.Combining(0))
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				together(callers, func(i int) {
					key := "k" + strconv.Itoa(i)
					d, err := headgate.New(shared, rule).Allow(t.Context(), key)
					switch i % 6 {
					case 1, 2:
						_, want := headgate.New(own, rule).Allow(t.Context(), key)
						if err == nil || want == nil || err.Error() != want.Error() {
							t.Errorf("%s: got %v from a foreign value, want %v", rule, err, want)
						}
					default:
						if err != nil || !d.Allowed {
							t.Errorf("%s: got %+v, %v beside foreign values", rule, d, err)
						}
					}
				})
			}
			for i := range callers {
				if want := int64(997); i%6 == 0 || i%6 > 3 {
					if d, err := headgate.New(own, rule).Peek(t.Context(), "k"+strconv.Itoa(i), 1); err != nil || d.Remaining != want {
						t.Errorf("%s: got %+v, %v; want %d remaining", rule, d, err, want)
					}
				}
			}
		}
	})
}

// TestCombinedScriptsGone: a failover or SCRIPT FLUSH loses the script, and no decision.
func TestCombinedScriptsGone(t *testing.T) {
	const callers, each = 64, 30
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		for _, rule := range combined(callers * each) {
			limiter := headgate.New(stores.Open(t, dial(t, s), nil, combining), rule)
			together(callers, func(i int) {
				for range each {
					if i == 0 {
						if _, err := s.Do(t.Context(), "SCRIPT", "FLUSH"); err != nil {
							t.Error(err)
						}
					}
					if _, err := limiter.Allow(t.Context(), "k"); err != nil {
						t.Errorf("%s: %v", rule, err)
					}
				}
			})
			if d, err := limiter.Peek(t.Context(), "k", 1); err != nil || d.Remaining != 0 {
				t.Errorf("%s: got %+v, %v; want nothing remaining", rule, d, err)
			}
		}
	})
}

// TestCombinedRefusals: what the server answers reaches every caller in its words, is
// charged to none of them, and ends with its cause.
func TestCombinedRefusals(t *testing.T) {
	const callers = 40
	for _, refusal := range refusals {
		t.Run(refusal.word, func(t *testing.T) {
			servers.Each(t, func(t *testing.T, s *servers.Server) {
				store := stores.OpenURL(t, s.URL(), combining)
				rules := combined(1000)
				for _, rule := range rules {
					stores.Allow(t, store, rule, "k")
				}
				refusal.begin(t, s)
				for _, rule := range rules {
					stores.Until(t, "all are refused with "+refusal.word, func() bool {
						var said atomic.Int64
						together(callers, func(int) {
							_, err := headgate.New(store, rule).Allow(t.Context(), "k")
							if !errors.Is(err, headgate.ErrUnavailable) {
								t.Errorf("%s: got %v, want ErrUnavailable", rule, err)
							} else if strings.Contains(err.Error(), refusal.word) {
								said.Add(1)
							}
						})
						return t.Failed() || said.Load() == callers
					})
				}
				refusal.end(t, s)
				for _, rule := range rules {
					stores.Until(t, "the server takes requests again", func() bool {
						_, err := headgate.New(store, rule).Peek(t.Context(), "k", 1)
						return err == nil
					})
					if d := stores.Allow(t, store, rule, "k"); d.Remaining != 998 {
						t.Errorf("%s: got %+v, want 998 remaining: nothing was done for the refused", rule, d)
					}
				}
			}, refusal.options...)
		})
	}
}

// TestCombinedStandsAside: few callers have a call for each decision, and so have those
// who have become few.
func TestCombinedStandsAside(t *testing.T) {
	const few, many, each = 4, 200, 50
	rule := headgate.MustRule("r", headgate.Per(1_000_000, 300*24*time.Hour))
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		store := stores.OpenURL(t, s.URL())
		limiter := headgate.New(store, rule)
		made := func(callers int) int {
			before := callsOn(t, s)
			together(callers, func(int) {
				for range each {
					if _, err := limiter.Allow(t.Context(), "k"); err != nil {
						t.Error(err)
					}
				}
			})
			return callsOn(t, s) - before
		}
		if n := made(few); n < few*each {
			t.Errorf("%d callers made %d calls for %d decisions", few, n, few*each)
		}
		stores.Until(t, "many callers share calls", func() bool { return made(many) < many*each*3/4 })
		made(few) // until it is noticed
		if n := made(few); n < few*each {
			t.Errorf("when there had been many, %d callers made %d calls for %d decisions", few, n, few*each)
		}
		stores.Until(t, "nobody waits for work", func() bool { return combiners() == 0 })
	})
}

// TestCombinedAfar: a server behind a slow network is idle most of the time. So there is nothing to
// gain by sharing calls, and those who do share them do not wait for the answers of others.
func TestCombinedAfar(t *testing.T) {
	const callers, each = 64, 10
	rule := headgate.MustRule("r", headgate.Per(1_000_000, 300*24*time.Hour))
	s := servers.Start(t, servers.Redis)
	url := "redis://" + servers.StartLine(t, s.Addr(), 20*time.Millisecond).Addr()
	ask := func(limiter *headgate.Limiter, each int) {
		for range each {
			if _, err := limiter.Allow(t.Context(), "k"); err != nil {
				t.Error(err)
			}
		}
	}
	usual := headgate.New(stores.OpenURL(t, url), rule)
	stores.Until(t, "each decision has a call", func() bool {
		before := callsOn(t, s)
		together(callers, func(int) { ask(usual, each) })
		return callsOn(t, s)-before > callers*each*9/10
	})
	shared := headgate.New(stores.OpenURL(t, url, combining), rule)
	stores.Until(t, "more than two shared calls are in flight", func() bool {
		var asking sync.WaitGroup
		defer asking.Wait()
		for range callers {
			asking.Go(func() { ask(shared, 1) })
			time.Sleep(time.Millisecond)
		}
		return combiners() > 4
	})
}

// TestCombinedAllocations: a shared decision allocates less than half of what one with
// a call of its own does.
func TestCombinedAllocations(t *testing.T) {
	const callers, each = 128, 80
	rule := headgate.MustRule("r", headgate.Per(1_000_000, 300*24*time.Hour))
	s := servers.Start(t, servers.Redis)
	allocated := func(from int) float64 {
		store := stores.OpenURL(t, s.URL(), redis.Combining(from))
		ask := func() {
			together(callers, func(i int) {
				checks := []headgate.Check{{Rule: rule, Key: "k" + strconv.Itoa(i)}}
				var dst []headgate.Decision
				for range each {
					var err error
					if dst, err = store.Take(context.Background(), headgate.OpTake, checks, dst[:0]); err != nil {
						t.Error(err)
					}
				}
			})
		}
		ask()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		ask()
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / (callers * each)
	}
	own, shared := allocated(0), allocated(1)
	t.Logf("%.2f with a call for each, %.2f with shared calls", own, shared)
	if shared > own/2 {
		t.Errorf("a decision allocates %.2f times with a call of its own, and %.2f times with shared calls", own, shared)
	}
}
