package adaptive

import (
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
)

// KneeConfig is the configuration of a [Knee]. The zero KneeConfig is good for most.
type KneeConfig struct {
	// Initial is the limit before there are samples. Zero means 20.
	Initial int64
	// Min is the floor: the limit never goes below it, whatever happens. Zero means 1.
	Min int64
	// Max is the largest limit. Zero means 1000.
	Max int64
	// Ceiling is how long work may take. Successes that take longer count as overload.
	// Zero means no ceiling.
	Ceiling time.Duration
	// Window is the shortest time over which samples are summed up before they are
	// judged. Zero means 100 ms. It is longer where work takes longer, or comes seldom.
	Window time.Duration
	// Probe is how often the limit is lowered for a moment while it binds, to see
	// whether the work gets faster and no less gets done. It happens at random, after
	// one to two times this long. Zero means 20 s.
	Probe time.Duration
	// Depth is by what share a probe lowers the limit, below 0.5. Zero means 0.25.
	Depth float64
	// Seed decides on what is random. Give each process another one, so that they do
	// not probe and recover together.
	Seed uint64
}

func (c *KneeConfig) fill() error {
	var problems headgate.Problems
	check := func(ok bool, field, format string, args ...any) {
		if !ok {
			problems.Add(field, format, args...)
		}
	}
	check(c.Min >= 0, "min", "the floor is %d, must be 1 or more, or 0 for 1", c.Min)
	check(c.Max >= 0 && c.Max <= headgate.MaxCount, "max",
		"the largest limit is %d, must be 1 to %d, or 0 for 1000", c.Max, headgate.MaxCount)
	check(c.Ceiling >= 0, "ceiling", "the ceiling is %v, must be 0 or more", c.Ceiling)
	check(c.Window >= 0, "window", "the window is %v, must be 0 or more", c.Window)
	check(c.Probe >= 0, "probe", "the time between probes is %v, must be 0 or more", c.Probe)
	check(c.Depth >= 0 && c.Depth < 0.5, "depth", "the depth of probes is %v, must be below 0.5", c.Depth)
	set(&c.Min, 1)
	set(&c.Max, max(1000, c.Min))
	set(&c.Initial, min(max(20, c.Min), c.Max))
	set(&c.Window, 100*time.Millisecond)
	set(&c.Probe, 20*time.Second)
	set(&c.Depth, 0.2)
	check(c.Min <= c.Initial && c.Initial <= c.Max, "initial",
		"the initial limit is %d, must be %d to %d", c.Initial, c.Min, c.Max)
	return problems.Err("adaptive limit")
}

// set gives v a value if it has none.
func set[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

// Knee looks for the knee of the server's curve: the least work in progress with which
// it gets the most done. Below it work takes its time and no longer; above it all that
// is added waits.
//
// It judges windows of samples. While the limit binds and work takes about as long as
// it does without waiting (the base), the limit grows, by more from one window to the
// next. When work takes markedly longer than that, the limit goes at once to what the
// server gets done in the time of the base (Little's law), but at most by half.
//
// The base is the difficulty of all such algorithms: under steady overload there is no
// work without waiting to learn it from. Here it is learnt from two sources only. One
// is windows in which the limit did not bind. The other is what happens when the limit
// goes down, after overload or as a probe: if as much got done as before, then the
// work had waited, and the lower limit was right. If less got done in proportion, then
// nothing had waited, and work just takes that long now; the limit goes back up, with
// a new base. So neither long overload nor a server that got slower misleads it.
//
// Overload that is reported cuts the limit too, if it makes out a tenth of a window.
// If it does not lessen with the limit, then it is not of the limit's making, and that
// much is put up with from then on.
//
// Make one with [NewKnee].
type Knee struct {
	config KneeConfig
	random *rand.Rand

	limit  float64
	base   float64 // nanoseconds; zero before the first window
	window window
	recent window // those before, under the same limit
	// from is when the limit was lowered or restored last: samples that began before
	// tell of the limit before.
	from time.Duration
	// streak is for how many windows in a row the limit has grown.
	streak int
	// steady says that growth has met the knee once; before that it doubles.
	steady bool
	// tolerated is the share of overload that does not depend on the limit.
	tolerated float64
	// holdUntil is until when the limit does not grow after a cut.
	holdUntil time.Duration
	// probeAt is when to probe next, negative if that is open.
	probeAt time.Duration
	reachAt time.Duration // likewise for raising it
	// trial is what was before the limit was lowered to see what happens.
	trial trial
}

// window sums up samples.
type window struct {
	open bool
	// fresh is how many samples in a row have begun after the limit was changed. When
	// there are a few, what is left of the time before is too little to matter. All
	// samples count from then on: to leave out the old ones would leave out the long.
	fresh     int
	began     time.Duration
	good, bad float64
	ignored   float64
	sum       float64 // of the durations of the good, in nanoseconds
	squares   float64 // likewise
	inFlight  int64   // the most that was seen
}

// summary is what a window comes to.
type summary struct {
	limit float64 // that held
	binds bool    // as much was in progress as the limit allows
	idle  bool    // far less was
	rate  float64 // good ones in a nanosecond
	mean  float64 // how long the good took, in nanoseconds; zero if there are none
	error float64 // the standard error of mean
	share float64 // of overload
	odd   bool    // much of the work fails by itself
}

// trial is a limit that was lowered. Its summary is of the last window before that.
type trial struct {
	kind   trialKind
	before summary
}

type trialKind uint8

const (
	none     trialKind = iota
	slower             // lowered because work took longer
	overload           // lowered because of overload that was reported
	lowered            // lowered to see what happens
	raised             // raised to see what happens
)

// NewKnee returns a Knee. The error is a [*headgate.InvalidError].
func NewKnee(config KneeConfig) (*Knee, error) {
	if err := config.fill(); err != nil {
		return nil, err
	}
	k := &Knee{config: config, random: rand.New(rand.NewPCG(config.Seed, 0))}
	k.limit = float64(config.Initial)
	k.probeAt = -1
	return k, nil
}

// Limit implements [Estimator].
func (k *Knee) Limit() int64 { return int64(k.limit) }

// Base is how long work takes that does not wait, as far as is known: zero before
// there are samples.
func (k *Knee) Base() time.Duration { return time.Duration(k.base) }

// Update implements [Estimator].
func (k *Knee) Update(s Sample) int64 {
	now := s.Start + s.RTT
	if s.Outcome == flow.Unused {
		return k.Limit()
	}
	w := &k.window
	if !w.open {
		if w.fresh++; s.Start < k.from {
			w.fresh = 0
		}
		if w.fresh >= few || k.from == 0 {
			*w = window{open: true, began: now, inFlight: s.InFlight}
		}
		return k.Limit()
	}
	w.inFlight = max(w.inFlight, s.InFlight)
	switch {
	case s.Outcome == flow.Ignore:
		w.ignored++
	case s.Outcome == flow.Overload || k.config.Ceiling > 0 && s.RTT > k.config.Ceiling:
		w.bad++
	default:
		w.good++
		w.sum += float64(s.RTT)
		w.squares += float64(s.RTT) * float64(s.RTT)
	}
	if took := now - w.began; k.complete(float64(took)) {
		k.judge(now, float64(took))
	}
	return k.Limit()
}
