package adaptive

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
)

// Bounds are the bounds of a limit. Zero fields take the values that were published with the
// algorithm.
type Bounds struct {
	// Initial is the limit before there are samples.
	Initial int64
	// Min and Max bound the limit.
	Min, Max int64
}

// fill sets zero fields to the published values, and returns an error if the bounds are invalid.
func (b *Bounds) fill(initial, low, high int64) error {
	set(&b.Max, max(high, b.Min, b.Initial))
	set(&b.Min, min(low, b.Max))
	set(&b.Initial, min(max(initial, b.Min), b.Max))
	if 1 <= b.Min && b.Min <= b.Initial && b.Initial <= b.Max && b.Max <= headgate.MaxPermits {
		return nil
	}
	var problems headgate.Problems
	problems.Add("initial", "the limits are %d, at first %d, and %d, must be in order and 1 to %d",
		b.Min, b.Initial, b.Max, headgate.MaxPermits)
	return problems.Err("adaptive limit")
}

func (b *Bounds) clamp(limit float64) float64 {
	return min(max(limit, float64(b.Min)), float64(b.Max))
}

// AIMD adds one unit to the limit for each success while at least half of the limit is in use, and
// lowers the limit by a tenth for each overload. It is simple, but overload must be reported: work
// that only becomes slower seems fine to it until it times out. It is the algorithm of Netflix's
// concurrency-limits. Make one with [NewAIMD].
type AIMD struct {
	bounds  Bounds
	timeout time.Duration
	limit   float64
}

// NewAIMD returns an AIMD, by default with an initial limit of 20 and bounds of 20 and 200. A
// success that takes longer than the timeout counts as overload; zero means 5 s. The error is a
// [*headgate.InvalidError].
func NewAIMD(b Bounds, timeout time.Duration) (*AIMD, error) {
	if err := b.fill(20, 20, 200); err != nil {
		return nil, err
	}
	set(&timeout, 5*time.Second)
	return &AIMD{bounds: b, timeout: timeout, limit: float64(b.Initial)}, nil
}

// Limit implements [Estimator].
func (a *AIMD) Limit() int64 { return int64(a.limit) }

// Update implements [Estimator].
func (a *AIMD) Update(s Sample) int64 {
	switch {
	case s.Outcome == flow.Overload || s.Outcome == flow.Success && s.RTT > a.timeout:
		a.limit *= 0.9
	case s.Outcome == flow.Success && float64(2*s.InFlight) >= a.limit:
		a.limit++
	}
	a.limit = math.Floor(a.bounds.clamp(a.limit))
	return a.Limit()
}

// Vegas takes the shortest duration of work for that without waiting, and computes from it how much
// of the limit is spent on waiting. It is the algorithm of Netflix's concurrency-limits, after TCP
// Vegas. Now and then it forgets the shortest duration and takes the next one instead, which is too
// long under overload. Make one with [NewVegas].
type Vegas struct {
	bounds Bounds
	random *rand.Rand
	limit  float64
	noLoad time.Duration
	probes float64 // samples since the shortest duration was forgotten
	jitter float64
}

// NewVegas returns a Vegas, by default with an initial limit of 20 and bounds of 1 and 1000. The
// seed determines when it forgets the shortest duration. The error is a [*headgate.InvalidError].
func NewVegas(b Bounds, seed uint64) (*Vegas, error) {
	if err := b.fill(20, 1, 1000); err != nil {
		return nil, err
	}
	v := &Vegas{bounds: b, random: rand.New(rand.NewPCG(seed, 0)), limit: float64(b.Initial)}
	v.jitter = v.newJitter()
	return v, nil
}

func (v *Vegas) newJitter() float64 { return 0.5 + v.random.Float64()/2 }

// Limit implements [Estimator].
func (v *Vegas) Limit() int64 { return int64(v.limit) }

// Update implements [Estimator].
func (v *Vegas) Update(s Sample) int64 {
	if s.Outcome != flow.Success && s.Outcome != flow.Overload {
		return v.Limit()
	}
	v.probes++
	if v.jitter*30*v.limit <= v.probes {
		v.jitter, v.probes, v.noLoad = v.newJitter(), 0, s.RTT
		return v.Limit()
	}
	if v.noLoad == 0 || s.RTT < v.noLoad {
		v.noLoad = s.RTT
		return v.Limit()
	}
	log := max(1, math.Floor(math.Log10(v.limit)))
	waiting := math.Ceil(v.limit * (1 - float64(v.noLoad)/float64(s.RTT)))
	limit := v.limit
	switch {
	case s.Outcome == flow.Overload:
		limit -= log
	case float64(2*s.InFlight) < v.limit:
		return v.Limit()
	case waiting <= log:
		limit += 6 * log
	case waiting < 3*log:
		limit += log
	case waiting > 6*log:
		limit -= log
	}
	v.limit = v.bounds.clamp(limit)
	return v.Limit()
}

// Gradient2 compares each duration with a long-term average, and lowers the limit by their ratio.
// It is the algorithm of Netflix's concurrency-limits. Under long overload, the average rises, and
// so does the limit. Make one with [NewGradient2].
type Gradient2 struct {
	bounds Bounds
	limit  float64
	long   float64
	count  float64
}

// NewGradient2 returns a Gradient2, by default with an initial limit of 20 and bounds of 20 and
// 200. The error is a [*headgate.InvalidError].
func NewGradient2(b Bounds) (*Gradient2, error) {
	if err := b.fill(20, 20, 200); err != nil {
		return nil, err
	}
	return &Gradient2{bounds: b, limit: float64(b.Initial)}, nil
}

// Limit implements [Estimator].
func (g *Gradient2) Limit() int64 { return int64(g.limit) }

// The constants that Gradient2 was published with.
const (
	gradientWindow    = 600
	gradientWarmup    = 10
	gradientTolerance = 1.5
	gradientSmoothing = 0.2
	gradientQueue     = 4
)

// Update implements [Estimator].
func (g *Gradient2) Update(s Sample) int64 {
	if s.Outcome != flow.Success && s.Outcome != flow.Overload {
		return g.Limit()
	}
	short := max(float64(s.RTT), 1)
	if g.count < gradientWarmup {
		g.long = (g.long*g.count + short) / (g.count + 1)
		g.count++
	} else {
		g.long += (short - g.long) * 2 / (gradientWindow + 1)
	}
	if g.long/short > 2 {
		g.long *= 0.95
	}
	if float64(s.InFlight) < g.limit/2 {
		return g.Limit()
	}
	gradient := min(max(gradientTolerance*g.long/short, 0.5), 1)
	limit := g.limit*gradient + gradientQueue
	g.limit = g.bounds.clamp(g.limit*(1-gradientSmoothing) + limit*gradientSmoothing)
	return g.Limit()
}
