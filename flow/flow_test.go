package flow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/permits"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/store/memory"
)

func mustPermits(t testing.TB, c permits.Config) *permits.Gate {
	t.Helper()
	g, err := permits.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestClass(t *testing.T) {
	t.Parallel()
	before := flow.Class(2)
	for rank := range flow.Classes {
		c := flow.ClassOfRank(rank)
		if c.Rank() != rank || c >= before {
			t.Errorf("rank %d is %v, of rank %d", rank, c, c.Rank())
		}
		before = c
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var back flow.Class
		if err := json.Unmarshal(text, &back); err != nil || back != c {
			t.Errorf("%s is read as %v, %v", text, back, err)
		}
	}
	if flow.Class(0) != flow.Critical {
		t.Error("the zero class is not critical")
	}
	for _, name := range []string{"", "Critical", "none", strings.Repeat("x", 1000)} {
		if _, err := flow.ParseClass(name); !errors.Is(err, headgate.ErrInvalid) || len(err.Error()) > 200 {
			t.Errorf("ParseClass(%.10q): %v", name, err)
		}
	}
	if _, err := flow.Class(7).MarshalText(); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("a class that is none is written: %v", err)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for i := range flow.Reasons {
		seen[flow.Reason(i).String()] = true
	}
	for i := range flow.Outcomes {
		seen[flow.Outcome(i).String()] = true
	}
	if len(seen) != flow.Reasons+flow.Outcomes || seen[""] {
		t.Errorf("names: %v", seen)
	}
	if s := flow.Reason(200).String() + flow.Outcome(200).String() + flow.Class(100).String(); s != "reason(200)outcome(200)class(100)" {
		t.Errorf("what is none: %s", s)
	}
}

func TestRejection(t *testing.T) {
	t.Parallel()
	cause := errors.New("why")
	for _, c := range []struct {
		rejection flow.Rejection
		shed      bool
		text      string
	}{
		{
			flow.Rejection{Gate: "db", Reason: flow.ReasonBusy, RetryAfter: 1500 * time.Millisecond, Retry: true, Limit: 3, InUse: 2, Waiting: 1},
			true, `flow: gate "db": no permit is free (2 of 3 in use, 1 waiting); fits in about 1.5s`,
		},
		{
			flow.Rejection{Gate: "db", Reason: flow.ReasonTooLarge, RetryAfter: headgate.Never},
			true, `flow: gate "db": the cost exceeds the limit; do not retry`,
		},
		{
			flow.Rejection{Gate: "r", Reason: flow.ReasonRate, Retry: true, Cause: cause},
			false, `flow: gate "r": denied by rate`,
		},
	} {
		err := error(&c.rejection)
		if err.Error() != c.text || errors.Is(err, flow.ErrShed) != c.shed || errors.Is(err, cause) != (c.rejection.Cause != nil) {
			t.Errorf("%v, shed %t; want %s, %t", err, errors.Is(err, flow.ErrShed), c.text, c.shed)
		}
	}
}

// noted is a gate that notes in which order it and others were asked and given back.
type noted struct {
	name string
	log  *[]string
	err  error
}

type holder struct {
	flow.Slot
	of *noted
}

func (h *holder) GiveBack(o flow.Outcome) {
	*h.of.log = append(*h.of.log, h.of.name+" "+o.String())
}

type boundKey string

func (h *holder) Bind(ctx context.Context, _ flow.Permit) context.Context {
	return context.WithValue(ctx, boundKey(h.of.name), true)
}

func (g *noted) Acquire(context.Context, flow.Request) (flow.Permit, error) {
	*g.log = append(*g.log, g.name)
	if g.err != nil {
		return flow.Permit{}, g.err
	}
	h := &holder{of: g}
	return h.Issue(h), nil
}

func (g *noted) TryAcquire(ctx context.Context, r flow.Request) (flow.Permit, error) {
	return g.Acquire(ctx, r)
}

func TestChain(t *testing.T) {
	t.Parallel()
	var log []string
	a, b, c := &noted{name: "a", log: &log}, &noted{name: "b", log: &log}, &noted{name: "c", log: &log}
	chain := flow.Chain(a, b, c)
	for _, outcome := range []flow.Outcome{flow.Success, flow.Overload, flow.Unused, 99} {
		log = nil
		p, err := chain.Acquire(t.Context(), flow.Request{})
		if err != nil {
			t.Fatal(err)
		}
		ctx := p.Context(t.Context())
		for _, name := range []string{"a", "b", "c"} {
			if ctx.Value(boundKey(name)) == nil {
				t.Errorf("the context does not know the permit of %s", name)
			}
		}
		if !p.Done(outcome) || p.Done(outcome) {
			t.Error("the first Done counts, and no other")
		}
		if outcome == 99 {
			outcome = flow.Ignore
		}
		o := " " + outcome.String()
		if want := []string{"a", "b", "c", "c" + o, "b" + o, "a" + o}; !slices.Equal(log, want) {
			t.Errorf("%v, want %v", log, want)
		}
	}
	log = nil
	c.err = errors.New("no")
	if _, err := chain.TryAcquire(t.Context(), flow.Request{}); !errors.Is(err, c.err) {
		t.Errorf("a gate that refuses: %v", err)
	}
	if want := []string{"a", "b", "c", "b unused", "a unused"}; !slices.Equal(log, want) {
		t.Errorf("%v, want %v", log, want)
	}
	if p, err := flow.Chain().Acquire(t.Context(), flow.Request{}); err != nil || !p.Done(flow.Success) {
		t.Errorf("a chain of no gates: %v", err)
	}
}

func TestShadow(t *testing.T) {
	t.Parallel()
	inner := mustPermits(t, permits.Config{Limit: 1, Queue: 5})
	var refused, admitted int
	gate := flow.Shadow(flow.Observe(inner, flow.Hooks{
		Admitted: func(context.Context, flow.Request, time.Duration) { admitted++ },
		Rejected: func(context.Context, flow.Request, *flow.Rejection, time.Duration) { refused++ },
	}))
	first, err := gate.Acquire(t.Context(), flow.Request{})
	if err != nil {
		t.Fatal(err)
	}
	second, err := gate.Acquire(t.Context(), flow.Request{}) // does not wait
	if err != nil || second.Held() || refused != 1 || admitted != 1 {
		t.Errorf("%v, held %t, %d refused, %d admitted", err, second.Held(), refused, admitted)
	}
	if second.Done(flow.Success) || !first.Done(flow.Success) || inner.InUse("") != 0 {
		t.Error("permits of a shadow are given back wrongly")
	}
	if _, err := gate.Acquire(t.Context(), flow.Request{Cost: -1}); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("an invalid request: %v", err)
	}
}

func TestObserve(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		var log []string
		note := func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) }
		hooks := flow.Hooks{
			Admitted: func(_ context.Context, r flow.Request, waited time.Duration) { note("admitted %s %v", r.Key, waited) },
			Rejected: func(_ context.Context, r flow.Request, is *flow.Rejection, waited time.Duration) {
				note("rejected %s %v %v", r.Key, is.Reason, waited)
			},
			Failed: func(_ context.Context, r flow.Request, err error, waited time.Duration) {
				note("failed %s %t %v", r.Key, errors.Is(err, context.DeadlineExceeded), waited)
			},
			Done: func(r flow.Request, o flow.Outcome, held time.Duration) { note("done %s %v %v", r.Key, o, held) },
		}
		inner := mustPermits(t, permits.Config{Limit: 1, Queue: 5, MaxWait: time.Second})
		gate := flow.Observe(inner, hooks)
		p, err := gate.Acquire(t.Context(), flow.Request{Key: "a"})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = gate.Acquire(t.Context(), flow.Request{Key: "a"})
		_, _ = gate.TryAcquire(t.Context(), flow.Request{Key: "a"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, _ = gate.Acquire(ctx, flow.Request{Key: "a"})
		if nested, err := gate.Acquire(p.Context(t.Context()), flow.Request{Key: "a"}); err != nil {
			t.Errorf("inside itself: %v", err)
		} else {
			nested.Done(flow.Ignore)
		}
		p.Done(flow.Overload)
		p.Done(flow.Overload)
		want := []string{
			"admitted a 0s", "rejected a waited 1s", "rejected a busy 0s", "failed a true 1ms",
			"admitted a 0s", "done a ignore 0s", "done a overload 1.001s",
		}
		if !slices.Equal(log, want) {
			t.Errorf("%q,\nwant %q", log, want)
		}
		bare := flow.Observe(inner, flow.Hooks{})
		if p, err := bare.TryAcquire(t.Context(), flow.Request{}); err != nil || !p.Done(flow.Success) {
			t.Errorf("without hooks: %v", err)
		}
		p, _ = gate.Acquire(t.Context(), flow.Request{Key: "b"})
		if _, err := bare.TryAcquire(t.Context(), flow.Request{Key: "b"}); err == nil {
			t.Error("there were two permits")
		}
		p.Done(flow.Success)
	})
}

func TestRate(t *testing.T) {
	t.Parallel()
	limiter := headgate.New(memory.New(), headgate.MustRule("r", headgate.PerHour(2)))
	gate := flow.Rate("rate", limiter)
	take := func(r flow.Request) (flow.Permit, error) { return gate.Acquire(t.Context(), r) }
	first, err := take(flow.Request{Key: "a", Cost: 2})
	if err != nil {
		t.Fatal(err)
	}
	_, err = take(flow.Request{Key: "a"})
	rejection, ok := errors.AsType[*flow.Rejection](err)
	denied, _ := errors.AsType[*headgate.DeniedError](err)
	if !ok || rejection.Reason != flow.ReasonRate || !rejection.Retry || rejection.RetryAfter <= 0 ||
		!errors.Is(err, headgate.ErrDenied) || errors.Is(err, flow.ErrShed) || denied.Decision.Rule.Name() != "r" {
		t.Errorf("a denial: %+v", err)
	}
	_, err = take(flow.Request{Key: "b", Cost: 3})
	if rejection, _ := errors.AsType[*flow.Rejection](err); rejection.Retry || rejection.RetryAfter != headgate.Never {
		t.Errorf("what can never fit: %+v", rejection)
	}
	// What never began is refunded, once; what was done is not.
	first.Done(flow.Unused)
	first.Done(flow.Unused)
	second, err := take(flow.Request{Key: "a", Cost: 2})
	if err != nil {
		t.Fatalf("after a refund: %v", err)
	}
	second.Done(flow.Success)
	if _, err := take(flow.Request{Key: "a"}); err == nil {
		t.Error("what was done was refunded")
	}
	if _, err := take(flow.Request{Class: 9}); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("an invalid request: %v", err)
	}
}

func TestRateThatDelays(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		limit := headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 1, Period: time.Second, Burst: 5}
		store := memory.New()
		gate := flow.Rate("rate", headgate.New(store, headgate.MustRule("r", limit)))
		began := time.Now()
		for i := range 3 {
			if _, err := gate.Acquire(t.Context(), flow.Request{}); err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("three requests at one a second took %v", took)
		}
		// What would have to be held is refused, or given up, and costs nothing.
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := gate.Acquire(ctx, flow.Request{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a context that ends: %v", err)
		}
		_, err := gate.TryAcquire(t.Context(), flow.Request{})
		if rejection, ok := errors.AsType[*flow.Rejection](err); !ok || rejection.RetryAfter != 999*time.Millisecond {
			t.Errorf("TryAcquire: %+v", err)
		}
		time.Sleep(999 * time.Millisecond)
		if _, err := gate.TryAcquire(t.Context(), flow.Request{}); err != nil {
			t.Errorf("when it fits: %v", err)
		}
	})
}

// A chain charges a rate for nothing that the next gate refuses.
func TestChainRefundsRates(t *testing.T) {
	t.Parallel()
	limiter := headgate.New(memory.New(), headgate.MustRule("r", headgate.PerHour(2)))
	busy := mustPermits(t, permits.Config{Limit: 1})
	chain := flow.Chain(flow.Rate("rate", limiter), busy)
	p, err := chain.Acquire(t.Context(), flow.Request{})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if _, err := chain.Acquire(t.Context(), flow.Request{}); !errors.Is(err, flow.ErrShed) {
			t.Fatalf("a gate that is full: %v", err)
		}
	}
	p.Done(flow.Success)
	if _, err := chain.Acquire(t.Context(), flow.Request{}); err != nil {
		t.Errorf("the second of two in the hour: %v", err)
	}
}

func TestChainDoesNotAllocate(t *testing.T) {
	chain := flow.Chain(mustPermits(t, permits.Config{Limit: 1}), mustPermits(t, permits.Config{Limit: 1}))
	ctx := context.Background()
	if n := testing.AllocsPerRun(1000, func() {
		p, err := chain.Acquire(ctx, flow.Request{Key: "k"})
		if err != nil {
			t.Error(err)
		}
		p.Done(flow.Success)
	}); n >= 1 { // the pool may be emptied now and then
		t.Errorf("Acquire and Done allocate %v times", n)
	}
}
