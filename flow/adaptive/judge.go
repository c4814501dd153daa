package adaptive

import (
	"math"
	"time"
)

const (
	// grows, slow and swamped are multiples of the base. The limit grows while work takes less than
	// grows. It is lowered when work certainly takes longer than slow. While the limit does not
	// bind, it is lowered only beyond swamped, so that a short burst may pass.
	grows, slow, swamped = 1.07, 1.15, 2
	// room is the factor by which the limit exceeds what can be in progress without waiting, so
	// that workers that become free find work.
	room = 1.05
	// A result is certain if it holds even after doubt standard errors are subtracted.
	doubt = 2
	// A window is complete when the standard error is at most exact times the mean. It lasts no
	// longer than patience times the shortest window, or times the mean if that is longer. It has
	// at least few samples.
	exact, patience, few = 0.05, 6, 10
	// raise is the factor by which the limit is raised for a test. gap is the smallest relative
	// change from which the estimator can learn.
	raise, gap = 1.25, 0.2
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
	now, fine := w.summary(took, k.limit), float64(exact)
	longest := patience * max(shortest, now.mean)
	if t := &k.trial; t.kind != none {
		longest, fine = 2*longest, 0.7*fine
		if math.Abs(now.mean-t.middle(k.limit)) > 2.5*now.error && w.good >= 3*few {
			return true
		}
	}
	return w.bad > w.good || took >= longest || now.error <= fine*now.mean ||
		k.base > 0 && now.mean-doubt*now.error > 1.5*k.base
}

// summary returns the summary of the window, which has lasted for took.
func (w *window) summary(took, limit float64) summary {
	s := summary{
		limit: limit, binds: float64(w.inFlight) >= 0.95*math.Floor(limit),
		idle: float64(w.inFlight) < 0.7*limit,
		rate: w.good / took, share: w.bad / (w.good + w.bad),
		odd: w.ignored > bearable*(w.good+w.bad),
	}
	if w.good > 0 {
		s.mean = w.sum / w.good
		s.error = math.Sqrt(max(w.squares/w.good-s.mean*s.mean, 0) / w.good)
	}
	return s
}

// add adds a newer window. Older windows then count half as much.
func (w *window) add(newest *window) {
	w.good = w.good/2 + newest.good
	w.sum = w.sum/2 + newest.sum
}

// judge evaluates a complete window and begins a new one.
func (k *Knee) judge(now time.Duration, took float64) {
	w := k.window
	s := w.summary(took, k.limit)
	k.window = window{open: true, began: now}
	if k.base == 0 {
		k.base = s.mean
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
	// The mean before a change of the limit is taken from several windows.
	k.recent.add(&w)
	before := s
	if k.recent.good > 0 {
		before.mean = k.recent.sum / k.recent.good
	}
	switch certain := (s.mean - doubt*s.error) / max(k.base, 1); {
	case s.share > bearable+1.3*k.tolerated:
		k.holdUntil = now + k.jittered(3*k.config.Window)
		k.lower(now, overload, before, k.limit*min(1-s.share, 0.7))
		return
	case s.binds && certain > slow, certain > swamped:
		k.lower(now, slower, s, k.limit*max(room*k.base/s.mean, 0.5))
		return
	}
	k.tolerated = min(k.tolerated, k.tolerated+(s.share-k.tolerated)*0.05)
	if s.mean > 0 {
		k.learn(now, s)
	}
	switch {
	case (s.binds || s.odd) && k.probe(now, before):
	case s.mean > grows*k.base:
		k.steady, k.streak = true, 0
		if s.binds && !k.reach(now, before) {
			// The limit is lowered only a little, because either work waits or the base is too low.
			k.limit = max(k.limit*(1-0.3*min(s.mean/k.base-grows, 0.2)), float64(k.config.Min))
		}
	case s.mean > 0 && float64(2*w.inFlight) >= k.limit && now >= k.holdUntil:
		k.grow(min(max((grows*k.base-s.mean)/((grows-1)*k.base), 0.2), 1))
	default:
		k.streak = 0
	}
}

// learn moves the base towards the duration of work while the limit does not bind. If work is
// faster than the base, the base is lowered in any case, because work cannot be faster than without
// waiting.
func (k *Knee) learn(now time.Duration, s summary) {
	switch {
	case s.mean+doubt*s.error < k.base*(1-gap):
		// The work has become faster, but it may still wait. A probe soon finds out.
		k.base = s.mean
		k.probeAt = min(k.probeAt, now+k.jittered(k.config.Probe/20))
	case s.mean+doubt*s.error < k.base:
		k.base = s.mean + doubt*s.error
	case s.idle && s.mean < k.base:
		k.base += (s.mean - k.base) * 0.1
	case s.idle && !s.odd:
		k.base += (min(s.mean, 1.5*k.base) - k.base) * 0.05
	}
}

// grow raises the limit, by less if work already takes nearly too long.
func (k *Knee) grow(share float64) {
	by := 0.5
	if k.steady {
		by = share * min(0.05*math.Exp2(float64(k.streak)), 0.25) * (0.75 + k.random.Float64()/2)
	}
	k.streak++
	k.limit = min(k.limit+max(k.limit*by, 1), float64(k.config.Max))
}

// lower lowers the limit. The next window shows whether that was right.
func (k *Knee) lower(now time.Duration, kind trialKind, before summary, limit float64) {
	k.steady, k.streak = true, 0
	if limit = max(limit, float64(k.config.Min)); math.Floor(limit) >= math.Floor(k.limit) {
		return
	}
	if k.trial.kind == none {
		k.trial = trial{kind, before}
	}
	k.change(now, limit)
}

// change sets the limit, and drops all samples from before the change.
func (k *Knee) change(now time.Duration, limit float64) {
	k.limit = min(max(limit, float64(k.config.Min)), float64(k.config.Max))
	k.from, k.window, k.recent = now, window{}, window{}
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
	k.reachAt = now + k.jittered(k.config.Probe/10)
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

// middle returns the mean of two durations of work under the new limit: that if work waits, and
// that if it does not.
func (t *trial) middle(limit float64) float64 { return t.before.mean * (1 + t.moved(limit)) / 2 }

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
	waits := (s.mean < t.middle(k.limit)) == (moved < 1)
	switch {
	case waits && t.kind == lowered:
		k.base = min(k.base, s.mean)
		k.probeAt = now // probe again until less gets done
		return false
	case waits && t.kind == slower:
		return false
	case waits:
		// The base is right, but the limit before the trial was a little too high.
		before.limit *= max(room*k.base/before.mean, 1-gap)
	case t.kind == raised:
		k.slowed(now, (k.base+min(s.mean, before.mean))/2)
		return false
	case t.kind == lowered:
		k.base = max(k.base, (s.mean+before.mean)/2)
	default:
		k.slowed(now, (s.mean+before.mean)/2)
	}
	k.change(now, before.limit)
	return true
}

// slowed raises the base. If it rises much, a probe soon checks whether that was right.
func (k *Knee) slowed(now time.Duration, base float64) {
	if base > k.base*(1+gap/2) {
		k.probeAt = min(k.probeAt, now+k.jittered(k.config.Probe/5))
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
