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
	// Max is the upper bound of the limit. Zero means 1000. Several gates before one server get more
	// done with a lower one; see the caveats of the package.
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
	check(c.Max >= 0 && c.Max <= headgate.MaxPermits, "max",
		"the largest limit is %d, must be 1 to %d, or 0 for 1000", c.Max, headgate.MaxPermits)
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
// with the mix of cheap and dear work. A queue adds the same time to all work, so the quickest tenth
// shows it. A server that all work shares, such as a processor, makes all work longer by the same
// factor, so short and long work show it together. The base is how long these take without waiting.
// What work takes longer is the wait. While the wait is small, or no more than about two wait, the limit
// grows, faster from window to window; at first it doubles in the time that work takes. When the wait
// is certain and the limit has bound for as long as long work takes, the limit drops to what is in
// progress without those that wait (Little's law), but at most by half. While the limit does not bind, it
// is not lowered because of durations.
//
// Each change is a test. If as much gets done under the lower limit, then work had been waiting, and the
// lower limit is right: cuts stay, and growth is undone. If less gets done in proportion, then no work
// had been waiting: a cut is undone. If that is certain, the base rises, because the work itself takes
// that long now. If as much gets done as usual, it rises only a little, because then it may be others
// who have more in progress at the same server. So neither a change of the mix nor a server that became
// slower misleads Knee for long.
// Work that ends with Overload counts as work that takes at least as long as it took. So does work that
// was Canceled later than work takes on average: its caller may have waited for too long.
//
// Under steady overload, there is no work without waiting to learn the base from. Therefore the limit
// is lowered for a test now and then while it binds. It is raised for a test where work seems to wait
// a little, and where it seems to wait though the limit is at its floor.
//
// Reported overload lowers the limit too, if it is more than a tenth of a window, of the work or of its
// time. While the limit does not bind, chance decides how much is in progress. What also happens to work
// that began when little was does not depend on the limit, and Knee tolerates that share. Otherwise a cut
// is a test: if less gets done then, nothing waits, and the same share of it is overload, the limit is not
// the cause, and Knee tolerates that share from then on. Where work fails at once, the limit may be far above
// what is in progress. It is then lowered to somewhat less than that, and the share alone decides. When
// work succeeds again after an outage, the limit doubles in the time that work takes, as at first.
//
// Make one with [NewKnee].
type Knee struct {
	config KneeConfig
	random *rand.Rand

	limit float64
	// base is how long work takes without waiting, and free how long it takes on average, as of the
	// last window. Both are in nanoseconds, and zero before the first window.
	base typical
	free float64
	// rate is how much usually gets done while the limit is not lowered, in successes per nanosecond.
	rate float64

	window window
	took   durations // since the last change for a test
	recent summary   // the mean of the windows before it, under the same limit
	// grown is the window before the limit began to grow.
	grown summary
	// from is when the limit was last changed for a test or because of overload. Samples that began
	// before that say something about the old limit.
	from time.Duration
	// settle is how long long work takes: no sooner a change shows.
	settle time.Duration
	// bound is since when the limit has bound.
	bound time.Duration
	// streak is the number of windows in a row in which the limit has grown. A window that is too short
	// for the growth to show counts in part.
	streak float64
	// steady is true after growth has met the knee once. Until then the limit grows with each sample, also
	// when there was hardly any work for long, and so it does after an outage, up to what it was when there
	// was no overload: sound.
	steady bool
	sound  float64
	// silent is true if nothing succeeded in the last window.
	silent bool
	// tolerated is the share of overload that does not depend on the limit, as a test has shown.
	tolerated float64
	// usual is how much is in progress while the limit does not bind. calm is the latest work that began when
	// less was. Its overload does not depend on the limit either.
	usual float64
	calm  tally
	// holdUntil is the time until which the limit does not grow after a cut.
	holdUntil time.Duration
	// probeAt is when the next probe is due. It is negative if that is not decided.
	probeAt time.Duration
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
	calm      tally // of good and bad, those that began when less than usual was in progress
	ignored   float64
	lost      float64 // the sum of the durations of overload, in nanoseconds
	load      float64 // the sum of InFlight
	look      float64 // how many successes there must be before the next summary
	full      float64 // the samples that began when as much was in progress as the limit allows
	sum       float64 // of the durations of successful work, in nanoseconds
	squares   float64 // of the squares of these durations
	inFlight  int64   // the largest InFlight of a sample
}

// tally counts work, and how much of it ended with overload.
type tally struct{ all, bad float64 }

// summary is the result of a window, or of several.
type summary struct {
	n      float64 // successes
	limit  float64 // the limit during the window
	binds  bool    // as much was in progress as the limit allows, most of the time
	idle   bool    // far less was in progress than the limit allows
	load   float64 // how much was in progress on average
	rate   float64 // successes per nanosecond
	mean   float64 // the mean duration of successes, in nanoseconds; zero if there are none
	blur   float64 // the relative standard error of mean
	at     typical // of the durations
	err    typical // the standard errors of at, as shares of it
	back   float64 // among how many pieces of work the long ones were
	share  float64 // the share of overload: of the work, or of its time, if that is larger and the window is not idle
	vague  float64 // the standard error of share
	failed float64 // the share of overload, of the work
	unsure float64 // the standard error of failed
	apart  float64 // what share would be if as much of the work were overload as of calm work
	fast   bool    // what ended with Overload took little of the time
	odd    bool    // much of the work ended with Ignore
}

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
	k.limit, k.sound = float64(config.Initial), float64(config.Max)
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
	good := s.Outcome == flow.Success && (k.config.Ceiling == 0 || s.RTT <= k.config.Ceiling)
	if !k.steady && good && s.Start >= k.from {
		if k.silent && w.good == 0 {
			// What failed before the first success says nothing about the limit.
			*w = window{open: true, began: now}
			k.took.clear()
		}
		waited := k.base.long > 0 && float64(s.RTT) > brake*k.base.long
		if float64(2*s.InFlight) >= k.limit && !waited {
			// The limit doubles in the time that work takes, as long as that is not much longer than usual.
			k.limit = min(k.limit+1, float64(k.config.Max))
			k.steady = k.limit >= k.sound
		}
	}
	if !w.open {
		if w.fresh++; s.Start < k.from {
			w.fresh = 0
		}
		if w.fresh >= few && now-k.from >= k.settle || k.from == 0 {
			*w = window{open: true, began: now}
			k.took.clear()
		}
		return k.Limit()
	}
	w.inFlight = max(w.inFlight, s.InFlight)
	w.load += float64(s.InFlight)
	if float64(s.InFlight) >= 0.95*math.Floor(k.limit) {
		w.full++
	}
	rtt, mean := max(s.RTT, 1), k.free
	if w.good > 0 {
		mean = w.sum / w.good
	}
	late := float64(rtt) >= mean
	calm := 0.0
	if float64(s.InFlight) <= (1-gap)*k.usual {
		calm = 1
	}
	switch {
	case s.Outcome == flow.Ignore, s.Outcome == flow.Canceled && !late:
		w.ignored++
	case !good:
		w.bad++
		w.calm.all += calm
		w.calm.bad += calm
		w.lost += float64(rtt)
		if late && mean > 0 {
			// It would have taken longer still.
			k.took.add(rtt)
		}
	default:
		w.good++
		w.calm.all += calm
		w.sum += float64(rtt)
		w.squares += float64(rtt) * float64(rtt)
		k.took.add(rtt)
	}
	if took := now - w.began; k.complete(float64(took)) {
		k.judge(now, float64(took))
	}
	return k.Limit()
}
