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
	// As long as no more than some wait, the limit grows in any case, and it is not lowered as long as no
	// more than many do: a few workers need as much to be busy at all times.
	some, many = 2, 4
	// room is the factor by which the limit exceeds what can be in progress without waiting, so
	// that workers that become free find work. margin is the same after a test.
	room, margin = 1.1, 1.05
	// A result is certain if it holds even after doubt standard errors are subtracted.
	doubt = 2
	// A window is complete when the standard error is at most exact times the mean, or sharp in the
	// logarithm during a test. It lasts no longer than patience times the shortest window, or times
	// the mean if that is longer. Under a limit that binds, it lasts twice as long as long work takes, unless
	// the wait is clear earlier. It has at least few samples.
	exact, sharp, patience, few = 0.05, 0.04, 6, 10
	// raise is the factor by which the limit is raised for a test. gap is the smallest relative
	// change from which the estimator can learn.
	raise, gap = 1.25, 0.2
	// The limit binds if at least the share full of the samples began at a full gate. A burst that
	// touches the limit now and then has fewer.
	full = 0.3
	// verdict is the share of a change of the limit that the duration of work has to follow, in
	// logarithms, if work waits.
	verdict = 0.6
	// small is how far a cut must go, as a share of what was in progress, for a loss of throughput to count.
	small = 0.7
	// bearable is the share of overload that is ignored.
	bearable = 0.1
	// far is how many times what is usual the limit is at most while there is overload.
	far = 6
	// recall is the share of what is known of calm work that is kept from window to window.
	recall = 0.8
	// rise is the factor by which a test raises the base at most if as much gets done as usual.
	rise = 1.1
	// brake is how many times as long as long work a piece of work takes that lets the limit double no further. Without
	// it, the limit would be far too high before a window shows that work waits. 1.5 and 2 measured alike.
	brake = 1.5
	// settles is how long a test waits at most until its change shows.
	settles = 3 * time.Second
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
		times, blur := s.longer(&t.before)
		off := math.Abs(math.Log(times) - verdict*math.Log(s.load/t.before.load))
		return s.n >= max(s.back, t.before.back)+few && off > 2.5*blur || blur < sharp
	}
	if k.base.short > 0 && k.ratio(&s, -doubt) > 1.5 {
		return s.n >= 2*few
	}
	// Under a limit that binds, long work has to end within the window, too. The first base cannot wait.
	whole := !s.binds || k.base.short == 0 || took >= 2*s.at.long
	return s.n >= 2*few && whole && s.err.short*s.at.short <= exact*s.mean
}

// summary returns the summary of the window, which has lasted for took.
func (k *Knee) summary(took float64) summary {
	w := &k.window
	all := w.good + w.bad + w.ignored
	s := summary{
		n: w.good, limit: k.limit, binds: w.full >= full*all,
		idle: float64(w.inFlight) < 0.7*k.limit,
		rate: w.good / took, share: w.bad / (w.good + w.bad),
		odd: w.ignored > bearable*(w.good+w.bad),
	}
	s.fast = w.lost <= bearable*(w.lost+w.sum)
	s.vague = math.Sqrt(s.share * (1 - s.share) / (w.good + w.bad))
	s.failed, s.unsure = s.share, s.vague
	s.apart = k.calm.share()
	// What matters is how much of what was in progress came to nothing. Where little was, one late
	// answer would be much of it.
	if byTime := w.lost / (w.lost + w.sum); w.bad > 0 && !s.idle && byTime > s.share {
		s.share, s.vague = byTime, byTime*math.Sqrt((1-byTime)/w.bad)
		lost, worked := s.apart*w.lost/w.bad, (1-s.apart)*w.sum/max(w.good, 1)
		s.apart = lost / max(lost+worked, 1)
	}
	if w.good > 0 {
		s.mean = w.sum / w.good
		s.load = w.load / all
		s.blur = math.Sqrt(max(w.squares/w.good/(s.mean*s.mean)-1, 0) / w.good)
	}
	if w.good+w.bad > 0 {
		var back int
		s.at, s.err, back = k.took.typical(int(w.good + w.bad))
		s.back = float64(back)
	}
	return s
}

// ratio returns how many times as long work takes as it would without waiting. A queue delays all
// work by the same time, which the short work shows. A shared server makes all work longer by the same
// factor, which short and long work show together; that has to be certain. errors is how many standard
// errors are added to what work takes.
func (k *Knee) ratio(s *summary, errors float64) float64 {
	if s.mean == 0 {
		return 1
	}
	waits := s.at.short*(1+errors*s.err.short) - k.base.short
	queued := s.mean / max(s.mean-waits, s.mean/10)
	shared := min(s.at.short/k.base.short*(1-doubt*s.err.short), s.at.long/k.base.long*(1-doubt*s.err.long))
	return max(queued, shared)
}

// longer returns how many times as long the same work takes in s as in than, and the standard error
// of the logarithm of that. By Little's law it is how much more was in progress for what got done, but
// only if the mix of work is the same. That is not the ratio of the means while work from before the
// change is still in progress: it is the longest there is. Typical work, compared as in ratio, knows
// without the mix.
func (s *summary) longer(than *summary) (times, blur float64) {
	if s.at.short < than.at.short {
		times, blur = than.longer(s)
		return 1 / times, blur
	}
	mean := max(s.mean, than.mean)
	waits := s.at.short - than.at.short
	queued := mean / max(mean-waits, mean/10)
	short, long := s.at.short/than.at.short, s.at.long/than.at.long
	shortErr, longErr := math.Hypot(s.err.short, than.err.short), math.Hypot(s.err.long, than.err.long)
	// In a shared server, short and long work may have become longer by as much as their errors allow.
	upper := long * math.Exp(doubt*longErr)
	if upper < 1 {
		upper = math.Inf(1) // Long work says nothing: it is other work.
	}
	shared := max(queued, min(short, long))
	upper = max(queued, min(short*math.Exp(doubt*shortErr), upper))
	err := math.Hypot(shortErr*min(1, s.at.short/mean*queued), math.Log(upper/shared))
	if shared > queued {
		err = math.Hypot(shortErr, math.Log(upper/shared))
	}
	a, b := 1/max(err*err, 1e-4), 1/max(s.blur*s.blur+than.blur*than.blur, 1e-4)
	little := s.load / than.load * than.rate / s.rate
	return math.Exp((a*math.Log(shared) + b*math.Log(little)) / (a + b)), math.Sqrt(1 / (a + b))
}

// spread returns by how much the work in progress that comes to nothing varies under the limit: its standard
// deviation. Without that room, workers would have nothing to do while there is more of it than usual.
func (s *summary) spread() float64 { return math.Sqrt(s.share * s.limit) }

// add adds a newer window. Older windows then count half as much.
func (s *summary) add(newer *summary) {
	n := s.n/2 + newer.n
	share := newer.n / n
	mix := func(was, is float64) float64 { return was + (is-was)*share }
	root := math.Sqrt(share)
	mixed := *newer
	mixed.n = n
	mixed.mean, mixed.blur = mix(s.mean, newer.mean), newer.blur*root
	mixed.rate, mixed.load = mix(s.rate, newer.rate), mix(s.load, newer.load)
	mixed.at = typical{mix(s.at.short, newer.at.short), mix(s.at.long, newer.at.long)}
	mixed.err = typical{newer.err.short * root, newer.err.long * root}
	if s.fast && newer.fast {
		mixed.share, mixed.vague = mix(s.share, newer.share), newer.vague*root
	}
	*s = mixed
}

// judge evaluates a complete window and begins a new one.
func (k *Knee) judge(now time.Duration, took float64) {
	s, w := k.summary(took), k.window
	k.window = window{open: true, began: now}
	outage := k.silent && s.n == 0
	k.silent = s.n == 0
	if k.base.short == 0 && s.mean > 0 {
		k.base = s.at
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
	if !s.binds {
		k.bound = now
		// Where most work comes to nothing, or what succeeds waits, the server has too much to do.
		if w.bad <= w.good && k.ratio(&s, -doubt) <= grows {
			k.compare(&w, &s)
		}
	}
	start := k.recent.limit // when the window began
	// The durations before a change of the limit are taken from several windows.
	if s.n > 0 {
		k.recent.add(&s)
	}
	before := k.recent
	if s.n == 0 {
		before = s
	}
	if k.useless(now, &s) {
		return
	}
	ratio := k.ratio(&s, 0)
	// It takes as long as long work until a new limit shows.
	pace := min(took/max(s.at.long, 1), s.n/max(s.back, 1), 1)
	grows := max(grows, k.limit/max(k.limit-some, 1))
	slow := max(slow, k.limit/max(k.limit-many, 1))
	// What one window does not show, several may.
	surely := func(errors float64) float64 { return max(k.ratio(&s, -errors), k.ratio(&k.recent, -errors)) }
	switch certain := surely(doubt); {
	case s.share-doubt*s.vague > k.bears(&s):
		k.holdUntil = now + k.jittered(3*k.config.Window)
		k.recent.at.long = max(k.recent.at.long, s.at.long)
		limit := k.limit * max(min(1-s.share, 0.7), 0.5)
		if s.fast {
			// Only a limit below what is in progress shows whether that is the cause.
			limit = min(limit, max(s.load*(1-k.config.Depth), many))
		}
		if !k.lower(now, overload, before, limit) {
			// At the floor, a higher limit shows whether the overload depends on it.
			k.reach(now, before)
		}
		k.steady = !outage
		return
	case s.binds && certain > slow:
		if float64(now-k.bound) < s.at.long && s.share == 0 {
			return // The limit has bound for too short a time to be the reason.
		}
		if !k.lower(now, slower, s, max(k.limit/ratio*room+s.spread(), min(k.limit/ratio+some, k.limit*0.9), k.limit/2)) {
			// The limit is as low as it may be. Whether it should be, a higher one shows.
			k.reach(now, before)
		}
		return
	}
	if k.steady {
		k.sound = k.limit
	}
	k.tolerated = min(k.tolerated, k.tolerated+(s.share+doubt*s.vague-k.tolerated)*0.05)
	if s.mean > 0 {
		if k.rate == 0 {
			k.rate = s.rate
		}
		k.rate += (s.rate - k.rate) * 0.1
		k.learn(now, s, pace)
	}
	switch {
	case (s.binds || s.odd) && k.probe(now, before):
	case surely(doubt/4.) > grows:
		// Where far less is in progress, chance decides how long work takes, and not the limit.
		k.steady, k.streak = k.steady || 3*s.load >= start, 0
		if s.binds && !k.reach(now, before) {
			// The limit is lowered only a little, because either work waits or the base is too low.
			k.limit = max(k.limit*(1-0.3*min(ratio-grows, 0.2)), float64(k.config.Min))
		}
	case s.mean > 0 && float64(2*w.inFlight) >= k.limit && now >= k.holdUntil:
		k.grow(min(max((grows-ratio)/(grows-1), 0.2), 1), pace)
	default:
		k.streak = 0
	}
}

// useless undoes growth that has made work take as much longer as the limit has become larger, so
// that no more gets done. It reports whether it did.
func (k *Knee) useless(now time.Duration, s *summary) bool {
	if k.streak == 0 || !k.grown.binds {
		k.grown = *s
	}
	from := k.grown
	if !s.binds || !from.binds || from.mean == 0 || s.mean == 0 || k.limit < raise*from.limit {
		return false
	}
	times, blur := s.longer(&from)
	if math.Log(times)-doubt*blur < verdict*math.Log(s.load/from.load) {
		return false
	}
	k.steady, k.streak = true, 0
	k.base.atMost(from.at)
	k.probeAt = now
	k.change(now, from.limit)
	return true
}

// atMost lowers t to other where that is less.
func (t *typical) atMost(other typical) {
	t.short, t.long = min(t.short, other.short), min(t.long, other.long)
}

// learn moves the base towards the duration of the work while the limit does not bind. If work is
// faster than the base, the base is lowered in any case, because work cannot be faster than without
// waiting.
func (k *Knee) learn(now time.Duration, s summary, pace float64) {
	if s.at.short*(1+doubt*s.err.short) < k.base.short*(1-gap) {
		// The work has become faster, but it may still wait. A probe soon finds out.
		k.probeAt = min(k.probeAt, now+k.jittered(k.config.Probe/15))
	}
	toward := func(base *float64, is, err float64) {
		switch most := is * (1 + doubt*err); {
		case most < *base:
			*base = most
		case s.idle && is < *base:
			*base += (is - *base) * 0.1 * pace
		case s.idle && !s.odd:
			*base += (min(is, 1.5**base) - *base) * 0.05 * pace
		}
	}
	toward(&k.base.short, s.at.short, s.err.short)
	if s.at.short < grows*k.base.short {
		// Nothing waits.
		k.base.long += (s.at.long - k.base.long) * 0.2
	} else {
		toward(&k.base.long, s.at.long, s.err.long)
	}
}

// grow raises the limit, by less if work already takes nearly too long.
func (k *Knee) grow(share, pace float64) {
	if k.steady {
		by := share * pace * min(0.05*math.Exp2(k.streak), 0.5) * (0.75 + k.random.Float64()/2)
		k.limit = min(k.limit+max(k.limit*by, pace), float64(k.config.Max))
	}
	k.streak += pace
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
	k.settle = min(time.Duration(k.recent.at.long), settles)
	k.from, k.bound, k.window, k.recent = now, now, window{}, summary{}
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
	moved := s.load / before.load
	if t.kind == slower && moved > 1-gap {
		return false // the change is too small to tell; the limit may be lowered further
	}
	k.trial = trial{}
	// If work waits, its duration follows the limit. Otherwise the duration stays the same, and the
	// rate of completed work follows the limit.
	times, blur := s.longer(&before)
	bound := math.Pow(moved, verdict)
	off := math.Log(times / bound)
	certain := math.Abs(off) > doubt*blur
	waits := (off < 0) == (moved < 1)
	// If less certainly gets done after a large cut, nothing waits any more. What timed out does not say how
	// long work takes.
	idle := t.kind == slower && moved < small && s.share <= bearable && math.Log(times/moved) > doubt*blur
	if !waits && moved < 1 && s.at.short*(1+s.err.short) < before.at.short*bound && s.at.long*bound > before.at.long {
		return false // Short work waits less, and the long work is other work.
	}
	switch {
	case waits && t.kind == raised:
		// The base is right, but the limit before the trial was a little too high.
		k.change(now, before.limit*min(max(room/k.ratio(&before, 0), 1-gap), 1)+before.spread())
		return true
	case t.kind == raised:
		if certain {
			k.slowed(now, &before, &s, 1/moved)
		}
		return false
	case idle:
		k.atLeast(now, s.at, max(s.rate, before.rate))
	case waits && t.kind == lowered:
		k.base.atMost(s.at)
		k.probeAt = now // probe again until less gets done
	case waits: // the base is right
	case certain:
		k.slowed(now, &s, &before, moved)
	}
	// At the rate of before the change and with the duration of now, so much would be in progress. If
	// nothing had been waiting, this is the old limit, so the cut is undone. A limit that is a little too
	// high does less harm than one that is too low, so the error is added.
	old := k.limit / moved
	limit := min(max(margin*old*times*math.Exp(blur)+s.spread(), k.limit), old)
	if math.Floor(limit) <= math.Floor(k.limit) {
		return false
	}
	k.change(now, limit)
	return true
}

// slowed raises the base to what work takes under the lower limit, where that has not followed the
// limit.
func (k *Knee) slowed(now time.Duration, low, high *summary, moved float64) {
	followed := math.Pow(moved, verdict)
	at := low.at
	// A small change can mislead, so it raises the base only a little.
	at.short = min(at.short, k.base.short/(moved*moved))
	if low.at.short <= high.at.short*followed {
		at.short = 0
	}
	// Long work that takes much longer under the lower limit is other work.
	if low.at.long <= high.at.long*followed || low.at.long*moved >= high.at.long {
		at.long = 0
	}
	k.atLeast(now, at, max(low.rate, high.rate))
}

// atLeast raises the base, by more than rise only in so far as the rate is below the usual one: work that takes
// longer itself lets less get done. If others at the same server have more in progress, a test of one's own
// cannot tell that from longer work, but as much gets done. If the base rises much, a probe soon checks whether
// that was right.
func (k *Knee) atLeast(now time.Duration, at typical, rate float64) {
	// Where the limit did not bind before, more than usual could get done, so the rate falls by less than work
	// slows. The square makes up for that.
	less := k.rate / rate
	most := max(rise, less*less)
	at.short, at.long = min(at.short, k.base.short*most), min(at.long, k.base.long*most)
	if at.short > k.base.short*(1+gap/2) {
		k.probeAt = min(k.probeAt, now+k.jittered(k.config.Probe/4))
	}
	k.base.short, k.base.long = max(k.base.short, at.short), max(k.base.long, at.long)
}

// bears returns the share of overload above which the limit is lowered, in the measure of s.share. It is
// below 1 whatever is tolerated: where nothing succeeds any more, a lower limit may help.
func (k *Knee) bears(s *summary) float64 {
	tolerated := max(k.tolerated, s.apart)
	return min(bearable+1.3*tolerated, (1+tolerated)/2)
}

// overloaded evaluates a window after the limit was lowered because of overload; see tried.
func (k *Knee) overloaded(now time.Duration, s summary) bool {
	before := k.trial.before
	was, is, blur := before.share, s.share, doubt*math.Hypot(s.vague, before.vague)
	if before.idle {
		was, is, blur = before.failed, s.failed, doubt*math.Hypot(s.unsure, before.unsure)
	}
	fewer := is < min(0.6*was, was-blur)
	fast := s.fast && before.fast
	if 2*math.Floor(k.limit) > math.Floor(before.limit) && !fewer && s.share > k.bears(&s) && !fast {
		return false // lower the limit once more
	}
	k.trial = trial{}
	// What timed out goes on in the server, so less may get done under a limit that is right. The exponent
	// says how much less; with 0.5, less that hangs is refused, but of eight gates before one server, less
	// gets done. What failed at once is gone. Where what succeeds waits, the limit is the cause.
	if fewer || is > was+blur || s.rate == 0 || k.ratio(&s, -doubt) > slow ||
		!fast && s.rate*math.Pow(before.load, 0.7) >= before.rate*math.Pow(s.load, 0.7) {
		return false
	}
	// The same share of work fails as before, and less gets done or could, so the limit was not the cause.
	// It may have to be higher than before: what never ends holds its place.
	k.tolerated, k.steady = before.share, false
	k.change(now, before.limit)
	return true
}

// compare learns from a window in which the limit does not bind what is usual, and what calm work tells.
func (k *Knee) compare(w *window, s *summary) {
	if k.usual == 0 {
		k.usual = s.load
	}
	k.usual = (k.usual + s.load) / 2
	k.calm.all, k.calm.bad = k.calm.all*recall+w.calm.all, k.calm.bad*recall+w.calm.bad
	if s.share > bearable {
		// If there should be more overload, a limit far above what is in progress would take long to come down.
		k.limit = min(k.limit, max(far*k.usual, float64(k.config.Min)))
	}
}

// share returns the share of overload, to which its error is added. It is zero where there is too little work
// to know, and where it is certainly bearable: little overload that takes much of the time is long work.
func (t *tally) share() float64 {
	if t.all < few {
		return 0
	}
	share := t.bad / t.all
	if share += doubt * math.Sqrt(share*(1-share)/t.all); share <= bearable {
		return 0
	}
	return share
}
