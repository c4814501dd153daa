package denycache_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/internal/race"
	"github.com/headgate/headgate/store/layered/denycache"
	"github.com/headgate/headgate/store/memory"
)

// counting is a store that counts the calls that reach it.
type counting struct {
	*memory.Store
	calls int
}

func (c *counting) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	c.calls++
	return c.Store.Take(ctx, op, checks, dst)
}

func newCounting() *counting {
	return &counting{Store: memory.New(memory.Clock(func() int64 { return time.Now().UnixMicro() }))}
}

// open makes a deny cache.
func open(t testing.TB, store headgate.Store, o denycache.Options) *denycache.Layer {
	t.Helper()
	d, err := denycache.New(store, o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestOptions: every mistake is told at once.
func TestOptions(t *testing.T) {
	_, err := denycache.New(nil, denycache.Options{Trust: -1, MaxKeys: -1})
	var invalid *headgate.InvalidError
	if !errors.As(err, &invalid) || len(invalid.Problems) != 3 {
		t.Errorf("%v", err)
	}
}

// TestBlockedKeyCostsNothing: a key that a penalty blocks is answered from memory,
// with the time that is really left, until the block ends or is lifted.
func TestBlockedKeyCostsNothing(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := newCounting()
		store := open(t, primary, denycache.Options{}).Store()
		rule := headgate.MustRule("login", headgate.Sliding(2, 10*time.Second), headgate.Blocking(3, time.Minute, 25*time.Second, time.Hour))
		other := headgate.MustRule("other", headgate.PerSecond(1000))
		ask := func(op headgate.Op, checks ...headgate.Check) headgate.Verdict {
			t.Helper()
			decisions, err := store.Take(context.Background(), op, checks, nil)
			if err != nil {
				t.Fatal(err)
			}
			return headgate.NewVerdict(decisions)
		}
		k := headgate.Check{Rule: rule, Key: "k"}
		for range 5 { // two are admitted, three denied
			ask(headgate.OpTake, k)
		}
		calls := primary.calls
		for i := range 100 {
			v := ask(headgate.OpTake, headgate.Check{Rule: other, Key: fmt.Sprint(i)}, k)
			if d := v.Deciding(); v.Allowed || d == nil || d.Limit.Algorithm != headgate.Penalty || d.Source != headgate.SourceCache || d.Check != 1 || !v.Decisions[0].Shadow && v.Decisions[0].Check != 1 {
				t.Fatalf("request %d: %+v", i, v)
			}
			if i == 50 {
				time.Sleep(4 * time.Second)
			}
			if left := v.RetryAfter; i > 50 && left != 21*time.Second {
				t.Fatalf("after 4 s of 25 the block lasts %v longer", left)
			}
		}
		if primary.calls != calls {
			t.Errorf("%d calls reached the store", primary.calls-calls)
		}
		if v := ask(headgate.OpTake, headgate.Check{Rule: rule, Key: "another"}); !v.Allowed {
			t.Errorf("another key: %+v", v)
		}
		// Peeks ask, and after a while takes do, too.
		calls = primary.calls
		ask(headgate.OpPeek, k)
		time.Sleep(6 * time.Second)
		ask(headgate.OpTake, k)
		if primary.calls != calls+2 {
			t.Errorf("%d calls reached the store, want 2", primary.calls-calls)
		}
		// A reset is seen at once.
		ask(headgate.OpReset, k)
		if v := ask(headgate.OpTake, k); !v.Allowed {
			t.Errorf("after a reset: %+v", v)
		}
	})
}

// TestDenyCacheOfAll: with All, denials of every kind are remembered for their cost,
// and forgotten with a refund; memory is bounded.
func TestDenyCacheOfAll(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := newCounting()
		store := open(t, primary, denycache.Options{All: true, MaxKeys: 64}).Store()
		rule := headgate.MustRule("r", headgate.Limit{Algorithm: headgate.FixedWindow, Count: 10, Period: time.Hour})
		ask := func(op headgate.Op, key string, cost int64) bool {
			t.Helper()
			decisions, err := store.Take(context.Background(), op, []headgate.Check{{Rule: rule, Key: key, Cost: cost}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return headgate.NewVerdict(decisions).Allowed
		}
		ask(headgate.OpTake, "k", 8)
		for _, c := range []struct {
			cost    int64
			allowed bool
			calls   int
		}{{3, false, 1}, {4, false, 1}, {4, false, 0}, {3, false, 0}, {2, true, 1}, {3, false, 1}, {1, false, 1}, {1, false, 0}, {3, false, 0}} {
			before := primary.calls
			if got := ask(headgate.OpTake, "k", c.cost); got != c.allowed || primary.calls-before != c.calls {
				t.Errorf("cost %d: allowed %t with %d calls, want %+v", c.cost, got, primary.calls-before, c)
			}
		}
		ask(headgate.OpRefund, "k", 1)
		if !ask(headgate.OpTake, "k", 1) {
			t.Error("after a refund the key is still denied")
		}
		// A cost that never fits is not remembered, for the limit may be raised.
		before := primary.calls
		ask(headgate.OpTake, "k", 11)
		ask(headgate.OpTake, "k", 11)
		if primary.calls-before != 2 {
			t.Error("a cost that never fits was remembered")
		}
		for i := range 10_000 {
			ask(headgate.OpTake, fmt.Sprint(i), 10)
			ask(headgate.OpTake, fmt.Sprint(i), 1)
		}
		remembered := 0
		for i := range 10_000 {
			calls := primary.calls
			ask(headgate.OpTake, fmt.Sprint(i), 1)
			if primary.calls == calls {
				remembered++
			}
		}
		if remembered > 64 {
			t.Errorf("%d keys are remembered, of 64 at most", remembered)
		}
	})
}

// TestDenyCacheKeepsNoBodies: a key that is part of a large text does not keep that.
func TestDenyCacheKeepsNoBodies(t *testing.T) {
	const keys, size = 500, 64 << 10
	store := open(t, newCounting(), denycache.Options{All: true}).Store()
	rule := headgate.MustRule("r", headgate.PerHour(1))
	before := heap()
	for i := range keys {
		body := fmt.Sprintf("key %05d", i) + strings.Repeat("x", size)
		checks := []headgate.Check{{Rule: rule, Key: body[:9]}}
		for range 2 {
			if _, err := store.Take(t.Context(), headgate.OpTake, checks, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if grown := heap() - before; grown > keys*size/4 {
		t.Errorf("%d keys take %d bytes, as if the texts of %d were kept", keys, grown, size)
	}
	runtime.KeepAlive(store)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestDenyCachePerCheck: each check says whether its denials are remembered, and how
// it is counted says for how long.
func TestDenyCachePerCheck(t *testing.T) {
	plain := headgate.MustRule("plain", headgate.PerHour(1))
	login := headgate.MustRule("login", headgate.PerHour(1), headgate.Blocking(2, time.Minute, time.Hour, time.Hour))
	for _, test := range []struct {
		name        string
		all         bool
		rule        *headgate.Rule
		cache       headgate.DenyCache
		consistency headgate.Consistency
		shadow      bool
		lasts       time.Duration // it is remembered; 0: not at all
	}{
		{name: "default", rule: plain},
		{name: "default of a layer that remembers all", rule: plain, all: true, lasts: 10 * time.Second},
		{name: "on", rule: plain, cache: headgate.DenyCacheOn, lasts: 10 * time.Second},
		{name: "off", rule: plain, all: true, cache: headgate.DenyCacheOff},
		{name: "a block", rule: login, lasts: 10 * time.Second},
		{name: "a block, off", rule: login, cache: headgate.DenyCacheOff},
		{name: "leased", rule: plain, cache: headgate.DenyCacheOn, consistency: headgate.Leased, lasts: time.Second},
		{name: "async", rule: plain, cache: headgate.DenyCacheOn, consistency: headgate.Async},
		{name: "shadow", rule: plain, cache: headgate.DenyCacheOn, shadow: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubbletest.Test(t, func(t *testing.T) {
				primary := newCounting()
				store := open(t, primary, denycache.Options{All: test.all}).Store()
				checks := []headgate.Check{{Rule: test.rule, Key: "k", Hints: headgate.Hints{DenyCache: test.cache, Consistency: test.consistency}, Shadow: test.shadow}}
				asks := func() bool {
					before := primary.calls
					if _, err := store.Take(t.Context(), headgate.OpTake, checks, nil); err != nil {
						t.Fatal(err)
					}
					return primary.calls > before
				}
				asks() // admitted
				for range len(test.rule.Limits()) {
					if !asks() { // denied, and of login the second denial blocks
						t.Fatal("answered from memory too early")
					}
				}
				if test.lasts == 0 {
					if !asks() {
						t.Error("it is remembered")
					}
					return
				}
				time.Sleep(test.lasts - time.Microsecond)
				if asks() {
					t.Errorf("forgotten before %v", test.lasts)
				}
				time.Sleep(time.Microsecond)
				if !asks() {
					t.Errorf("remembered after %v", test.lasts)
				}
			})
		})
	}
}

// TestDenyCacheCountsDenials: with a penalty, or beside one, denials are counted by the
// store until the key is blocked.
func TestDenyCacheCountsDenials(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := newCounting()
		store := open(t, primary, denycache.Options{All: true}).Store()
		plain := headgate.Check{Rule: headgate.MustRule("plain", headgate.PerHour(1)), Key: "k"}
		login := headgate.Check{Rule: headgate.MustRule("login", headgate.PerHour(1), headgate.Blocking(4, time.Minute, time.Hour, time.Hour)), Key: "k"}
		take := func(checks ...headgate.Check) headgate.Verdict {
			got, err := store.Take(t.Context(), headgate.OpTake, checks, nil)
			if err != nil {
				t.Fatal(err)
			}
			return headgate.NewVerdict(got)
		}
		take(plain, login)
		take(plain) // denied, and remembered
		for range 4 {
			take(plain, login)
		}
		if v := take(login); len(v.Decisions) != 2 || v.Decisions[1].Allowed {
			t.Errorf("four denials beside one that is remembered have not blocked the key: %+v", v)
		}
		calls := primary.calls
		take(plain, login)
		take(login)
		if primary.calls != calls {
			t.Error("a blocked key reaches the store")
		}
	})
}

// TestDenyCacheOfChangedRules: a rule that was changed, by a reload, an override or a
// tariff, is another rule: what is remembered of the one that was says nothing.
func TestDenyCacheOfChangedRules(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := newCounting()
		store := open(t, primary, denycache.Options{All: true}).Store()
		hourly := func(n int64) *headgate.Rule {
			return headgate.MustRule("api", headgate.Limit{Algorithm: headgate.FixedWindow, Count: n, Period: time.Hour})
		}
		take := func(r *headgate.Rule) (allowed, asked bool) {
			before := primary.calls
			got, err := store.Take(t.Context(), headgate.OpTake, []headgate.Check{{Rule: r, Key: "k"}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return headgate.NewVerdict(got).Allowed, primary.calls > before
		}
		free, pro := hourly(2), hourly(4)
		take(free)
		take(free)
		take(free)
		if allowed, asked := take(free); allowed || asked {
			t.Fatalf("allowed %t, asked %t, want a denial from memory", allowed, asked)
		}
		if allowed, _ := take(pro); !allowed {
			t.Error("a raised limit is denied by what was remembered of the old one")
		}
		take(pro)
		take(pro)
		if allowed, asked := take(pro); allowed || asked {
			t.Fatalf("allowed %t, asked %t, want a denial from memory", allowed, asked)
		}
		// The same limits from a file that was read again: asked once, denied as before.
		again := hourly(4)
		if allowed, asked := take(again); allowed || !asked {
			t.Errorf("allowed %t, asked %t, want a denial of the store's", allowed, asked)
		}
		if allowed, asked := take(again); allowed || asked {
			t.Errorf("allowed %t, asked %t, want a denial from memory", allowed, asked)
		}
		if allowed, _ := take(hourly(5)); !allowed {
			t.Error("a limit that was raised again is denied")
		}
	})
}

// TestDenyCacheAllocates: nothing for a request that is admitted or denied from memory.
func TestDenyCacheAllocates(t *testing.T) {
	if race.Enabled {
		return // the race detector allocates
	}
	store := open(t, memory.New(), denycache.Options{All: true}).Store()
	for name, limit := range map[string]headgate.Limit{"admitted": headgate.PerHour(1_000_000), "denied": headgate.PerHour(1)} {
		checks := []headgate.Check{{Rule: headgate.MustRule(name, limit), Key: "a key of usual length"}}
		dst := make([]headgate.Decision, 0, 8)
		take := func() {
			if _, err := store.Take(t.Context(), headgate.OpTake, checks, dst); err != nil {
				t.Fatal(err)
			}
		}
		take()
		take()
		if n := testing.AllocsPerRun(100, take); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkDenyCache(b *testing.B) {
	store := open(b, memory.New(), denycache.Options{All: true}).Store()
	for _, bench := range []struct {
		name  string
		limit headgate.Limit
	}{{"denied", headgate.PerHour(1)}, {"admitted", headgate.PerSecond(1_000_000_000)}} {
		b.Run(bench.name, func(b *testing.B) {
			checks := []headgate.Check{{Rule: headgate.MustRule(bench.name, bench.limit), Key: "a key of usual length"}}
			dst := make([]headgate.Decision, 0, 8)
			for b.Loop() {
				if _, err := store.Take(b.Context(), headgate.OpTake, checks, dst); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
