package async

import (
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate"
)

// entry is what this node knows of one key and what it has admitted. The lock of its shard
// guards it.
type entry struct {
	rule    *headgate.Rule
	onError headgate.OnError
	scope   headgate.Scope
	limits  []limitState

	// unreported are the units admitted here since the last report. pending are the units that a
	// report or a request is taking to the store at this moment. doubtful are the units that were
	// reported, since the last answer, in calls without an answer: the store may have counted them.
	unreported, pending, doubtful int64
	// refunds are to be sent to the store, in the order in which they are due.
	refunds []keptRefund
	resets  uint32 // how often the key was reset

	// The store's last answer:
	answered   time.Duration    // when it came; zero if there is none
	goodUntil  time.Duration    // until when decisions may be based on it
	storeTime  headgate.Instant // the time that it gave, by the store's clock
	asked      bool             // a request was decided from it, so the next report renews it
	callFailed bool             // a later call for the key failed

	// The demand for the key:
	fraction float64 // the part of all units that this node admits
	others   float64 // units that other nodes admit in a microsecond
	sample   sample
}

// sample measures the demand for a key over about an interval. It updates fraction and others.
type sample struct {
	since headgate.Instant // on the store's clock
	own   float64          // units that the store has charged for this node
	// least and most bound the units that the store has charged for all nodes. They differ if a
	// bucket may have been full in the meantime, because a full bucket refills nothing.
	least, most float64
}

// limitState is what is known of one limit.
type limitState struct {
	level float64          // units left at the store's last answer, negative if overdrawn
	rate  float64          // units refilled in a microsecond; zero for windows
	ends  headgate.Instant // when the limit is fully free again, on the store's clock; 0 if it is
	// The store has denied a cost of short, and will deny costs of short or more until free.
	// Without such a denial, short is zero.
	short int64
	free  time.Duration
}

// sampleWeight is the weight of a new sample in the averages of the demand. The old average has the
// rest of the weight.
const sampleWeight = 0.5

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
	e.forgetAnswer(part)
}

// forgetAnswer forgets the store's answers, but keeps the units and refunds that are still to be
// reported.
func (e *entry) forgetAnswer(part float64) {
	e.storeTime, e.goodUntil, e.answered = 0, 0, 0
	e.asked = false
	e.fraction, e.others, e.sample = min(e.fraction, part), 0, sample{}
	if e.fraction <= 0 {
		e.fraction = part
	}
}

// sameLimits reports whether two versions of a rule have the same counters and limits.
func sameLimits(a, b *headgate.Rule) bool {
	return a == b || a.Name() == b.Name() && a.Tag() == b.Tag() && slices.Equal(a.Limits(), b.Limits())
}

// nobodyCounts reports whether the request was let in without being counted anywhere.
func nobodyCounts(decisions []headgate.Decision) bool {
	return len(decisions) > 0 && decisions[0].Source == headgate.SourceOpen
}

// outcome is what this node decides about a check.
type outcome uint8

const (
	askStore outcome = iota // this node knows too little
	admit                   // the cost fits into this node's share
	deny                    // as far as this node knows, the store would deny the cost
)

// room is how many units of one limit are free.
type room struct {
	own    float64 // units that this node may admit without asking
	likely float64 // units that are free if the other nodes go on as before
	most   float64 // units that are free if the other nodes admit nothing
}

// room estimates how many units of a limit are free. age is the time since the store's answer, and
// interval the time between two reports, both in microseconds. docs/consistency.md derives the
// formula for own.
func (e *entry) room(i int, part, age, interval float64) room {
	l := &e.limits[i]
	out := float64(e.unreported + e.pending + e.doubtful)
	missing := max(0, float64(e.rule.Limits()[i].Capacity())-l.level+out)
	refilled := min(l.rate*age, missing) // A bucket refills at most what is missing.
	// When the store answered, other nodes had admitted units that they had not reported: on
	// average those of half an interval.
	hidden := math.Floor(e.others * interval / 2)
	base := l.level - hidden
	own := e.fraction * base
	if base > 0 {
		own = min(e.fraction, part) * base
	}
	most := l.level + refilled - float64(e.unreported)
	drain := e.others
	if limit := &e.rule.Limits()[i]; limit.Algorithm == headgate.SlidingWindow || limit.Algorithm == headgate.SlidingCounter {
		drain = max(0, drain-leaving(limit, l.level)) // an estimate, because units may leave in bursts
	}
	gone := hidden + math.Floor(drain*age)
	return room{
		own: own + e.fraction*refilled - out,
		// The bucket also refills what other nodes take, because then more is missing.
		likely: most - refilled + min(l.rate*age, missing+gone) - gone,
		most:   most,
	}
}

// leaving returns how many units leave a sliding window in a microsecond, if they came evenly.
func leaving(l *headgate.Limit, level float64) float64 {
	return (float64(l.Count) - level) / float64(l.Micros())
}

// decide decides about a cost from what is known of all limits.
func (e *entry) decide(units int64, o *Options, now time.Duration) outcome {
	if now >= e.goodUntil {
		return askStore
	}
	age, each := micros(now-e.answered), micros(o.Interval)
	result := admit
	for i := range e.limits {
		r := e.room(i, o.Part, age, each)
		switch {
		case r.own >= float64(units):
		case !e.limits[i].worthAsking(r, units, now):
			return deny
		default:
			result = askStore
		}
	}
	return result
}

// worthAsking reports whether the store might admit a cost that this node must not admit by itself.
// Once the store has denied such a cost, it is not asked again until free.
func (k *limitState) worthAsking(r room, units int64, now time.Duration) bool {
	return r.likely >= float64(units) && (k.short == 0 || units < k.short || now >= k.free)
}

// pause is the minimum time between a denial by the store and the next call that asks the store
// about the same key.
func (o *Options) pause() time.Duration { return o.Interval / 8 }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// describe appends a decision for each limit, as of now. If charged is true, the cost was admitted
// and is included in the unreported units. held are units of the cost that are included in the
// pending units instead. next is the time until the next report.
func (e *entry) describe(dst []headgate.Decision, c *headgate.Check, place int, charged bool, held int64, o *Options, now, next time.Duration) []headgate.Decision {
	age := micros(now - e.answered)
	limits := c.Rule.Limits()
	units := c.Units()
	for i := range limits {
		l, k := &limits[i], &e.limits[i]
		r := e.room(i, o.Part, age, micros(o.Interval))
		r.most -= float64(held)
		d := headgate.Decision{
			Rule: c.Rule, Limit: l, Check: place, Shadow: c.Shadow, Source: headgate.SourceAsync, Allowed: true,
			At: e.storeTime + headgate.Instant(age), Remaining: int64(min(max(0, r.most), float64(l.Capacity()))),
		}
		switch missing := float64(l.Capacity()) - r.most; {
		case k.rate > 0:
			d.ResetAfter = duration(max(0, missing) / k.rate)
		case missing <= 0:
		case l.Algorithm == headgate.SlidingWindow && e.unreported+held > 0:
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

// retry returns the time after which a denied cost may be tried again. That is the next report, or
// the earliest time at which the limit can have room, whichever is later.
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

// duration converts microseconds, rounded up, to a duration of at most MaxRefill.
func duration(us float64) time.Duration {
	return time.Duration(math.Ceil(min(us, micros(headgate.MaxRefill)))) * time.Microsecond
}

// learn takes over an answer of the store to a call that lasted from began to now. units is the
// cost that the store was asked for, and charged is what the store has charged for this node. If
// the store has denied the cost, it is not asked again for at least pause.
func (e *entry) learn(decisions []headgate.Decision, units, charged int64, o *Options, pause, began, now time.Duration) {
	if len(decisions) == 0 || !sameLimits(decisions[0].Rule, e.rule) {
		return // The rule was changed since the store was asked.
	}
	for i := range decisions {
		if decisions[i].Source != headgate.SourceStore {
			return // Another layer has decided, which knows no more than this one.
		}
	}
	at := decisions[0].At
	switch late := e.storeTime - at; {
	case late <= 0:
	case late < headgate.Instant(time.Second/time.Microsecond):
		e.sample.own += float64(charged) // The answer to a later call came first.
		return
	default: // The store's clock was set back.
		e.forgetAnswer(o.Part)
	}
	known := e.storeTime != 0 && now-e.answered < staleAfter*o.Interval
	if !known {
		e.forgetAnswer(o.Part)
		e.sample.since = at
	}
	least, most := math.Inf(1), math.Inf(1)
	until := now + staleAfter*o.Interval
	for i := range decisions {
		d, k := &decisions[i], &e.limits[i]
		was := *k
		k.update(d, units, began, pause)
		if at == e.storeTime {
			// Among several calls in the same microsecond, the last one left the least.
			k.level = min(k.level, was.level)
		}
		if d.Limit.Algorithm == headgate.FixedWindow && d.ResetAfter > 0 {
			until = min(until, began+d.ResetAfter)
		}
		if a, b, valid := k.taken(&was, d, float64(at-e.storeTime)); known && valid && b < most {
			least, most = a, b
		}
	}
	if !math.IsInf(most, 1) {
		own := float64(charged)
		e.sample.own += own
		e.sample.least += max(own, least)
		e.sample.most += max(own, most)
	}
	e.answered, e.goodUntil, e.storeTime = now, until, at
	e.asked, e.callFailed, e.doubtful = false, false, 0
	if passed := at - e.sample.since; float64(passed) >= 0.9*micros(o.Interval) {
		e.endSample(float64(passed))
		e.sample = sample{since: at}
	}
}

// endSample adds the sample, which lasted passed microseconds, to the averages of the demand.
func (e *entry) endSample(passed float64) {
	s := &e.sample
	if s.most > 0 {
		e.fraction += sampleWeight * (s.own/s.most - e.fraction)
	}
	e.others += sampleWeight * ((s.least-s.own)/passed - e.others)
}

// update takes over the state of a limit from the store's decision about a cost.
func (k *limitState) update(d *headgate.Decision, units int64, began, pause time.Duration) {
	k.level = float64(d.Remaining)
	if k.rate > 0 {
		// Remaining has whole units and is never negative. The time until the bucket is full, which
		// is rounded up, shows the fraction and the overdraft as well.
		exact := float64(d.Limit.Capacity()) - micros(d.ResetAfter)*k.rate
		if d.Remaining > 0 {
			exact = max(exact, k.level)
		}
		k.level = exact
	}
	var free time.Duration
	if k.short > 0 && k.short <= units {
		free = k.free // The earlier denial of a smaller cost still holds.
	}
	k.ends, k.free, k.short = 0, 0, 0
	if d.ResetAfter > 0 {
		k.ends = d.At + headgate.Instant(d.ResetAfter.Microseconds())
	}
	if d.RetryAfter > 0 {
		k.free, k.short = max(free, began+max(d.RetryAfter, pause)), units
	}
}

// taken bounds the units that all nodes have taken from a limit since its state was was, passed
// microseconds ago. valid reports whether the two states can be compared.
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
