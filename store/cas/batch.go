package cas

import (
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// batch is one attempt. The calls of one turn are decided in it one after another, each on
// the state that the calls before it have left.
type batch struct {
	now      headgate.Instant // that it decides by
	own      headgate.Instant // what the clock says: now, or as far before it as clocks may differ
	skew     int64            // by how much they may, in µs
	places   map[string]int   // of the names of values
	cells    []cell
	maxValue int
}

// cell is one value of a batch.
type cell struct {
	raw  []byte
	page *page // read from raw, or nil

	// Instead of these, for any other value that is to be written:
	write        bool
	value        []byte
	expires, due headgate.Instant
}

// value returns what a value that is no page holds by now.
func (b *batch) value(name string) []byte {
	if c := &b.cells[b.places[name]]; !c.write {
		return c.raw
	}
	return b.cells[b.places[name]].value
}

// setValue replaces a value that is no page. A nil value is removed.
func (b *batch) setValue(name string, value []byte, expires, due headgate.Instant) {
	c := &b.cells[b.places[name]]
	c.write, c.value, c.expires, c.due = true, value, expires, due
}

// page returns the counters of a check.
func (b *batch) page(name string) (*page, error) {
	c := &b.cells[b.places[name]]
	if c.page != nil {
		return c.page, nil
	}
	p, err := readPage(c.raw)
	if err != nil {
		return nil, err
	}
	p.full = b.maxValue > 0 && len(c.raw)+headgate.MaxLimits*entryRoom > b.maxValue
	c.page = p
	return p, nil
}

// changes returns what the batch has to write.
func (b *batch) changes() []Change {
	var changes []Change
	for i := range b.cells {
		c := &b.cells[i]
		switch {
		case c.write:
			changes = append(changes, Change{Key: i, Value: c.value, Expires: int64(c.expires), Due: int64(c.due)})
		case c.page != nil && c.page.dirty:
			change := Change{Key: i}
			if expires, used := c.page.settle(b.now); used {
				change.Value, change.Expires = appendPage(make([]byte, 0, len(c.raw)+64), c.page), int64(expires)
			} else if c.raw == nil {
				continue
			}
			changes = append(changes, change)
		}
	}
	return changes
}

// request is a call's checks with the names of their counters.
type request struct {
	checks []headgate.Check
	names  []string
	pages  []*page
}

// open reads the pages of a request, and has them follow a clock that has stepped
// back. After an error nothing has changed.
func (b *batch) open(r *request) error {
	r.pages = r.pages[:0]
	for i := range r.checks {
		p, err := b.page(r.names[i])
		if err != nil {
			return fmt.Errorf("%w: the counter of rule %q cannot be read: %w; reset the key to begin anew", headgate.ErrUnavailable, r.checks[i].Rule.Name(), err)
		}
		r.pages = append(r.pages, p)
	}
	b.follow(r)
	for i, p := range r.pages {
		limits := r.checks[i].Rule.Limits()
		for j := range limits {
			l := &limits[j]
			if l.Algorithm == headgate.SlidingWindow {
				if p.log != nil && p.log.Stepped(b.now) {
					p.log.Clamp(b.now)
					p.dirty = true
				}
				continue
			}
			if c, moved := p.counter(l).Advance(l, b.now); moved {
				expires := p.expires(l)
				if c.Bucket != nil {
					expires = max(expires, b.now+headgate.Instant(c.Bucket.Busy(b.now)))
				}
				p.put(l, c, expires)
			}
		}
	}
	return nil
}

// follow sets the batch's time to the latest time at which a counter of the request is known
// to have been decided, unless that is farther in the future than clocks may differ.
func (b *batch) follow(r *request) {
	if b.skew == 0 {
		return
	}
	for i, p := range r.pages {
		limits := r.checks[i].Rule.Limits()
		for j := range limits {
			l := &limits[j]
			reached := func(at headgate.Instant) {
				if at <= b.own+headgate.Instant(b.skew) {
					b.now = max(b.now, at)
				}
			}
			if l.Algorithm == headgate.SlidingWindow && p.log != nil {
				reached(p.log.Newest())
				continue
			}
			reached(algorithm.Reached(l, p.at(l.Slot())))
			for k := 1; l.Algorithm <= headgate.LeakyBucket && k < algorithm.BucketSlots/2; k++ {
				// Without units in use, a bucket's time has another meaning.
				if s := p.at(algorithm.BucketSlot(l, k)); s.Used > 0 {
					reached(s.Stamp)
				}
			}
		}
	}
}

// countFromOwn corrects times that count from the batch's time for the caller's clock.
func (b *batch) countFromOwn(decisions []headgate.Decision) {
	behind := time.Duration(b.now-b.own) * time.Microsecond
	if behind == 0 {
		return
	}
	for i := range decisions {
		d := &decisions[i]
		if d.RetryAfter > 0 {
			d.RetryAfter += behind
		}
		if d.ResetAfter > 0 {
			d.ResetAfter += behind
		}
	}
}

// step is what take knows of one limit between deciding and charging.
type step struct {
	limit *headgate.Limit
	state algorithm.Counter     // advanced to now
	facts algorithm.WindowFacts // instead, for a sliding window
	check int
	fits  bool
	first bool // the first sliding window of its rule: it charges the log
}

// take carries out an operation that is not OpReset on a request that was opened.
func (b *batch) take(op headgate.Op, r *request, dst []headgate.Decision) []headgate.Decision {
	switch op {
	case headgate.OpRefund:
		for i := range r.checks {
			b.change(r, i, -r.checks[i].Units(), nil)
		}
	case headgate.OpCharge:
		for i := range r.checks {
			b.change(r, i, r.checks[i].Units(), nil)
		}
	}
	return b.answer(op, r, dst)
}

// answer takes or peeks. After any other operation, it appends how each limit stands, for a request
// that nothing denies.
func (b *batch) answer(op headgate.Op, r *request, dst []headgate.Decision) []headgate.Decision {
	before, asks := len(dst), op == headgate.OpTake || op == headgate.OpPeek
	steps, refused, punished, admitted := b.decide(r)
	charge := op == headgate.OpTake && admitted
	for i := range steps {
		st := &steps[i]
		c, p := &r.checks[st.check], r.pages[st.check]
		dst = append(dst, headgate.Decision{Rule: c.Rule, Check: st.check, Shadow: c.Shadow})
		d := &dst[len(dst)-1]
		charge := charge && refused&(1<<st.check) == 0
		cost := int64(0)
		if asks {
			cost = c.Units()
		}
		if st.limit.Algorithm == headgate.SlidingWindow {
			if charge && st.first {
				p.addToLog(b.now, c.Units(), algorithm.NeedOf(c.Rule))
			}
			st.facts.Describe(d, st.limit, b.now, cost, charge)
			continue
		}
		after := st.state
		punish := op == headgate.OpTake && st.limit.Algorithm == headgate.Penalty && st.fits && punished&(1<<st.check) != 0
		switch {
		case punish:
			after.State = algorithm.Punish(st.limit, after.State, b.now)
		case charge:
			after = after.Charge(st.limit, b.now, cost)
		}
		after.Describe(d, st.limit, st.state, b.now, cost, st.fits || !asks)
		if expires := after.Expires(d); charge || punish {
			p.put(st.limit, after, expires)
		} else {
			p.keep(st.limit, expires)
		}
	}
	for i := before; i < len(dst) && !asks; i++ {
		dst[i].Allowed, dst[i].RetryAfter, dst[i].Delay = true, 0, 0
	}
	b.countFromOwn(dst[before:])
	return dst
}

// decide looks at every limit of a request. A bit of refused is set for each check that does
// not fit, and one of punished for each that is refused by a limit other than a penalty.
func (b *batch) decide(r *request) (steps []step, refused, punished uint64, admitted bool) {
	admitted = true
	for i := range r.checks {
		c, p := &r.checks[i], r.pages[i]
		limits := c.Rule.Limits()
		logged := false
		for j := range limits {
			st := step{limit: &limits[j], check: i}
			if st.limit.Algorithm == headgate.SlidingWindow {
				st.first, logged = !logged, true
				if p.log != nil {
					st.facts = p.log.Facts(st.limit, b.now, c.Units())
				}
				st.fits = st.facts.Fits(st.limit, c.Units())
			} else {
				st.state, _ = p.counter(st.limit).Advance(st.limit, b.now)
				st.fits = st.state.Fits(st.limit, b.now, c.Units())
			}
			if !st.fits {
				refused |= 1 << i
				admitted = admitted && c.Shadow
				if st.limit.Algorithm != headgate.Penalty {
					punished |= 1 << i
				}
			}
			steps = append(steps, st)
		}
	}
	return steps, refused, punished, admitted
}

// addToLog charges a log, and drops the entries that no list of limits needs any more.
func (p *page) addToLog(now headgate.Instant, units int64, need algorithm.Need) {
	p.dirty = true
	if p.log == nil {
		p.log = new(algorithm.Log)
	}
	p.log.Open(now, need)
	if n := p.log.Len(); n > 0 && (p.full || n >= maxLog) {
		p.log.Merge(now, units)
		return
	}
	p.log.Add(now, units)
}

// change charges check i the units, whether they fit or not, or gives units back if the
// number is negative. used is how many units of each limit were in use after the first
// charge, or nil if that is not known.
func (b *batch) change(r *request, i int, units int64, used []int64) {
	if units == 0 {
		return
	}
	c, p := &r.checks[i], r.pages[i]
	limits := c.Rule.Limits()
	logged := false
	for j := range limits {
		l := &limits[j]
		if l.Algorithm == headgate.SlidingWindow {
			if !logged {
				p.changeLog(b.now, units, c.At, algorithm.NeedOf(c.Rule))
			}
			logged = true
			continue
		}
		known := int64(0)
		if used != nil {
			known = used[j]
		}
		stored := p.counter(l)
		before, _ := stored.Advance(l, b.now)
		after := before.Settle(l, b.now, units, c.At, known)
		if after == stored {
			continue
		}
		var d headgate.Decision
		after.Describe(&d, l, before, b.now, 0, true)
		p.put(l, after, after.Expires(&d))
	}
}

// changeLog charges a log units that need not fit, or gives units back if the number is
// negative.
func (p *page) changeLog(now headgate.Instant, units int64, at headgate.Instant, need algorithm.Need) {
	if p.log != nil && units < 0 {
		p.log.Refund(-units, at)
		p.dirty = true
	}
	log := p.log
	if log == nil {
		log = new(algorithm.Log)
	}
	if units = log.Owable(now, units, need); units > 0 {
		p.addToLog(now, units, need)
	}
}

// reset forgets what the keys of a request have used, whatever their values hold.
func (b *batch) reset(r *request) {
	for _, name := range r.names {
		c := &b.cells[b.places[name]]
		c.page = &page{dirty: true}
	}
}
