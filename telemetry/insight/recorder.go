package insight

import (
	"context"
	"crypto/rand"
	"hash/maphash"
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

// Options are what a [Recorder] may be given. The zero Options are good for most.
type Options struct {
	// MaxBytes bounds the memory of all rules together; zero means DefaultMaxBytes.
	MaxBytes int
	// Events is how many denials are remembered; zero means DefaultEvents.
	Events int
	// Tier names the tier of a tariff that a rule's limits are of, or returns "". It is
	// called once for each rule that is new, by one goroutine at a time. Nil means that
	// there are no tariffs.
	Tier func(*headgate.Rule) string
	// Now is the clock; nil means time.Now.
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
	lent    sync.Pool // of *stripe: what one processor has used last it gets again
	stripes []*stripe
	free    chan *buffer
	full    chan *buffer
	wake    chan struct{} // some buffer is full
	end     func()
	ended   chan struct{}

	draining sync.Mutex // taken before mu

	mu     sync.Mutex // guards what follows
	memory memory
	rules  map[string]*ruleFigures
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

// known is what is known of a rule by its address.
type known struct {
	figures *ruleFigures // nil: there is no memory for it
	tier    uint8
}

// maxKnown bounds the rules that are known by their address: each version of a policy has
// others.
const maxKnown = 1 << 15

// doorFigures are the requests of one door.
type doorFigures struct {
	name   string
	series [minutes]counts
}

// Left counts what was left out to keep within the bounds, since the start.
type Left struct {
	// Decisions are those under rules that there was no memory for.
	Decisions int64 `json:"decisions"`
	// Events are denials that have no event of their own: there was one of the same key
	// and rule within the same second, or too many altogether.
	Events int64 `json:"events"`
	// Memory says how often there was no memory for what would have been kept.
	Memory int64 `json:"memory"`
}

// New returns a recorder, whose goroutine runs until Close.
func New(o Options) *Recorder {
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.Events <= 0 {
		o.Events = DefaultEvents
	}
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
		memory: memory{most: o.MaxBytes}, rules: make(map[string]*ruleFigures), known: make(map[*headgate.Rule]known),
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

// Close ends the recorder's goroutine. Decisions are still counted afterwards, by those
// who report them.
func (r *Recorder) Close() {
	r.end()
	<-r.ended
}

// every is how often decisions are counted that wait in a buffer which is not full.
const every = time.Second

// work counts what is in the buffers, until the channel is closed.
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

// Hooks are what [headgate.Observe] needs.
func (r *Recorder) Hooks() headgate.Hooks {
	d := r.Door("")
	return headgate.Hooks{Decided: func(_ context.Context, op headgate.Op, checks []headgate.Check, decisions []headgate.Decision, _ time.Duration) {
		if op == headgate.OpTake {
			d.Decided(0, checks, decisions)
		}
	}}
}

// Door is where requests come from, such as "grpc". It is safe for concurrent use.
type Door struct {
	r  *Recorder
	id uint8
}

// maxDoors bounds the doors; further ones are the last.
const maxDoors = 16

// Door returns the door of that name. Each has requests counted of its own.
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

// Node tells this recorder from those of other processes; it is another one after each
// start.
func (r *Recorder) Node() string { return r.node }

// drain counts what is in the buffers that are full. When it returns, none of them that was
// handed over before is still being counted.
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

// flush counts what is in all buffers.
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

// turn begins the minute of the time, unless it is the current one. A clock that steps
// back stays where it was.
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
	for i := range r.doors {
		for m := max(r.minute+1, minute-minutes+1); m <= minute; m++ {
			r.doors[i].series[m%minutes] = counts{}
		}
	}
	r.minute = minute
}

// find is what is known of the rule.
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

// count counts what is in a buffer, and empties it.
func (r *Recorder) count(b *buffer) {
	if b.idle() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn(r.options.Now())
	for i := range b.requests {
		if q := &b.requests[i]; *q != (counts{}) && i < len(r.doors) {
			to := &r.doors[i].series[r.minute%minutes]
			to.allowed += q.allowed
			to.denied += q.denied
			to.shadow += q.shadow
		}
	}
	denied := 0
	for i := range b.records[:b.n] {
		of := &b.records[i]
		key := b.keys[of.from:of.to]
		hash, k := maphash.Bytes(r.seed, key), r.find(of.rule)
		if of.outcome == wasDenied || of.outcome == wasShadow {
			r.denied(of, &b.denials[denied], hash, key, k)
			denied++
		}
		r.add(of, hash, key, k)
	}
	b.empty()
}

// nearPart is from where on a limit is near: a fifth of it is left.
const nearPart = 5

// thousandths is part of all in thousandths; zero of nothing. Parts are within 0 and all.
func thousandths(part, all int64) uint16 {
	switch {
	case all <= 0:
		return 0
	case all < math.MaxUint32/1000:
		return uint16(uint32(part) * 1000 / uint32(all)) // Most processors do this faster.
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
	f.series[r.minute%minutes].add(of.outcome)
	at(&f.step.tiers, int(k.tier)).add(of.outcome)
	var e *entry
	capacity := of.limit.Capacity()
	used := thousandths(capacity-max(min(of.remaining, capacity), 0), capacity)
	switch of.outcome {
	case wasAllowed:
		e = f.views[byUse].add(hash, key, of.cost, f.borrow)
		f.step.used[min(int(used)*Distribution/1000, Distribution-1)]++
		if capacity > 0 && of.remaining*nearPart < capacity {
			if n := f.views[byNear].add(hash, key, 1, f.borrow); n != nil {
				n.used, n.tier = used, k.tier
			}
		}
	case wasDenied:
		e = f.views[byDenied].add(hash, key, 1, f.borrow)
		at(&f.step.limits, f.limit(of.limit))[0]++
	case wasShadow:
		e = f.views[byShadow].add(hash, key, 1, f.borrow)
		at(&f.step.limits, f.limit(of.limit))[1]++
	case wasUncharged:
	}
	if e != nil {
		e.used, e.tier = used, k.tier
	}
}
