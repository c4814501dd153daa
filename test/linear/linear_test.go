package linear

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
)

// many is how many units a large cost has at least.
const many = 250_000_007

// rule has small limits, so that callers are denied as often as admitted, and they
// run out and come back while the test lasts. Costs are multiples of unit. If that is many, the limits
// count more than 10^9 units, and none is a sliding window.
func rule(unit int64) *headgate.Rule {
	bucket := headgate.Per(2000*unit, time.Second).WithBurst(40 * unit)
	window := headgate.Limit{Algorithm: headgate.FixedWindow, Count: 60 * unit, Period: 50 * time.Millisecond}
	if unit == 1 {
		return headgate.MustRule("r", bucket, window, headgate.Sliding(50, 30*time.Millisecond))
	}
	return headgate.MustRule("r", bucket, window, headgate.Limit{Algorithm: headgate.SlidingCounter, Count: 50 * unit, Period: 30 * time.Millisecond})
}

// unitOf is the unit of the costs of a round.
func unitOf(round int) int64 { return []int64{1, many}[round%2] }

func TestMemory(t *testing.T) {
	for round := range 14 {
		check(t, uint64(round), unitOf(round), memory.New())
	}
}

func TestServers(t *testing.T) {
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		for round := range 6 {
			store, err := redis.Open(t.Context(), "redis://"+s.Addr()+"?connect_timeout=30s", redis.Prefix(fmt.Sprintf("%d:", round)), redis.Timeout(30*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			check(t, uint64(round), unitOf(round), store)
			store.Close()
		}
	})
}

// forgetful is a store that forgets a charge now and then.
type forgetful struct {
	headgate.Ledger
	mu    sync.Mutex // guards calls
	calls int
}

func (f *forgetful) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	out, err := f.Ledger.Take(ctx, op, checks, dst)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls++; op == headgate.OpTake && f.calls%50 == 0 && err == nil && headgate.NewVerdict(out).Allowed {
		back := checks[0]
		back.At = out[0].At
		_, err = f.Ledger.Take(ctx, headgate.OpRefund, []headgate.Check{back}, nil)
	}
	return out, err
}

// TestFindsMistakes: a store that loses what it was told is found out.
func TestFindsMistakes(t *testing.T) {
	// Where callers are slow, much is refilled before anybody can tell.
	for seed := range uint64(100) {
		if order(t, seed, unitOf(int(seed)), &forgetful{Ledger: memory.New()}) == porcupine.Illegal {
			return
		}
	}
	t.Error("a store that forgets charges passes")
}

// check fails the test if there is no order of what callers are told.
func check(t *testing.T, seed uint64, unit int64, store headgate.Ledger) {
	t.Helper()
	switch order(t, seed, unit, store) {
	case porcupine.Illegal:
		t.Errorf("seed %d: there is no order of the calls that explains the answers", seed)
	case porcupine.Unknown:
		t.Errorf("seed %d: no order was found in time", seed)
	}
}

// order has several callers ask at once, and then looks for an order.
func order(t *testing.T, seed uint64, unit int64, store headgate.Ledger) porcupine.CheckResult {
	t.Helper()
	const callers, calls = 6, 60
	r := rule(unit)
	limiter := headgate.New(store, r)
	start := time.Now()
	histories := make([][]porcupine.Operation, callers)
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(caller)))
			c := asker{store: store, limiter: limiter, rule: r, unit: unit, rng: rng, name: caller}
			for range calls {
				in := c.next()
				began := time.Since(start).Nanoseconds()
				out, err := c.do(in)
				ended := time.Since(start).Nanoseconds()
				if err != nil {
					t.Error(err)
					return
				}
				histories[caller] = append(histories[caller], porcupine.Operation{ClientId: caller, Input: in, Output: out, Call: began, Return: ended})
				if rng.IntN(4) == 0 {
					time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	var history []porcupine.Operation
	admitted := 0
	for _, h := range histories {
		for _, o := range h {
			if in, out := o.Input.(call), o.Output.(answer); in.do == take && out.admitted {
				admitted++
			}
		}
		history = append(history, h...)
	}
	if admitted == 0 || admitted == len(history) {
		t.Errorf("%d of %d calls were admitted, which proves little", admitted, len(history))
	}
	result, _ := porcupine.CheckOperationsVerbose(model(r), history, 2*time.Minute)
	return result
}

// asker is one caller, and what it can give back and settle.
type asker struct {
	store        headgate.Ledger
	limiter      *headgate.Limiter // of rule, over store
	rule         *headgate.Rule
	unit         int64
	rng          *rand.Rand
	name, made   int
	charged      []call
	reservations []headgate.Reservation
}

var keys = []string{"a", "b"}

// next makes up what to ask.
func (c *asker) next() call {
	in := call{key: keys[c.rng.IntN(len(keys))], cost: c.units(1 + c.rng.Int64N(9))}
	switch n := c.rng.IntN(100); {
	case n < 10:
		in.do = peek
	case n < 20 && len(c.charged) > 0:
		back := c.charged[c.rng.IntN(len(c.charged))]
		in.do, in.key, in.cost, in.at = refund, back.key, back.cost, back.at
	case n < 22:
		in.do = reset
	case n < 35:
		in.do, in.id, in.cost = once, fmt.Sprintf("shared %s %d", in.key, c.rng.IntN(20)), 3*c.unit
	case n < 50:
		c.made++
		in.do, in.id = reserve, fmt.Sprintf("%d.%d", c.name, c.made)
	case n < 70 && len(c.reservations) > 0:
		r := c.reservations[len(c.reservations)-1-c.rng.IntN(min(3, len(c.reservations)))]
		in.do, in.id, in.key, in.settle = settle, r.ID, r.Checks[0].Key, c.units(c.rng.Int64N(12))
	}
	return in
}

// units returns about so many units, if they are large.
func (c *asker) units(n int64) int64 { return n*c.unit + c.rng.Int64N(c.unit) }

// do asks, and returns what the model is to say too.
func (c *asker) do(in call) (out answer, err error) {
	ctx := context.Background()
	checks := []headgate.Check{{Rule: c.rule, Key: in.key, Cost: in.cost, At: in.at}}
	var decisions []headgate.Decision
	switch in.do {
	case take:
		if c.rng.IntN(2) == 0 {
			return c.allow(in)
		}
		decisions, err = c.store.Take(ctx, headgate.OpTake, checks, nil)
	case peek:
		decisions, err = c.store.Take(ctx, headgate.OpPeek, checks, nil)
	case refund:
		decisions, err = c.store.Take(ctx, headgate.OpRefund, checks, nil)
	case reset:
		_, err = c.store.Take(ctx, headgate.OpReset, checks, nil)
		return out, err
	case once:
		decisions, err = c.store.TakeOnce(ctx, headgate.Terms{ID: in.id, For: time.Hour}, checks, nil)
	case reserve:
		var r headgate.Reservation
		if r, decisions, err = c.store.Reserve(ctx, headgate.Terms{ID: in.id, For: time.Hour}, checks, nil); r.ID != "" {
			c.reservations = append(c.reservations, r)
		}
	case settle:
		for _, r := range c.reservations {
			if r.ID == in.id {
				decisions, err = c.store.Settle(ctx, r, []int64{in.settle}, nil)
			}
		}
		if errors.Is(err, headgate.ErrConflict) {
			return answer{none: true}, nil
		}
	}
	if err != nil {
		return out, err
	}
	out = answer{at: decisions[0].At, admitted: headgate.NewVerdict(decisions).Allowed}
	for i := range decisions {
		out.remaining[i] = decisions[i].Remaining
	}
	if in.do == take && out.admitted {
		in.at = out.at
		c.charged = append(c.charged, in)
	}
	return out, nil
}

// allow is do for a caller who wants to know of the deciding limit only.
func (c *asker) allow(in call) (out answer, err error) {
	d, err := c.limiter.AllowN(context.Background(), in.key, in.cost)
	out = answer{at: d.At, admitted: d.Allowed}
	for i := range out.remaining {
		if out.remaining[i] = untold; d.Limit == &c.rule.Limits()[i] {
			out.remaining[i] = d.Remaining
		}
	}
	if out.admitted {
		in.at = out.at
		c.charged = append(c.charged, in)
	}
	return out, err
}
