package memory

import (
	"context"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/algorithm"
	"github.com/headgate/headgate/store"
)

// A request for one limit, whose counter is there and is kept as a Word, is decided by TakeSingle
// without a lock, and one for a few limits of one key by TakeKey, which locks its shard. All others are
// decided by decide, which locks the shards of all keys.

// fewEntries is the size of a table that is likely to be in the processor's cache.
const fewEntries = 64

// TakeSingle implements [store.Single].
//
// The clock is read before the Word is replaced. A denial must not come from an old reading of the
// clock, so it holds only if the Word has not changed since before the clock was read. An admission
// at an old reading harms nobody: what others have taken since counts as in use for longer than it
// is.
//
// The high is read after the Word and written with the lock, before the Word that it belongs to. So it
// is of the Word that was read if that has not changed since. That a bucket's Word has the same 63 bits
// again, and another high, is less likely than that two keys have the same hash. If it happens to a
// window, its last unit counts in the window after.
func (s *Store) TakeSingle(_ context.Context, rule *headgate.Rule, key string, cost int64) (allowed bool, remaining int64, retry, reset, delay time.Duration, at headgate.Instant, err error) {
	if !store.ValidSingle(rule, key, cost) {
		err = store.ValidateSingle(rule, key, cost)
		return
	}
	l := &rule.Limits()[0]
	s.catchUp()
	hash := s.hash(rule, key)
	// The usual limit is a bucket of up to 10^9 units. The upper half of its kind is the count, so its
	// kind is not worked out, and no state of a window is carried along: each saves a nanosecond.
	bucket, kind, half := l.Algorithm <= headgate.LeakyBucket, algorithm.Kind(0), uint32(l.Count)
	if !s.steady {
		return s.takeLocked(rule, key, cost)
	}
	if !bucket || algorithm.Big(l) {
		if kind = algorithm.KindOf(l); kind == 0 {
			return s.takeLocked(rule, key, cost)
		}
		half = upper(kind)
	}
	own, v := counterOf(hash, l.Slot()), s.views[hash>>(64-shardBits)].Load()
	var e *entry
	seen, high := uint64(held), uint64(0) // the word, and its high, before the clock was read, if known
	if len(v.entries) <= fewEntries {
		if e = v.find(own, half); e == nil {
			return s.takeLocked(rule, key, cost)
		}
		seen, high = e.read()
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
		if e = v.find(own, half); e != nil {
			w, high = e.read()
		}
	}
	if e == nil || now >= headgate.Instant(v.sweepAt.Load()) {
		return s.takeLocked(rule, key, cost)
	}
	cost = max(cost, 1)
	for w&held == 0 && e.is(kind) {
		var (
			at     = now
			after  algorithm.Word
			before algorithm.State
			fits   bool
		)
		if bucket {
			after, fits = algorithm.Word(w).DrawBucket(l, high, v.origin, at, cost)
		} else {
			if onCalendar(l) {
				at = s.wallAt(now).shown(now)
			}
			after, before, fits = algorithm.Word(w).DrawWindow(l, kind, high, v.origin, at, cost)
		}
		if after == algorithm.NoWord {
			break
		}
		if fits {
			// The first attempt expects the word that was read before the clock. To read it again
			// first would fetch it from another core's cache twice: once to read it, once to write
			// it. A failed exchange has fetched it for writing, so the next one mostly succeeds.
			if !atomic.CompareAndSwapUint64(&e.word, w, uint64(after)) {
				w, high = e.read()
				continue
			}
		} else if current, its := e.read(); w != seen || w != current {
			seen, w, high, now = current, current, its, s.read()
			continue
		}
		// Whatever can wait is done after the exchange, which fails less often the sooner it comes.
		if bucket {
			remaining, retry, reset, delay = algorithm.Word(w).DescribeBucket(l, high, v.origin, at, cost, fits, fits)
		} else {
			remaining, retry, reset, delay = algorithm.DescribeState(l, before, at, cost, fits, fits)
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

// TakeKey implements [store.Single]. All counters are in one shard, which it locks. It does the same as
// takeSeveral, without a Check and a Decision for each limit. The rules must not have a sliding window
// or a penalty, only because it would find that out too late to be quick.
func (s *Store) TakeKey(_ context.Context, rules []*headgate.Rule, key string, cost int64) (which int, allowed bool, remaining int64, retry, reset, delay time.Duration, at headgate.Instant, ok bool) {
	if !s.steady || len(rules) > 1 && s.scattered() || len(key) > headgate.MaxKey || cost < 1 || cost > headgate.MaxCount {
		return
	}
	s.catchUp()
	n, hash := 0, maphash.String(s.seed, key)
	for _, rule := range rules {
		n += len(rule.Limits())
		s.fetch(rule, s.under(rule, hash))
	}
	if n == 0 || n > keyLimits {
		return
	}
	now, sh := s.read(), s.shardOf(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now = s.timeIn(now, sh)
	var room [wordLimits]drawn
	words := room[:]
	if n > wordLimits {
		var room [keyLimits]drawn // cleared only here, because that takes long in comparison
		words = room[:]
	}
	words = words[:n]
	for opened := true; opened; {
		opened, allowed = false, true
		rest := words
		for _, rule := range rules {
			limits := rule.Limits()
			fits, wasOpen, drew := sh.drawRule(limits, s.under(rule, hash), cost, now, rest, n)
			if !drew {
				return
			}
			opened, allowed, rest = opened || wasOpen, allowed && fits, rest[len(limits):]
		}
		if opened { // as in drawAll
			now = s.timeIn(s.read(), sh)
		}
	}
	for i := range words {
		w := &words[i]
		left, again, free, pause := sh.finishWord(w, allowed, false, cost, now)
		// This is the order of Verdict.Deciding, without shadows.
		if i > 0 && (w.fits != allowed || !allowed && (retry == headgate.Never || again != headgate.Never && again <= retry) ||
			allowed && (pause < delay || pause == delay && left >= remaining)) {
			continue
		}
		which, remaining, retry, reset, delay = i, left, again, free, pause
	}
	return which, allowed, remaining, retry, reset, delay, sh.wall.shown(now), true
}

// kindOf is algorithm.KindOf, or 0 if the clock of the store may step back.
func (s *Store) kindOf(l *headgate.Limit) algorithm.Kind {
	if !s.steady || l.Algorithm == headgate.Penalty { // KindOf knows that, too, but is not inlined: 12 ns of 200
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

const (
	// mostWords is how many limits are decided together as Words. Most requests have no more than
	// wordLimits, and room for more is cleared only where it is needed. TakeKey is for keyLimits.
	wordLimits, keyLimits, mostWords = 4, 8, 16
	// few is how many other limits most requests have at most, and inline how many a request may have
	// before it needs the heap.
	few    = 3
	inline = 8
)

// takeSeveral takes, or peeks, with the lock. It clears no more memory than the request needs, because
// that takes long in comparison.
func (s *Store) takeSeveral(op headgate.Op, checks []headgate.Check, dst []headgate.Decision) []headgate.Decision {
	n, words := 0, s.steady // the number of limits, and whether all of them may have Words
	for i := range checks {
		limits := checks[i].Rule.Limits()
		n += len(limits)
		for j := range limits {
			a := limits[j].Algorithm
			words = words && a != headgate.SlidingWindow && a != headgate.Penalty
		}
	}
	dst = slices.Grow(dst, n)
	if n > wordLimits {
		var hashes [headgate.MaxChecks]uint64
		var order [headgate.MaxChecks]uint8
		l := &locked{hashes: hashes[:], order: order[:]}
		if !words || n > mostWords {
			return s.decide(op, checks, l, nil, n, dst)
		}
		var room [mostWords]drawn
		return s.decide(op, checks, l, room[:n], n, dst)
	}
	var hashes [wordLimits]uint64 // there are no more checks than limits
	var order [wordLimits]uint8
	l := &locked{hashes: hashes[:], order: order[:]}
	if !words {
		return s.decide(op, checks, l, nil, n, dst)
	}
	var room [wordLimits]drawn
	return s.decide(op, checks, l, room[:n], n, dst)
}

// decide decides about n limits and, if every one agrees, charges. words has room for each limit if all
// may have Words and there are no more than mostWords; else it is nil.
func (s *Store) decide(op headgate.Op, checks []headgate.Check, r *locked, words []drawn, n int, dst []headgate.Decision) []headgate.Decision {
	s.lock(checks, r)
	defer s.unlock(r)
	if words != nil {
		if refused, ok := s.drawAll(checks, r, words); ok {
			return s.finishWords(op, checks, r, words, refused, dst)
		}
	}
	switch {
	case n == 1:
		var steps [1]step
		return s.decideStates(op, checks, r, steps[:], dst)
	case n <= few:
		var steps [few]step
		return s.decideStates(op, checks, r, steps[:n], dst)
	}
	var room [inline]step
	steps := room[:]
	if n > inline {
		steps = make([]step, n)
	}
	return s.decideStates(op, checks, r, steps[:n], dst)
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

// add puts a shard in its place, unless it is there. Few requests have more than three checks.
func (l *locked) add(shard uint8) {
	i := l.n
	for i > 0 && l.order[i-1] > shard {
		i--
	}
	if i > 0 && l.order[i-1] == shard {
		return
	}
	copy(l.order[i+1:l.n+1], l.order[i:l.n])
	l.order[i] = shard
	l.n++
}

// lock locks every shard that the checks need, always in the same order, so that two requests
// cannot wait for each other. It determines one time for all shards: the latest that any of them has
// seen.
func (s *Store) lock(checks []headgate.Check, l *locked) {
	for i := range checks {
		hash := s.hash(checks[i].Rule, checks[i].Key)
		l.hashes[i] = hash
		l.add(uint8(hash >> (64 - shardBits)))
		s.fetch(checks[i].Rule, hash)
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

// drawn is what a decision knows about a counter that is kept as a Word, or will be.
type drawn struct {
	limit  *headgate.Limit
	entry  *entry
	place  uint64 // the hash of entry
	word   algorithm.Word
	after  algorithm.Word  // the counter once it is charged
	before algorithm.State // for DescribeState
	kind   algorithm.Kind  // of word and after
	high   uint64          // of both
	fits   bool
}

// draw looks at the counter of d, which gives its limit, kind, entry and place, if it is kept as a Word of
// that kind, or is new and there is room for n counters. From then on, only the holder of the lock
// changes it. opened says that others were free to change it until now.
func (sh *shard) draw(d *drawn, cost int64, now headgate.Instant, n int) (opened, ok bool) {
	l, e, w := d.limit, d.entry, algorithm.Word(0)
	d.high = 0
	switch {
	case e.asWord() && e.wordKind() == d.kind:
		w, opened = e.hold()
		d.high = e.high()
	case e.hash != 0 || d.kind == 0 || sh.sharing || !sh.table.room(n):
		return false, false
	}
	d.word = w
	if l.Algorithm <= headgate.LeakyBucket {
		d.after, d.fits = w.DrawBucket(l, d.high, sh.table.origin, now, cost)
	} else {
		d.after, d.before, d.fits = w.DrawWindow(l, d.kind, d.high, sh.table.origin, sh.wall.on(l, now), cost)
	}
	return opened, d.after != algorithm.NoWord
}

// finishWord charges the counter that draw has looked at, and describes it. open says that callers
// without the lock may use it from now on.
func (sh *shard) finishWord(w *drawn, charge, open bool, cost int64, now headgate.Instant) (remaining int64, retry, reset, delay time.Duration) {
	l := w.limit
	switch known := w.entry.hash == w.place; {
	case charge && known:
		w.entry.replaceWord(w.after, open)
	case charge:
		sh.insert(w.entry, w.place).setWord(w.after, 0, w.kind, open)
	case open && known:
		w.entry.replaceWord(w.word, open)
	}
	if l.Algorithm <= headgate.LeakyBucket {
		return w.word.DescribeBucket(l, w.high, sh.table.origin, now, cost, w.fits, charge)
	}
	return algorithm.DescribeState(l, w.before, sh.wall.on(l, now), cost, w.fits, charge)
}

// drawRule draws from the counters of a rule's limits, if the shard's table need not be looked through
// first. fits says whether all limits admit the cost; opened and ok are as of draw.
func (sh *shard) drawRule(limits []headgate.Limit, hash uint64, cost int64, now headgate.Instant, words []drawn, n int) (fits, opened, ok bool) {
	fits, ok = true, now < sh.sweepAt
	for j := 0; ok && j < len(limits); j++ {
		var wasOpen bool
		d, l, place := &words[j], &limits[j], counterOf(hash, limits[j].Slot())
		e := sh.table.find(place)
		d.limit, d.place, d.entry = l, place, e
		if l.Algorithm <= headgate.LeakyBucket && e.asWord() && e.kind == uint32(l.Count) && !algorithm.Big(l) {
			// The usual counter does without the calls of KindOf and draw: 3 ns of 35.
			d.word, wasOpen = e.hold()
			d.high = e.high()
			d.after, d.fits = d.word.DrawBucket(l, d.high, sh.table.origin, now, cost)
			ok = d.after != algorithm.NoWord
		} else {
			d.kind = algorithm.KindOf(l)
			wasOpen, ok = sh.draw(d, cost, now, n)
		}
		opened, fits = opened || wasOpen, fits && d.fits
	}
	return fits, opened, ok
}

// drawAll draws from the counters of all limits, and reports whether that was possible. refused has a
// bit for each check that a limit denies.
func (s *Store) drawAll(checks []headgate.Check, r *locked, words []drawn) (refused uint64, ok bool) {
	for opened := true; opened; {
		opened, refused, ok = false, 0, true
		rest := words
		for i := 0; ok && i < len(checks); i++ {
			hash, limits := r.hashes[i], checks[i].Rule.Limits()
			fits, wasOpen, drew := s.shardOf(hash).drawRule(limits, hash, checks[i].Units(), r.now, rest, len(words))
			opened, ok, rest = opened || wasOpen, drew, rest[len(limits):]
			if !fits {
				refused |= 1 << i
			}
		}
		if opened {
			// Callers without the lock may have used a counter meanwhile, by a later reading of the
			// clock than ours. From here on they do not.
			s.setTime(r, s.read())
		}
	}
	return refused, ok
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

// finishWords charges what drawAll has looked at, if every limit agrees, and describes it.
func (s *Store) finishWords(op headgate.Op, checks []headgate.Check, r *locked, words []drawn, refused uint64, dst []headgate.Decision) []headgate.Decision {
	charging := op == headgate.OpTake && admits(checks, refused)
	open := op == headgate.OpTake && len(words) == 1
	for i := range checks {
		c, sh, limits := &checks[i], s.shardOf(r.hashes[i]), len(checks[i].Rule.Limits())
		charge := charging && refused&(1<<i) == 0
		at, cost := sh.wall.shown(r.now), c.Units()
		for j := range words[:limits] {
			w := &words[j]
			dst = append(dst, headgate.Decision{})
			d := &dst[len(dst)-1]
			d.Rule, d.Limit, d.Check, d.Shadow, d.Allowed, d.At = c.Rule, w.limit, i, c.Shadow, w.fits, at
			d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay = sh.finishWord(w, charge, open, cost, r.now)
		}
		words = words[limits:]
	}
	return dst
}

// step is what a decision knows about one limit between looking at its counter and charging it.
type step struct {
	drawn                        // the whole of it only if byWord
	state  algorithm.Counter     // the counter in place of a Word, advanced to now
	facts  algorithm.WindowFacts // in place of state, for a sliding window
	check  int32
	byWord bool
	first  bool // the first sliding window of its rule, which charges the log
	shared bool // the key shares the counter with others, because memory is full
}

// decideStates is decide for counters that are not all kept as Words. The shards are locked.
func (s *Store) decideStates(op headgate.Op, checks []headgate.Check, r *locked, steps []step, dst []headgate.Decision) []headgate.Decision {
	refused, punished := s.look(checks, r, steps)
	taking, admitted := op == headgate.OpTake, admits(checks, refused)
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
				st.place, st.shared = sh.place(rule, hash, slotOf(l), r.now)
				st.entry = sh.table.find(st.place)
				if st.byWord = false; st.kind != 0 && !st.shared {
					wasOpen, drew := sh.draw(&st.drawn, cost, r.now, 0)
					opened, st.byWord = opened || wasOpen, drew
				}
				switch {
				case st.byWord:
				case l.Algorithm == headgate.SlidingWindow:
					st.first, logged = !logged, true
					sh.lookAtLog(st, cost, r.now)
				case further == 0 && sh.severalRates(st) && !sh.table.room(len(steps)*algorithm.BucketSlots):
					several++
				default:
					opened = st.entry.shut() || opened
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

// severalRates reports whether the counter of a step has further states, or may have: then it needs
// [algorithm.BucketSlots] entries.
func (sh *shard) severalRates(st *step) bool {
	e := st.entry
	if st.limit.Algorithm == headgate.SlidingCounter {
		return algorithm.Big(st.limit) || e.asWord() || algorithm.HasFurther(e.state())
	}
	if st.limit.Algorithm > headgate.LeakyBucket || st.kind != 0 && !st.shared && (e.hash == 0 || e.asWord() && e.wordKind() == st.kind) {
		return false // it is kept as a Word, or will be
	}
	_, plain := algorithm.Plain(st.limit, e.state())
	return e.asWord() || !plain
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
	if l.Algorithm == headgate.SlidingWindow {
		if charge && st.first {
			sh.addToLog(sh.insert(st.entry, st.place), c, c.Units(), now)
		}
		st.facts.Describe(d, l, now, c.Units(), charge)
		return
	}
	if st.byWord {
		d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay = sh.finishWord(&st.drawn, charge, open, c.Units(), now)
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
		kind := e.wordKind()
		s := algorithm.StateOf(l, kind, w, e.high(), sh.table.origin, at)
		free = until(w.FreeAt(kind, e.high(), sh.table.origin))
		if l.Algorithm > headgate.LeakyBucket || kind.Count() == l.Count {
			st.state, moved = algorithm.Counter{State: s}.Advance(l, at)
			break
		}
		// Another list has used the bucket.
		slots := algorithm.Kept(l, kind.Count(), s)
		e.set(algorithm.State{}, 0)
		for i := range slots {
			if !slots[i].IsZero() {
				sh.putState(furtherSlot(st.place, i), slots[i], free)
			}
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
		if w, high := algorithm.WordOf(st.limit, c.State, sh.table.origin); w != algorithm.NoWord {
			e := sh.insert(st.entry, st.place)
			sh.clearFurther(e, st.place)
			if e.setWord(w, high, st.kind, open) {
				return
			}
		}
		sh.stuck++
	}
	if s, single := c.Single(st.limit); single { // the usual case, and cheaper than copying six slots
		sh.putState(st.place, s, until)
		return
	}
	slots, changed := c.Slots(st.limit)
	for i := range slots {
		if changed&(1<<i) != 0 {
			sh.putState(furtherSlot(st.place, i), slots[i], until)
		}
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
	if e.asWord() || !algorithm.HasFurther(e.state()) {
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
			e.setUntil(max(e.until, at))
		}
		if i == 0 && (e.asWord() || !algorithm.HasFurther(e.state())) {
			return
		}
	}
}
