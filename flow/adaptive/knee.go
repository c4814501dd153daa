package adaptive

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
)

// KneeConfig is the configuration of a [Knee]. The zero KneeConfig suits most uses.
type KneeConfig struct {
	// Initial is the limit before there are samples. Zero means 20.
	Initial int64
	// Min is the lower bound of the limit. Zero means 1.
	Min int64
	// Max is the upper bound of the limit. Zero means 1000.
	Max int64
	// Ceiling is the longest time that work may take. Successes that take longer count as overload.
	// Zero means no ceiling.
	Ceiling time.Duration
	// Window is the shortest time over which samples are collected before they are evaluated. Zero
	// means 100 ms. A window is longer if work takes longer or is rare.
	Window time.Duration
	// Probe is how often the limit is lowered for a test while it binds, to see whether work
	// becomes faster and no less gets done. A probe comes after a random time between Probe and
	// 2·Probe. Zero means 15 s.
	Probe time.Duration
	// Depth is the share by which a probe lowers the limit, below 0.5. Zero means 0.2.
	Depth float64
	// Seed determines what is random. Give each process a different seed, so that they do not probe
	// and recover at the same time.
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
	set(&c.Probe, 15*time.Second)
	set(&c.Depth, 0.2)
	check(c.Min <= c.Initial && c.Initial <= c.Max, "initial",
		"the initial limit is %d, must be %d to %d", c.Initial, c.Min, c.Max)
	return problems.Err("adaptive limit")
}

// set sets v to value if v is zero.
func set[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

// Knee looks for the knee of the server's throughput curve: the smallest amount of work in progress
// with which the server gets the most done. Below the knee, more work in progress takes no longer.
// Above it, all additional work waits.
//
// It evaluates windows of samples. How long work takes on average says little, because it changes
// with the mix of cheap and dear work. Waiting in a queue is added to all work alike, so Knee looks
// at the quickest tenth of it. The base is how long that takes without waiting. What it takes longer
// is the wait. While the wait is small, the limit grows, faster from window to window. When the wait
// is certain and the limit binds, the limit drops to what is in progress without those that wait
// (Little's law), but at most by half. While the limit does not bind, it is not lowered because of
// durations.
//
// Each cut is a test. If as much gets done as before, then work had been waiting, and the lower limit
// is right. If less gets done in proportion, then no work had been waiting: the limit goes back up,
// and the base with it, because the work itself takes that long now. So neither a change of the
// mix nor a server that became slower misleads Knee for long.
//
// Under steady overload, there is no work without waiting to learn the base from. Therefore the limit
// is lowered for a test now and then while it binds. It is raised for a test where work seems to wait
// a little, and where it seems to wait though the limit is at its floor.
//
// Reported overload lowers the limit too, if it is more than a tenth of a window. If the overload
// does not decrease with the limit, the limit is not its cause, and Knee tolerates that share from
// then on.
//
// Make one with [NewKnee].
type Knee struct {
	config KneeConfig
	random *rand.Rand

	limit float64
	// base is how long the quickest tenth of the work takes at most without waiting, and free how
	// long all work takes on average, as of the last window. Both are in nanoseconds, and zero
	// before the first window.
	base, free float64

	window window
	quick  quick  // of the window
	recent recent // the windows before it, under the same limit
	// from is when the limit was last changed for a test or because of overload. Samples that began
	// before that say something about the old limit.
	from time.Duration
	// streak is the number of windows in a row in which the limit has grown.
	streak int
	// steady is true after growth has met the knee once. Until then the limit grows by half at a
	// time.
	steady bool
	// tolerated is the share of overload that does not depend on the limit.
	tolerated float64
	// holdUntil is the time until which the limit does not grow after a cut.
	holdUntil time.Duration
	// probeAt is when the next probe is due. It is negative if that is not decided.
	probeAt time.Duration
	// usual is the mean of the limit over the last windows.
	usual   float64
	reachAt time.Duration // when the next test with a raised limit is due
	// trial holds what was measured before the limit was changed for a test.
	trial trial
}

// window collects samples.
type window struct {
	open bool
	// fresh is how many samples in a row began after the limit was changed. Once there are a few,
	// work from before the change is too rare to matter, and all samples count from then on.
	// Leaving out those that began earlier would leave out those that take long.
	fresh     int
	began     time.Duration
	good, bad float64
	ignored   float64
	look      float64 // how many successes there must be before the next summary
	full      float64 // the samples that began when as much was in progress as the limit allows
	sum       float64 // of the durations of successful work, in nanoseconds
	logs      float64 // of the logarithms of these durations
	squares   float64 // of the squares of these logarithms
	inFlight  int64   // the largest InFlight of a sample
}

// summary is the result of a window.
type summary struct {
	limit  float64 // the limit during the window
	binds  bool    // as much was in progress as the limit allows, most of the time
	idle   bool    // far less was in progress than the limit allows
	rate   float64 // successes per nanosecond
	mean   float64 // the mean duration of successes, in nanoseconds; zero if there are none
	quick  float64 // how long the quickest tenth of them took at most
	blur   float64 // the standard error of quick
	middle float64 // the mean of the logarithms of the durations
	spread float64 // the standard error of middle
	share  float64 // the share of overload
	vague  float64 // the standard error of share
	odd    bool    // much of the work ended with Ignore
}

// recent has means over several windows; see summary.
type recent struct{ n, mean, quick, middle float64 }

// trial is a test with a changed limit. Its summary is that of the last window before the change.
type trial struct {
	kind   trialKind
	before summary
}

type trialKind uint8

const (
	none     trialKind = iota
	slower             // lowered because work took longer
	overload           // lowered because of reported overload
	lowered            // lowered by a probe
	raised             // raised by reach
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

// Base returns how long work takes on average if it does not have to wait, as far as is known. It is
// zero before there are samples.
func (k *Knee) Base() time.Duration { return time.Duration(k.free) }

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
			*w = window{open: true, began: now}
			k.quick.clear()
		}
		return k.Limit()
	}
	w.inFlight = max(w.inFlight, s.InFlight)
	if float64(s.InFlight) >= 0.95*math.Floor(k.limit) {
		w.full++
	}
	switch {
	case s.Outcome == flow.Ignore:
		w.ignored++
	case s.Outcome == flow.Overload || k.config.Ceiling > 0 && s.RTT > k.config.Ceiling:
		w.bad++
	default:
		w.good++
		w.sum += float64(s.RTT)
		log := math.Log(float64(max(s.RTT, 1)))
		w.logs += log
		w.squares += log * log
		k.quick.add(s.RTT)
	}
	if took := now - w.began; k.complete(float64(took)) {
		k.judge(now, float64(took))
	}
	return k.Limit()
}
