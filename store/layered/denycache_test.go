package layered_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered"
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
	return &counting{Store: memory.New(memory.WithClock(func() int64 { return time.Now().UnixMicro() }))}
}

// TestBlockedKeyCostsNothing: a key that a penalty blocks is answered from memory,
// with the time that is really left, until the block ends or is lifted.
func TestBlockedKeyCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		primary := newCounting()
		store := layered.DenyCache(primary, layered.DenyCacheOptions{})
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

// TestDenyCacheOfAll: with All, denials of every kind are remembered for their cost
// and above, and forgotten with a refund; memory is bounded.
func TestDenyCacheOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		primary := newCounting()
		store := layered.DenyCache(primary, layered.DenyCacheOptions{All: true, MaxEntries: 64})
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
		}{{3, false, 1}, {4, false, 0}, {3, false, 0}, {2, true, 1}, {1, false, 1}, {1, false, 0}} {
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
	store := layered.DenyCache(newCounting(), layered.DenyCacheOptions{All: true})
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
