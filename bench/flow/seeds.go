package flow

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/flow/adaptive"
	"github.com/headgate/headgate/flow/simulate"
)

// seeds is how often a scenario of the second part of the page runs.
const seeds = 30

// group is a part of the scenarios that run with many seeds.
type group struct {
	title, text string
	scenarios   []simulate.Scenario
}

func groups() []group {
	return []group{
		{"Healthy load", "Nothing is wrong: what is refused here is harm.", []simulate.Scenario{
			simulate.Healthy(0.7), simulate.Bimodal(0.63), simulate.Bimodal(0.7), simulate.HeavyTailed(0.7),
			simulate.Shifted(0.63), simulate.Routes(0.7),
		}},
		{"Too much load, and change", "", []simulate.Scenario{
			simulate.Bimodal(1.5), simulate.HeavyTailed(1.5), simulate.Shifted(1.5), simulate.Routes(2),
			simulate.FiveTimesSlower(0.7), simulate.FiveTimesSlower(1.5), simulate.Cold(0.7), simulate.Cold(1.5),
			simulate.TenTimes(),
		}},
		{"Kept aside", "Nothing was chosen by looking at these.", aside()},
	}
}

// aside are scenarios that nobody looked at while the estimator was designed.
func aside() []simulate.Scenario {
	const half, end = 45 * time.Second, time.Hour
	server := func(workers int, work time.Duration) simulate.Server {
		return simulate.Server{Workers: simulate.Constant(workers), Work: simulate.Constant(work), Spread: 0.5}
	}
	// The load is times × workers, in the mean size of requests at the beginning.
	one := func(name string, s simulate.Server, sizes simulate.Sizes, times func(time.Duration) float64) simulate.Scenario {
		l := simulate.Load{Sizes: sizes, Deadline: 2 * time.Second}
		mean := simulate.Constant(1.0)
		if sizes.Mean != nil {
			mean = sizes.Mean
		}
		l.Rate = func(at time.Duration) float64 {
			return times(at) * float64(s.Workers(0)) / s.Work(0).Seconds() / mean(at)
		}
		for at := time.Duration(0); at < 2*half; at += 100 * time.Millisecond {
			l.Peak = max(l.Peak, l.Rate(at))
		}
		return simulate.Scenario{
			Name: name, Seed: 50, From: 10 * time.Second, Length: 2 * half, Server: s, Loads: []simulate.Load{l},
		}
	}
	back := simulate.Mixed(1, 200, simulate.Between(half, end, 0.1, 0.5))
	rare := simulate.Mixed(2, 500, simulate.Constant(0.05))
	swing := func(at time.Duration) float64 { return 0.45 + 0.25*math.Sin(2*math.Pi*at.Seconds()/20) }
	bursts := func(at time.Duration) float64 {
		if at%(5*time.Second) < time.Second {
			return 2
		}
		return 0.3
	}
	slow := server(20, time.Millisecond)
	slow.Work = simulate.Between(half, end, 3*time.Millisecond, time.Millisecond)
	lost := server(100, time.Millisecond)
	lost.Workers = simulate.Between(half, end, 60, 100)
	millisecond := server(20, time.Millisecond)
	return []simulate.Scenario{
		one("the share of 200 ms goes from every second to every tenth, 0.7×", millisecond, back, simulate.Constant(0.7)),
		one("the share of 200 ms goes from every second to every tenth, 1.3×", millisecond, back, simulate.Constant(1.3)),
		one("2 ms, every twentieth 500 ms, 0.65×", millisecond, rare, simulate.Constant(0.65)),
		one("2 ms, every twentieth 500 ms, 2×", millisecond, rare, simulate.Constant(2.0)),
		one("a heavier tail, 0.6×", server(20, 50*time.Millisecond), simulate.Pareto(1.3), simulate.Constant(0.6)),
		one("a heavier tail, 2×", server(20, 50*time.Millisecond), simulate.Pareto(1.3), simulate.Constant(2.0)),
		one("four workers, 0.6×", server(4, 50*time.Millisecond), simulate.Sizes{}, simulate.Constant(0.6)),
		one("four workers, 1.5×", server(4, 50*time.Millisecond), simulate.Sizes{}, simulate.Constant(1.5)),
		one("1 and 200 ms, the load swings from 0.2× to 0.7×", millisecond, simulate.Mixed(1, 200, simulate.Constant(0.1)), swing),
		one("1 and 200 ms, three times as slow, 0.7×", slow, simulate.Mixed(1, 200, simulate.Constant(0.1)), simulate.Constant(0.7)),
		one("1 and 200 ms, 100 workers, then 60, 1.5×", lost, simulate.Mixed(1, 200, simulate.Constant(0.1)), simulate.Constant(1.5)),
		one("bursts of 2× for a second in five", server(20, 50*time.Millisecond), simulate.Sizes{}, bursts),
	}
}

// manySeeds begins the second part of the page.
const manySeeds = `
## Mixed work, and the worst of many runs

Each scenario below runs with many seeds: ` + "`runs`" + ` says how many. **goodput** is a share of that of the best
limit that does not move (tried: 8 to 1000), on average and in the worst run. **refused** is a share of all
attempts, on average and in the worst run. **90 % after** is how long it takes after the change, or
after the start, until nine tenths of the capacity get done, in the median and in the worst run.
`

// best is the best limit that does not move, and its goodput by seed.
type best struct {
	limit int64
	good  []float64
}

func goodput(r *simulate.Result) float64 { return r.Goodput(r.Scenario.From, r.Scenario.Length) }

// seeded returns the scenario in which other things happen.
func seeded(s simulate.Scenario, seed int) simulate.Scenario {
	s.Seed += 1000 * uint64(seed)
	return s
}

// virtual runs a scenario without a bubble.
func virtual(s simulate.Scenario, e adaptive.Estimator) *simulate.Result {
	clock, now := simulate.Virtual()
	limit := adaptive.New("limit", e, adaptive.Clock(now))
	return simulate.Run(clock, s, simulate.Subject{Gate: limit, Limit: limitOf(limit)})
}

// constant is an estimator that learns nothing.
type constant int64

func (c constant) Limit() int64                 { return int64(c) }
func (c constant) Update(adaptive.Sample) int64 { return int64(c) }

func findBest(s simulate.Scenario) best {
	var b best
	most := 0.0
	for _, n := range []int64{8, 16, 20, 22, 24, 27, 30, 35, 40, 60, 100, 220, 260, 1000} {
		sum := 0.0
		for seed := range 2 {
			sum += goodput(virtual(seeded(s, seed), constant(n)))
		}
		if sum > most*1.0005 {
			b.limit, most = n, sum
		}
	}
	for seed := range seeds {
		b.good = append(b.good, goodput(virtual(seeded(s, seed), constant(b.limit))))
	}
	return b
}

// entrant takes part with many seeds: an estimator, or a contender of another library with fewer.
type entrant struct {
	name     string
	estimate func(seed uint64) (adaptive.Estimator, error)
	other    *contender
	runs     int
}

func entrants() []entrant {
	b := adaptive.Bounds{Initial: initial, Min: 1, Max: highest}
	knee := func(floor int64) func(uint64) (adaptive.Estimator, error) {
		return func(seed uint64) (adaptive.Estimator, error) {
			return adaptive.NewKnee(adaptive.KneeConfig{Initial: initial, Min: floor, Max: highest, Seed: seed})
		}
	}
	all := []entrant{
		{name: "Headgate, knee", estimate: knee(0), runs: seeds},
		{name: "Headgate, knee, at least 8", estimate: knee(8), runs: seeds},
		{name: "Gradient2", estimate: func(uint64) (adaptive.Estimator, error) { return adaptive.NewGradient2(b) }, runs: seeds},
		{name: "Vegas", estimate: func(seed uint64) (adaptive.Estimator, error) { return adaptive.NewVegas(b, seed) }, runs: seeds},
		{name: "AIMD", estimate: func(uint64) (adaptive.Estimator, error) { return adaptive.NewAIMD(b, time.Second) }, runs: seeds},
	}
	for _, other := range []contender{
		{"failsafe-go, limiter", failsafeLimiter()}, {"failsafe-go, as in Tripwire", tripwire()},
	} {
		all = append(all, entrant{name: other.name, other: &other, runs: seeds / 6})
	}
	return all
}

// part writes the tables of all groups. run is how the gates of others run.
func part(b *bytes.Buffer, run func(contender, simulate.Scenario) *simulate.Result) {
	b.WriteString(manySeeds)
	for _, g := range groups() {
		fmt.Fprintf(b, "\n### %s\n", g.title)
		if g.text != "" {
			fmt.Fprintf(b, "\n%s\n", g.text)
		}
		for _, s := range g.scenarios {
			table(b, s, run)
		}
	}
}

func table(b *bytes.Buffer, s simulate.Scenario, run func(contender, simulate.Scenario) *simulate.Result) {
	most := findBest(s)
	fixed := int64(math.Round(1.2 * float64(s.Server.Workers(0))))
	fmt.Fprintf(b, "\n#### %s\n\nThe best fixed limit is %d.\n\n", s.Name, most.limit)
	from, to, changes := changeOf(s)
	b.WriteString("| | runs | goodput | worst | refused | worst | p99 |")
	rule := "|---|---|---|---|---|---|---|"
	if changes {
		b.WriteString(" 90 % after | worst |")
		rule += "---|---|"
	}
	fmt.Fprintf(b, "\n%s\n", rule)
	all := append(entrants(), entrant{
		name: fmt.Sprintf("a fixed limit of %d", fixed), runs: seeds,
		estimate: func(uint64) (adaptive.Estimator, error) { return constant(fixed), nil },
	})
	for _, e := range all {
		var good, refused, tail, back []float64
		for seed := range e.runs {
			scenario := seeded(s, seed)
			var r *simulate.Result
			if e.other != nil {
				r = run(*e.other, scenario)
			} else {
				r = virtual(scenario, must(e.estimate(uint64(seed))))
			}
			good = append(good, goodput(r)/most.good[seed])
			refused = append(refused, 100*float64(r.All.Refused)/float64(max(r.All.Tries, 1)))
			tail = append(tail, float64(r.Latency(0.99).Milliseconds()))
			took := r.Recovers(from, to, 0.9).Seconds()
			if took < 0 {
				took = math.Inf(1)
			}
			back = append(back, took)
		}
		fmt.Fprintf(b, "| %s | %d | %.3f | %.3f | %.1f %% | %.1f %% | %.0f ms |", e.name, e.runs,
			mean(good), slices.Min(good), mean(refused), slices.Max(refused), mean(tail))
		if changes {
			slices.Sort(back)
			fmt.Fprintf(b, " %s | %s |", within(back[len(back)/2]), within(back[len(back)-1]))
		}
		b.WriteByte('\n')
	}
}

// changeOf returns from when to when the goodput has to come back, and whether it has to at all.
func changeOf(s simulate.Scenario) (from, to time.Duration, is bool) {
	switch s.Name {
	case simulate.FiveTimesSlower(0.7).Name, simulate.FiveTimesSlower(1.5).Name:
		return simulate.HalvedAt, simulate.BackAt, true
	case simulate.Cold(1.5).Name:
		return 0, s.Length, true
	case simulate.TenTimes().Name:
		return simulate.HalvedAt, s.Length, true
	}
	return 0, s.Length, false
}

func within(seconds float64) string {
	if math.IsInf(seconds, 1) {
		return "never"
	}
	return fmt.Sprintf("%.1f s", seconds)
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// must returns v, or ends the program.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
