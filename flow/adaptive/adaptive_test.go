package adaptive

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/shed"
	"github.com/headgate/headgate/internal/bubbletest"
)

func mustKnee(t testing.TB, c KneeConfig) *Knee {
	t.Helper()
	k, err := NewKnee(c)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// fixed is an estimator that has one answer.
type fixed struct {
	limit   int64
	samples []Sample
}

func (f *fixed) Limit() int64 { return f.limit }
func (f *fixed) Update(s Sample) int64 {
	f.samples = append(f.samples, s)
	return f.limit
}

func TestGate(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		estimator := &fixed{limit: 3}
		var changes [][2]int64
		g := New("db", estimator, OnLimit(func(before, after int64) { changes = append(changes, [2]int64{before, after}) }))
		first, err := g.Acquire(t.Context(), flow.Request{Cost: 2})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Acquire(t.Context(), flow.Request{Cost: 2}); err == nil {
			t.Error("there were four units of three")
		}
		second, err := g.Acquire(t.Context(), flow.Request{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = g.Acquire(t.Context(), flow.Request{})
		rejection, ok := errors.AsType[*flow.Rejection](err)
		if !ok || *rejection != (flow.Rejection{Gate: "db", Reason: flow.ReasonBusy, Limit: 3, InUse: 3}) {
			t.Errorf("a full gate: %+v", err)
		}
		if nested, err := g.Acquire(first.Context(t.Context()), flow.Request{}); err != nil || nested.Held() {
			t.Errorf("inside itself: %v, held %t", err, nested.Held())
		}
		time.Sleep(100 * time.Millisecond)
		first.Done(flow.Success)
		first.Done(flow.Overload)
		estimator.limit = 1
		second.Done(flow.Overload)
		want := []Sample{{0, 100 * time.Millisecond, 2, flow.Success}, {0, 100 * time.Millisecond, 3, flow.Overload}}
		if !slices.Equal(estimator.samples, want) {
			t.Errorf("samples %v, want %v", estimator.samples, want)
		}
		if !slices.Equal(changes, [][2]int64{{3, 1}}) || g.Limit() != 1 {
			t.Errorf("changes %v, limit %d", changes, g.Limit())
		}
		// What costs more than the whole limit passes alone.
		large, err := g.Acquire(t.Context(), flow.Request{Cost: 5})
		if err != nil {
			t.Fatal(err)
		}
		_, err = g.Acquire(t.Context(), flow.Request{})
		if rejection, _ := errors.AsType[*flow.Rejection](err); rejection == nil || rejection.RetryAfter != 100*time.Millisecond || rejection.Retry {
			t.Errorf("beside it: %+v", err)
		}
		large.Done(flow.Unused)
		if s := g.Stats(); len(estimator.samples) != 2 || s.InUse != 0 || s.Admitted != 3 ||
			s.Done[flow.Unused] != 1 || s.Rejected[flow.ReasonBusy] != 3 {
			t.Errorf("%d samples, %+v", len(estimator.samples), s)
		}
		if _, err := g.Acquire(t.Context(), flow.Request{Cost: -1}); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("an invalid request: %v", err)
		}
	})
}

func TestConfigsAreChecked(t *testing.T) {
	t.Parallel()
	fails := func(name string, err error, problems int) {
		t.Helper()
		invalid, ok := errors.AsType[*headgate.InvalidError](err)
		if !ok || len(invalid.Problems) != problems {
			t.Errorf("%s: %v, want %d problems", name, err, problems)
		}
	}
	_, err := NewKnee(KneeConfig{Min: -1, Max: -1, Ceiling: -1, Window: -1, Probe: -1, Depth: 0.5, Initial: -1})
	fails("all wrong", err, 6)
	_, err = NewKnee(KneeConfig{Min: 10, Max: 5})
	fails("out of order", err, 1)
	_, err = NewAIMD(Bounds{Min: 10, Max: 5}, 0)
	fails("AIMD", err, 1)
	_, err = NewVegas(Bounds{Initial: -1}, 0)
	fails("Vegas", err, 1)
	_, err = NewGradient2(Bounds{Max: headgate.MaxPermits + 1})
	fails("Gradient2", err, 1)
	for _, c := range []KneeConfig{{Min: 5000}, {Max: 3}, {Initial: 700}, {Min: 40}} {
		if _, err := NewKnee(c); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// feed has an estimator see a server whose work takes rtt whatever is in progress, and
// from where on is as much in progress as the limit allows.
func feed(e Estimator, from time.Duration, samples int, each time.Duration, rtt func(i int) time.Duration, outcome flow.Outcome) time.Duration {
	for i := range samples {
		d := rtt(i)
		from += each
		e.Update(Sample{Start: from - d, RTT: d, InFlight: e.Limit(), Outcome: outcome})
	}
	return from
}

func TestPublishedEstimators(t *testing.T) {
	t.Parallel()
	aimd, _ := NewAIMD(Bounds{}, time.Second)
	vegas, _ := NewVegas(Bounds{}, 1)
	gradient, _ := NewGradient2(Bounds{})
	same := func(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }
	for name, e := range map[string]Estimator{"AIMD": aimd, "Vegas": vegas, "Gradient2": gradient} {
		now := feed(e, 0, 200, 5*time.Millisecond, same(50*time.Millisecond), flow.Success)
		grown := e.Limit()
		if grown <= 20 {
			t.Errorf("%s: %d, though nothing waits", name, grown)
		}
		if e.Update(Sample{Start: now, RTT: time.Hour, InFlight: grown, Outcome: flow.Ignore}) != grown {
			t.Errorf("%s learns from what is to be ignored", name)
		}
		feed(e, now, 50, 5*time.Millisecond, same(2*time.Second), flow.Overload)
		if e.Limit() >= grown {
			t.Errorf("%s: %d, then %d under overload", name, grown, e.Limit())
		}
	}
	if aimd.Limit() != 20 {
		t.Errorf("AIMD: %d, want its floor", aimd.Limit())
	}
	// A success that is too slow is overload to AIMD, and nothing grows that is not used.
	before := aimd.Update(Sample{RTT: time.Millisecond, InFlight: 20, Outcome: flow.Success})
	if after := aimd.Update(Sample{RTT: 2 * time.Second, InFlight: 20, Outcome: flow.Success}); after >= before && before > 20 {
		t.Errorf("AIMD: %d, then %d", before, after)
	}
	if after := aimd.Update(Sample{RTT: time.Millisecond, InFlight: 2, Outcome: flow.Success}); after > aimd.Limit() {
		t.Errorf("AIMD grows to %d though little is in use", after)
	}
}

func TestKneeStaysWithinItsBounds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		k := mustKnee(t, KneeConfig{Initial: 10, Min: 3, Max: 40, Seed: seed, Ceiling: time.Second})
		now := time.Duration(0)
		for range 5000 {
			now += time.Duration(random.Int64N(int64(20 * time.Millisecond)))
			rtt := time.Duration(random.ExpFloat64() * float64(50*time.Millisecond))
			switch random.IntN(50) {
			case 0:
				now += time.Duration(random.Int64N(int64(time.Hour)))
			case 1:
				rtt = 0
			case 2:
				rtt = time.Duration(random.Int64N(int64(time.Hour)))
			}
			s := Sample{Start: now - rtt, RTT: rtt, InFlight: 1 + random.Int64N(60), Outcome: flow.Outcome(random.IntN(flow.Outcomes))}
			if limit := k.Update(s); limit < 3 || limit > 40 || limit != k.Limit() {
				t.Fatalf("seed %d: a limit of %d after %+v", seed, limit, s)
			}
		}
	}
}

// Two that are made alike and see the same have the same limit at each moment.
func TestKneeIsAFunctionOfItsSamples(t *testing.T) {
	t.Parallel()
	a, b := mustKnee(t, KneeConfig{Seed: 7}), mustKnee(t, KneeConfig{Seed: 7})
	random := rand.New(rand.NewPCG(1, 1))
	now := time.Duration(0)
	moved := map[int64]bool{}
	for range 20000 {
		now += time.Duration(random.Int64N(int64(4 * time.Millisecond)))
		rtt := time.Duration(random.ExpFloat64() * float64(50*time.Millisecond))
		s := Sample{Start: now - rtt, RTT: rtt, InFlight: a.Limit(), Outcome: flow.Success}
		if x, y := a.Update(s), b.Update(s); x != y {
			t.Fatalf("%d and %d", x, y)
		}
		moved[a.Limit()] = true
	}
	if len(moved) < 5 {
		t.Errorf("the limit was %v only", moved)
	}
}

func TestKneeCutsForOverloadAndForItsCeiling(t *testing.T) {
	t.Parallel()
	same := func(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }
	for name, c := range map[string]struct {
		config  KneeConfig
		rtt     time.Duration
		outcome flow.Outcome
	}{
		"overload": {KneeConfig{Initial: 100}, 50 * time.Millisecond, flow.Overload},
		"ceiling":  {KneeConfig{Initial: 100, Ceiling: 100 * time.Millisecond}, 110 * time.Millisecond, flow.Success},
	} {
		k := mustKnee(t, c.config)
		now := feed(k, 0, 20, time.Millisecond, same(50*time.Millisecond), flow.Success)
		feed(k, now, 3000, time.Millisecond, same(c.rtt), c.outcome)
		if k.Limit() > 10 {
			t.Errorf("%s: the limit is %d after three seconds", name, k.Limit())
		}
	}
	k := mustKnee(t, KneeConfig{Initial: 100})
	feed(k, 0, 3000, time.Millisecond, same(0), flow.Ignore)
	if k.Limit() != 100 || k.Base() != 0 {
		t.Errorf("what is to be ignored makes a limit of %d, a base of %v", k.Limit(), k.Base())
	}
}

// Where nothing succeeds any more, the limit is lowered however much of the overload was tolerated before.
func TestKneeDoesNotTolerateThatNothingSucceeds(t *testing.T) {
	t.Parallel()
	same := func(int) time.Duration { return 50 * time.Millisecond }
	for _, tolerated := range []float64{0.5, 0.7, 0.9, 0.99} {
		k := mustKnee(t, KneeConfig{Initial: 100})
		now := feed(k, 0, 200, time.Millisecond, same, flow.Success)
		k.tolerated = tolerated
		if feed(k, now, 3000, time.Millisecond, same, flow.Overload); k.Limit() > 10 {
			t.Errorf("with %.2f tolerated, the limit is %d after three seconds of nothing but overload", tolerated, k.Limit())
		}
	}
}

// What little long work shows is vague. These are the numbers of three routes on a server that all work
// shares, after the limit went up by a quarter.
func TestLittleLongWorkIsVague(t *testing.T) {
	t.Parallel()
	before := summary{
		n: 150, limit: 50, binds: true, rate: 500e-9, mean: 100e6, blur: 0.2, back: 138,
		at: typical{8.4e6, 700e6}, err: typical{0.05, 0.2},
	}
	after := before
	after.mean, after.blur, after.at, after.err = 98e6, 0.3, typical{12e6, 200e6}, typical{0.06, 2.6}
	if times, blur := after.longer(&before); blur < sharp {
		t.Errorf("work takes %.2f times as long, ± %.2f; want a doubt of more than %.2f", times, blur, sharp)
	}
}

func TestGateConcurrently(t *testing.T) {
	t.Parallel()
	g := New("g", mustKnee(t, KneeConfig{Initial: 4, Max: 8}))
	var all sync.WaitGroup
	for worker := range 16 {
		all.Go(func() {
			for i := range 1000 {
				p, err := g.Acquire(t.Context(), flow.Request{})
				if err == nil {
					p.Done(flow.Outcome((worker + i) % flow.Outcomes))
					p.Done(flow.Success)
				}
			}
		})
	}
	all.Wait()
	s := g.Stats()
	if s.InUse != 0 || s.Admitted+s.Rejected[flow.ReasonBusy] != 16000 {
		t.Errorf("at the end %+v", s)
	}
}

func TestNoAllocations(t *testing.T) {
	g := New("g", mustKnee(t, KneeConfig{}))
	full := New("g", &fixed{limit: 1})
	if _, err := full.Acquire(t.Context(), flow.Request{}); err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	if n := testing.AllocsPerRun(1000, func() {
		p, _ := g.Acquire(ctx, flow.Request{})
		p.Done(flow.Success)
		_, _ = full.Acquire(ctx, flow.Request{})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAcquire(b *testing.B) {
	g := New("g", mustKnee(b, KneeConfig{}))
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		p, _ := g.Acquire(ctx, flow.Request{})
		p.Done(flow.Success)
	}
}

// What happens before the work begins is no part of its sample, through gates around the
// one that measures too.
func TestWorkBeginsLater(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		estimator := &fixed{limit: 1}
		queue, err := shed.New(New("db", estimator), shed.Config{Name: "queue"})
		if err != nil {
			t.Fatal(err)
		}
		var held time.Duration
		gate := flow.Chain(flow.Observe(queue, flow.Hooks{
			Done: func(_ flow.Request, _ flow.Outcome, d time.Duration) { held = d },
		}))
		p, err := gate.Acquire(t.Context(), flow.Request{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		p.Begin()
		time.Sleep(20 * time.Millisecond)
		p.Done(flow.Success)
		p.Begin() // does nothing
		if len(estimator.samples) != 1 || estimator.samples[0].RTT != 20*time.Millisecond || held != 20*time.Millisecond {
			t.Errorf("the samples are %+v, and the permit was held for %v; the work took 20ms", estimator.samples, held)
		}
	})
	flow.Permit{}.Begin()
}

func TestBase(t *testing.T) {
	t.Parallel()
	if base := New("db", &fixed{limit: 1}).Base(); base != 0 {
		t.Errorf("an estimator without a base has %v", base)
	}
	knee := mustKnee(t, KneeConfig{})
	g := New("db", knee)
	for i := range 200 {
		knee.Update(Sample{Start: time.Duration(i) * 10 * time.Millisecond, RTT: 30 * time.Millisecond, InFlight: 3, Outcome: flow.Success})
	}
	if base := g.Base(); base != 30*time.Millisecond {
		t.Errorf("the base is %v, want 30ms", base)
	}
}

// What comes to nothing as often where little is in progress does not lower a limit that does not bind. What
// comes to nothing only where much is does.
func TestOverloadThatDependsOnWhatIsInProgress(t *testing.T) {
	t.Parallel()
	for _, depends := range []bool{false, true} {
		const seeds = 50
		lowered := 0
		for seed := range uint64(seeds) {
			k := mustKnee(t, KneeConfig{Seed: seed})
			random := rand.New(rand.NewPCG(seed, 2))
			lowest := k.Limit()
			for i := range 6000 {
				s := Sample{RTT: 50 * time.Millisecond, InFlight: min(1+random.Int64N(10), k.Limit()), Outcome: flow.Success}
				share := 0.2
				if depends {
					share = 0.4 * float64(s.InFlight/6)
				}
				if random.Float64() < share {
					s.RTT, s.Outcome = 300*time.Millisecond, flow.Overload
				}
				s.Start = time.Duration(i)*10*time.Millisecond - s.RTT
				lowest = min(lowest, k.Update(s))
			}
			if lowest < 10 {
				lowered++
			}
		}
		// Before there is enough calm work to know, chance may lower the limit.
		if depends && lowered < seeds || !depends && lowered > seeds/5 {
			t.Errorf("it depends: %t: the limit went below what is in progress in %d of %d runs", depends, lowered, seeds)
		}
	}
}
