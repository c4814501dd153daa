package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/store/layered/fallback"
	"github.com/headgate/headgate/store/layered/internal/layertest"
	"github.com/headgate/headgate/store/memory"
)

// used is how many units of each limit the primary has counted.
func used(t *testing.T, primary *layertest.Scripted, c headgate.Check) []int64 {
	t.Helper()
	decisions, err := primary.Store.Take(t.Context(), headgate.OpPeek, []headgate.Check{c}, nil)
	if err != nil {
		t.Fatal(err)
	}
	units := make([]int64, len(decisions))
	for i := range decisions {
		units[i] = decisions[i].Limit.Capacity() - decisions[i].Remaining
	}
	return units
}

// TestHandedBack: what was admitted without the store is charged to it when it is
// back, and only that.
func TestHandedBack(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		f := layertest.Fallback(t, primary, fallback.Options{Nodes: 2, Default: headgate.OnErrorLocal})
		rule := headgate.MustRule("r", headgate.Sliding(100, time.Hour))
		check := func(i int) headgate.Check { return headgate.Check{Rule: rule, Key: fmt.Sprint(i)} }
		for i := range 500 {
			for range i % 7 {
				layertest.Take(t, f.Store(), check(i))
			}
		}
		layertest.Fail(t, f, primary, layertest.Refuses)
		for i := range 500 {
			for range i % 11 {
				layertest.Take(t, f.Store(), check(i))
			}
		}
		layertest.Recover(t, f, primary)
		time.Sleep(2 * time.Second)
		sum := int64(0)
		for i := range 500 {
			want := int64(i%7 + i%11)
			if got := used(t, primary, check(i))[0]; got != want {
				t.Errorf("key %d: the store counts %d units, want %d", i, got, want)
			}
			sum += int64(i % 11)
		}
		// The units that opened the breaker were let in by another rule.
		if s := f.Stats(); s.HandedBack != sum || s.Debts != 0 || s.DebtsDropped != 0 {
			t.Errorf("%d units handed back, want %d; %+v", s.HandedBack, sum, s)
		}
	})
}

// TestHandedBackInParts: a rule with a tight limit and a wide one gets its debt to
// the wide one charged little by little, and stays usable meanwhile.
func TestHandedBackInParts(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		f := layertest.Fallback(t, primary, fallback.Options{Default: headgate.OnErrorLocal})
		c := headgate.Check{Key: "k", Rule: headgate.MustRule("r",
			headgate.Limit{Algorithm: headgate.FixedWindow, Count: 8, Period: time.Second},
			headgate.Limit{Algorithm: headgate.FixedWindow, Count: 10_000, Period: 30 * 24 * time.Hour})}
		layertest.Fail(t, f, primary, layertest.Refuses)
		for range 10 {
			layertest.Spend(t, f.Store(), c)
			time.Sleep(time.Second)
		}
		layertest.Recover(t, f, primary)
		var denied int64
		for range 200 {
			if !layertest.Take(t, f.Store(), c).Allowed {
				denied++
			}
			time.Sleep(500 * time.Millisecond)
		}
		if got := used(t, primary, c)[1]; got != 80+200-denied || f.Stats().HandedBack != 80 {
			t.Errorf("the wide limit holds %d units; %d of 200 were denied; %+v", got, denied, f.Stats())
		}
		if denied != 0 {
			t.Errorf("%d of 200 requests at a quarter of the limit were denied by what was owed", denied)
		}
	})
}

// TestDebtsAreBounded: in number, and by what the store has room for.
func TestDebtsAreBounded(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		f := layertest.Fallback(t, primary, fallback.Options{Default: headgate.OnErrorLocal, Debts: 10})
		rule := headgate.MustRule("r", headgate.PerHour(10))
		layertest.Fail(t, f, primary, layertest.Refuses)
		for i := range 50 {
			layertest.Spend(t, f.Store(), headgate.Check{Rule: rule, Key: fmt.Sprint(i)})
		}
		if s := f.Stats(); s.Debts != 10 || s.DebtsDropped != 400 {
			t.Errorf("%d debts and %d dropped, want 10 and 400", s.Debts, s.DebtsDropped)
		}
		// Another node is faster.
		for i := range 50 {
			c := headgate.Check{Rule: rule, Key: fmt.Sprint(i), Cost: 7}
			if _, err := primary.Store.Take(t.Context(), headgate.OpTake, []headgate.Check{c}, nil); err != nil {
				t.Fatal(err)
			}
		}
		layertest.Recover(t, f, primary)
		time.Sleep(10 * time.Minute)
		if s := f.Stats(); s.Debts != 0 || s.HandedBack < 30 {
			t.Errorf("after a while: %+v", s)
		}
	})
}

// TestDebtsAreForgotten when no window holds them any more, and charged at the end
// of the process.
func TestDebtsAreForgotten(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		f := layertest.Fallback(t, primary, fallback.Options{Default: headgate.OnErrorLocal})
		short := headgate.Check{Rule: headgate.MustRule("short", headgate.Sliding(10, time.Second)), Key: "k"}
		long := headgate.Check{Rule: headgate.MustRule("long", headgate.Sliding(10, time.Hour)), Key: "k"}
		layertest.Fail(t, f, primary, layertest.Refuses)
		layertest.Spend(t, f.Store(), short)
		layertest.Spend(t, f.Store(), long)
		time.Sleep(2 * time.Second)
		primary.Feel(layertest.Well)
		for f.Stats().State == fallback.Open {
			time.Sleep(time.Millisecond)
		}
		if err := f.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := used(t, primary, short)[0] + 100*used(t, primary, long)[0]; got != 1000 {
			t.Errorf("the store counts %d units, want 10 of the long window and none of the short", got)
		}
		if s := f.Stats(); s.HandedBack != 10 {
			t.Errorf("got %+v", s)
		}
	})
}

// unsure is a store that begins to hang between two calls, now and then, and knows what the calls
// would have charged that did not end in time.
type unsure struct {
	*layertest.Scripted

	mu   sync.Mutex // guards what follows
	r    *rand.Rand // nil: it does not begin to hang of its own
	lost map[string]int64
}

func (s *unsure) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	dst, err := s.Scripted.Take(ctx, op, checks, dst)
	s.mu.Lock()
	defer s.mu.Unlock()
	if op == headgate.OpPeek && s.r != nil && s.r.IntN(100) == 0 {
		s.Feel(layertest.Hangs)
	}
	if op == headgate.OpTake && checks[0].Rule.Name() == "r" && errors.Is(err, context.DeadlineExceeded) {
		s.lost[checks[0].Key] += checks[0].Units()
	}
	return dst, err
}

// TestStoreFailsWhileDebtsAreCharged: nothing is charged twice, and what is owed is charged, but
// for calls of which nobody knows whether they counted.
func TestStoreFailsWhileDebtsAreCharged(t *testing.T) {
	var lost int64
	for seed := range uint64(20) {
		bubbletest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 6))
			primary := layertest.NewScripted()
			store := &unsure{Scripted: primary, r: rand.New(rand.NewPCG(seed, 7)), lost: map[string]int64{}}
			f := layertest.Fallback(t, store, fallback.Options{Default: headgate.OnErrorLocal})
			rule := headgate.MustRule("r", headgate.Sliding(100, time.Hour))
			want := map[string]int64{}
			for range 5 {
				layertest.Fail(t, f, primary, layertest.Health(1+r.IntN(2)))
				for range 300 {
					c := headgate.Check{Rule: rule, Key: fmt.Sprint(r.IntN(200))}
					if layertest.Take(t, f.Store(), c).Allowed {
						want[c.Key]++
					}
				}
				primary.Feel(layertest.Well)
				for range r.IntN(200) {
					time.Sleep(10 * time.Millisecond)
					primary.Feel(layertest.Health(min(2, r.IntN(30))))
				}
			}
			store.mu.Lock()
			store.r = nil
			store.mu.Unlock()
			layertest.Recover(t, f, primary)
			time.Sleep(time.Minute)
			for key, units := range want {
				if got := used(t, primary, headgate.Check{Rule: rule, Key: key})[0]; got != units-store.lost[key] {
					t.Errorf("key %s: the store counts %d units, want %d less %d", key, got, units, store.lost[key])
				}
				lost += store.lost[key]
			}
			if s := f.Stats(); s.Debts != 0 {
				t.Errorf("got %+v", s)
			}
		})
	}
	if lost == 0 {
		t.Error("no call was cut off after the store had been asked how much room there is")
	}
}

// interrupted is a store in which something happens once, when somebody looks how many units there
// are.
type interrupted struct {
	headgate.Store
	by func()
}

func (s *interrupted) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if op == headgate.OpPeek && s.by != nil {
		by := s.by
		s.by = nil
		by()
	}
	return s.Store.Take(ctx, op, checks, dst)
}

// TestDebtGrowsWhileItIsCharged: what was admitted without the store in the meantime is charged
// soon after the rest, and not after the rule's period.
func TestDebtGrowsWhileItIsCharged(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		store := &interrupted{Store: primary}
		f := layertest.Fallback(t, store, fallback.Options{Default: headgate.OnErrorLocal})
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.Sliding(10, time.Hour)), Key: "k"}
		layertest.Fail(t, f, primary, layertest.Refuses)
		layertest.Take(t, f.Store(), c)
		store.by = func() {
			primary.Feel(layertest.Refuses)
			for range 3 {
				layertest.Take(t, f.Store(), c)
			}
			primary.Feel(layertest.Well)
		}
		layertest.Recover(t, f, primary)
		time.Sleep(10 * time.Second)
		if got := used(t, primary, c)[0]; got != 4 {
			t.Errorf("the store counts %d units after ten seconds, want 4; %+v", got, f.Stats())
		}
	})
}

// rival is a store of which another client takes units whenever somebody has looked how many there
// are, as long as it wants any.
type rival struct {
	headgate.Store
	wants []int64
}

func (r *rival) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	dst, err := r.Store.Take(ctx, op, checks, dst)
	if op == headgate.OpPeek && err == nil && len(r.wants) > 0 {
		theirs := checks[0]
		theirs.Cost, r.wants = r.wants[0], r.wants[1:]
		_, err = r.Store.Take(ctx, headgate.OpTake, []headgate.Check{theirs}, nil)
	}
	return dst, err
}

// TestRivals: a debt whose room was taken between two calls is charged soon, as far as there is
// room, and not after the rule's period. When the limit is full, nothing is owed any more.
func TestRivals(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		theirs := &rival{Store: primary, wants: []int64{3, 1, 2, 1, 1}}
		f := layertest.Fallback(t, theirs, fallback.Options{Default: headgate.OnErrorLocal})
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.Sliding(10, time.Hour)), Key: "k", Cost: 4}
		layertest.Fail(t, f, primary, layertest.Refuses)
		layertest.Spend(t, f.Store(), c)
		layertest.Recover(t, f, primary)
		time.Sleep(time.Second)
		if s := f.Stats(); len(theirs.wants) != 0 || s.HandedBack != 2 || s.Debts != 0 {
			t.Errorf("%d of 8 units handed back beside a client who took 8 of 10, want 2; %+v", s.HandedBack, s)
		}
	})
}

// TestPenaltiesAreNotForDebts: charging what is owed blocks nobody.
func TestPenaltiesAreNotForDebts(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		f := layertest.Fallback(t, primary, fallback.Options{Default: headgate.OnErrorLocal})
		c := headgate.Check{Key: "k", Rule: headgate.MustRule("r", headgate.Sliding(10, time.Hour), headgate.Blocking(2, time.Hour, time.Hour, 0))}
		layertest.Fail(t, f, primary, layertest.Refuses)
		for range 8 {
			layertest.Take(t, f.Store(), c)
		}
		if _, err := primary.Store.Take(t.Context(), headgate.OpTake, []headgate.Check{{Rule: c.Rule, Key: "k", Cost: 9}}, nil); err != nil {
			t.Fatal(err)
		}
		layertest.Recover(t, f, primary)
		time.Sleep(10 * time.Minute)
		v, err := primary.Store.Take(t.Context(), headgate.OpPeek, []headgate.Check{c}, nil)
		if err != nil || v[0].Remaining != 0 || v[1].Remaining != 2 {
			t.Errorf("got %+v, %v; want a full window and no denial counted", v, err)
		}
	})
}

// TestTwoNodes: together, over an outage, they admit what the limit allows, and no
// more when all is handed back.
func TestTwoNodes(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		options := fallback.Options{Default: headgate.OnErrorLocal}
		nodes := []*fallback.Layer{layertest.Fallback(t, primary, options), layertest.Fallback(t, primary, options)}
		time.Sleep(time.Minute) // until they have counted each other
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.Sliding(100, time.Hour)), Key: "k"}
		admitted := 0
		for i := range 30 {
			if layertest.Take(t, nodes[i%2].Store(), c).Allowed {
				admitted++
			}
		}
		for _, f := range nodes {
			layertest.Fail(t, f, primary, layertest.Hangs)
		}
		for i := range 60 {
			if layertest.Take(t, nodes[i%2].Store(), c).Allowed {
				admitted++
			}
		}
		for _, f := range nodes {
			layertest.Recover(t, f, primary)
		}
		time.Sleep(10 * time.Second)
		for i := range 100 {
			if layertest.Take(t, nodes[i%2].Store(), c).Allowed {
				admitted++
			}
		}
		if admitted != 100 {
			t.Errorf("%d units of 100 were admitted", admitted)
		}
	})
}

var _ fallback.Charger = (*memory.Store)(nil)
