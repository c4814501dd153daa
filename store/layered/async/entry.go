package async

import (
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate"
)

// entry is what this node knows of one key, and what it has admitted.
type entry struct {
	rule    *headgate.Rule
	onError headgate.OnError
	limits  []limitState

	// unreported is what was admitted here since the store was told, pending what it
	// is just being told or is set aside for a request, and doubtful what it was told
	// without an answer since the last one: it may have counted.
	unreported, pending, doubtful int64
	forgotten                     uint32 // how often the key was reset

	refunds []refund // units to give back, in the order in which they are due

	known  time.Duration // when the store answered last
	until  time.Duration // how long the answer is good
	at     int64         // the store's clock in the answer
	wanted bool          // somebody asked for the key since then
	failed bool          // the last call for the key failed

	fraction float64 // of all units, those that were admitted here
	others   float64 // units that others take, per microsecond
	sample   sample
}

// sample is the demand since a while ago: what fraction and others are made of.
type sample struct {
	since int64   // on the store's clock
	own   float64 // units that the store has charged for this node
	// least and most are what it has charged for all of them: a bucket that was full
	// in between does not tell exactly.
	least, most float64
}

// limitState is what is known of one limit.
type limitState struct {
	level float64       // units left in the store at its last answer, negative if overdrawn
	rate  float64       // units refilled per microsecond; zero for windows
	ends  int64         // when its counter is free again, on the store's clock; 0 if it is
	free  time.Duration // until when the store has no room for short units
	short int64         // 0 if it has
}

// bend is how much a new sample changes what was known of the demand.
const bend = 0.5

func (e *entry) init(rule *headgate.Rule, part float64) {
	e.rule = rule
	e.limits = make([]limitState, len(rule.Limits()))
	for i := range e.limits {
		l := &rule.Limits()[i]
		if l.Algorithm == headgate.TokenBucket {
			num, den := l.Rate()
			e.limits[i].rate = float64(num) / float64(den)
		}
	}
	e.ignorant(part)
}

// ignorant forgets what is known, but not what is owed.
func (e *entry) ignorant(part float64) {
	e.at, e.until, e.known = 0, 0, 0
	e.wanted = false
	e.fraction, e.others, e.sample = min(e.fraction, part), 0, sample{}
	if e.fraction <= 0 {
		e.fraction = part
	}
}

// sameLimits reports whether two rules of one name count alike.
func sameLimits(a, b *headgate.Rule) bool {
	return a == b || a.Name() == b.Name() && a.Tag() == b.Tag() && slices.Equal(a.Limits(), b.Limits())
}

// nobodyCounts reports whether the request was let in without being counted anywhere.
func nobodyCounts(decisions []headgate.Decision) bool {
	return len(decisions) > 0 && decisions[0].Source == headgate.SourceOpen
}

// outcome is what this node can say of a check.
type outcome uint8

const (
	ask    outcome = iota // the store knows better
	admit                 // it fits into what this node may admit by itself
	refuse                // there is nothing left, for all that is known
	later                 // a refund that the store is told of with a later report
)

// room is what there is of one limit at some time.
type room struct {
	own    float64 // what this node may admit by itself
	likely float64 // what is left, if the others go on as before
	most   float64 // what is left, if they do nothing
}

// room works out what there is. age is the time since the answer, and interval that
// between two reports, in microseconds.
func (e *entry) room(i int, part, age, interval float64) room {
	l := &e.limits[i]
	out := float64(e.unreported + e.pending + e.doubtful)
	missing := max(0, float64(e.rule.Limits()[i].Capacity())-l.level+out)
	refilled := min(l.rate*age, missing) // More than is missing is never refilled.
	// What others have admitted and the store did not know: half an interval's worth.
	hidden := math.Floor(e.others * interval / 2)
	base := l.level - hidden
	own := e.fraction * base
	if base > 0 {
		own = min(e.fraction, part) * base
	}
	most := l.level + refilled - float64(e.unreported)
	drain := e.others
	if limit := &e.rule.Limits()[i]; limit.Algorithm == headgate.SlidingWindow || limit.Algorithm == headgate.SlidingCounter {
		drain = max(0, drain-leaving(limit, l.level)) // Only to ask: it may leave otherwise.
	}
	gone := hidden + math.Floor(drain*age)
	return room{
		own: own + e.fraction*refilled - out,
		// What others take is missing as well, and is refilled.
		likely: most - refilled + min(l.rate*age, missing+gone) - gone,
		most:   most,
	}
}

// leaving is how many units leave a sliding window in a microsecond, if they came
// evenly.
func leaving(l *headgate.Limit, level float64) float64 {
	return (float64(l.Count) - level) / float64(l.Micros())
}

// decide says whether units fit all limits.
func (e *entry) decide(units int64, o *Options, now time.Duration) outcome {
	if now >= e.until {
		return ask
	}
	age, each := micros(now-e.known), micros(o.Interval)
	result := admit
	for i := range e.limits {
		r := e.room(i, o.Part, age, each)
		switch {
		case r.own >= float64(units):
		case !e.limits[i].worthAsking(r, units, now):
			return refuse
		default:
			result = ask
		}
	}
	return result
}

// worthAsking reports whether the store may have room that this node has not. Where
// it had none it is not asked again for a while.
func (k *limitState) worthAsking(r room, units int64, now time.Duration) bool {
	return r.likely >= float64(units) && (k.short == 0 || units < k.short || now >= k.free)
}

// pause is the least time between two calls in which the store denies a key: an
// eighth of an interval.
func (o *Options) pause() time.Duration { return o.Interval / 8 }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// describe appends a decision for each limit, as of now. If charged is true the units
// are counted already, but for those aside. next is the time until the next report.
func (e *entry) describe(dst []headgate.Decision, c *headgate.Check, place int, charged bool, aside int64, o *Options, now, next time.Duration) []headgate.Decision {
	age := micros(now - e.known)
	limits := c.Rule.Limits()
	units := c.Units()
	for i := range limits {
		l, k := &limits[i], &e.limits[i]
		r := e.room(i, o.Part, age, micros(o.Interval))
		r.most -= float64(aside)
		d := headgate.Decision{
			Rule: c.Rule, Limit: l, Check: place, Shadow: c.Shadow, Source: headgate.SourceLocal, Allowed: true,
			At: e.at + int64(age), Remaining: int64(min(max(0, r.most), float64(l.Capacity()))),
		}
		switch missing := float64(l.Capacity()) - r.most; {
		case k.rate > 0:
			d.ResetAfter = duration(max(0, missing) / k.rate)
		case missing <= 0:
		case l.Algorithm == headgate.SlidingWindow && e.unreported+aside > 0:
			d.ResetAfter = l.Period
		default:
			d.ResetAfter = max(time.Duration(k.ends-d.At)*time.Microsecond, time.Microsecond)
		}
		if !charged && r.own < float64(units) && !k.worthAsking(r, units, now) {
			d.Allowed = false
			d.RetryAfter = k.retry(l, units, r, &d, now, max(next, time.Microsecond))
		}
		dst = append(dst, d)
	}
	return dst
}

// retry is when a denied cost may come again: after the next report, or when the
// limit has room at the earliest.
func (k *limitState) retry(l *headgate.Limit, units int64, r room, d *headgate.Decision, now, next time.Duration) time.Duration {
	if units > l.Capacity() {
		return headgate.Never
	}
	if k.short > 0 && units >= k.short {
		next = max(next, k.free-now)
	}
	switch {
	case r.most >= float64(units):
	case k.rate > 0:
		next = max(next, duration((float64(units)-r.most)/k.rate))
	case l.Algorithm == headgate.FixedWindow:
		next = max(next, d.ResetAfter)
	}
	return next
}

// duration turns microseconds into a duration, rounded up: MaxRefill at most.
func duration(us float64) time.Duration {
	return time.Duration(math.Ceil(min(us, micros(headgate.MaxRefill)))) * time.Microsecond
}

// answer takes over what the store has said of the key, in a call that began at some
// time and has just ended; charged is what it has charged for this node, and pause how
// long it is not asked again at least if it denies.
func (e *entry) answer(decisions []headgate.Decision, units, charged int64, o *Options, pause, began, now time.Duration) {
	if len(decisions) == 0 || !sameLimits(decisions[0].Rule, e.rule) {
		return // The rule was changed since the store was asked.
	}
	for i := range decisions {
		if decisions[i].Source != headgate.SourceStore {
			return // somebody who stood in for the store knows no more than this node
		}
	}
	at := decisions[0].At
	switch late := e.at - at; {
	case late <= 0:
	case late < int64(time.Second/time.Microsecond):
		e.sample.own += float64(charged) // An answer that came in after a later one.
		return
	default: // The store's clock was set back.
		e.ignorant(o.Part)
	}
	known := e.at != 0 && now-e.known < staleAfter*o.Interval
	if !known {
		e.ignorant(o.Part)
		e.sample.since = at
	}
	least, most := math.Inf(1), math.Inf(1)
	until := now + staleAfter*o.Interval
	for i := range decisions {
		d, k := &decisions[i], &e.limits[i]
		was := *k
		k.learn(d, units, began, pause)
		if at == e.at {
			// Several calls in one microsecond: nobody knows which was the last, but
			// that it left least.
			k.level = min(k.level, was.level)
		}
		if d.Limit.Algorithm == headgate.FixedWindow && d.ResetAfter > 0 {
			until = min(until, began+d.ResetAfter)
		}
		if a, b, valid := k.taken(&was, d, float64(at-e.at)); known && valid && b < most {
			least, most = a, b
		}
	}
	if !math.IsInf(most, 1) {
		own := float64(charged)
		e.sample.own += own
		e.sample.least += max(own, least)
		e.sample.most += max(own, most)
	}
	e.known, e.until, e.at = now, until, at
	e.wanted, e.failed, e.doubtful = false, false, 0
	if passed := at - e.sample.since; float64(passed) >= 0.9*micros(o.Interval) {
		e.close(float64(passed))
		e.sample = sample{since: at}
	}
}

// close makes a sample part of what is known of the demand.
func (e *entry) close(passed float64) {
	s := &e.sample
	if s.most > 0 {
		e.fraction += bend * (s.own/s.most - e.fraction)
	}
	e.others += bend * ((s.least-s.own)/passed - e.others)
}

// learn takes over the state of a limit.
func (k *limitState) learn(d *headgate.Decision, units int64, began, pause time.Duration) {
	k.level = float64(d.Remaining)
	if k.rate > 0 {
		// A part of a unit, and how much it is overdrawn, show in how long it takes to
		// refill, which is rounded up.
		exact := float64(d.Limit.Capacity()) - micros(d.ResetAfter)*k.rate
		if d.Remaining > 0 {
			exact = max(exact, k.level)
		}
		k.level = exact
	}
	var free time.Duration
	if k.short > 0 && k.short <= units {
		free = k.free // What others were told stays true.
	}
	k.ends, k.free, k.short = 0, 0, 0
	if d.ResetAfter > 0 {
		k.ends = d.At + d.ResetAfter.Microseconds()
	}
	if d.RetryAfter > 0 {
		k.free, k.short = max(free, began+max(d.RetryAfter, pause)), units
	}
}

// taken is what all nodes have taken of a limit since it was as it was, so many
// microseconds ago: at least and at most.
func (k *limitState) taken(was *limitState, d *headgate.Decision, passed float64) (least, most float64, valid bool) {
	capacity := float64(d.Limit.Capacity())
	switch d.Limit.Algorithm {
	case headgate.TokenBucket:
		most = was.level + k.rate*passed - k.level
		if least = most; was.level+k.rate*passed > capacity {
			least = min(most, capacity-k.level)
		}
		return least, most, true
	case headgate.FixedWindow:
		most = was.level - k.level
		return most, most, k.level > 0 && most >= 0 && (was.ends == 0 || was.ends == k.ends)
	default:
		most = max(0, was.level-k.level+leaving(d.Limit, k.level)*passed)
		return most, most, true
	}
}
