package lease

import (
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/muldiv"
)

// These constants must be the same on all nodes that share a store.
const (
	// holdPart: units may be held for 1/holdPart of a limit's period, but no longer than mostHold.
	// A time below leastHold is not worth a call.
	holdPart  = 50
	mostHold  = time.Second
	leastHold = 5 * time.Millisecond
	// leastCapacity is the smallest capacity at which a limit is leased.
	leastCapacity = 10
	// reservePart: 1/reservePart of a time is kept in reserve, because the speeds of clocks differ
	// by a few parts in ten thousand.
	reservePart = 64
	// reserveWindow is an additional reserve before the end of a window.
	reserveWindow = time.Millisecond
)

// plan says how a rule is leased. It depends on the rule alone, so all nodes have the same plan.
type plan struct {
	// strict is the rule that the store is to enforce: the rule itself if it is not leased.
	strict *headgate.Rule
	// hold is how long after their charge units may be admitted. If it is zero, the rule is not
	// leased.
	hold time.Duration
	// returns are the parts of the strict rule to which units are given back: each bucket
	// separately, and all other limits together.
	returns []portion
}

// portion is some of a rule's limits, under its name.
type portion struct {
	rule *headgate.Rule
	// bucket is the index of the part's only limit in the strict rule, if that limit is a bucket,
	// which refills while units are held. Otherwise it is -1.
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
		return none // The longer period is above the maximum.
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

// derive returns a rule with the given limits and the counters of the given rule.
func derive(rule *headgate.Rule, limits []headgate.Limit) (*headgate.Rule, error) {
	derived, err := headgate.NewRule(rule.Name(), limits...)
	if err != nil {
		return nil, err
	}
	return derived.WithTag(rule.Tag())
}

// holdOf returns how long units of a limit may be held, in whole microseconds.
func holdOf(l *headgate.Limit) time.Duration {
	micros := l.Micros()
	if l.Algorithm == headgate.TokenBucket {
		micros = fillTime(l, l.Capacity())
	}
	return min(mostHold, time.Duration(min(micros/holdPart, mostHold.Microseconds()))*time.Microsecond)
}

// fillTime returns the time in microseconds, rounded up, in which a bucket refills the units. They
// are at most its capacity.
func fillTime(l *headgate.Limit, units int64) int64 {
	num, den := l.Rate()
	return muldiv.Up(units, den, num, headgate.MaxRefill.Microseconds())
}

// refillUp returns what a bucket refills in a time, rounded up to whole units, and at most
// MaxCount.
func refillUp(l *headgate.Limit, d time.Duration) int64 {
	num, den := l.Rate()
	return muldiv.Up(int64((d+time.Microsecond-1)/time.Microsecond), num, den, headgate.MaxCount)
}

// usable returns for how long the units of a lease may be admitted, counted from when its call was
// sent. The decisions are the call's answer.
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
