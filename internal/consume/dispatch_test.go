package consume

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/internal/bubbletest"
)

// gate answers each request in turn with what it holds for its key; nil lets in.
type gate struct {
	mu      sync.Mutex
	asked   map[string]int
	answers map[string]func(n int) error
}

func (g *gate) Acquire(ctx context.Context, r flow.Request) (flow.Permit, error) {
	return g.TryAcquire(ctx, r)
}

func (g *gate) TryAcquire(_ context.Context, r flow.Request) (flow.Permit, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.asked[r.Key]
	g.asked[r.Key]++
	if answer := g.answers[r.Key]; answer != nil {
		return flow.Permit{}, answer(n)
	}
	return flow.Permit{}, nil
}

// bench is a dispatcher of numbers, and what has become of them.
type bench struct {
	sync.Mutex
	*dispatcher[int]
	gate      *gate
	unwanted  map[int]bool
	ran       []int
	never     []int
	refusals  int
	turns     uint64
	now, most int
}

func newBench(workers int) *bench {
	b := &bench{gate: &gate{asked: make(map[string]int), answers: make(map[string]func(int) error)}, unwanted: make(map[int]bool)}
	b.dispatcher = newDispatcher(dispatching[int]{
		Lock: b, Gate: b.gate, Workers: workers,
		Source: Source[int]{
			Context: func(int) context.Context { return context.Background() },
			Wants:   func(n int) bool { return !b.unwanted[n] },
			Begin:   func(int) { b.now++; b.most = max(b.most, b.now) },
			End:     func(int) { b.now-- },
		},
		Run: func(n int, _ flow.Permit) {
			time.Sleep(time.Millisecond)
			b.Lock()
			defer b.Unlock()
			b.ran = append(b.ran, n)
			b.config.End(n)
			b.Freed()
		},
		Refused: func(int, error) { b.refusals++ },
		Never:   func(n int, _ error) { b.never = append(b.never, n) },
	})
	return b
}

func (b *bench) ask(n int, key string) {
	b.Lock()
	defer b.Unlock()
	b.turns++
	b.Ask(n, b.turns, flow.Request{Key: key})
}

// TestOrder: items of a key begin in their order, none is lost, and no more than there are
// workers run at a time.
func TestOrder(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		for _, workers := range []int{1, 7} {
			b := newBench(workers)
			for i := range 500 {
				b.ask(i, fmt.Sprint(rand.IntN(5)))
			}
			time.Sleep(time.Minute)
			b.Lock()
			if len(b.ran) != 500 || b.most != workers || b.workers != 0 || len(b.valves) != 0 {
				t.Errorf("%d ran, %d at a time, with %d workers; %d valves are left", len(b.ran), b.most, workers, len(b.valves))
			}
			slices.Sort(b.ran)
			if len(slices.Compact(b.ran)) != 500 {
				t.Error("one ran twice")
			}
			b.Unlock()
		}
	})
}

// TestRefused: what is refused holds back its key alone, for as long as the gate says, and
// comes first then.
func TestRefused(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		b := newBench(1) // one worker: they end in the order in which they begin
		began := time.Now()
		b.gate.answers["slow"] = func(n int) error {
			if n < 3 {
				return &flow.Rejection{Reason: flow.ReasonRate, RetryAfter: time.Hour}
			}
			return nil
		}
		for i := range 100 {
			b.ask(i, "slow")
			b.ask(1000+i, "fast")
		}
		time.Sleep(time.Minute)
		b.Lock()
		if len(b.ran) != 100 || slices.Min(b.ran) < 1000 || b.refusals != 1 {
			t.Errorf("%d ran after a minute, the least is %d, after %d refusals", len(b.ran), slices.Min(b.ran), b.refusals)
		}
		b.Unlock()
		time.Sleep(4 * time.Hour)
		b.Lock()
		defer b.Unlock()
		if len(b.ran) != 200 || b.ran[100] != 0 || b.refusals != 3 || time.Since(began) < 3*time.Hour {
			t.Errorf("%d ran; the first of those that were held back was %d, after %d refusals", len(b.ran), b.ran[100], b.refusals)
		}
	})
}

// TestFreed: an item that ends has a key asked about that waits for a permit.
func TestFreed(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		b := newBench(2)
		b.gate.answers["busy"] = func(n int) error {
			if n == 0 {
				return &flow.Rejection{Reason: flow.ReasonBusy, RetryAfter: time.Hour}
			}
			return nil
		}
		b.ask(1, "busy")
		time.Sleep(time.Second)
		b.ask(2, "other")
		time.Sleep(time.Second)
		b.Lock()
		defer b.Unlock()
		if !slices.Equal(b.ran, []int{2, 1}) {
			t.Errorf("%v ran within seconds, want 2 and 1", b.ran)
		}
	})
}

// TestNever: what can never pass is told, and does not hold back its key.
func TestNever(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		b := newBench(2)
		b.gate.answers["k"] = func(n int) error {
			switch n {
			case 0:
				return &flow.Rejection{Reason: flow.ReasonTooLarge, RetryAfter: headgate.Never}
			case 1:
				return headgate.Invalid("request", "cost", "the cost is wrong")
			case 2:
				return errors.New("the store is down")
			}
			return nil
		}
		for i := range 3 {
			b.ask(i, "k")
		}
		time.Sleep(time.Minute)
		b.Lock()
		defer b.Unlock()
		if !slices.Equal(b.never, []int{0, 1}) || !slices.Equal(b.ran, []int{2}) || b.refusals != 1 {
			t.Errorf("%v never pass, %v ran, %d refusals", b.never, b.ran, b.refusals)
		}
	})
}

// TestTurns: those with earlier turns go first, whenever they ask, also after some were pruned.
func TestTurns(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		b := newBench(1)
		b.gate.answers["k"] = func(n int) error {
			if n == 0 {
				return &flow.Rejection{Reason: flow.ReasonRate, RetryAfter: time.Minute}
			}
			return nil
		}
		var want []int
		b.Lock()
		for _, n := range rand.Perm(500) {
			b.Ask(n, uint64(n+1), flow.Request{Key: "k"})
			b.unwanted[n] = n%3 == 0
		}
		for n := range 500 {
			if n%3 != 0 {
				want = append(want, n)
			}
		}
		b.Unlock()
		time.Sleep(time.Second)
		b.Lock()
		b.Prune()
		b.Unlock()
		time.Sleep(time.Hour)
		b.Lock()
		defer b.Unlock()
		if !slices.Equal(b.ran, want) {
			t.Errorf("ran in the order %v", b.ran)
		}
	})
}

// TestPrune: what is not wanted goes at once, although its key is held back.
func TestPrune(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		b := newBench(2)
		b.gate.answers["k"] = func(int) error { return &flow.Rejection{Reason: flow.ReasonRate, RetryAfter: time.Hour} }
		for i := range 100 {
			b.ask(i, "k")
		}
		time.Sleep(time.Second)
		b.Lock()
		for i := range 99 {
			b.unwanted[i] = true
		}
		b.Prune()
		if n := len(b.valves["k"].items); n != 1 {
			t.Errorf("%d items are left, want 1", n)
		}
		b.unwanted[99] = true
		b.Unlock()
		time.Sleep(2 * time.Hour)
		b.Lock()
		defer b.Unlock()
		if len(b.valves) != 0 || len(b.ran) != 0 {
			t.Errorf("%d valves are left, %v ran", len(b.valves), b.ran)
		}
	})
}

// TestBusyValve: a gate that stays busy while nothing ends must not make a list grow.
func TestBusyValve(t *testing.T) {
	b := newBench(1)
	v := &valve[int]{width: 1}
	for range 1000 {
		b.shut(v, time.Hour, true)
		b.reopen(v)
	}
	if n := len(b.busy); n != 1 {
		t.Errorf("the valve is listed %d times, want once", n)
	}
	b.shut(v, time.Hour, true)
	if b.Freed(); v.closed {
		t.Error("a permit that was given back does not open the valve")
	}
}
