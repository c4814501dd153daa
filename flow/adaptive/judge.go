package adaptive

import (
	"math"
	"time"
)

const (
	// grows and slow are multiples of how long work takes without waiting. The limit grows while work
	// takes less than grows. If the limit binds, it is lowered when work certainly takes longer than
	// slow.
	grows, slow = 1.09, 1.18
	// room is the factor by which the limit exceeds what can be in progress without waiting, so
	// that workers that become free find work. margin is the same after a test.
	room, margin = 1.1, 1.05
	// A result is certain if it holds even after doubt standard errors are subtracted.
	doubt = 2
	// A window is complete when the standard error is at most exact times the mean, or sharp in the
	// logarithm during a test. It lasts no longer than patience times the shortest window, or times
	// the mean if that is longer; during a test, twice as long. It has at least few samples.
	exact, sharp, patience, few = 0.05, 0.04, 6, 10
	// raise is the factor by which the limit is raised for a test. gap is the smallest relative
	// change from which the estimator can learn.
	raise, gap = 1.25, 0.2
	// leap is how many times its usual value the limit may be before a probe checks it.
	leap = 1.5
	// The limit binds if at least the share full of the samples began at a full gate. A burst that
	// touches the limit now and then has fewer.
	full = 0.3
	// verdict is the share of a change of the limit that the duration of work has to follow, in
	// logarithms, if work waits.
	verdict = 0.6
	// bearable is the share of overload that is ignored.
	bearable = 0.1
)

// complete reports whether the window, which has lasted for took, gives a result: it has enough
// samples, or something is certain earlier.
func (k *Knee) complete(took float64) bool {
	w := &k.window
	shortest := float64(k.config.Window)
	if took < shortest || w.good+w.bad < few || took*w.good < w.sum {
		return false
	}
	longest := patience * max(shortest, w.sum/max(w.good, 1))
	if k.trial.kind != none {
		longest *= 2
	}
	if w.bad > w.good || took >= longest {
		return true
	}
	// The summary is costly, so it is made only at times that grow.
	if w.good < w.look {
		return false
	}
	w.look = max(w.good*1.2, w.good+few)
	s := k.summary(took)
	if t := &k.trial; t.kind != none {
		off := math.Abs(s.middle - t.before.middle - verdict*math.Log(t.moved(k.limit)))
		return w.good >= 3*few && off > 2.5*s.spread || s.spread < sharp
	}
	return s.blur <= exact*s.mean || k.base > 0 && k.ratio(&s, -doubt) > 1.5
}

// summary returns the summary of the window, which has lasted for took.
func (k *Knee) summary(took float64) summary {
	w := &k.window
	all := w.good + w.bad + w.ignored
	s := summary{
		limit: k.limit, binds: w.full >= full*all,
		idle: float64(w.inFlight) < 0.7*k.limit,
		rate: w.good / took, share: w.bad / (w.good + w.bad),
		odd: w.ignored > bearable*(w.good+w.bad),
	}
	s.vague = math.Sqrt(s.share * (1 - s.share) / (w.good + w.bad))
	if w.good > 0 {
		s.mean = w.sum / w.good
		s.quick, s.blur = k.quick.tenth()
		s.middle = w.logs / w.good
		s.spread = math.Sqrt(max(w.squares/w.good-s.middle*s.middle, 0) / w.good)
	}
	return s
}

// ratio returns how many times as long work takes as it would without waiting. Waiting is what the
// quickest work takes longer than the base, because all work has it in common. errors is how many
// standard errors are added to what the quickest work takes.
func (k *Knee) ratio(s *summary, errors float64) float64 {
	if s.mean == 0 {
		return 1
	}
	waits := s.quick + errors*s.blur - k.base
	return s.mean / max(s.mean-waits, s.mean/10)
}

// add adds a newer window. Older windows then count half as much.
func (r *recent) add(s *summary, n float64) {
	r.n = r.n/2 + n
	share := n / r.n
	r.quick += (s.quick - r.quick) * share
	r.middle += (s.middle - r.middle) * share
	r.mean += (s.mean - r.mean) * share
}

// judge evaluates a complete window and begins a new one.
func (k *Knee) judge(now time.Duration, took float64) {
	s, good, most := k.summary(took), k.window.good, k.window.inFlight
	k.window = window{open: true, began: now}
	k.quick.clear()
	if k.base == 0 {
		k.base = s.quick
	}
	if s.mean > 0 {
		k.free = s.mean / k.ratio(&s, 0)
	}
	if k.trial.kind != none {
		if k.tried(now, s) {
			return
		}
		if k.trial.kind != none {
			// Unless the limit is lowered further, the values from before the trial are no longer
			// of use.
			defer func(limit float64) {
				if k.limit >= limit {
					k.trial = trial{}
				}
			}(k.limit)
		}
	}
	k.usual += (k.limit - k.usual) / 20
	// The mean before a change of the limit is taken from several windows.
	if good > 0 {
		k.recent.add(&s, good)
	}
	before := s
	before.mean, before.quick, before.middle = k.recent.mean, k.recent.quick, k.recent.middle
	ratio := k.ratio(&s, 0)
	switch certain := k.ratio(&s, -doubt); {
	case s.share-doubt*s.vague > bearable+1.3*k.tolerated:
		k.holdUntil = now + k.jittered(3*k.config.Window)
		k.lower(now, overload, before, k.limit*min(1-s.share, 0.7))
		return
	case s.binds && certain > slow:
		if !k.lower(now, slower, s, k.limit*max(room/ratio, 0.5)) {
			// The limit is as low as it may be. Whether it should be, a higher one shows.
			k.reach(now, before)
		}
		return
	}
	k.tolerated = min(k.tolerated, k.tolerated+(s.share+doubt*s.vague-k.tolerated)*0.05)
	if s.mean > 0 {
		k.learn(now, s)
	}
	switch {
	case (s.binds || s.odd) && k.probe(now, before):
	case k.ratio(&s, -doubt/4.) > grows:
		k.steady, k.streak = true, 0
		if s.binds && !k.reach(now, before) {
			// The limit is lowered only a little, because either work waits or the base is too low.
			k.limit = max(k.limit*(1-0.3*min(ratio-grows, 0.2)), float64(k.config.Min))
		}
	case s.mean > 0 && float64(2*most) >= k.limit && now >= k.holdUntil:
		k.grow(min(max((grows-ratio)/(grows-1), 0.2), 1))
		if k.limit > leap*k.usual {
			// The base may be too high. Then more and more work waits, and nothing seems to be wrong.
			k.usual = k.limit
			k.probeAt = min(k.probeAt, now+k.jittered(k.config.Probe/15))
		}
	default:
		k.streak = 0
	}
}

// learn moves the base towards the duration of the quickest work while the limit does not bind. If
// work is faster than the base, the base is lowered in any case, because work cannot be faster than
// without waiting.
func (k *Knee) learn(now time.Duration, s summary) {
	switch {
	case s.quick+doubt*s.blur < k.base*(1-gap):
		// The work has become faster, but it may still wait. A probe soon finds out.
		k.base = s.quick
		k.probeAt = min(k.probeAt, now+k.jittered(k.config.Probe/15))
	case s.quick+doubt*s.blur < k.base:
		k.base = s.quick + doubt*s.blur
	case s.idle && s.quick < k.base:
		k.base += (s.quick - k.base) * 0.1
	case s.idle && !s.odd:
		k.base += (min(s.quick, 1.5*k.base) - k.base) * 0.05
	}
}

// grow raises the limit, by less if work already takes nearly too long.
func (k *Knee) grow(share float64) {
	by := 0.5
	if k.steady {
		by = share * min(0.05*math.Exp2(float64(k.streak)), 0.5) * (0.75 + k.random.Float64()/2)
	}
	k.streak++
	k.limit = min(k.limit+max(k.limit*by, 1), float64(k.config.Max))
}

// lower lowers the limit. The next window shows whether that was right. It returns false if the limit
// cannot be lowered any further.
func (k *Knee) lower(now time.Duration, kind trialKind, before summary, limit float64) bool {
	k.steady, k.streak = true, 0
	if limit = max(limit, float64(k.config.Min)); math.Floor(limit) >= math.Floor(k.limit) {
		return false
	}
	if k.trial.kind == none {
		k.trial = trial{kind, before}
	}
	k.change(now, limit)
	return true
}

// change sets the limit, and drops all samples from before the change.
func (k *Knee) change(now time.Duration, limit float64) {
	k.limit = min(max(limit, float64(k.config.Min)), float64(k.config.Max))
	k.from, k.window, k.recent = now, window{}, recent{}
}

// probe lowers the limit for a test if one is due, and reports whether it did.
func (k *Knee) probe(now time.Duration, s summary) bool {
	if k.probeAt < 0 {
		k.probeAt = now + 5*k.config.Window
	}
	if now < k.probeAt || k.trial.kind != none {
		return false
	}
	k.probeAt = now + k.jittered(k.config.Probe)
	from := k.limit
	if !s.binds {
		from = min(from, s.rate*s.mean)
	}
	k.lower(now, lowered, s, min(from*(1-k.config.Depth), from-1))
	return k.trial.kind == lowered
}

// reach raises the limit for a test if one is due, and reports whether it did. It is called when
// either work waits a little or the base is too low.
func (k *Knee) reach(now time.Duration, s summary) bool {
	if now < k.reachAt || k.trial.kind != none {
		return false
	}
	k.reachAt = now + k.jittered(k.config.Probe/8)
	limit := min(max(k.limit*raise, k.limit+1), float64(k.config.Max))
	if limit == k.limit {
		return false
	}
	k.trial = trial{raised, s}
	k.change(now, limit)
	return true
}

// jittered returns a random time between d and 2·d.
func (k *Knee) jittered(d time.Duration) time.Duration {
	return time.Duration((1 + k.random.Float64()) * float64(d))
}

// moved returns the limit as a multiple of what was in progress before the change.
func (t *trial) moved(limit float64) float64 {
	if t.before.binds {
		return limit / t.before.limit
	}
	return limit / min(t.before.limit, t.before.rate*t.before.mean)
}

// tried evaluates the first window under a changed limit. It returns true if the window must not be
// used for anything else.
func (k *Knee) tried(now time.Duration, s summary) bool {
	t, before := k.trial, k.trial.before
	if t.kind == overload {
		return k.overloaded(now, s)
	}
	if !s.binds || s.mean == 0 || before.mean == 0 {
		k.trial = trial{}
		return false
	}
	moved := t.moved(k.limit)
	if t.kind == slower && moved > 1-gap {
		return false // the change is too small to tell; the limit may be lowered further
	}
	k.trial = trial{}
	// If work waits, its duration follows the limit. Otherwise the duration stays the same, and the
	// rate of completed work follows the limit.
	waits := (s.middle-before.middle < verdict*math.Log(moved)) == (moved < 1)
	switch {
	case waits && t.kind == raised:
		// The base is right, but the limit before the trial was a little too high.
		before.limit *= min(max(room/k.ratio(&before, 0), 1-gap), 1)
		k.change(now, before.limit)
		return true
	case t.kind == raised:
		k.slowed(now, min(s.quick, before.quick))
		return false
	case waits && t.kind == lowered:
		k.base = min(k.base, s.quick)
		k.probeAt = now // probe again until less gets done
	case waits: // the base is right
	case t.kind == lowered:
		k.base = max(k.base, (s.quick+before.quick)/2)
	default:
		k.slowed(now, (s.quick+before.quick)/2)
	}
	// At the rate of before the change and with the duration of now, so much would be in progress. If
	// nothing had been waiting, this is the old limit, so the cut is undone.
	old := k.limit / moved
	needs := margin * old * max(s.mean/before.mean, math.Exp(s.middle-before.middle))
	limit := min(max(needs, k.limit), old)
	if math.Floor(limit) <= math.Floor(k.limit) {
		return false
	}
	k.change(now, limit)
	return true
}

// slowed raises the base. If it rises much, a probe soon checks whether that was right.
func (k *Knee) slowed(now time.Duration, base float64) {
	if base > k.base*(1+gap/2) {
		k.probeAt = min(k.probeAt, now+k.jittered(k.config.Probe/4))
	}
	k.base = max(k.base, base)
}

// overloaded evaluates a window after the limit was lowered because of overload; see tried.
func (k *Knee) overloaded(now time.Duration, s summary) bool {
	before := k.trial.before
	moved := k.limit / before.limit
	switch {
	case s.share <= bearable+1.3*k.tolerated, s.share < 0.6*before.share, before.share > 0.5, before.rate == 0:
		k.trial = trial{}
		return false
	case moved > 0.5:
		return false // lower the limit once more
	case s.rate > before.rate*(1+moved)/2:
		k.trial = trial{}
		return false
	}
	// The same share of work fails as before, and less gets done, so the limit was not the cause.
	k.trial = trial{}
	k.tolerated = max(s.share, before.share)
	k.change(now, before.limit)
	return true
}
