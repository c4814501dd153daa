// Package insight records who uses what, in bounded memory: the keys that use a rule most, those
// that are denied most, and those that come close to their limits.
//
// # Basics
//
// Make a [Recorder], put its hooks around the store, and ask it for reports:
//
//	recorder := insight.New(insight.Options{})
//	defer recorder.Close()
//	store := headgate.Observe(memory.New(), recorder.Hooks())
//	// ... later, for a page or a log:
//	rule, ok := recorder.Rule("login", 10*time.Minute)
//	denials := recorder.Denials(0, 100)
//
// [Recorder.Overview] reports the rules with their totals, [Recorder.Rule] everything about one
// rule, [Recorder.Heat] the busiest keys of a rule minute by minute, and [Recorder.Denials] recent
// denials with the reason for each.
//
// # What the counts say
//
// Keys are counted with the algorithm Space-Saving (Metwally et al., 2005). A count may be too high
// by its Error at most, and is never too low: Count − Error ≤ true ≤ Count. The error is at most
// N/m, where N is the sum of everything counted and m is the number of keys that are followed. A
// key that is not listed was counted at most [Top.Absent] times.
//
// Figures are kept for [Kept]: by minute for totals, and by [Step] for keys. A report for a range
// includes the whole step in which the range begins, so its keys may reach back up to one step
// further.
//
// # Memory
//
// One rule takes at most [MaxRuleBytes], and all rules together at most
// [Options.MaxBytes]. A rule that does not fit is not followed, and [Left] counts what
// was left out for that reason. A rule that nobody uses for [Kept] is forgotten.
//
// # Caveats
//
// Keys are kept as they are in the checks. If a key is secret, a [headgate.Check] that package
// policy has made has a keyed hash of it. A program that makes its own checks must not put secrets
// into keys.
//
// A decision is copied to a buffer and counted later: at the latest when the buffer is full or a
// report is made. For each key and rule, at most one denial a second is recorded as an event, with
// the number of denials since the event before.
package insight

import (
	"cmp"
	"context"
	"crypto/rand"
	"hash/maphash"
	"math"
	"math/bits"
	"runtime"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

// Options are the settings of a [Recorder]. The zero Options suit most programs.
type Options struct {
	// MaxBytes is the maximum memory of all rules together. Zero means DefaultMaxBytes.
	MaxBytes int
	// Events is how many denials are remembered. Zero means DefaultEvents.
	Events int
	// Tier returns the name of the tariff's tier that a rule's limits belong to, or "". It is called
	// once for each new rule, by one goroutine at a time. Nil means that there are no tariffs.
	Tier func(*headgate.Rule) string
	// Now returns the time. Nil means time.Now.
	Now func() time.Time
}

// The defaults of [Options].
const (
	DefaultMaxBytes = 64 << 20
	DefaultEvents   = 2048
)

// Recorder counts decisions by key. It is safe for concurrent use; make one with [New],
// and end it with Close.
type Recorder struct {
	options Options
	node    string
	since   time.Time
	seed    maphash.Seed
	lent    sync.Pool // of *stripe; a processor usually gets back the one that it used last
	stripes []*stripe
	free    chan *buffer
	full    chan *buffer
	wake    chan struct{} // a buffer is full
	end     func()
	ended   chan struct{}

	draining sync.Mutex // locked before mu
	spending spending

	mu     sync.Mutex // guards what follows
	memory memory
	rules  map[string]*ruleFigures
	lists  map[listEntry]*[minutes]uint32 // hits of the allow and deny lists
	known  map[*headgate.Rule]known
	latest struct {
		rule *headgate.Rule
		known
	}
	minute int64
	doors  []doorFigures
	denials
	left Left
}

// known is what the recorder has looked up for the address of a rule.
type known struct {
	figures *ruleFigures // nil: the rule was left out for want of memory
	tier    uint8
}

// maxKnown is the maximum number of rules that are known by their address. Each version of a policy
// has rules of its own.
const maxKnown = 1 << 15

// listEntry is an entry of the allow or the deny list.
type listEntry struct {
	name   string
	denies bool
}

// maxLists is the maximum number of list entries that are distinguished.
const maxLists = 256

// doorFigures counts the requests of one door.
type doorFigures struct {
	name   string
	series [minutes]counts
}

// Left counts what was left out since the start to stay within the bounds.
type Left struct {
	// Decisions counts decisions on rules that there was no memory for.
	Decisions int64 `json:"decisions"`
	// Events counts denials without an event of their own, because an event was recorded in the same
	// second for the same key and rule, or for another key in the same slot.
	Events int64 `json:"events"`
	// Memory counts how often there was no memory for something.
	Memory int64 `json:"memory"`
}

// New returns a recorder. Its goroutine runs until Close.
func New(o Options) *Recorder {
	o.MaxBytes, o.Events = cmp.Or(max(o.MaxBytes, 0), DefaultMaxBytes), cmp.Or(max(o.Events, 0), DefaultEvents)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Tier == nil {
		o.Tier = func(*headgate.Rule) string { return "" }
	}
	n := runtime.GOMAXPROCS(0)
	r := &Recorder{
		options: o, node: rand.Text(), since: o.Now(), seed: maphash.MakeSeed(),
		free: make(chan *buffer, n), full: make(chan *buffer, n), wake: make(chan struct{}, 1), ended: make(chan struct{}),
		memory: memory{most: o.MaxBytes}, rules: make(map[string]*ruleFigures), lists: make(map[listEntry]*[minutes]uint32), known: make(map[*headgate.Rule]known),
	}
	r.denials.slots = make([]event, o.Events)
	for range n {
		r.stripes = append(r.stripes, &stripe{buffer: new(buffer)})
		r.free <- new(buffer)
	}
	next := 0
	var mu sync.Mutex
	r.lent.New = func() any {
		mu.Lock()
		defer mu.Unlock()
		next++
		return r.stripes[next%n]
	}
	r.minute = minuteOf(r.since)
	ending := make(chan struct{})
	r.end = sync.OnceFunc(func() { close(ending) })
	go r.work(ending)
	return r
}

// Close ends the recorder's goroutine. Afterwards decisions are still counted, but only when a
// report is made or no free buffer is left.
func (r *Recorder) Close() {
	r.end()
	<-r.ended
}

// every is how often the decisions in buffers that are not full are counted.
const every = time.Second

// work counts the decisions in the buffers until the channel is closed.
func (r *Recorder) work(ending <-chan struct{}) {
	defer close(r.ended)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-r.wake:
			r.drain()
		case <-tick.C:
			r.flush()
		case <-ending:
			return
		}
	}
}

// Hooks returns hooks for [headgate.Observe]. They count requests as those of a door named "".
func (r *Recorder) Hooks() headgate.Hooks {
	d := r.Door("")
	return headgate.Hooks{Decided: func(_ context.Context, op headgate.Op, checks []headgate.Check, decisions []headgate.Decision, _ time.Duration) {
		if op == headgate.OpTake {
			d.Decided(0, checks, decisions)
		}
	}}
}

// Door is an entrance of the program that requests come through, such as "grpc". It is safe for
// concurrent use.
type Door struct {
	r  *Recorder
	id uint8
}

// maxDoors is the maximum number of doors. Further names are counted as the last door.
const maxDoors = 16

// Door returns the door of that name. Requests are counted separately for each door.
func (r *Recorder) Door(name string) *Door {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.doors {
		if r.doors[i].name == name {
			return &Door{r, uint8(i)}
		}
	}
	if len(r.doors) < maxDoors {
		r.doors = append(r.doors, doorFigures{name: name})
	}
	return &Door{r, uint8(len(r.doors) - 1)}
}

// Node returns a name that distinguishes this recorder from those of other processes. It is new
// after each start.
func (r *Recorder) Node() string { return r.node }

// Since returns when the recorder was made.
func (r *Recorder) Since() time.Time { return r.since }

// Now returns the time by the recorder's clock.
func (r *Recorder) Now() time.Time { return r.options.Now() }

// drain counts the decisions in full buffers. When it returns, every buffer that was handed over
// before the call has been counted.
func (r *Recorder) drain() {
	r.draining.Lock()
	defer r.draining.Unlock()
	for {
		select {
		case b := <-r.full:
			r.count(b)
			r.free <- b
		default:
			return
		}
	}
}

// flush counts the decisions in all buffers.
func (r *Recorder) flush() {
	r.drain()
	for _, s := range r.stripes {
		s.mu.Lock()
		r.count(s.buffer)
		s.mu.Unlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(r.options.Now())
}

func minuteOf(t time.Time) int64 { return t.Unix() / 60 }

// turn begins the minute of now, unless it is the current one. If the clock steps back, the current
// minute goes on.
func (r *Recorder) turn(now time.Time) {
	minute := minuteOf(now)
	if minute <= r.minute {
		return
	}
	for name, f := range r.rules {
		if f.last <= minute-minutes {
			r.memory.used -= f.borrowed
			delete(r.rules, name)
			clear(r.known)
			r.latest.rule = nil
			continue
		}
		f.turn(minute)
	}
	for m := max(r.minute+1, minute-minutes+1); m <= minute; m++ {
		for i := range r.doors {
			r.doors[i].series[m%minutes] = counts{}
		}
		for _, hits := range r.lists {
			hits[m%minutes] = 0
		}
	}
	r.minute = minute
}

// find returns what is known of the rule, and registers a new one.
func (r *Recorder) find(rule *headgate.Rule) known {
	if r.latest.rule == rule {
		return r.latest.known
	}
	k, ok := r.known[rule]
	if !ok {
		f := r.rules[rule.Name()]
		if f == nil {
			if f = newRuleFigures(rule.Name(), r.minute, &r.memory); f != nil {
				r.rules[rule.Name()] = f
			}
		}
		if k.figures = f; f != nil {
			k.tier = f.tier(r.options.Tier(rule))
		}
		if len(r.known) >= maxKnown {
			clear(r.known)
		}
		r.known[rule] = k
	}
	r.latest.rule, r.latest.known = rule, k
	return k
}

// count counts the decisions in a buffer, and empties it.
func (r *Recorder) count(b *buffer) {
	if b.idle() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(r.options.Now())
	for i := range b.requests {
		if q := &b.requests[i]; *q != (counts{}) && i < len(r.doors) {
			r.doors[i].series[r.minute%minutes].join(*q)
		}
	}
	denied := 0
	for i := range b.records[:b.n] {
		of := &b.records[i]
		key := b.keys[of.from:of.to]
		if of.rule == nil {
			r.hit(string(key), of.outcome == wasDenied)
			continue
		}
		hash, k := maphash.Bytes(r.seed, key), r.find(of.rule)
		if of.outcome == wasDenied || of.outcome == wasShadow {
			r.denied(of, &b.denials[denied], hash, key, k)
			denied++
		}
		r.add(of, hash, key, k)
	}
	b.empty()
}

// hit counts a request that a list answered.
func (r *Recorder) hit(name string, denies bool) {
	entry := listEntry{name, denies}
	if r.lists[entry] == nil {
		if len(r.lists) >= maxLists {
			entry.name = other
		}
		if r.lists[entry] == nil {
			r.lists[entry] = new([minutes]uint32)
		}
	}
	r.lists[entry][r.minute%minutes]++
}

// nearPart defines when a limit is nearly used up: less than 1/nearPart of it is left.
const nearPart = 5

// thousandths returns part/all in thousandths, or 0 if all is 0. The caller ensures 0 ≤ part ≤ all.
func thousandths(part, all int64) uint16 {
	switch {
	case all <= 0:
		return 0
	case all < math.MaxUint32/1000:
		return uint16(uint32(part) * 1000 / uint32(all)) // 32-bit division is faster on most processors.
	}
	return uint16(part * 1000 / all)
}

// add counts one record.
func (r *Recorder) add(of *record, hash uint64, key []byte, k known) {
	f := k.figures
	if f == nil {
		r.left.Decisions++
		return
	}
	f.last = r.minute
	f.series[r.minute%minutes].add(of.outcome, of.source)
	at(&f.step.tiers, int(k.tier)).add(of.outcome, of.source)
	minute := uint8(r.minute - f.begin)
	if of.outcome == wasFailed || of.source == headgate.SourceLocal || of.source == headgate.SourceOpen && of.outcome == wasAllowed {
		f.views[byAway].add(hash, key, 1, 1, minute, f.borrow).show(0, k.tier)
	}
	if of.outcome == wasFailed {
		return
	}
	var e *entry
	capacity := of.limit.Capacity()
	used := thousandths(capacity-max(min(of.remaining, capacity), 0), capacity)
	switch of.outcome {
	case wasAllowed:
		e = f.views[byUse].add(hash, key, of.cost, of.cost, minute, f.borrow)
		f.step.used[min(int(used)*Distribution/1000, Distribution-1)]++
		if capacity > 0 && of.remaining*nearPart < capacity {
			f.views[byNear].add(hash, key, 1, 1, minute, f.borrow).show(used, k.tier)
		}
	case wasDenied:
		e = f.views[byDenied].add(hash, key, 1, of.cost, minute, f.borrow)
		at(&f.step.limits, f.limit(of.limit))[0]++
	case wasShadow:
		e = f.views[byShadow].add(hash, key, 1, of.cost, minute, f.borrow)
		at(&f.step.limits, f.limit(of.limit))[1]++
	case wasUncharged, wasFailed:
	}
	e.show(used, k.tier)
}

// outcome is the outcome of a check.
type outcome uint8

const (
	wasAllowed   outcome = iota // charged
	wasDenied                   // one of its limits denied the request
	wasShadow                   // one of its limits in shadow would have denied it
	wasUncharged                // another check denied the request
	wasFailed                   // there was no decision
)

// record is one check and its outcome. It is small, because a whole buffer of records passes
// through the processor's caches. Without a rule, it is a request that a list has answered, and its
// key is the name of the entry.
type record struct {
	rule  *headgate.Rule
	limit *headgate.Limit // the limit of the rule that decided
	cost  int64
	// remaining is what the limit has left after the decision. A denial does not change it.
	remaining int64
	from, to  uint16 // the range of its key in the buffer's keys
	outcome   outcome
	door      uint8
	source    headgate.Source
}

// denial has the further figures of a check that was denied. Its capacity is that of the limit, or of
// this server's share of it, and of that remaining is left.
type denial struct{ retryAfter, at, version, remaining, capacity int64 }

// The sizes of a buffer. When a processor counts a buffer, the figures of its rules move into that
// processor's cache, so buffers are large and are counted rarely.
const (
	bufferRecords = 1024
	bufferDenials = 256
	bufferKeys    = 16 << 10 // bytes; an index must fit a uint16
)

// buffer holds records until they are counted.
type buffer struct {
	n, denied, used int
	told            bool // requests were counted
	requests        [maxDoors]counts
	records         [bufferRecords]record
	denials         [bufferDenials]denial // one for each record that is a denial, in their order
	keys            [bufferKeys]byte
}

func (b *buffer) idle() bool { return b.n == 0 && !b.told }

// empty removes the records. It does not clear their pointers, so the few rules that they refer to
// stay in memory until the records are overwritten.
func (b *buffer) empty() {
	b.n, b.denied, b.used = 0, 0, 0
	if b.told {
		b.requests, b.told = [maxDoors]counts{}, false
	}
}

// stripe has a buffer to which usually only one processor writes.
type stripe struct {
	mu     sync.Mutex // locked before the recorder's mu
	buffer *buffer
	_      [64]byte // padding, so that no two stripes share a cache line
}

// Decided records the decisions on the checks of one request to take units, as [headgate.Store]
// returns them. A request without any is one that no rule binds. version is the version of the
// policy that made the checks, or zero. Decided keeps neither slice. It does not block, except while
// a buffer is counted.
func (d *Door) Decided(version int64, checks []headgate.Check, decisions []headgate.Decision) {
	admitted := true
	var one counts
	for i := range decisions {
		o := &decisions[i]
		if o.Source == headgate.SourceOpen {
			one.open = 1
		}
		if o.Source == headgate.SourceLocal {
			one.local = 1
		}
		if !o.Allowed {
			if o.Shadow {
				one.shadow = 1
			} else {
				admitted = false
			}
		}
	}
	if one.allowed = 1; !admitted {
		one.allowed, one.denied, one.open = 0, 1, 0
	}
	r := d.r
	s := r.lent.Get().(*stripe)
	s.mu.Lock()
	s.request(d.id, one)
	for i := 0; i < len(decisions); {
		// The decisions of one check are adjacent.
		check, first := decisions[i].Check, i
		tightest := i
		for i++; i < len(decisions) && decisions[i].Check == check; i++ {
			if outranks(&decisions[i], &decisions[tightest]) {
				tightest = i
			}
		}
		if uint(check) >= uint(len(checks)) {
			continue
		}
		s.makeRoom(r, len(checks[check].Key))
		s.buffer.write(d.id, version, &checks[check], &decisions[tightest], tightest-first, admitted)
	}
	s.mu.Unlock()
	r.lent.Put(s)
}

// Failed records a request to take units that got no decision, because the store did not answer.
func (d *Door) Failed(checks []headgate.Check) {
	s := d.r.lent.Get().(*stripe)
	s.mu.Lock()
	s.request(d.id, counts{failed: 1})
	for i := range checks {
		s.makeRoom(d.r, len(checks[i].Key))
		to := s.buffer.put(checks[i].Key)
		to.rule, to.limit, to.cost, to.door, to.outcome = checks[i].Rule, nil, checks[i].Units(), d.id, wasFailed
	}
	s.mu.Unlock()
	d.r.lent.Put(s)
}

// Listed records a request that an entry of the allow or the deny list has answered, so that no limit
// decided it.
func (d *Door) Listed(entry string, denied bool) {
	s := d.r.lent.Get().(*stripe)
	s.mu.Lock()
	one, outcome := counts{allowed: 1, passed: 1}, wasAllowed
	if denied {
		one, outcome = counts{listed: 1}, wasDenied
	}
	s.request(d.id, one)
	s.makeRoom(d.r, len(entry))
	to := s.buffer.put(entry)
	to.rule, to.limit, to.outcome = nil, nil, outcome
	s.mu.Unlock()
	d.r.lent.Put(s)
}

// request counts a request of the door.
func (s *stripe) request(door uint8, one counts) {
	s.buffer.told = true
	s.buffer.requests[door].join(one)
}

// outranks reports whether the decision d describes a check better than o. A denial outranks an
// admission. Of two denials, the one with the longer RetryAfter wins; of two admissions, the one
// with the smaller part of its limit left.
func outranks(d, o *headgate.Decision) bool {
	switch {
	case d.Allowed != o.Allowed:
		return !d.Allowed
	case !d.Allowed:
		return o.RetryAfter != headgate.Never && (d.RetryAfter == headgate.Never || d.RetryAfter > o.RetryAfter)
	case d.Limit.Algorithm == headgate.Penalty:
		return false
	case o.Limit.Algorithm == headgate.Penalty:
		return true
	}
	h1, l1 := bits.Mul64(uint64(d.Remaining), uint64(o.Limit.Capacity()))
	h2, l2 := bits.Mul64(uint64(o.Remaining), uint64(d.Limit.Capacity()))
	return h1 < h2 || h1 == h2 && l1 < l2
}

// makeRoom ensures that there is room for a record with a key of that length. It replaces a full
// buffer by a free one, and hands it to the recorder's goroutine. If no buffer is free, it counts
// the records itself.
func (s *stripe) makeRoom(r *Recorder, key int) {
	if b := s.buffer; b.n < bufferRecords && b.denied < bufferDenials && b.used+min(key, headgate.MaxKey) <= bufferKeys {
		return
	}
	select {
	case b := <-r.free:
		// This never blocks: the channel has room for all buffers that are not in a stripe.
		r.full <- s.buffer
		s.buffer = b
		select {
		case r.wake <- struct{}{}:
		default:
		}
	default:
		r.count(s.buffer)
	}
}

// put adds a record with that key, and returns it to be filled in.
func (b *buffer) put(key string) *record {
	to := &b.records[b.n]
	b.n++
	to.from = uint16(b.used)
	// A store refuses longer keys.
	b.used += copy(b.keys[b.used:], key[:min(len(key), headgate.MaxKey)])
	to.to = uint16(b.used)
	return to
}

// write adds a decision, which is about the limit at that place of its rule.
func (b *buffer) write(door uint8, version int64, check *headgate.Check, d *headgate.Decision, place int, admitted bool) {
	to := b.put(check.Key)
	to.rule, to.limit = d.Rule, d.Limit
	to.cost, to.remaining = check.Units(), d.Remaining
	to.door, to.source = door, d.Source
	if d.Source == headgate.SourceLocal && place < len(d.Rule.Limits()) {
		// What is left of the share stands for what is left of the limit.
		to.limit = &d.Rule.Limits()[place]
		if share := d.Limit.Capacity(); share > 0 {
			to.remaining = int64(float64(min(d.Remaining, share)) / float64(share) * float64(to.limit.Capacity()))
		}
	}
	switch {
	case !d.Allowed:
		to.outcome = wasDenied
		if d.Shadow {
			to.outcome = wasShadow
		}
		b.denials[b.denied] = denial{int64(d.RetryAfter), int64(d.At), version, d.Remaining, d.Limit.Capacity()}
		b.denied++
	case admitted:
		to.outcome = wasAllowed
	default:
		to.outcome = wasUncharged
	}
}
