package lease

import (
	"math/bits"
	"time"

	"github.com/headgate/headgate"
)

// What follows must be the same on all nodes that share a store.
const (
	// holdPart is what part of a limit's period units may be held, and mostHold and
	// leastHold bound it: a shorter time is not worth a call.
	holdPart  = 50
	mostHold  = time.Second
	leastHold = 5 * time.Millisecond
	// leastCapacity is what a limit must admit at once to be leased.
	leastCapacity = 10
	// reservePart is what part of a time is kept in reserve: clocks run alike to a
	// few parts in ten thousand.
	reservePart = 64
	// reserveWindow is kept in reserve besides where a window ends.
	reserveWindow = time.Millisecond
)

// plan is how a rule is leased. It is made of the rule alone, so that all nodes
// have the same.
type plan struct {
	// strict is what the store is to enforce: the rule itself if it is not leased.
	strict *headgate.Rule
	// hold is how long after their charge units may be admitted. Zero: the rule is
	// not leased.
	hold time.Duration
	// returns are the parts of the strict rule that units are given back to: each bucket by
	// itself, and the others together.
	returns []portion
}

// portion is some of a rule's limits, under its name.
type portion struct {
	rule *headgate.Rule
	// bucket is the place of the only limit among those of the strict rule, if it is a
	// bucket, which refills what is held. Otherwise it is -1.
	bucket int
}

func newPlan(rule *headgate.Rule) *plan {
	none := &plan{strict: rule}
	hold := mostHold
	limits := append([]headgate.Limit(nil), rule.Limits()...)
	for i := range limits {
		if !headgate.Leased.Counts(limits[i].Algorithm) {
			return none
		}
		hold = min(hold, holdOf(&limits[i]))
	}
	if hold < leastHold {
		return none
	}
	for i := range limits {
		l := &limits[i]
		switch l.Algorithm {
		case headgate.TokenBucket:
			l.Burst = l.Capacity() - refillUp(l, hold)
		case headgate.SlidingWindow:
			l.Period += hold
		}
		if l.Capacity() < leastCapacity {
			return none
		}
	}
	strict, err := derive(rule, limits)
	if err != nil {
		return none // A period that is as long as can be.
	}
	p := &plan{strict: strict, hold: hold}
	var windows []headgate.Limit
	add := func(bucket int, some ...headgate.Limit) bool {
		part := strict
		if len(some) < len(limits) {
			if part, err = derive(rule, some); err != nil {
				return false
			}
		}
		p.returns = append(p.returns, portion{part, bucket})
		return true
	}
	for i, l := range limits {
		if l.Algorithm != headgate.TokenBucket {
			windows = append(windows, l)
		} else if !add(i, l) {
			return none
		}
	}
	if len(windows) > 0 && !add(-1, windows...) {
		return none
	}
	return p
}

// derive returns a rule whose counters are those of the given one.
func derive(rule *headgate.Rule, limits []headgate.Limit) (*headgate.Rule, error) {
	derived, err := headgate.NewRule(rule.Name(), limits...)
	if err != nil {
		return nil, err
	}
	return derived.WithTag(rule.Tag())
}

// holdOf is how long units of a limit may be held, in whole microseconds.
func holdOf(l *headgate.Limit) time.Duration {
	micros := l.Micros()
	if l.Algorithm == headgate.TokenBucket {
		micros = fillTime(l, l.Capacity())
	}
	return min(mostHold, time.Duration(min(micros/holdPart, mostHold.Microseconds()))*time.Microsecond)
}

// fillTime is the time in microseconds, rounded up, in which a bucket refills so
// many units, of which there are at most its capacity.
func fillTime(l *headgate.Limit, units int64) int64 {
	num, den := l.Rate()
	hi, lo := bits.Mul64(uint64(units), uint64(den))
	lo, carry := bits.Add64(lo, uint64(num-1), 0)
	q, _ := bits.Div64(hi+carry, lo, uint64(num)) // at most headgate.MaxRefill
	return int64(q)
}

// refillUp is what a bucket refills in a time, rounded up to units: at most MaxCount.
func refillUp(l *headgate.Limit, d time.Duration) int64 {
	num, den := l.Rate()
	hi, lo := bits.Mul64(uint64((d+time.Microsecond-1)/time.Microsecond), uint64(num))
	lo, carry := bits.Add64(lo, uint64(den-1), 0)
	if hi += carry; hi >= uint64(den) {
		return headgate.MaxCount
	}
	q, _ := bits.Div64(hi, lo, uint64(den))
	return int64(min(q, headgate.MaxCount))
}

// usable is for how long after a call was sent the units may be admitted that it
// has taken, as its decisions tell.
func (p *plan) usable(decisions []headgate.Decision) time.Duration {
	span := p.hold - p.hold/reservePart
	for i := range decisions {
		l := decisions[i].Limit
		ends := decisions[i].ResetAfter
		switch l.Algorithm {
		case headgate.SlidingCounter:
			ends -= time.Duration(l.Micros()) * time.Microsecond // of the window after this one
		case headgate.FixedWindow:
		default:
			continue
		}
		span = min(span, ends-ends/reservePart-reserveWindow)
	}
	return span
}
