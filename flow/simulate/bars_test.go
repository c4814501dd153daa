package simulate_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/adaptive"
	"github.com/headgate/headgate/flow/permits"
	"github.com/headgate/headgate/flow/shed"
	"github.com/headgate/headgate/flow/simulate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/internal/race"
)

var clock = simulate.Clock{Sleep: time.Sleep, Settle: bubbletest.Wait}

// optimum is the best limit for the server of the scenarios.
var optimum = simulate.Best(20)

// subject is what is held to the bars: the limit alone, or with a queue in front.
type subject struct {
	initial, floor int64
	queue          bool
}

func (s subject) run(t *testing.T, scenario simulate.Scenario) *simulate.Result {
	t.Helper()
	return s.runWhole(t, cut(scenario))
}

// runWhole runs a scenario to its end, which is when what it shows happens.
func (s subject) runWhole(t *testing.T, scenario simulate.Scenario) *simulate.Result {
	t.Helper()
	estimator, err := adaptive.NewKnee(adaptive.KneeConfig{Initial: s.initial, Min: s.floor, Seed: scenario.Seed})
	if err != nil {
		t.Fatal(err)
	}
	of := simulate.Subject{Name: "knee", Limit: func() float64 { return float64(estimator.Limit()) }}
	if !s.queue {
		virtual, now := simulate.Virtual()
		of.Gate = adaptive.New("limit", estimator, adaptive.Clock(now))
		return simulate.Run(virtual, scenario, of)
	}
	var r *simulate.Result
	bubbletest.Test(t, func(t *testing.T) {
		of.Waits = true
		if of.Gate, err = shed.New(adaptive.New("limit", estimator), shed.Config{Name: "queue"}); err != nil {
			t.Fatal(err)
		}
		r = simulate.Run(clock, scenario, of)
	})
	return r
}

// cut is the scenario without what comes later than longest.
func cut(s simulate.Scenario) simulate.Scenario {
	if s.Length-s.From > longest {
		s.Length = s.From + longest
		s.To = min(s.To, s.Length)
	}
	return s
}

// soon is the scenario with a shorter time before it measures. It is for loads that do not change.
func soon(s simulate.Scenario) simulate.Scenario {
	s.From = min(s.From, settled)
	return s
}

// seeds has f called with versions of a scenario in which other things happen.
func seeds(s simulate.Scenario, f func(simulate.Scenario)) {
	for range runs {
		f(s)
		s.Seed += 100
	}
}

// highest is the highest mean of the limit over any stretch of that length.
func highest(r *simulate.Result, stretch time.Duration) float64 {
	most := 0.0
	for at := r.Scenario.From; at+stretch <= r.Scenario.Length; at += stretch {
		_, mean, _ := r.Limits(at, at+stretch)
		most = max(most, mean)
	}
	return most
}

func TestOverload(t *testing.T) {
	t.Parallel()
	quiet := subject{}.run(t, simulate.Quiet()).Latency(0.99)
	scenario := simulate.Overload()
	for _, s := range subjects {
		r := s.run(t, scenario)
		good, p99 := r.Goodput(r.Scenario.From, r.Scenario.Length), r.Latency(0.99)
		t.Logf("%+v: goodput %.3f, p99 %v, unloaded %v", s, good, p99, quiet)
		if good < 0.95 || p99 > 2*quiet {
			missed(t, "%+v, seed %d: goodput %.3f, p99 %v; want 0.95, %v", s, scenario.Seed, good, p99, 2*quiet)
		}
		scenario.Seed += 100 // other things happen to each subject
	}
}

// Callers give up so early that a limit that is too high answers nobody. The share of them that give up
// hardly changes with the limit then, and must not pass for one that has another cause.
func TestCallersGiveUpEarly(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{false, true} {
		scenario := simulate.Timeouts()
		scenario.Server.Shared = shared
		scenario.Length, scenario.From = 30*time.Second, 10*time.Second
		l := &scenario.Loads[0]
		l.Deadline, l.Rate, l.Peak = 150*time.Millisecond, simulate.Constant(600.0), 600 // 1.5×
		for range race.Fewer(40) {
			r := subject{}.run(t, scenario)
			if good := r.Goodput(r.Scenario.From, r.Scenario.Length); good < 0.5 {
				missed(t, "shared %t, seed %d: goodput %.3f, want 0.5", shared, scenario.Seed, good)
			}
			scenario.Seed++
		}
	}
}

// How soon the limit and the goodput follow when the capacity changes. Chance moves
// them, so the bars are for the median of some runs.
func TestCapacityChanges(t *testing.T) {
	t.Parallel()
	for _, scenario := range []simulate.Scenario{simulate.Halved(), simulate.Slowed()}[:race.Fewer(2)] {
		var down, up, back []time.Duration
		var limits []float64
		first := scenario.Seed
		for seed := range uint64(changes) {
			scenario.Seed = first + 100*seed
			r := subject{}.runWhole(t, scenario)
			near := func(from, to time.Duration) time.Duration {
				if d := r.Reaches(from, to, 0.2); d >= 0 {
					return d
				}
				return to - from
			}
			down = append(down, near(simulate.HalvedAt, simulate.BackAt))
			up = append(up, near(simulate.BackAt, scenario.Length))
			back = append(back, r.Recovers(simulate.BackAt, scenario.Length, 0.95))
			if good := r.Goodput(r.Scenario.From, r.Scenario.Length); good < 0.95 {
				missed(t, "%s, seed %d: goodput %.3f, want 0.95", scenario.Name, scenario.Seed, good)
			}
			limits = append(limits, highest(r, 10*time.Second))
		}
		t.Logf("%s: near the optimum after %v, and %v, 95 %% of goodput after %v", scenario.Name, down, up, back)
		for _, took := range [][]time.Duration{down, up, back} {
			slices.Sort(took)
		}
		slices.Sort(limits)
		const median = changes / 2
		if limits[median] > 1.5*optimum {
			missed(t, "%s: mean limits of %.1f; want %.1f at most", scenario.Name, limits, 1.5*optimum)
		}
		if down[median] > 3*time.Second || up[median] > 3*time.Second || back[median] < 0 || back[median] > 2*time.Second {
			missed(t, "%s: near the optimum after %v and %v, goodput back after %v; want 3 s, 3 s, 2 s",
				scenario.Name, down[median], up[median], back[median])
		}
	}
}

func TestNoDriftAndNoCollapse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scenario simulate.Scenario
		stretch  time.Duration
		good     float64 // of the capacity
	}{
		{simulate.Long(), time.Minute, 0.95},
		{simulate.Timeouts(), 10 * time.Second, 0.95},
		{simulate.FastFailures(), 10 * time.Second, 0.95},
	} {
		for _, s := range subjects {
			if c.stretch == time.Minute && s != (subject{}) {
				continue // half an hour once is enough
			}
			scenario, good, most, times := soon(c.scenario), 0.0, 0.0, 0.0
			for range runs {
				r := s.run(t, scenario)
				// Goodput counts work. Where callers give up early, the longest requests never end in time.
				done := (r.Scenario.Length - r.Scenario.From).Seconds() * 20 / (50 * time.Millisecond).Seconds()
				good += float64(r.All.Good) / done
				most = max(most, highest(r, c.stretch))
				scenario.Seed += 100
				if times++; c.stretch == time.Minute {
					break
				}
			}
			good /= times
			t.Logf("%s, %+v: goodput %.3f, highest limit %.1f", c.scenario.Name, s, good, most)
			if good < c.good || most > 1.5*optimum {
				missed(t, "%s, %+v: goodput %.3f, want %.2f; highest mean limit %.1f, want %.0f",
					c.scenario.Name, s, good, c.good, most, 1.5*optimum)
			}
		}
	}
}

func TestIdleThenBurst(t *testing.T) {
	t.Parallel()
	for _, s := range []subject{{queue: true}, {}}[:race.Fewer(2)] {
		seeds(simulate.Burst(), func(scenario simulate.Scenario) {
			if r := s.run(t, scenario); r.All.Refused > 0 || r.All.Good < r.All.Calls {
				missed(t, "%+v, seed %d: %+v, want nothing refused", s, scenario.Seed, r.All)
			}
		})
	}
}

// shared is the scenario with a server that all requests share.
func shared(s simulate.Scenario) simulate.Scenario {
	s.Name += ", shared"
	s.Server.Shared = true
	return s
}

// What fails whatever the limit is must not lower it.
func TestFailuresThatAreNotTheLimits(t *testing.T) {
	t.Parallel()
	r := subject{}.run(t, soon(simulate.Stalled()))
	if share := float64(r.All.Good) / float64(r.All.Calls); share < 0.79 || r.All.Refused > r.All.Calls/1000 {
		missed(t, "%.3f of the calls are good, want 0.8; %+v", share, r.All)
	}
	// A seventh is a little more than is borne without a test.
	seventh := simulate.MostDown()
	seventh.Name, seventh.Server.Down = "a seventh fails at once", simulate.Constant(1./7)
	seventh.Loads[0].Rate = simulate.Constant(280.0) // 0.7×
	for _, scenario := range []simulate.Scenario{
		simulate.MostDown(), seventh, simulate.Lost(4, 1./14, 1./14, 0.7), shared(simulate.Lost(4, 1./14, 1./14, 0.7)),
		simulate.Lost(4, 0.1, 0.1, 0.7), simulate.Lost(10, 0.2, 0, 0.7),
	} {
		seeds(soon(scenario), func(scenario simulate.Scenario) {
			r := subject{}.run(t, scenario)
			t.Logf("%s: %.4f refused", scenario.Name, float64(r.All.Refused)/float64(r.All.Calls))
			if r.All.Refused > r.All.Calls/100 {
				missed(t, "%s, seed %d: %d of %d calls are refused, want a hundredth",
					scenario.Name, scenario.Seed, r.All.Refused, r.All.Calls)
			}
		})
	}
}

// told is an estimator that is told Overload by those who would say Ignore.
type told struct{ adaptive.Estimator }

func (e told) Update(s adaptive.Sample) int64 {
	if s.Outcome == flow.Ignore {
		s.Outcome = flow.Overload
	}
	return e.Estimator.Update(s)
}

// A server that fails at once when it has too much to do has little in progress, and the limit may be far
// above that. It must come down.
func TestFastFailuresFromAbove(t *testing.T) {
	t.Parallel()
	seeds(soon(simulate.FastFailures()), func(scenario simulate.Scenario) {
		knee, err := adaptive.NewKnee(adaptive.KneeConfig{Initial: 500, Seed: scenario.Seed})
		if err != nil {
			t.Fatal(err)
		}
		virtual, now := simulate.Virtual()
		r := simulate.Run(virtual, cut(scenario), simulate.Subject{
			Gate:  adaptive.New("limit", told{knee}, adaptive.Clock(now)),
			Limit: func() float64 { return float64(knee.Limit()) },
		})
		good, most := goodput(r), highest(r, 10*time.Second)
		t.Logf("goodput %.3f, highest limit %.1f", good, most)
		if good < 0.95 || most > 1.5*optimum {
			missed(t, "seed %d: goodput %.3f, want 0.95; highest mean limit %.1f, want %.0f", scenario.Seed, good, most, 1.5*optimum)
		}
	})
}

func TestClasses(t *testing.T) {
	t.Parallel()
	seeds(soon(simulate.Classes()), func(scenario simulate.Scenario) {
		r := subject{queue: true}.run(t, scenario)
		critical := r.Classes[1]
		share := float64(critical.Good) / float64(critical.Calls)
		good := r.Goodput(r.Scenario.From, r.Scenario.Length)
		t.Logf("critical %.5f, goodput %.3f", share, good)
		if share < 0.999 || good < 0.95 {
			missed(t, "seed %d: %.5f of the critical calls are good, want 0.999; goodput %.3f", scenario.Seed, share, good)
		}
	})
}

func TestNoisyTenant(t *testing.T) {
	t.Parallel()
	seeds(soon(simulate.NoisyTenant()), func(scenario simulate.Scenario) {
		r := subject{queue: true}.run(t, scenario)
		if jain, good := r.Jain(), r.Goodput(r.Scenario.From, r.Scenario.Length); jain < 0.95 || good < 0.95 {
			missed(t, "seed %d: Jain's index %.3f, goodput %.3f, want 0.95", scenario.Seed, jain, good)
		}
	})
}

func TestLayersOfRetries(t *testing.T) {
	t.Parallel()
	tries := func(obedient bool) float64 {
		r := subject{}.run(t, soon(simulate.Layers(obedient)))
		return float64(r.All.Tries) / float64(r.All.Calls)
	}
	marked, unmarked := tries(true), tries(false)
	if marked > 1.1 || unmarked < 10 {
		missed(t, "%.2f tries a call with marks, %.2f without; want 1.1, and many", marked, unmarked)
	}
}

// fixed returns the goodput with a limit that does not move.
func fixed(t *testing.T, s simulate.Scenario, limit int64) float64 {
	t.Helper()
	gate, err := permits.New(permits.Config{Limit: limit, Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	virtual, _ := simulate.Virtual()
	return goodput(simulate.Run(virtual, s, simulate.Subject{Gate: gate}))
}

// goodput is that of the time which the scenario measures.
func goodput(r *simulate.Result) float64 { return r.Goodput(r.Scenario.From, r.Scenario.Length) }

// The best limit is what it is said to be: a little less gets less done.
func TestBest(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{10, 20} {
		scenario := cut(simulate.Halved())
		scenario.Server.Workers = simulate.Constant(workers)
		good := func(limit int64) float64 { return fixed(t, scenario, limit) }
		best := int64(simulate.Best(workers))
		most, less := good(best), good(best-1)
		t.Logf("%d workers: %d: %.3f, %d: %.3f", workers, best, most, best-1, less)
		if most < 0.97 || less >= 0.97 {
			missed(t, "%d workers: %d: %.3f, %d: %.3f; want 0.97, and less", workers, best, most, best-1, less)
		}
	}
}

// In a shared server nobody waits: twice as many requests as workers all take twice as long, and as
// much gets done.
func TestShared(t *testing.T) {
	t.Parallel()
	scenario := soon(cut(simulate.Halved()))
	scenario.Server.Workers, scenario.Server.Shared = simulate.Constant(20), true
	scenario.Loads[0].Rate = simulate.Constant(4000.0)
	scenario.Loads[0].Peak = 4000
	scenario.Loads[0].Sizes = simulate.Mixed(1, 1, simulate.Constant(0.0))
	gate, err := permits.New(permits.Config{Limit: 40, Shared: true})
	if err != nil {
		t.Fatal(err)
	}
	virtual, _ := simulate.Virtual()
	r := simulate.Run(virtual, scenario, simulate.Subject{Gate: gate})
	if good, p50 := goodput(r), r.Latency(0.5); good < 0.97 || p50 < 98*time.Millisecond || p50 > 102*time.Millisecond {
		missed(t, "goodput %.3f, median %v; want 1, 100ms", good, p50)
	}
}

// A server without workers, shared or not, answers nobody until it has some again.
func TestWithoutWorkers(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{false, true} {
		scenario := simulate.Quiet()
		scenario.Length, scenario.From = 6*time.Second, 0
		scenario.Server.Shared = shared
		scenario.Server.Workers = simulate.Between(2*time.Second, 4*time.Second, 0, 20)
		gate, err := permits.New(permits.Config{Limit: 1000, Shared: true})
		if err != nil {
			t.Fatal(err)
		}
		virtual, _ := simulate.Virtual()
		r := simulate.Run(virtual, scenario, simulate.Subject{Gate: gate})
		good := func(from, to int) (sum float64) {
			for _, p := range r.Points {
				if p.At >= time.Duration(from)*time.Second && p.At < time.Duration(to)*time.Second {
					sum += p.Good
				}
			}
			return sum
		}
		// A queue ends what its workers have begun.
		if before, none, after := good(0, 2), good(3, 4), good(5, 6); before == 0 || none != 0 || after == 0 {
			t.Errorf("shared %t: work answered before %.0f, without workers %.0f, after %.0f", shared, before, none, after)
		}
	}
}

// The same scenario and the same subject have the same result.
func TestRunIsDeterministic(t *testing.T) {
	t.Parallel()
	scenario := soon(simulate.Classes())
	scenario.Length = 10 * time.Second
	for _, s := range []subject{{queue: true}, {}}[:race.Fewer(2)] {
		a, b := s.run(t, scenario), s.run(t, scenario)
		if !reflect.DeepEqual(a.Points, b.Points) || !reflect.DeepEqual(a.All, b.All) || a.Latency(0.5) != b.Latency(0.5) {
			t.Errorf("%+v: %+v, then %+v", s, a.All, b.All)
		}
	}
}
