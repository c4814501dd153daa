package memory

import (
	"context"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// A decision has three parts. The shards of all keys are locked, and one time is determined for
// them. Each limit is decided by itself, as if the others agreed. Then, if they all do, each counter
// is charged; otherwise the limits that agreed are described as they are.
//
// Nearly all counters are simple: states in entries of their own. The others are logs, buckets that
// lists of different rates share, penalties, and counters that keys share because memory is full.
// See look and finish.

// step is what a decision knows about one limit between its decision and its charge.
type step struct {
	limit  *headgate.Limit
	entry  *entry
	place  uint64          // the hash of entry
	after  algorithm.State // the counter once it is charged, if it is simple
	check  int32
	simple bool
	other
}

// other is what is known of a counter that is not simple.
type other struct {
	before algorithm.Counter     // the counter, advanced to now
	facts  algorithm.WindowFacts // in place of before, for a sliding window
	fits   bool
	first  bool // the first sliding window of its rule, which charges the log
	shared bool // the key shares the counter with others, because memory is full
}

// simple reports whether the counter of an entry, which may be an empty place, is simple.
func (sh *shard) simple(e *entry, l *headgate.Limit) bool {
	return !sh.sharing && (e.used == 0 || int64(e.count) == l.Count) && !e.large() &&
		l.Algorithm != headgate.SlidingWindow && l.Algorithm != headgate.Penalty
}

// TakeSingle implements [store.Single]. It is Take without what only several limits need.
func (s *Store) TakeSingle(_ context.Context, rule *headgate.Rule, key string, cost int64) (allowed bool, remaining int64, retry, reset, delay time.Duration, at headgate.Instant, err error) {
	if !store.ValidSingle(rule, key, cost) {
		err = store.ValidateSingle(rule, key, cost)
		return
	}
	s.catchUp()
	l, hash := &rule.Limits()[0], s.hash(rule, key)
	own, sh := counterOf(hash, slotOf(l)), s.shardOf(hash)
	s.prefetch(hash, own)
	now, cost := s.read(), max(cost, 1)
	sh.mu.Lock()
	now = s.timeIn(now, sh)
	sh.reserve(1, now)
	wall := s.own.wall.Load()
	at = wall.shown(now)
	e := sh.table.find(own)
	if !sh.simple(e, l) {
		sh.wall = wall
		allowed, remaining, retry, reset, delay = sh.takeOther(rule, hash, cost, now)
		sh.mu.Unlock()
		return
	}
	var after algorithm.State
	on := wall.on(l, now)
	after, allowed, remaining, retry, reset, delay = algorithm.Take(l, e.state(), on, cost)
	switch expires := until(plus(now, reset)); {
	case allowed:
		if e.hash == 0 {
			e.hash = own
			sh.table.filled++
		}
		e.set(after, l.Count, expires)
	case e.hash != 0:
		e.read(after, on, expires)
	}
	sh.mu.Unlock()
	return
}

// takeOther is TakeSingle for a counter that is not simple. It has a function of its own so that
// TakeSingle needs no room for a step and a Decision, which would have to be cleared.
func (sh *shard) takeOther(rule *headgate.Rule, hash uint64, cost int64, now headgate.Instant) (allowed bool, remaining int64, retry, reset, delay time.Duration) {
	st, d := step{limit: &rule.Limits()[0], other: other{first: true}}, headgate.Decision{}
	sh.look(&st, rule, hash, cost, now)
	sh.finish(&st, rule, cost, st.fits, false, now, &d)
	return d.Allowed, d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay
}

// Take implements [headgate.Store]. If dst has room, it allocates only when tables or logs grow.
func (s *Store) Take(_ context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := store.Validate(op, checks); err != nil {
		return dst, err
	}
	s.catchUp()
	if op == headgate.OpTake || op == headgate.OpPeek {
		return s.take(op, checks, dst), nil
	}
	return s.change(op, checks, dst), nil
}

// few is how many checks and limits most requests have at most, and inline how many limits a request
// may have before it needs the heap.
const (
	few    = 3
	inline = 8
)

// take takes or peeks.
func (s *Store) take(op headgate.Op, checks []headgate.Check, dst []headgate.Decision) []headgate.Decision {
	limits := 0
	for i := range checks {
		limits += len(checks[i].Rule.Limits())
	}
	if limits <= few { // and so are the checks; to clear room for more takes long in comparison
		var hashes [few]uint64
		var order [few]uint8
		var steps [few]step
		return s.decide(op, checks, &locked{hashes: hashes[:], order: order[:]}, steps[:limits], dst)
	}
	var hashes [headgate.MaxChecks]uint64
	var order [headgate.MaxChecks]uint8
	var room [inline]step
	steps := room[:]
	if limits > inline {
		steps = make([]step, limits)
	}
	return s.decide(op, checks, &locked{hashes: hashes[:], order: order[:]}, steps[:limits], dst)
}

// locked are the shards that lock has locked. Whoever makes it gives it the memory, with room for
// each check.
type locked struct {
	hashes []uint64 // one for each check
	order  []uint8  // first the indices of the shards, each once, ascending
	n      int      // the number of shards
	now    headgate.Instant
	wall   *wall // at now
}

func (l *locked) shards() []uint8 { return l.order[:l.n] }

// add adds the index of a shard, unless it is there.
func (l *locked) add(shard uint8) {
	i := l.n
	for i > 0 && l.order[i-1] >= shard {
		i--
	}
	if i < l.n && l.order[i] == shard {
		return
	}
	copy(l.order[i+1:l.n+1], l.order[i:l.n])
	l.order[i] = shard
	l.n++
}

// lock locks every shard that the checks need, always in the same order, so that two requests
// cannot wait for each other. It determines one time for all shards: the latest that any of them has
// seen. In each shard there is room for the counters then.
func (s *Store) lock(checks []headgate.Check, l *locked) {
	for i := range checks {
		hash := s.hash(checks[i].Rule, checks[i].Key)
		l.hashes[i] = hash
		l.add(uint8(hash >> (64 - shardBits)))
		limits := checks[i].Rule.Limits()
		for j := range limits {
			s.prefetch(hash, counterOf(hash, slotOf(&limits[j])))
		}
	}
	l.now = s.read()
	for _, i := range l.shards() {
		s.shards[i].mu.Lock()
	}
	for _, i := range l.shards() {
		l.now = s.timeIn(l.now, &s.shards[i])
	}
	for _, i := range l.shards() {
		s.shards[i].reserve(countersIn(i, checks, l), l.now)
	}
	wall := s.own.wall.Load()
	for _, i := range l.shards() {
		s.shards[i].wall = wall
	}
	l.wall = wall
}

func (s *Store) unlock(l *locked) {
	for _, i := range l.shards() {
		s.shards[i].mu.Unlock()
	}
}

// decide decides and, if every limit agrees, charges. There is a step for each limit.
func (s *Store) decide(op headgate.Op, checks []headgate.Check, r *locked, steps []step, dst []headgate.Decision) []headgate.Decision {
	s.lock(checks, r)
	admitted, n, base := true, 0, len(dst)
	var refused, punished uint64 // a bit for each check that a limit, or one that is no penalty, denies
	for i := range checks {
		c, hash := &checks[i], r.hashes[i]
		sh, limits, first, cost := s.shardOf(hash), c.Rule.Limits(), true, c.Units()
		at := r.wall.shown(r.now)
		for j := range limits {
			dst = append(dst, headgate.Decision{})
			st, d, l := &steps[n], &dst[len(dst)-1], &limits[j]
			n++
			// One field at a time: to copy a Decision waits until all its fields are written.
			d.Rule, d.Limit, d.Check, d.Shadow, d.At = c.Rule, l, i, c.Shadow, at
			st.limit, st.check, st.place = l, int32(i), counterOf(hash, slotOf(l))
			st.entry = sh.table.find(st.place)
			if st.simple = sh.simple(st.entry, l); st.simple {
				st.after, d.Allowed, d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay = algorithm.Take(l, st.entry.state(), r.wall.on(l, r.now), cost)
			} else {
				st.other = other{first: first}
				sh.look(st, c.Rule, hash, cost, r.now)
				d.Allowed, first = st.fits, first && l.Algorithm != headgate.SlidingWindow
			}
			if !d.Allowed {
				refused |= 1 << i
				admitted = admitted && c.Shadow
				if l.Algorithm != headgate.Penalty {
					punished |= 1 << i
				}
			}
		}
	}
	for i := range steps {
		st, d := &steps[i], &dst[base+i]
		c, bit := &checks[st.check], uint64(1)<<st.check
		sh := s.shardOf(r.hashes[st.check])
		charge := op == headgate.OpTake && admitted && refused&bit == 0
		switch {
		case !st.simple:
			// A key that shares a counter is not punished for the denials of other keys.
			punish := op == headgate.OpTake && punished&bit != 0 && st.fits && !st.shared && st.limit.Algorithm == headgate.Penalty
			sh.finish(st, c.Rule, c.Units(), charge, punish, r.now, d)
			d.At = r.wall.shown(r.now)
		case charge:
			sh.insert(st.entry, st.place).set(st.after, st.limit.Count, until(plus(r.now, d.ResetAfter)))
		default:
			// A place that was empty may have been taken by another counter of the request.
			on, exists := r.wall.on(st.limit, r.now), st.entry.hash == st.place
			if d.Allowed {
				st.after = algorithm.State{}
				if exists {
					st.after = algorithm.Advance(st.limit, st.entry.state(), on)
				}
				algorithm.Describe(d, st.limit, st.after, st.after, on, c.Units(), true)
				d.At = r.wall.shown(r.now)
			}
			if exists {
				st.entry.read(st.after, on, until(plus(r.now, d.ResetAfter)))
			}
		}
	}
	s.unlock(r)
	return dst
}

// countersIn returns an upper bound for the number of the request's counters in a shard.
func countersIn(shard uint8, checks []headgate.Check, r *locked) int {
	n := 0
	for i := range checks {
		if uint8(r.hashes[i]>>(64-shardBits)) == shard {
			n += len(checks[i].Rule.Limits())
		}
	}
	return n
}

// look finds and reads the counter of a step that is not simple, whose limit is given, and says
// whether the cost fits. There must be room for the counter if it is new.
func (sh *shard) look(st *step, rule *headgate.Rule, hash uint64, cost int64, now headgate.Instant) {
	st.place, st.shared = sh.place(rule, hash, slotOf(st.limit), now)
	st.entry = sh.table.find(st.place)
	if st.limit.Algorithm == headgate.SlidingWindow {
		sh.lookAtLog(st, cost, now)
		return
	}
	sh.load(st, now)
	st.fits = st.before.Fits(st.limit, sh.wall.on(st.limit, now), cost)
}

// load reads the counter of a step and brings it up to now. If the clock has stepped back, or if a
// list of limits asks that is faster than all before, load also stores the result.
func (sh *shard) load(st *step, now headgate.Instant) {
	var moved bool
	st.before, moved = sh.counter(st.entry, st.limit).Advance(st.limit, sh.wall.on(st.limit, now))
	if moved {
		expires := st.entry.until
		if b := st.before.Bucket; b != nil {
			expires = max(expires, until(now+headgate.Instant(b.Busy(now))))
		}
		sh.put(st, st.before, expires)
	}
}

// finish charges the counter of a step that is not simple, or punishes the key, and describes the
// limit in d.
func (sh *shard) finish(st *step, rule *headgate.Rule, cost int64, charge, punish bool, now headgate.Instant, d *headgate.Decision) {
	l := st.limit
	if charge && st.shared {
		sh.share(st.place)
		if l.Algorithm != headgate.SlidingWindow {
			st.entry = sh.table.find(st.place)
			sh.load(st, now) // several keys of the request may share it
		}
	}
	if l.Algorithm == headgate.SlidingWindow {
		if charge && st.first {
			sh.addToLog(sh.insert(st.entry, st.place), rule, cost, now)
		}
		st.facts.Describe(d, l, now, cost, charge)
		return
	}
	at, after := sh.wall.on(l, now), st.before
	switch {
	case punish:
		after.State = algorithm.Punish(l, after.State, at)
	case charge:
		after = after.Charge(l, at, cost)
	}
	after.Describe(d, l, st.before, at, cost, st.fits)
	d.At = now
	expires := until(after.Expires(d))
	if charge || punish {
		sh.put(st, after, expires)
	} else {
		sh.keep(st, expires)
	}
}

// keep postpones the expiry of a counter that was only read, because its limit may have been
// lowered since it was charged.
func (sh *shard) keep(st *step, expires uint32) {
	if e := st.entry; e.until != 0 {
		e.until = max(e.until, expires)
	}
}
