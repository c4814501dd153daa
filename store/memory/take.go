package memory

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// A request for one limit, whose counter is there and is kept as a Word, is decided by TakeSingle
// without a lock. All others are decided by decide, which locks the shards of all keys.

// fewEntries is the size of a table that is likely to be in the processor's cache.
const fewEntries = 64

// TakeSingle implements [store.Single].
//
// The clock is read before the Word is replaced. A denial must not come from an old reading of the
// clock, so it holds only if the Word has not changed since before the clock was read. An admission
// at an old reading harms nobody: what others have taken since counts as in use for longer than it
// is.
func (s *Store) TakeSingle(_ context.Context, rule *headgate.Rule, key string, cost int64) (allowed bool, remaining int64, retry, reset, delay time.Duration, at headgate.Instant, err error) {
	if !store.ValidSingle(rule, key, cost) {
		err = store.ValidateSingle(rule, key, cost)
		return
	}
	l := &rule.Limits()[0]
	s.catchUp()
	hash := s.hash(rule, key)
	kind := s.kindOf(l)
	if kind == 0 {
		return s.takeLocked(rule, key, cost)
	}
	own, v := counterOf(hash, l.Slot()), s.views[hash>>(64-shardBits)].Load()
	var e *entry
	seen := uint64(held) // the word before the clock was read, if known
	if len(v.entries) <= fewEntries {
		if e = v.find(own, kind); e == nil {
			return s.takeLocked(rule, key, cost)
		}
		seen = atomic.LoadUint64(&e.word)
	} else {
		v.prefetch(own)
	}
	var now headgate.Instant
	if s.clock == nil {
		now = s.own.now() // the compiler does not inline read
	} else {
		now = s.read()
	}
	w := seen
	if e == nil {
		if e = v.find(own, kind); e != nil {
			w = atomic.LoadUint64(&e.word)
		}
	}
	if e == nil || now >= headgate.Instant(v.sweepAt.Load()) {
		return s.takeLocked(rule, key, cost)
	}
	cost = max(cost, 1)
	for w&held == 0 {
		at := now
		if onCalendar(l) {
			at = s.wallAt(now).shown(now)
		}
		// What most ask for is a bucket. Not to carry the state of a window along saves it a few
		// nanoseconds.
		var (
			after  algorithm.Word
			before algorithm.State
			fits   bool
		)
		if l.Algorithm <= headgate.LeakyBucket {
			after, fits = algorithm.Word(w).DrawBucket(l, v.origin, at, cost)
		} else {
			after, before, fits = algorithm.Word(w).Draw(l, v.origin, at, cost)
		}
		if after == algorithm.NoWord {
			break
		}
		if fits {
			// The first attempt expects the word that was read before the clock. To read it again
			// first would fetch it from another core's cache twice: once to read it, once to write
			// it. A failed exchange has fetched it for writing, so the next one mostly succeeds.
			if !atomic.CompareAndSwapUint64(&e.word, w, uint64(after)) {
				w = atomic.LoadUint64(&e.word)
				continue
			}
		} else if current := atomic.LoadUint64(&e.word); w != seen || w != current {
			seen, w, now = current, current, s.read()
			continue
		}
		// Whatever can wait is done after the exchange, which fails less often the sooner it comes.
		if l.Algorithm <= headgate.LeakyBucket {
			remaining, retry, reset, delay = algorithm.Word(w).DescribeBucket(l, v.origin, at, cost, fits, fits)
		} else {
			remaining, retry, reset, delay = algorithm.Word(w).Describe(l, before, v.origin, at, cost, fits, fits)
		}
		return fits, remaining, retry, reset, delay, s.own.wall.Load().shown(now), nil
	}
	return s.takeLocked(rule, key, cost)
}

// takeLocked is TakeSingle for a check that needs the lock. It has a function of its own so that
// TakeSingle needs no room for a Check and a Decision, which would have to be cleared.
func (s *Store) takeLocked(rule *headgate.Rule, key string, cost int64) (allowed bool, remaining int64, retry, reset, delay time.Duration, at headgate.Instant, err error) {
	checks, room := [1]headgate.Check{{Rule: rule, Key: key, Cost: cost}}, [1]headgate.Decision{}
	d := &s.takeSeveral(headgate.OpTake, checks[:], room[:0])[0]
	return d.Allowed, d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay, d.At, nil
}

// kindOf is algorithm.KindOf, or 0 if the clock of the store may step back.
func (s *Store) kindOf(l *headgate.Limit) uint32 {
	if !s.steady {
		return 0
	}
	return algorithm.KindOf(l)
}

// Take implements [headgate.Store]. If dst has room, it allocates only when tables or logs grow.
func (s *Store) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := store.Validate(op, checks); err != nil {
		return dst, err
	}
	if c := &checks[0]; op == headgate.OpTake && len(checks) == 1 && len(c.Rule.Limits()) == 1 {
		dst = append(dst, headgate.Decision{Rule: c.Rule, Limit: &c.Rule.Limits()[0], Shadow: c.Shadow})
		d := &dst[len(dst)-1]
		var err error
		d.Allowed, d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay, d.At, err = s.TakeSingle(ctx, c.Rule, c.Key, c.Cost)
		return dst, err
	}
	s.catchUp()
	if op == headgate.OpTake || op == headgate.OpPeek {
		return s.takeSeveral(op, checks, dst), nil
	}
	return s.change(op, checks, dst), nil
}

// few is how many checks and limits most requests have at most, and inline how many limits a request
// may have before it needs the heap.
const (
	few    = 3
	inline = 8
)

// takeSeveral takes, or peeks, with the lock.
func (s *Store) takeSeveral(op headgate.Op, checks []headgate.Check, dst []headgate.Decision) []headgate.Decision {
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
	order  []uint8  // first the indices of the shards, each once
	n      int      // the number of shards
	now    headgate.Instant
}

func (l *locked) shards() []uint8 { return l.order[:l.n] }

// lock locks every shard that the checks need, always in the same order, so that two requests
// cannot wait for each other. It determines one time for all shards: the latest that any of them has
// seen.
func (s *Store) lock(checks []headgate.Check, l *locked) {
	for i := range checks {
		hash := s.hash(checks[i].Rule, checks[i].Key)
		l.hashes[i], l.order[i] = hash, uint8(hash>>(64-shardBits))
		s.fetch(checks[i].Rule, hash)
	}
	if l.n = len(checks); l.n > 1 {
		slices.Sort(l.shards())
		l.n = len(slices.Compact(l.shards()))
	}
	now := s.read()
	for _, i := range l.shards() {
		s.shards[i].mu.Lock()
	}
	s.setTime(l, now)
}

// setTime makes now the time of the decision, or the latest time that one of the shards has seen.
func (s *Store) setTime(l *locked, now headgate.Instant) {
	for _, i := range l.shards() {
		now = s.timeIn(now, &s.shards[i])
	}
	l.now = now
}

func (s *Store) unlock(l *locked) {
	for _, i := range l.shards() {
		s.shards[i].mu.Unlock()
	}
}

// step is what a decision knows about one limit between looking at its counter and charging it.
type step struct {
	limit  *headgate.Limit
	entry  *entry
	place  uint64                // the hash of entry
	before algorithm.State       // for Word.Describe, if byWord
	word   algorithm.Word        // the counter, if byWord
	after  algorithm.Word        // the counter once it is charged, if byWord
	state  algorithm.Counter     // the counter in place of word, advanced to now
	facts  algorithm.WindowFacts // in place of state, for a sliding window
	check  int32
	kind   uint32 // see Store.kindOf
	byWord bool
	fits   bool
	first  bool // the first sliding window of its rule, which charges the log
	shared bool // the key shares the counter with others, because memory is full
}

// decide decides and, if every limit agrees, charges. There is a step for each limit.
func (s *Store) decide(op headgate.Op, checks []headgate.Check, r *locked, steps []step, dst []headgate.Decision) []headgate.Decision {
	s.lock(checks, r)
	defer s.unlock(r)
	refused, punished := s.look(checks, r, steps)
	admitted := true
	for i := 0; refused != 0 && i < len(checks); i++ {
		admitted = admitted && (checks[i].Shadow || refused&(1<<i) == 0)
	}
	taking := op == headgate.OpTake
	for i := range steps {
		st := &steps[i]
		c, sh, bit := &checks[st.check], s.shardOf(r.hashes[st.check]), uint64(1)<<st.check
		dst = append(dst, headgate.Decision{})
		d := &dst[len(dst)-1]
		d.Rule, d.Limit, d.Check, d.Shadow, d.Allowed = c.Rule, st.limit, int(st.check), c.Shadow, st.fits
		charge := taking && admitted && refused&bit == 0
		// A key that shares a counter is not punished for the denials of other keys.
		punish := taking && st.limit.Algorithm == headgate.Penalty && st.fits && punished&bit != 0 && !st.shared
		sh.finish(st, c, charge, punish, taking && len(steps) == 1, r.now, d)
		d.At = sh.wall.shown(r.now)
	}
	return dst
}

// look finds and reads the counters of all limits, and makes room for those that are new. From then
// on, only this request changes them. refused has a bit for each check that a limit denies, and
// punished for each check that a limit other than a penalty denies.
func (s *Store) look(checks []headgate.Check, r *locked, steps []step) (refused, punished uint64) {
	for further := 0; ; { // entries in each shard in addition to one for each limit
		for _, i := range r.shards() {
			n := len(steps)
			if r.n > 1 {
				n = countersIn(i, checks, r)
			}
			s.shards[i].reserve(n+further, r.now)
		}
		n, several, opened := 0, 0, false
		refused, punished = 0, 0
		for i := range checks {
			rule, hash := checks[i].Rule, r.hashes[i]
			sh, limits, cost := s.shardOf(hash), rule.Limits(), checks[i].Units()
			logged := false
			for j := range limits {
				st := &steps[n]
				n++
				l := &limits[j]
				st.limit, st.check, st.kind = l, int32(i), s.kindOf(l)
				st.byWord = false
				st.place, st.shared = sh.place(rule, hash, slotOf(l), r.now)
				st.entry = sh.table.find(st.place)
				switch {
				case l.Algorithm == headgate.SlidingWindow:
					st.first, logged = !logged, true
					sh.lookAtLog(st, cost, r.now)
				case st.mayBeWord():
					opened = st.hold() || opened
					at := sh.wall.on(l, r.now)
					st.after, st.before, st.fits = st.word.Draw(l, sh.table.origin, at, cost)
					if st.byWord = st.after != algorithm.NoWord; !st.byWord {
						sh.load(st, r.now)
						st.fits = st.state.Fits(l, at, cost)
					}
				case further == 0 && sh.severalRates(st) && !sh.table.room(len(steps)*algorithm.BucketSlots):
					several++
				default:
					opened = st.hold() || opened
					sh.load(st, r.now)
					st.fits = st.state.Fits(l, sh.wall.on(l, r.now), cost)
				}
				if !st.fits {
					refused |= 1 << i
					if l.Algorithm != headgate.Penalty {
						punished |= 1 << i
					}
				}
			}
		}
		if several == 0 && !opened {
			return refused, punished
		}
		if opened {
			// Callers without the lock may have used a counter meanwhile, by a later reading of the
			// clock than ours. From here on they do not.
			s.setTime(r, s.read())
		}
		further = max(further, several*algorithm.BucketSlots)
	}
}

// mayBeWord reports whether the counter of a step is kept as a Word of the limit's own kind, or may
// be as soon as it is charged.
func (st *step) mayBeWord() bool {
	e := st.entry
	return st.kind != 0 && !st.shared && (e.hash == 0 || e.asWord() && e.kind == st.kind)
}

// hold makes sure that nobody without the lock changes the counter of a step, and reports whether
// that was possible until now.
func (st *step) hold() (wasOpen bool) {
	if st.word = 0; st.entry.asWord() {
		st.word, wasOpen = st.entry.hold()
	}
	return wasOpen
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

// severalRates reports whether the counter of a step, which is not a Word of the limit's own kind, is
// a bucket that lists of different rates share, or may be: then it needs [algorithm.BucketSlots]
// entries.
func (sh *shard) severalRates(st *step) bool {
	if st.limit.Algorithm > headgate.LeakyBucket {
		return false
	}
	_, plain := algorithm.Plain(st.limit, st.entry.state())
	return st.entry.asWord() || !plain
}

// finish charges the counter of a step, or punishes the key, and describes the limit in d. open says
// that callers without the lock may use the counter from now on.
func (sh *shard) finish(st *step, c *headgate.Check, charge, punish, open bool, now headgate.Instant, d *headgate.Decision) {
	l, at := st.limit, sh.wall.on(st.limit, now)
	if charge && st.shared {
		sh.share(st.place)
		if l.Algorithm != headgate.SlidingWindow {
			sh.load(st, now) // several keys of the request may share it
		}
	}
	switch {
	case l.Algorithm == headgate.SlidingWindow:
		if charge && st.first {
			sh.addToLog(sh.insert(st.entry, st.place), c, c.Units(), now)
		}
		st.facts.Describe(d, l, now, c.Units(), charge)
		return
	case st.byWord:
		w := st.word
		if charge {
			st.entry, w = sh.insert(st.entry, st.place), st.after
		}
		d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay = st.word.Describe(l, st.before, sh.table.origin, at, c.Units(), st.fits, charge)
		if charge || open && st.entry.hash != 0 {
			st.entry.setWord(w, l, st.kind, open)
		}
		return
	}
	after := st.state
	switch {
	case punish:
		after.State = algorithm.Punish(l, after.State, at)
	case charge:
		after = after.Charge(l, at, c.Units())
	}
	after.Describe(d, l, st.state, at, c.Units(), st.fits)
	d.At = now
	expires := after.Expires(d)
	if charge || punish {
		sh.put(st, after, until(expires), open)
	} else {
		sh.keep(st, expires)
	}
}

// load reads the counter of a step and brings it up to now. If the clock has stepped back, or if a
// list of limits asks that is faster than all before, load also stores the result. There must be
// room for further entries if the counter is a bucket that lists of different rates share.
func (sh *shard) load(st *step, now headgate.Instant) {
	l, at := st.limit, sh.wall.on(st.limit, now)
	var free uint32
	st.entry = sh.table.find(st.place)
	var moved bool
	switch e := st.entry; {
	case e.asWord():
		w, _ := e.hold()
		s := algorithm.StateOf(l, e.kind, w, sh.table.origin, at)
		free = until(w.FreeAt(e.scale(), sh.table.origin))
		if l.Algorithm > headgate.LeakyBucket || int64(e.kind) == l.Count {
			st.state, moved = algorithm.Counter{State: s}.Advance(l, at)
			break
		}
		// Another list has used the bucket.
		slots, n := algorithm.Kept(l, int64(e.kind), s)
		e.set(algorithm.State{}, 0)
		for i := range n {
			sh.putState(furtherSlot(st.place, i), slots[i], free)
		}
		fallthrough
	default:
		c := algorithm.LoadCounter(l, true, func(i int) algorithm.State { return sh.table.find(furtherSlot(st.place, i)).state() })
		st.state, moved = c.Advance(l, at)
		free = st.entry.until
	}
	if moved {
		if b := st.state.Bucket; b != nil {
			free = max(free, until(now+headgate.Instant(b.Busy(now))))
		}
		sh.put(st, st.state, free, false)
	}
}

// put stores a counter, as a Word if it can be one; else until says when it is fully free. There
// must be room for its further states.
func (sh *shard) put(st *step, c algorithm.Counter, until uint32, open bool) {
	if st.kind != 0 && c.Bucket == nil && !st.shared {
		if w := algorithm.WordOf(st.limit, c.State, sh.table.origin); w != algorithm.NoWord {
			e := sh.insert(st.entry, st.place)
			sh.clearFurther(e, st.place)
			if e.setWord(w, st.limit, st.kind, open) {
				return
			}
		}
		sh.stuck++
	}
	if s, single := c.Single(st.limit); single { // the usual case, and cheaper than copying six slots
		sh.putState(st.place, s, until)
		return
	}
	slots, n := c.Slots(st.limit)
	for i := range n {
		sh.putState(furtherSlot(st.place, i), slots[i], until)
	}
}

func (sh *shard) putState(hash uint64, s algorithm.State, until uint32) {
	e := sh.table.find(hash)
	if s.IsZero() && e.hash == 0 {
		return
	}
	sh.insert(e, hash).set(s, until)
}

// furtherSlot returns the hash of state i of the bucket whose first state has the given hash.
func furtherSlot(hash uint64, i int) uint64 {
	if i == 0 {
		return hash
	}
	return mix(hash, uint64(i))
}

// clearFurther frees the further states of a bucket, whose first state is in e.
func (sh *shard) clearFurther(e *entry, hash uint64) {
	if e.asWord() || !algorithm.HasSlots(e.state()) {
		return
	}
	for i := 1; i < algorithm.BucketSlots; i++ {
		if f := sh.table.find(furtherSlot(hash, i)); f.hash != 0 {
			f.set(algorithm.State{}, 0)
		}
	}
}

// keep postpones the expiry of a counter that was only read, because its limit may have been
// lowered since it was charged.
func (sh *shard) keep(st *step, expires headgate.Instant) {
	at := until(expires)
	for i := range algorithm.BucketSlots {
		e := sh.table.find(furtherSlot(st.place, i))
		if e.until != 0 { // that of a Word is later than any
			e.until = max(e.until, at)
		}
		if i == 0 && (e.asWord() || st.limit.Algorithm > headgate.LeakyBucket || !algorithm.HasSlots(e.state())) {
			return
		}
	}
}
