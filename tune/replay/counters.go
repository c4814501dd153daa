package replay

import (
	"hash/maphash"
	"math/bits"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
)

// counters are the counters of all keys. They decide as every store does, by package algorithm, but for
// one goroutine and a clock that never goes back. So there are no locks, and a key is looked up once,
// not for every request.
//
// Each counter has several states, its ways, which are charged under different assumptions: about the
// times of the requests, or with different limits.
type counters struct {
	ways   int
	seed   maphash.Seed
	index  map[uint64]uint32 // the place of a counter, by its identity
	blocks []block
	made   int // counters in blocks

	most       int              // counters; beyond that, keys share them
	sweepAt    int              // how many counters there may be before idle ones are dropped
	nextSweep  headgate.Instant // not before this time, when most are in use
	generation int              // of the handles, which a sweep ends; from 1
	shared     uint64           // decisions by counters that keys share
	logBytes   int              // of all logs

	steps []step // room for those of a request
}

// The bounds of counters.
const (
	// maxCounters is how many counters there may be, which take some 100 bytes each.
	maxCounters = 1 << 23
	// minSweep is the number of counters below which none is dropped. So many fit in a core's cache.
	minSweep = 1 << 13
	// maxLogBytes bounds the logs of sliding windows. Beyond that, a log takes new units into its newest
	// entry, and so frees older ones late.
	maxLogBytes = 512 << 20
	blockBits   = 10
)

// block has the memory of 1 << blockBits counters.
type block struct {
	cells  []cell            // ways for each counter
	limits []*headgate.Limit // some limit of each counter
}

// cell is the state of a counter, as a store keeps it.
type cell struct {
	state algorithm.State
	more  *more // what few counters have, or nil
}

// more is the log of sliding windows, or the states of a bucket that lists of different rates share.
type more struct {
	slots [algorithm.BucketSlots]algorithm.State // but for the first
	log   *algorithm.Log
}

// handle is a counter.
type handle struct {
	cells  []cell // one for each way
	common bool   // keys share it
}

// handles are the counters of the checks of a request, one for each limit. The zero handles have to be
// looked up.
type handles struct {
	all        []handle
	generation int
}

// step is what is known about a limit between looking at its counter and charging it.
type step struct {
	limit *headgate.Limit
	cell  *cell
	state algorithm.Counter     // advanced
	facts algorithm.WindowFacts // in place of state, for a sliding window
	check int
	fits  bool
	plain bool // the cell has the state alone, in the form of algorithm.Plain
	first bool // the first sliding window of its rule, which charges the log
}

func newCounters(ways, most int) *counters {
	return &counters{ways: ways, generation: 1, most: most, sweepAt: min(minSweep, most), seed: maphash.MakeSeed(), index: make(map[uint64]uint32)}
}

// of returns the counters of the checks, and remembers them in h.
func (c *counters) of(h *handles, checks []headgate.Check, now headgate.Instant) []handle {
	if h.generation != c.generation {
		h.all = c.find(checks, now, h.all[:0])
		h.generation = c.generation
	}
	return h.all
}

// find appends the counters of the checks to dst.
func (c *counters) find(checks []headgate.Check, now headgate.Instant, dst []handle) []handle {
	n := 0
	for i := range checks {
		n += len(checks[i].Rule.Limits())
	}
	full := c.made+n > c.sweepAt && !c.sweep(n, now)
	for i := range checks {
		rule := checks[i].Rule
		hash := maphash.String(c.seed, checks[i].Key)
		for j := range rule.Limits() {
			l := &rule.Limits()[j]
			slot := l.Slot()
			if l.Algorithm == headgate.SlidingWindow {
				slot = 1 // all sliding windows of a rule have one log
			}
			slot = (slot ^ bits.RotateLeft64(rule.ID(), 32)) * 0x9e3779b97f4a7c15
			at, known := c.index[hash^slot]
			h := handle{}
			if !known && full {
				h.common = true
				id := hash>>(64-10) ^ slot
				if at, known = c.index[id]; !known {
					at = c.add(id, l)
				}
			} else if !known {
				at = c.add(hash^slot, l)
			}
			b, k := &c.blocks[at>>blockBits], int(at&(1<<blockBits-1))*c.ways
			h.cells = b.cells[k : k+c.ways : k+c.ways]
			dst = append(dst, h)
		}
	}
	return dst
}

// add makes a counter.
func (c *counters) add(id uint64, l *headgate.Limit) (at uint32) {
	if c.made>>blockBits == len(c.blocks) {
		c.blocks = append(c.blocks, block{make([]cell, c.ways<<blockBits), make([]*headgate.Limit, 1<<blockBits)})
	}
	at = uint32(c.made)
	c.blocks[at>>blockBits].limits[at&(1<<blockBits-1)] = l
	c.index[id] = at
	c.made++
	return at
}

// sweep drops the counters that are fully free, which are as good as new. It reports whether there is
// room for n more.
func (c *counters) sweep(n int, now headgate.Instant) bool {
	if now < c.nextSweep {
		return false
	}
	c.generation++
	old, index := c.blocks, c.index
	c.blocks, c.index, c.made = nil, make(map[uint64]uint32), 0
	for id, at := range index {
		b, k := &old[at>>blockBits], at&(1<<blockBits-1)
		cells := b.cells[int(k)*c.ways:][:c.ways]
		l := b.limits[k]
		idle := true
		for i := range cells {
			idle = idle && cells[i].idle(l, now)
		}
		if !idle {
			to := c.add(id, l)
			copy(c.blocks[to>>blockBits].cells[int(to&(1<<blockBits-1))*c.ways:], cells)
			continue
		}
		for i := range cells {
			if m := cells[i].more; m != nil && m.log != nil {
				c.logBytes -= m.log.Bytes()
			}
		}
	}
	c.sweepAt = min(max(minSweep, 2*c.made), c.most)
	if c.made+n > c.sweepAt {
		c.nextSweep = now + 60_000_000
		return false
	}
	return true
}

// idle reports whether the counter is fully free.
func (e *cell) idle(l *headgate.Limit, now headgate.Instant) bool {
	if l.Algorithm == headgate.SlidingWindow {
		return e.more == nil || e.more.log == nil || e.more.log.Until() <= now
	}
	c, _ := e.load(l).Advance(l, now)
	return c.State.IsZero() && (c.Bucket == nil || c.Bucket.Busy(now) == 0)
}

// load returns the counter.
func (e *cell) load(l *headgate.Limit) algorithm.Counter {
	if s, plain := algorithm.Plain(l, e.state); plain {
		return algorithm.Counter{State: s}
	}
	return algorithm.LoadCounter(l, true, func(i int) algorithm.State {
		switch {
		case i == 0:
			return e.state
		case e.more == nil:
			return algorithm.State{}
		}
		return e.more.slots[i]
	})
}

// store is the inverse of load.
func (e *cell) store(l *headgate.Limit, c algorithm.Counter) {
	if s, single := c.Single(l); single {
		e.state = s
		return
	}
	slots, changed := c.Slots(l)
	if e.more == nil {
		e.more = new(more)
	}
	for i := range slots {
		switch {
		case changed&(1<<i) == 0:
		case i == 0:
			e.state = slots[0]
		default:
			e.more.slots[i] = slots[i]
		}
	}
}

// log returns the log of the counter, or nil.
func (e *cell) log() *algorithm.Log {
	if e.more == nil {
		return nil
	}
	return e.more.log
}

// look looks at the counters of a request in one way, which the handles are for. refused has a bit for
// each check that a limit denies, and punished for each check that a limit other than a penalty denies.
func (c *counters) look(way int, now headgate.Instant, checks []headgate.Check, at []handle) (steps []step, refused, punished uint64) {
	n := 0
	for i := range checks {
		limits, cost := checks[i].Rule.Limits(), checks[i].Units()
		logged := false
		for j := range limits {
			if n == len(c.steps) {
				c.steps = append(c.steps, step{})
			}
			l, e, st := &limits[j], &at[n].cells[way], &c.steps[n]
			if at[n].common && way == 0 {
				c.shared++
			}
			n++
			s, plain := algorithm.Plain(l, e.state)
			st.limit, st.cell, st.check, st.plain = l, e, i, plain
			switch {
			case l.Algorithm == headgate.SlidingWindow:
				st.facts = algorithm.WindowFacts{}
				if g := e.log(); g != nil {
					st.facts = g.Facts(l, now, cost)
				}
				st.fits = st.facts.Fits(l, cost)
				st.first, logged = !logged, true
			case plain: // as nearly always, and without the detour by way of a Counter
				s = algorithm.Advance(l, s, now)
				st.state = algorithm.Counter{State: s}
				st.fits = algorithm.Fits(l, s, now, cost)
			default:
				var moved bool
				if st.state, moved = e.load(l).Advance(l, now); moved {
					e.store(l, st.state)
				}
				st.fits = st.state.Fits(l, now, cost)
			}
			if !st.fits {
				refused |= 1 << i
				if l.Algorithm != headgate.Penalty {
					punished |= 1 << i
				}
			}
		}
	}
	return c.steps[:n], refused, punished
}

// take decides a request in one way, and charges it if it is admitted. It returns a bit for each check
// that denies. If there are any, or always is true, it appends the decisions to dst, unless that is nil.
func (c *counters) take(way int, now headgate.Instant, checks []headgate.Check, at []handle, dst *[]headgate.Decision, always bool) (refused uint64) {
	steps, refused, punished := c.look(way, now, checks, at)
	admitted := admits(checks, refused)
	for i := range steps {
		st := &steps[i]
		l, check, bit := st.limit, &checks[st.check], uint64(1)<<st.check
		charge := admitted && refused&bit == 0
		after := st.state
		switch {
		case l.Algorithm == headgate.SlidingWindow:
			if charge && st.first {
				c.addToLog(st.cell, check.Rule, check.Units(), now)
			}
		case charge && at[i].common: // several keys of the request may share it
			after, _ = st.cell.load(l).Advance(l, now)
			after = after.Charge(l, now, check.Units())
			st.cell.store(l, after)
		case charge && st.plain:
			after.State = algorithm.Charge(l, after.State, now, check.Units())
			st.cell.store(l, after)
		case charge:
			after = after.Charge(l, now, check.Units())
			st.cell.store(l, after)
		case l.Algorithm == headgate.Penalty && st.fits && punished&bit != 0 && !at[i].common:
			// A key that shares a counter is not punished for the denials of other keys.
			after.State = algorithm.Punish(l, after.State, now)
			st.cell.store(l, after)
		}
		if dst == nil || refused == 0 && !always {
			continue
		}
		*dst = append(*dst, headgate.Decision{})
		d := &(*dst)[len(*dst)-1]
		if l.Algorithm == headgate.SlidingWindow {
			st.facts.Describe(d, l, now, check.Units(), charge)
		} else {
			after.Describe(d, l, st.state, now, check.Units(), st.fits)
		}
		d.Rule, d.Limit, d.Check, d.Shadow, d.At = check.Rule, l, st.check, check.Shadow, now
	}
	return refused
}

// takeOne is take for one check, of which only is to be known whether it is admitted.
func (c *counters) takeOne(way int, now headgate.Instant, rule *headgate.Rule, cost int64, at []handle) (admitted bool) {
	// What most rules have is decided in half the time without steps.
	if l := &rule.Limits()[0]; len(rule.Limits()) == 1 && l.Algorithm != headgate.SlidingWindow {
		e := &at[0].cells[way]
		if s, plain := algorithm.Plain(l, e.state); plain {
			s = algorithm.Advance(l, s, now)
			if !algorithm.Fits(l, s, now, cost) {
				return false
			}
			e.store(l, algorithm.Counter{State: algorithm.Charge(l, s, now, cost)})
			return true
		}
	}
	return c.take(way, now, []headgate.Check{{Rule: rule, Cost: cost}}, at, nil, false) == 0
}

// refund takes back what the check was charged at the time at, which is now.
func (c *counters) refund(way int, now headgate.Instant, check *headgate.Check, at []handle) {
	limits, units := check.Rule.Limits(), check.Units()
	logged := false
	for i := range limits {
		l, e := &limits[i], &at[i].cells[way]
		switch {
		case at[i].common: // the units may belong to other keys
		case l.Algorithm != headgate.SlidingWindow:
			s, _ := e.load(l).Advance(l, now)
			e.store(l, s.Settle(l, now, -units, now, 0))
		case !logged:
			logged = true
			if g := e.log(); g != nil {
				before := g.Bytes()
				g.Refund(units, now)
				c.logBytes += g.Bytes() - before
			}
		}
	}
}

// addToLog charges a log.
func (c *counters) addToLog(e *cell, rule *headgate.Rule, units int64, now headgate.Instant) {
	if e.more == nil {
		e.more = new(more)
	}
	if e.more.log == nil {
		e.more.log = new(algorithm.Log)
	}
	g := e.more.log
	before := g.Bytes()
	g.Open(now, algorithm.NeedOf(rule))
	if g.Len()*algorithm.EntryBytes == g.Bytes() && c.logBytes+g.Bytes() > maxLogBytes {
		g.Merge(now, units)
	} else {
		g.Add(now, units)
	}
	c.logBytes += g.Bytes() - before
}

// admits reports whether the request is admitted, given the checks that a limit denies.
func admits(checks []headgate.Check, refused uint64) bool {
	for i := 0; refused != 0 && i < len(checks); i++ {
		if refused&(1<<i) != 0 && !checks[i].Shadow {
			return false
		}
	}
	return true
}
