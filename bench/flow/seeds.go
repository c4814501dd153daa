package flow

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/flow/adaptive"
	"github.com/headgate/headgate/flow/simulate"
)

// seeds is how often a scenario runs with the knee, peers with other estimators, and others with the
// gates of others, which take longer.
const seeds, peers, others = 30, 5, 2

// group is a table. Healthy scenarios show what is refused, others what gets done.
type group struct {
	title     string
	healthy   bool
	scenarios []simulate.Scenario
}

func groups() []group {
	calm := []simulate.Scenario{
		simulate.Healthy(0.7), simulate.Bimodal(0.7), simulate.HeavyTailed(0.7), simulate.Shifted(0.63),
		simulate.Routes(0.7), simulate.Cold(0.7), simulate.MostDown(), simulate.Hangs(10, 0.1, 0),
		simulate.Hangs(20, 0.2, simulate.HalvedAt),
	}
	busy := []simulate.Scenario{
		simulate.Overload(), simulate.Halved(), simulate.Timeouts(), simulate.Bimodal(1.5), simulate.HeavyTailed(1.5),
		simulate.Shifted(1.5), simulate.Routes(2), simulate.FiveTimesSlower(0.7), simulate.FiveTimesSlower(1.5),
		simulate.Cold(1.5), simulate.TenTimes(), simulate.Lost(3, 0.2, 0, 3), simulate.Lost(20, 0.2, 0, 3),
	}
	for _, f := range []func() (calm, busy []simulate.Scenario){more, aside} {
		c, b := f()
		calm, busy = append(calm, c...), append(busy, b...)
	}
	return []group{
		{"A queue: refused of a load that is fine", true, calm},
		{"A queue: goodput under too much load, or change", false, busy},
		{"A shared server: refused of a load that is fine", true, shared(calm)},
		{"A shared server: goodput under too much load, or change", false, shared(busy)},
	}
}

// shared returns the scenarios with a server that all requests share.
func shared(all []simulate.Scenario) []simulate.Scenario {
	all = slices.Clone(all)
	for i := range all {
		all[i].Name += ", shared"
		all[i].Server.Shared = true
	}
	return all
}

// half is when what changes in the scenarios of others and aside changes; they last twice as long.
const half, end = 45 * time.Second, time.Hour

// server has requests whose durations are log-normal, with σ = 0.5.
func server(workers int, work time.Duration) simulate.Server {
	return simulate.Server{Workers: simulate.Constant(workers), Work: simulate.Constant(work), Spread: 0.5}
}

// one is a scenario whose load is times × workers, in the mean size of requests at the beginning.
func one(name string, s simulate.Server, sizes simulate.Sizes, times func(time.Duration) float64) simulate.Scenario {
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

// more returns further scenarios that were looked at while the estimator was designed.
func more() (calm, busy []simulate.Scenario) {
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
	wide, wider := server(8, 30*time.Millisecond), server(20, 100*time.Millisecond)
	wide.Spread, wider.Spread = 1, 1.5
	calm = []simulate.Scenario{
		one("200 ms: from every second to every tenth, 0.7×", millisecond, back, simulate.Constant(0.7)),
		one("2 ms, every twentieth 500 ms, 0.65×", millisecond, rare, simulate.Constant(0.65)),
		one("a heavier tail, 0.6×", server(20, 50*time.Millisecond), simulate.Pareto(1.3), simulate.Constant(0.6)),
		one("σ = 1.5, 0.65×", wider, simulate.Sizes{}, simulate.Constant(0.65)),
		one("four workers, 0.6×", server(4, 50*time.Millisecond), simulate.Sizes{}, simulate.Constant(0.6)),
		one("1 and 200 ms, the load swings from 0.2× to 0.7×", millisecond, simulate.Mixed(1, 200, simulate.Constant(0.1)), swing),
	}
	busy = []simulate.Scenario{
		one("200 ms: from every second to every tenth, 1.3×", millisecond, back, simulate.Constant(1.3)),
		one("2 ms, every twentieth 500 ms, 2×", millisecond, rare, simulate.Constant(2.0)),
		one("a heavier tail, 2×", server(20, 50*time.Millisecond), simulate.Pareto(1.3), simulate.Constant(2.0)),
		one("eight workers, σ = 1, 1.4×", wide, simulate.Sizes{}, simulate.Constant(1.4)),
		one("σ = 1.5, 1.3×", wider, simulate.Sizes{}, simulate.Constant(1.3)),
		one("three workers, 2×", server(3, 50*time.Millisecond), simulate.Sizes{}, simulate.Constant(2.0)),
		one("four workers, 1.5×", server(4, 50*time.Millisecond), simulate.Sizes{}, simulate.Constant(1.5)),
		one("1 and 200 ms, three times as slow, 0.7×", slow, simulate.Mixed(1, 200, simulate.Constant(0.1)), simulate.Constant(0.7)),
		one("1 and 200 ms, 100 workers, then 60, 1.5×", lost, simulate.Mixed(1, 200, simulate.Constant(0.1)), simulate.Constant(1.5)),
		one("bursts of 2× for a second in five", server(20, 50*time.Millisecond), simulate.Sizes{}, bursts),
	}
	return calm, busy
}

// aside returns scenarios that nobody looked at while the estimator was designed.
func aside() (calm, busy []simulate.Scenario) {
	flips := simulate.Mixed(2, 300, func(at time.Duration) float64 {
		if at/(10*time.Second)%2 == 0 {
			return 0.05
		}
		return 0.3
	})
	grows := func(at time.Duration) float64 { return 0.1 + 0.6*at.Seconds()/(2*half).Seconds() }
	slower := func(s simulate.Server, times int) simulate.Server {
		work := s.Work(0)
		s.Work = simulate.Between(half, end, time.Duration(times)*work, work)
		return s
	}
	millisecond, always, wide := server(20, time.Millisecond), server(20, 50*time.Millisecond), server(50, 40*time.Millisecond)
	always.Spread, wide.Spread = 0.01, 1
	calm = []simulate.Scenario{
		one("3 and 100 ms, 40 workers, 0.68× \\*", server(40, time.Millisecond), simulate.Mixed(3, 100, simulate.Constant(0.05)), simulate.Constant(0.68)),
		one("the load grows from 0.1× to 0.7× \\*", server(20, 50*time.Millisecond), simulate.Sizes{}, grows),
		one("2 and 300 ms, the mix flips every 10 s, 0.6× \\*", millisecond, flips, simulate.Constant(0.6)),
	}
	busy = []simulate.Scenario{
		one("2 and 300 ms, the mix flips every 10 s, 2× \\*", millisecond, flips, simulate.Constant(2.0)),
		one("always 50 ms, 1.2× \\*", always, simulate.Sizes{}, simulate.Constant(1.2)),
		one("four times as slow, 40 workers, 0.8× \\*", slower(server(40, 20*time.Millisecond), 4), simulate.Sizes{}, simulate.Constant(0.8)),
		one("1 and 60 ms, ten times as slow, 0.5× \\*", slower(millisecond, 10), simulate.Mixed(1, 60, simulate.Constant(0.2)), simulate.Constant(0.5)),
		one("50 workers, σ = 1, three times as slow, 0.7× \\*", slower(wide, 3), simulate.Sizes{}, simulate.Constant(0.7)),
	}
	return calm, busy
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

// best returns the goodput with the best limit that does not move, by seed.
func best(s simulate.Scenario) []float64 {
	limit, most := int64(0), 0.0
	for _, n := range []int64{3, 4, 5, 6, 8, 10, 13, 16, 20, 22, 24, 27, 30, 35, 40, 60, 100, 220, 260, 1000} {
		if good := goodput(virtual(seeded(s, 0), constant(n))); good > most*1.0005 {
			limit, most = n, good
		}
	}
	var good []float64
	for seed := range seeds {
		good = append(good, goodput(virtual(seeded(s, seed), constant(limit))))
	}
	return good
}

// entrants are the contenders of the tables, with an estimator for each seed where they have one.
var entrants = []struct {
	name     string
	estimate func(seed uint64) (adaptive.Estimator, error)
	other    func() (simulate.Subject, error)
}{
	{"Headgate, knee", func(seed uint64) (adaptive.Estimator, error) {
		return adaptive.NewKnee(adaptive.KneeConfig{Initial: initial, Max: highest, Seed: seed})
	}, nil},
	{"failsafe-go", nil, failsafeLimiter()},
	{"as in Tripwire", nil, tripwire()},
	{"Gradient2", func(uint64) (adaptive.Estimator, error) { return adaptive.NewGradient2(bounds) }, nil},
	{"Vegas", func(seed uint64) (adaptive.Estimator, error) { return adaptive.NewVegas(bounds, seed) }, nil},
	{"AIMD", func(uint64) (adaptive.Estimator, error) { return adaptive.NewAIMD(bounds, time.Second) }, nil},
}

var bounds = adaptive.Bounds{Initial: initial, Min: 1, Max: highest}

// cell is the mean and the worst of all runs.
type cell struct{ mean, worst float64 }

// row has the cells of a scenario, by entrant: what was refused in percent if it is healthy, or what got
// done; and the text that says how long it took until nine tenths got done again, if something changes.
func row(s simulate.Scenario, healthy bool, run func(contender, simulate.Scenario) *simulate.Result) (cells []cell, back string) {
	var most []float64
	if !healthy {
		most = best(s)
	}
	from, to, changes := changeOf(s)
	for i, e := range entrants {
		var v, after []float64
		runs := seeds
		switch {
		case e.other != nil:
			runs = others
		case i > 0:
			runs = peers
		}
		for seed := range runs {
			var r *simulate.Result
			if scenario := seeded(s, seed); e.other != nil {
				r = run(contender{e.name, e.other}, scenario)
			} else {
				r = virtual(scenario, must(e.estimate(uint64(seed))))
			}
			if healthy {
				v = append(v, 100*float64(r.All.Refused)/float64(max(r.All.Tries, 1)))
			} else {
				v = append(v, goodput(r)/most[seed])
			}
			took := r.Recovers(from, to, 0.9).Seconds()
			if took < 0 {
				took = math.Inf(1)
			}
			after = append(after, took)
		}
		if healthy {
			cells = append(cells, cell{mean(v), slices.Max(v)})
		} else {
			cells = append(cells, cell{mean(v), slices.Min(v)})
		}
		if changes {
			slices.Sort(after)
			back += fmt.Sprintf(" %s/%s |", within(after[len(after)/2]), within(after[len(after)-1]))
		}
	}
	return cells, back
}

// changeOf returns from when to when the goodput has to come back, and whether it has to at all.
func changeOf(s simulate.Scenario) (from, to time.Duration, is bool) {
	switch strings.TrimSuffix(s.Name, ", shared") {
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
	return fmt.Sprintf("%.1f", seconds)
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
