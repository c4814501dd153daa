package storetest

import (
	"context"
	"math/big"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// Oracle is a [headgate.Store] that is as slow and obvious as can be: buckets in
// exact fractions, windows as lists of every unit's time, waiting times found by
// search. It shares no arithmetic with package algorithm, so that the two can be
// held against each other. It is safe for concurrent use and forgets nothing.
//
// It knows token_bucket, leaky_bucket, fixed_window aligned to UTC or to the
// first request, sliding_window, sliding_counter and penalty.
type Oracle struct {
	book     // its lock guards counters
	clock    func() int64
	counters map[counter]obvious
}

// obvious is the counter of one limit. Costs and times are in units and µs.
type obvious interface {
	// free is how many units the limit admits at now: negative if more are in
	// use than it allows.
	free(l *headgate.Limit, now int64) int64
	charge(l *headgate.Limit, now, cost int64)
	// refund takes units back that were charged at a time, or the newest if that is
	// 0. After the charge so many were in use; 0 if that is not known.
	refund(l *headgate.Limit, now, cost, at, used int64)
	// follow takes the counter back with a clock that has stepped back.
	follow(l *headgate.Limit, now int64)
	// busy is how long units are still in use at now if nothing else comes.
	busy(l *headgate.Limit, now int64) int64
}

// NewOracle returns an empty oracle that decides by clock, in microseconds since
// the Unix epoch.
func NewOracle(clock func() int64) *Oracle {
	o := &Oracle{book: newBook(clock), clock: clock, counters: map[counter]obvious{}}
	o.book.take, o.book.settle = o.take, o.change
	return o
}

// Take implements [headgate.Store].
func (o *Oracle) Take(_ context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := store.Validate(op, checks); err != nil {
		return dst, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.catchUp()
	return o.take(op, checks, dst), nil
}

// take is Take with the lock held.
func (o *Oracle) take(op headgate.Op, checks []headgate.Check, dst []headgate.Decision) []headgate.Decision {
	now := o.clock()
	admitted := true
	fits := make([]bool, len(checks))
	denied := make([]bool, len(checks)) // by a limit that is no penalty
	for i := range checks {
		c := &checks[i]
		fits[i] = true
		o.look(c, now, op == headgate.OpReset)
		for j := range c.Rule.Limits() {
			l := &c.Rule.Limits()[j]
			if o.counter(c, l).free(l, now) < c.Units() {
				fits[i] = false
				denied[i] = denied[i] || l.Algorithm != headgate.Penalty
			}
		}
		admitted = admitted && (fits[i] || c.Shadow)
	}
	if op == headgate.OpReset {
		return dst
	}
	for i := range checks {
		dst = o.carryOut(op, &checks[i], i, admitted && fits[i], denied[i], now, dst)
	}
	return dst
}

// look makes the counters of a check, or all of them anew, and has them follow the
// clock.
func (o *Oracle) look(c *headgate.Check, now int64, anew bool) {
	for j := range c.Rule.Limits() {
		l := &c.Rule.Limits()[j]
		id := counter{c.Rule.Name(), c.Key, l.Slot()}
		if l.Algorithm == headgate.SlidingWindow {
			id.slot = 0
		}
		if o.counters[id] == nil || anew {
			o.counters[id] = newObvious(l)
		}
		if log, ok := o.counters[id].(*obviousLog); ok {
			log.list = c.Rule.Limits()
		}
		o.counters[id].follow(l, now)
	}
}

// change charges and gives back what a settlement says.
func (o *Oracle) change(checks []headgate.Check, units [][]int64, dst []headgate.Decision) []headgate.Decision {
	now := o.clock()
	for i := range checks {
		c := &checks[i]
		o.look(c, now, false)
		logged := false
		for j := range c.Rule.Limits() {
			l := &c.Rule.Limits()[j]
			if l.Algorithm == headgate.SlidingWindow {
				if logged {
					continue
				}
				logged = true
			}
			switch more := units[i][0]; {
			case more < 0:
				o.counter(c, l).refund(l, now, -more, int64(c.At), units[i][1+j])
			case more > 0:
				o.counter(c, l).charge(l, now, more)
			}
		}
		for j := range c.Rule.Limits() {
			l := &c.Rule.Limits()[j]
			dst = append(dst, headgate.Decision{
				Rule: c.Rule, Limit: l, Check: i, Shadow: c.Shadow, At: headgate.Instant(now), Allowed: true,
				Remaining: o.remaining(c, l, now), ResetAfter: tell(o.counter(c, l).busy(l, now)),
			})
		}
	}
	return dst
}

func (o *Oracle) remaining(c *headgate.Check, l *headgate.Limit, now int64) int64 {
	if p, ok := o.counter(c, l).(*obviousPenalty); ok {
		return p.left(l, now)
	}
	return max(0, o.counter(c, l).free(l, now))
}

func (o *Oracle) carryOut(op headgate.Op, c *headgate.Check, place int, admitted, denied bool, now int64, dst []headgate.Decision) []headgate.Decision {
	first := len(dst)
	cost := c.Units()
	logged := false
	for j := range c.Rule.Limits() {
		l := &c.Rule.Limits()[j]
		s := o.counter(c, l)
		if p, ok := s.(*obviousPenalty); ok && op == headgate.OpTake && denied && !p.blocks(l, now) {
			p.punish(l, now)
		}
		dst = append(dst, headgate.Decision{Rule: c.Rule, Limit: l, Check: place, Shadow: c.Shadow, At: headgate.Instant(now), Allowed: op == headgate.OpRefund || op == headgate.OpCharge})
		d := &dst[len(dst)-1]
		if d.Allowed {
			continue
		}
		d.Allowed = s.free(l, now) >= cost
		switch {
		case d.Allowed && l.Algorithm == headgate.LeakyBucket:
			d.Delay = tell(s.busy(l, now))
		case d.Allowed:
		case cost > l.Capacity() && l.Algorithm != headgate.Penalty:
			d.RetryAfter = headgate.Never
		default:
			d.RetryAfter = tell(wait(s, l, now, cost))
		}
	}
	for j := range c.Rule.Limits() {
		l := &c.Rule.Limits()[j]
		s := o.counter(c, l)
		if l.Algorithm == headgate.SlidingWindow {
			if logged {
				continue
			}
			logged = true
		}
		switch {
		case op == headgate.OpRefund:
			s.refund(l, now, cost, int64(c.At), 0)
		case op == headgate.OpCharge || op == headgate.OpTake && admitted:
			s.charge(l, now, cost)
		}
	}
	for j := range c.Rule.Limits() {
		l := &c.Rule.Limits()[j]
		d := &dst[first+j]
		d.Remaining = o.remaining(c, l, now)
		d.ResetAfter = tell(o.counter(c, l).busy(l, now))
	}
	return dst
}

func (o *Oracle) counter(c *headgate.Check, l *headgate.Limit) obvious {
	id := counter{c.Rule.Name(), c.Key, l.Slot()}
	if l.Algorithm == headgate.SlidingWindow {
		id.slot = 0
	}
	return o.counters[id]
}

// tell turns microseconds into a Duration. More than 100 years, which a bucket can
// need after its limit was lowered, are told as just above that.
func tell(micros int64) time.Duration {
	return time.Duration(min(micros, headgate.MaxRefill.Microseconds()+1)) * time.Microsecond
}

// wait finds by bisection the shortest time after which cost is free. The units
// that are free never become fewer while nothing is charged.
func wait(s obvious, l *headgate.Limit, now, cost int64) int64 {
	low, high := int64(0), int64(1)
	for s.free(l, now+high) < cost {
		low, high = high, high*2
	}
	for high-low > 1 {
		if middle := low + (high-low)/2; s.free(l, now+middle) >= cost {
			high = middle
		} else {
			low = middle
		}
	}
	return high
}

func newObvious(l *headgate.Limit) obvious {
	switch l.Algorithm {
	case headgate.TokenBucket, headgate.LeakyBucket:
		return &obviousBucket{}
	case headgate.FixedWindow:
		return &obviousFixed{}
	case headgate.SlidingWindow:
		return &obviousLog{}
	case headgate.Penalty:
		return &obviousPenalty{}
	}
	return &obviousCounter{}
}

// box is one window of those that fixed windows and counters keep.
type box struct{ begin, end, used int64 }

// obviousFixed is the window that was begun last.
type obviousFixed struct{ last box }

// current is the window that counts at now.
func (s *obviousFixed) current(l *headgate.Limit, now int64) box {
	period := l.Period.Microseconds()
	fresh := box{begin: now, end: now + period}
	if l.Align == headgate.AlignUTC {
		fresh.begin = now / period * period
		fresh.end = fresh.begin + period
	}
	switch {
	case s.last.used == 0 || now >= s.last.end:
		return fresh
	case now < s.last.begin-period: // a long step back takes the count along
		fresh.used = s.last.used
		return fresh
	}
	return s.last
}

func (s *obviousFixed) follow(l *headgate.Limit, now int64) {
	if s.last.used > 0 && now < s.last.begin-l.Period.Microseconds() {
		s.last = s.current(l, now)
	}
}

func (s *obviousFixed) free(l *headgate.Limit, now int64) int64 {
	return l.Count - s.current(l, now).used
}

func (s *obviousFixed) charge(l *headgate.Limit, now, cost int64) {
	s.last = s.current(l, now)
	s.last.used += min(cost, max(0, headgate.MaxCount-s.last.used))
}

func (s *obviousFixed) refund(l *headgate.Limit, now, cost, at, _ int64) {
	s.last = s.current(l, now)
	if at == 0 || at >= s.last.begin {
		s.last.used = max(0, s.last.used-cost)
	}
}

func (s *obviousFixed) busy(l *headgate.Limit, now int64) int64 {
	if w := s.current(l, now); w.used > 0 {
		return w.end - now
	}
	return 0
}

// obviousCounter has the units of the window that was begun last and of the one
// before.
type obviousCounter struct{ last, before box }

func (s *obviousCounter) current(l *headgate.Limit, now int64) (last, before box) {
	period := l.Period.Microseconds()
	begin := now / period * period
	fresh := box{begin, begin + period, 0}
	switch {
	case s.last.used == 0 && s.before.used == 0 || now >= s.last.end+period:
		return fresh, box{}
	case now >= s.last.end:
		return fresh, s.last
	case now < s.last.begin-period:
		fresh.used = min(s.last.used+s.before.used, headgate.MaxCount)
		return fresh, box{}
	}
	return s.last, s.before
}

func (s *obviousCounter) follow(l *headgate.Limit, now int64) {
	if now < s.last.begin-l.Period.Microseconds() {
		s.last, s.before = s.current(l, now)
	}
}

func (s *obviousCounter) free(l *headgate.Limit, now int64) int64 {
	last, before := s.current(l, now)
	period := l.Period.Microseconds()
	covered := big.NewRat(min(period, last.end-now), period)
	share := covered.Mul(covered, big.NewRat(before.used, 1))
	up := new(big.Int).Add(share.Num(), new(big.Int).Sub(share.Denom(), big.NewInt(1)))
	return l.Count - last.used - up.Quo(up, share.Denom()).Int64()
}

func (s *obviousCounter) charge(l *headgate.Limit, now, cost int64) {
	s.last, s.before = s.current(l, now)
	s.last.used += min(cost, max(0, headgate.MaxCount-s.last.used))
}

func (s *obviousCounter) refund(l *headgate.Limit, now, cost, at, _ int64) {
	s.last, s.before = s.current(l, now)
	period := l.Period.Microseconds()
	back := int64(0)
	if at == 0 || at >= s.last.begin {
		back = min(cost, s.last.used)
		s.last.used -= back
	}
	if at == 0 || at < s.last.begin && at >= s.last.begin-period {
		s.before.used -= min(cost-back, s.before.used)
	}
}

func (s *obviousCounter) busy(l *headgate.Limit, now int64) int64 {
	last, before := s.current(l, now)
	switch {
	case last.used > 0:
		return last.end + l.Period.Microseconds() - now
	case before.used > 0:
		return last.end - now
	}
	return 0
}
