//go:build !race

package simulate_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/adaptive"
	"github.com/headgate/headgate/flow/simulate"
)

// What is healthy is not refused, whatever the mix of its work is, and whether the limit has a floor.
func TestHealthyIsNotRefused(t *testing.T) {
	t.Parallel()
	for _, scenario := range []simulate.Scenario{
		simulate.Healthy(0.7), simulate.Bimodal(0.63), simulate.Bimodal(0.7), simulate.HeavyTailed(0.7),
		simulate.Shifted(0.63), simulate.Routes(0.7), shared(simulate.Bimodal(0.7)), shared(simulate.HeavyTailed(0.7)),
	} {
		for _, s := range []subject{{}, {floor: 8}} {
			seeds(scenario, func(scenario simulate.Scenario) {
				r := s.run(t, scenario)
				if share := float64(r.All.Refused) / float64(r.All.Tries); share > 0.01 {
					missed(t, "%s, %+v, seed %d: %.4f refused, want 0.01", scenario.Name, s, scenario.Seed, share)
				}
			})
		}
	}
}

// A load that is healthy is not refused because there was hardly any before it. Of so little work, chance decides
// how long it takes.
func TestRestThenLoad(t *testing.T) {
	t.Parallel()
	const workers, work, rest = 100, 200 * time.Millisecond, 30 * time.Second
	capacity := workers / work.Seconds()
	for _, before := range []float64{0.01, 0.02, 0.1} {
		scenario := simulate.Scenario{
			Name: "a rest, then 0.6", Seed: 1, Length: rest + 20*time.Second, From: rest,
			Server: simulate.Server{Workers: simulate.Constant(workers), Work: simulate.Constant(work), Spread: 0.5},
			Loads: []simulate.Load{{
				Rate: simulate.Between(0, rest, before*capacity, 0.6*capacity), Peak: 0.6 * capacity, Deadline: time.Minute,
			}},
		}
		refused, calls := 0, 0
		for range 6 {
			r := subject{}.runWhole(t, scenario)
			refused, calls = refused+r.All.Refused, calls+r.All.Calls
			scenario.Seed += 100
		}
		share := float64(refused) / float64(calls)
		t.Logf("after %v of the capacity: %.3f refused", before, share)
		if share > 0.03 {
			missed(t, "after %v of the capacity: %.3f refused, want at most 0.03", before, share)
		}
	}
}

// What hangs whatever the limit is does not lower the limit for long, neither before nor after the limit has
// learnt what is usual. A test that tells costs a part of the capacity for a second or two.
func TestHangsAreNotTheLimits(t *testing.T) {
	t.Parallel()
	const later = 20 * time.Second
	sum, n := 0.0, 0.0
	for _, scenario := range []simulate.Scenario{
		simulate.Hangs(10, 0.1, 0), simulate.Hangs(20, 0.2, 0), simulate.Hangs(50, 0.1, 0), shared(simulate.Hangs(10, 0.2, 0)),
		simulate.Hangs(10, 0.1, later), simulate.Hangs(20, 0.2, later), shared(simulate.Hangs(50, 0.1, later)),
	} {
		for range 10 {
			r := subject{}.runWhole(t, scenario)
			share := float64(r.All.Refused) / float64(r.All.Tries)
			sum, n = sum+share, n+1
			if share > 0.25 {
				missed(t, "%s, seed %d: %.3f refused, want at most 0.25", scenario.Name, scenario.Seed, share)
			}
			scenario.Seed += 100
		}
	}
	t.Logf("%.4f refused", sum/n)
	if sum/n > 0.03 {
		missed(t, "%.4f refused in the mean, want at most 0.03", sum/n)
	}
}

// processes are gates before one server, each with a part of the requests, that know nothing of each other.
type processes struct {
	gates  []flow.Gate
	random *rand.Rand
}

func (p *processes) one() flow.Gate { return p.gates[p.random.IntN(len(p.gates))] }

func (p *processes) Acquire(ctx context.Context, r flow.Request) (flow.Permit, error) {
	return p.one().Acquire(ctx, r)
}

func (p *processes) TryAcquire(ctx context.Context, r flow.Request) (flow.Permit, error) {
	return p.one().TryAcquire(ctx, r)
}

// several returns what happens behind that many gates, whose limits have that upper bound, or the default
// one if it is zero.
func several(t *testing.T, scenario simulate.Scenario, gates uint64, most int64) *simulate.Result {
	t.Helper()
	virtual, now := simulate.Virtual()
	all := &processes{random: rand.New(rand.NewPCG(scenario.Seed, 4))}
	for i := range gates {
		estimator, err := adaptive.NewKnee(adaptive.KneeConfig{Max: most, Seed: scenario.Seed + i})
		if err != nil {
			t.Fatal(err)
		}
		all.gates = append(all.gates, adaptive.New("limit", estimator, adaptive.Clock(now)))
	}
	return simulate.Run(virtual, scenario, simulate.Subject{Gate: all})
}

// What others have in progress at the same server is no reason to refuse what is healthy.
func TestHealthyOfSeveralProcesses(t *testing.T) {
	t.Parallel()
	for _, scenario := range []simulate.Scenario{
		simulate.Healthy(0.7), simulate.Shifted(0.63), simulate.Routes(0.7), shared(simulate.Bimodal(0.7)),
	} {
		for _, most := range []int64{0, bounded(4)} {
			seeds(cut(scenario), func(scenario simulate.Scenario) {
				r := several(t, scenario, 4, most)
				if share := float64(r.All.Refused) / float64(r.All.Tries); share > 0.01 {
					missed(t, "%s, at most %d, seed %d: %.4f refused, want 0.01", scenario.Name, most, scenario.Seed, share)
				}
			})
		}
	}
}

// bounded is the upper bound for each of several gates: together, twice what is best for the server.
func bounded(gates int64) int64 { return 2 * int64(optimum) / gates }

// Growth gets more done for the gate that grows, at the expense of the others. So what gates have in
// progress together has to be bounded where they are many.
func TestSeveralProcessesWithABound(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scenario simulate.Scenario
		best     int64
	}{
		{simulate.Overload(), 22},
		{simulate.FiveTimesSlower(1.5), 27},
		{shared(simulate.Routes(2)), 27},
		{shared(simulate.HeavyTailed(1.5)), 24},
	} {
		for _, gates := range []int64{2, 8} {
			seeds(c.scenario, func(scenario simulate.Scenario) {
				scenario = cut(scenario)
				good, best := goodput(several(t, scenario, uint64(gates), bounded(gates))), fixed(t, scenario, c.best)
				t.Logf("%s: %d gates, goodput %.3f, with the best limit %.3f", scenario.Name, gates, good, best)
				if good < 0.9*best {
					missed(t, "%s, %d gates, seed %d: goodput %.3f, with the best limit %.3f; want 0.9 of that",
						scenario.Name, gates, scenario.Seed, good, best)
				}
			})
		}
	}
}

// The work of others at the same server makes one's own take longer, but no less gets done. So the limits do not
// rise to what all of them can bear.
func TestSeveralProcesses(t *testing.T) {
	t.Parallel()
	for _, gates := range []uint64{4, 8} {
		seeds(shared(simulate.Overload()), func(scenario simulate.Scenario) {
			scenario = cut(scenario)
			good, best := goodput(several(t, scenario, gates, 0)), fixed(t, scenario, 24)
			t.Logf("%s: %d gates, goodput %.3f, with the best limit %.3f", scenario.Name, gates, good, best)
			if good < 0.95*best {
				missed(t, "%s, %d gates, seed %d: goodput %.3f, with the best limit %.3f; want 0.95 of that",
					scenario.Name, gates, scenario.Seed, good, best)
			}
		})
	}
}

// Under too much of such work, as much gets done as with the best limit that does not move.
func TestAsGoodAsTheBestLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scenario simulate.Scenario
		best     int64
	}{
		{simulate.Bimodal(1.5), 60},
		{simulate.HeavyTailed(1.5), 40},
		{simulate.Shifted(1.5), 100},
		{simulate.Routes(2), 100},
		{simulate.FiveTimesSlower(0.7), 30},
		{simulate.FiveTimesSlower(1.5), 27},
		{simulate.Cold(1.5), 220},
		{shared(simulate.Bimodal(1.5)), 35},
		{shared(simulate.HeavyTailed(1.5)), 24},
		{shared(simulate.Shifted(1.5)), 35},
		{shared(simulate.Routes(2)), 27},
		{simulate.Lost(20, 0.2, 0, 3), 60},
		{shared(simulate.Lost(20, 0.2, 0, 3)), 60},
	} {
		seeds(c.scenario, func(scenario simulate.Scenario) {
			good, best := goodput(subject{}.run(t, scenario)), fixed(t, cut(scenario), c.best)
			t.Logf("%s: goodput %.3f, with the best limit %.3f", scenario.Name, good, best)
			if good < 0.9*best {
				missed(t, "%s, seed %d: goodput %.3f, with the best limit %.3f; want 0.9 of that", scenario.Name, scenario.Seed, good, best)
			}
		})
	}
}

// Callers who leave without a word when they have waited for too long are no reason to keep a limit at
// which nobody is answered in time.
func TestCallersWhoLeave(t *testing.T) {
	t.Parallel()
	for _, scenario := range []simulate.Scenario{simulate.FiveTimesSlower(0.7), shared(simulate.FiveTimesSlower(0.7))} {
		scenario.Loads[0].Leaves = true
		scenario.Loads[0].Deadline = 500 * time.Millisecond
		seeds(scenario, func(scenario simulate.Scenario) {
			good, best := goodput(subject{}.run(t, scenario)), fixed(t, cut(scenario), 24)
			t.Logf("%s: goodput %.3f, with a limit of 24 %.3f", scenario.Name, good, best)
			if good < 0.9*best {
				missed(t, "%s, seed %d: goodput %.3f, with a limit of 24 %.3f; want 0.9 of that", scenario.Name, scenario.Seed, good, best)
			}
		})
	}
}

// After an outage, what comes is soon admitted again, and no more of it is refused than comes in that time.
// While nothing is answered, little is sent.
func TestOutage(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{true, false} {
		for _, lasts := range []time.Duration{8 * time.Second, time.Minute} {
			seeds(simulate.Outage(140, lasts, fails), func(scenario simulate.Scenario) {
				r := subject{}.runWhole(t, scenario)
				t.Logf("%s: %d of %d calls refused afterwards", scenario.Name, r.All.Refused, r.All.Calls)
				if r.All.Refused > 2*140 {
					missed(t, "%s, seed %d: %d calls refused afterwards, want 280", scenario.Name, scenario.Seed, r.All.Refused)
				}
				scenario.From, scenario.To = simulate.OutageAt+2*time.Second, scenario.From
				if during := (subject{}).runWhole(t, scenario).All; !fails && during.Refused < during.Calls*9/10 {
					missed(t, "%s, seed %d: %d of %d calls refused during it, want nine tenths", scenario.Name, scenario.Seed, during.Refused, during.Calls)
				}
			})
		}
	}
}

// How soon the goodput is back after the work has become slower, and after the start.
func TestRecovers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scenario         simulate.Scenario
		from, to, within time.Duration
	}{
		{simulate.FiveTimesSlower(0.7), simulate.HalvedAt, simulate.BackAt, 3 * time.Second},
		{simulate.FiveTimesSlower(1.5), simulate.HalvedAt, simulate.BackAt, 3 * time.Second},
		{simulate.Cold(1.5), 0, 30 * time.Second, 2 * time.Second},
		{simulate.TenTimes(), simulate.HalvedAt, 60 * time.Second, 5 * time.Second},
	} {
		seeds(c.scenario, func(scenario simulate.Scenario) {
			took := subject{}.runWhole(t, scenario).Recovers(c.from, c.to, 0.9)
			t.Logf("%s: %v", scenario.Name, took)
			if took < 0 || took > c.within {
				missed(t, "%s, seed %d: 90 %% of goodput after %v, want %v", scenario.Name, scenario.Seed, took, c.within)
			}
		})
	}
}
