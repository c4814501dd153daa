package simulate

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A mix of requests of a millisecond and requests of two hundred.
const (
	cheap, dear = 1, 200
	oneInTen    = 0.1
	oneInTwo    = 0.5
)

// MixShiftsAt is when the mix of the scenario Shifted changes.
const MixShiftsAt = 30 * time.Second

// steady returns a scenario with one load, which is times × the server's capacity at each moment.
func steady(name string, seed uint64, s Server, sizes Sizes, times float64) Scenario {
	if sizes.Mean == nil {
		sizes = logNormal(s.Spread)
	}
	l := Load{Sizes: sizes, Deadline: time.Second}
	l.Rate = func(at time.Duration) float64 {
		return times * float64(s.Workers(0)) / (s.Work(0).Seconds() * sizes.Mean(at))
	}
	for at := time.Duration(0); at < 90*time.Second; at += time.Second {
		l.Peak = max(l.Peak, l.Rate(at))
	}
	return Scenario{
		Name: name, Seed: seed, Length: 90 * time.Second, From: 10 * time.Second, Server: s, Loads: []Load{l},
	}
}

func millisecond() Server {
	return Server{Workers: Constant(workers), Work: Constant(time.Millisecond)}
}

func rare() Sizes { return Mixed(cheap, dear, Constant(oneInTen)) }

// Bimodal has work of a millisecond, and every tenth request of 200, at times × capacity.
func Bimodal(times float64) Scenario {
	return steady(named("1 ms, every tenth 200 ms", times), 21, millisecond(), rare(), times)
}

// HeavyTailed has work with a Pareto distribution whose variance is infinite.
func HeavyTailed(times float64) Scenario {
	return steady(named("heavy tail", times), 22, server(), Pareto(1.5), times)
}

// Shifted has a mix in which the share of requests of 200 ms goes from a tenth to a half. The load,
// as a share of the capacity, stays.
func Shifted(times float64) Scenario {
	return steady(named("the mix shifts from every tenth to every second", times), 23, millisecond(),
		Mixed(cheap, dear, Between(MixShiftsAt, time.Hour, oneInTwo, oneInTen)), times)
}

// Routes has three kinds of requests through one gate, of 5, 50 and 500 ms.
func Routes(times float64) Scenario {
	s := Scenario{
		Name: named("5, 50 and 500 ms through one gate", times), Seed: 24, Length: 90 * time.Second,
		From: 10 * time.Second, Server: millisecond(),
	}
	const mean = 0.6*5 + 0.3*50 + 0.1*500
	rate := times * float64(workers) / (mean / 1000)
	for _, kind := range []struct{ share, size float64 }{{0.6, 5}, {0.3, 50}, {0.1, 500}} {
		l := Load{Peak: kind.share * rate, Rate: Constant(kind.share * rate), Deadline: 2 * time.Second}
		l.Sizes = logNormal(0.3).times(kind.size)
		s.Loads = append(s.Loads, l)
	}
	return s
}

// times returns sizes that are that many times as large.
func (s Sizes) times(n float64) Sizes {
	return Sizes{
		Draw: func(at time.Duration, random *rand.Rand) float64 { return n * s.Draw(at, random) },
		Mean: func(at time.Duration) float64 { return n * s.Mean(at) },
	}
}

// FiveTimesSlower has work that takes five times as long for half a minute, under a load that does
// not change.
func FiveTimesSlower(times float64) Scenario {
	s := server()
	s.Work = Between(HalvedAt, BackAt, 5*duration, duration)
	return steady(named("five times as slow", times), 25, s, Sizes{}, times)
}

// Healthy has a load below the capacity, and work that is alike.
func Healthy(times float64) Scenario {
	return steady(named("healthy", times), 26, server(), Sizes{}, times)
}

// Cold has a server that can do ten times what limits begin at, from the beginning.
func Cold(times float64) Scenario {
	s := server()
	s.Workers = Constant(10 * workers)
	c := steady(named("cold start, 200 workers", times), 27, s, Sizes{}, times)
	c.From, c.Length = 0, 30*time.Second
	return c
}

// TenTimes has a server that goes from 10 to 100 workers, under a load that is always above that.
func TenTimes() Scenario {
	s := server()
	s.Workers = Between(HalvedAt, time.Hour, 100, 10)
	c := steady("from 10 to 100 workers", 28, s, Sizes{}, 15)
	c.Length = 60 * time.Second
	return c
}

// Lost has requests that come to nothing whatever the load is: a share of them is never answered, and a share
// fails at once. The load is 0.7× until measuring begins, and times × from then on.
func Lost(workers int, stalls, down, times float64) Scenario {
	s := server()
	s.Workers, s.Stalls, s.Down = Constant(workers), Constant(stalls), Constant(down)
	const measured = 45 * time.Second
	can := s.capacity(0)
	name := fmt.Sprintf("%d workers, %.0f %% never answered", workers, 100*stalls)
	if down > 0 {
		name += fmt.Sprintf(", %.0f %% fail at once", 100*down)
	}
	return Scenario{
		Name: named(name, times), Seed: 29, Length: 2 * measured, From: measured, Server: s,
		Loads: []Load{{
			Rate: Between(measured, time.Hour, times*can, 0.7*can), Peak: max(times, 0.7) * can,
			Deadline: 300 * time.Millisecond,
		}},
	}
}

// Hangs has a share of the requests that is never answered from since on, because a server behind a balancer
// hangs. Callers wait for a second, which is twenty times as long as work takes. The load is 0.7×, and what
// happens in the 40 s after since is measured.
func Hangs(workers int, share float64, since time.Duration) Scenario {
	s := Lost(workers, share, 0, 0.7)
	s.Server.Stalls = Between(since, time.Hour, share, 0)
	s.From, s.Length = since, since+40*time.Second
	s.Loads[0].Deadline = time.Second
	s.Name = fmt.Sprintf("%d workers, %.0f %% hang from the start, 0.7×", workers, 100*share)
	if since > 0 {
		s.Name = fmt.Sprintf("%d workers, %.0f %% hang after %v, 0.7×", workers, 100*share, since)
	}
	return s
}

func named(what string, times float64) string { return fmt.Sprintf("%s, %.3g×", what, times) }
