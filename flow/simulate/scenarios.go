package simulate

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/flow"
)

// Best returns the best limit for a server with the given number of workers: a tenth more than
// workers. It is the smallest limit with which the server reaches 97 % of its capacity under the
// load of the scenario Halved. With a limit equal to the number of workers, some workers are idle
// until the next request comes.
func Best(workers int) float64 { return 1.1 * float64(workers) }

// All scenarios have a server with this many workers, and requests that take this long. Its
// capacity is in requests per second.
const (
	workers  = 20
	duration = 50 * time.Millisecond
	capacity = float64(workers) * float64(time.Second) / float64(duration)
)

func server() Server {
	return Server{Workers: Constant(workers), Work: Constant(duration), Spread: 0.5}
}

// load returns a constant load of times × capacity.
func load(times float64) Load {
	return Load{Rate: Constant(times * capacity), Peak: times * capacity, Deadline: time.Second}
}

// Overload has ten times as many requests as the server's capacity for a minute, after ten quiet
// seconds.
func Overload() Scenario {
	l := load(10)
	l.Rate = Between(10*time.Second, 70*time.Second, 10*capacity, capacity/2)
	return Scenario{
		Name: "overload ×10", Seed: 1, Length: 70 * time.Second, From: 10 * time.Second,
		Server: server(), Loads: []Load{l},
	}
}

// Quiet has a load of half of the server's capacity. It shows how long requests take without
// overload.
func Quiet() Scenario {
	return Scenario{
		Name: "quiet", Seed: 2, Length: 60 * time.Second, From: 10 * time.Second,
		Server: server(), Loads: []Load{load(0.5)},
	}
}

// HalvedAt and BackAt are when the capacity of the scenarios Halved and Slowed changes.
const (
	HalvedAt = 30 * time.Second
	BackAt   = 60 * time.Second
)

// Halved has a server that loses half of its workers for half a minute, under a load that is always
// above its capacity.
func Halved() Scenario {
	s := server()
	s.Workers = Between(HalvedAt, BackAt, workers/2, workers)
	return Scenario{
		Name: "half the workers", Seed: 3, Length: 90 * time.Second, From: 10 * time.Second,
		Server: s, Loads: []Load{load(1.5)},
	}
}

// Slowed has work that takes twice as long for half a minute. The best limit stays the same.
func Slowed() Scenario {
	s := server()
	s.Work = Between(HalvedAt, BackAt, 2*duration, duration)
	return Scenario{
		Name: "twice as slow", Seed: 4, Length: 90 * time.Second, From: 10 * time.Second,
		Server: s, Loads: []Load{load(1.5)},
	}
}

// Long has a load of a fifth above the capacity for half an hour.
func Long() Scenario {
	return Scenario{
		Name: "30 min at 1.2×", Seed: 5, Length: 30 * time.Minute, From: time.Minute,
		Server: server(), Loads: []Load{load(1.2)},
	}
}

// Timeouts has callers that give up so early that an overloaded server answers nobody in time. All
// that the gate sees then takes exactly that time.
func Timeouts() Scenario {
	l := load(3)
	l.Deadline = 200 * time.Millisecond
	return Scenario{
		Name: "stable timeouts", Seed: 6, Length: 2 * time.Minute, From: time.Minute,
		Server: server(), Loads: []Load{l},
	}
}

// FastFailures has a server that fails within a millisecond when it is overloaded.
func FastFailures() Scenario {
	s := server()
	s.Fails = func(_ time.Duration, inServer int) bool { return inServer >= 3*workers }
	return Scenario{
		Name: "fast 500s", Seed: 7, Length: 2 * time.Minute, From: 30 * time.Second,
		Server: s, Loads: []Load{load(3)},
	}
}

// Burst has no load for ten minutes, and then four fifths of the server's capacity.
func Burst() Scenario {
	const idle, burst = time.Minute, 11 * time.Minute
	l := load(0.8)
	l.Rate = func(at time.Duration) float64 {
		switch {
		case at < idle:
			return capacity / 2
		case at < burst:
			return 0
		}
		return 0.8 * capacity
	}
	return Scenario{
		Name: "idle, then a burst", Seed: 8, Length: burst + 10*time.Second, From: burst,
		Server: server(), Loads: []Load{l},
	}
}

// Stalled has a part of the requests that is never answered, whatever the load, so lowering the
// limit does not help.
func Stalled() Scenario {
	s := server()
	s.Stalls = Constant(0.2)
	l := load(0.7)
	l.Deadline = 300 * time.Millisecond
	return Scenario{
		Name: "a fifth never answered", Seed: 9, Length: 2 * time.Minute, From: 30 * time.Second,
		Server: s, Loads: []Load{l},
	}
}

// MostDown has two thirds of the requests fail at once, because two of three servers behind a balancer
// are gone. The others are a third of what the server can bear.
func MostDown() Scenario {
	s := server()
	s.Down = Constant(2. / 3)
	return Scenario{
		Name: "two thirds fail at once", Seed: 12, Length: 2 * time.Minute, From: 30 * time.Second,
		Server: s, Loads: []Load{load(1)},
	}
}

// OutageAt is when the outage of the scenario Outage begins.
const OutageAt = 30 * time.Second

// Outage has a server that answers nobody for that long, and then works as before: either every request
// fails at once, or none is ever answered, and callers give up after a second. The load is 0.7 of what the
// server can do at all other times, and rate requests a second.
func Outage(rate int, lasts time.Duration, fails bool) Scenario {
	s := server()
	s.Workers = Constant(int(float64(rate) * duration.Seconds() / 0.7))
	all := Between(OutageAt, OutageAt+lasts, 1.0, 0)
	how := "timing out"
	if s.Stalls = all; fails {
		how, s.Stalls, s.Down = "failing at once", nil, all
	}
	back := OutageAt + lasts
	return Scenario{
		Name: fmt.Sprintf("outage of %v %s, %d/s", lasts, how, rate), Seed: 13,
		Length: back + 30*time.Second, From: back, Server: s,
		Loads: []Load{{Rate: Constant(float64(rate)), Peak: float64(rate), Deadline: time.Second}},
	}
}

// Classes has more requests than the capacity. The critical requests alone are four fifths of the
// capacity.
func Classes() Scenario {
	critical, rest := load(0.8), load(9.2)
	rest.Class = flow.Sheddable
	return Scenario{
		Name: "critical 0.8×, rest 9.2×", Seed: 10, Length: 30 * time.Second, From: 5 * time.Second,
		Server: server(), Loads: []Load{critical, rest},
	}
}

// NoisyTenant has ten tenants that share the server. One of them sends a hundred times as much as
// each other one.
func NoisyTenant() Scenario {
	s := Scenario{
		Name: "a tenant at ×100", Seed: 11, Length: 30 * time.Second, From: 5 * time.Second,
		Server: server(),
	}
	for _, tenant := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"} {
		l := load(0.1)
		l.Tenant = tenant
		s.Loads = append(s.Loads, l)
	}
	noisy := load(10)
	noisy.Tenant = "noisy"
	s.Loads = append(s.Loads, noisy)
	return s
}

// Layers has calls that reach the server through five layers of services. Each layer tries three
// times, so one call becomes up to 243 attempts.
func Layers(obedient bool) Scenario {
	l := load(1.5)
	l.Tries, l.Pause, l.Obedient = 243, 10*time.Millisecond, obedient
	name := "five layers of three tries"
	if obedient {
		name += ", marked"
	}
	return Scenario{
		Name: name, Seed: 12, Length: 20 * time.Second, From: 5 * time.Second, To: 15 * time.Second,
		Server: server(), Loads: []Load{l},
	}
}
