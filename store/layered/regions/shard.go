package regions

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/layered/internal/layer"
	"github.com/headgate/headgate/store/share"
)

func newName() string { return rand.Text()[:12] }

// tries is how often a document is written anew because somebody else has written it meanwhile.
const tries = 8

// shard is what this process knows of one board and its document of the home. One goroutine runs it.
type shard struct {
	layer  *Layer
	number int

	floors atomic.Pointer[floors]

	mu     sync.Mutex // guards keys, lent, until and shares
	keys   map[layer.Counter]*key
	lent   map[string]*subject
	until  time.Duration
	active bool // whether something is lent, or asked for, by any process

	shares []Share // that the leader has asked for; empty in others

	turn   int64         // of the board
	turned time.Duration // when another one was first seen
	looked time.Duration // when the board was read last; zero: never
	leads  map[string]*lead
	seen   *seen
	seenAt time.Duration
	// renewed is when this process began the beat that it has written to the home last, and sure that
	// of the last one that it has read there again. The lease runs from then.
	renewed, sure time.Duration
	wrote         int64 // the name of the beat that it has written
}

// lead is what the leader remembers of a subject.
type lead struct {
	rule  *headgate.Rule
	limit []text
	rate  float64          // units a second
	low   bool             // it was much less at the last beat
	since time.Duration    // when it was last measured
	peaks map[uint64]*peak // by slot
}

// peak is the most that was in use within a lease.
type peak struct {
	units int64
	at    time.Duration
}

func (s *shard) lending() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.layer.now() >= s.until {
		return 0
	}
	return int64(len(s.lent))
}

// derive makes what is enforced of a rule for a key, and keeps it if the rule is what units are asked
// for by: those that come back may have a part of its limits.
func (s *shard) derive(k *key, of *headgate.Rule, now time.Duration, demand bool) *local {
	if demand {
		k.rule.Store(of)
	}
	s.mu.Lock() // also while it is stored, so that it is not older than what publish and divide clear
	defer s.mu.Unlock()
	lent, until := s.lent[k.id], s.until
	own := s.floors.Load()
	loc := own.rules.Of(of)
	switch {
	case lent != nil && now < until:
		loc = own.localRule(of, lent.units(of), lent.Rates)
		loc.until = until
	case lent != nil:
		s.layer.counts.floors.Add(1)
		return loc // It is asked for again, until more is known.
	}
	if demand {
		k.local.Store(loc)
	}
	return loc
}

// name is that of the board.
func (s *shard) name() string {
	return "regions " + s.layer.options.Region + " " + strconv.Itoa(s.number)
}

// begin finds what is this region's own before any request comes.
func (s *shard) begin(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, layer.CallWithin)
	defer cancel()
	d, err := s.layer.options.Store.ReadDocument(ctx, s.name())
	if err != nil {
		return
	}
	if b, err := readBoard(&d); err == nil {
		b, _ = s.layer.agree(b, d.Now)
		s.divide(b)
	}
}

// agree returns the board with the settings in force: those of the process that began last. It
// reports whether they are those of this process.
func (l *Layer) agree(b *board, now headgate.Instant) (agreed *board, mine bool) {
	l.since.CompareAndSwap(0, max(1, int64(now)))
	switch {
	case b.Settings == l.settings:
		b.Own = l.options.division()
		return b, true
	case b.Since > l.since.Load():
		return b, false
	}
	return b.with(l.settings, l.options.division(), l.since.Load()), true
}

// divide has requests use the region's own units as a board says.
func (s *shard) divide(b *board) {
	next := newFloors(&s.layer.options, b.Own, b.Before)
	if next.equal(s.floors.Load()) {
		return
	}
	s.floors.Store(next)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.keys {
		k.local.Store(nil)
	}
}

func (s *shard) run(ctx context.Context) {
	every := s.layer.options.Lease / beats
	// The shards, and the regions, do not all ask in the same moment.
	timer := time.NewTimer(mathrand.N(every) + 1)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		began := s.layer.now()
		within, cancel := context.WithTimeout(ctx, s.layer.options.Lease/2)
		err := s.beat(within)
		cancel()
		s.layer.told(ctx, err)
		timer.Reset(max(every/2, every-(s.layer.now()-began)))
	}
}

// told notes whether the region could ask the home.
func (l *Layer) told(ctx context.Context, err error) {
	if ctx.Err() != nil || errors.Is(err, errNothing) {
		return
	}
	if err != nil {
		l.counts.failed.Add(1)
	}
	var now *error
	if err != nil {
		now = &err
	}
	if was := l.cut.Swap(now); (was == nil) != (now == nil) && l.options.Changed != nil {
		l.options.Changed(err)
	}
}

// errNothing says that there was nothing to ask the home.
var errNothing = errors.New("nothing to ask")

// beat reads the board, tells it what was asked for here, and, in the leader, asks the home.
func (s *shard) beat(ctx context.Context) error {
	l := s.layer
	asked, idle := s.collect()
	if idle && l.now()-s.looked < l.options.Lease {
		return errNothing
	}
	// A region that wants nothing still comes to the home, which lends nothing before all have come.
	silence := 4 * l.options.Lease / beats
	if idle {
		silence = 3 * l.options.Lease
	}
	for try := range tries {
		began := l.now()
		d, err := l.options.Store.ReadDocument(ctx, s.name())
		if err != nil {
			s.giveBack(asked)
			return err
		}
		b, err := readBoard(&d)
		if err != nil {
			return err
		}
		before := b.Settings
		b, mine := l.agree(b, d.Now)
		s.divide(b)
		if !mine {
			s.look(b, d.Now, began, nil)
			return errOlder
		}
		s.look(b, d.Now, began, b.Subjects)
		told := make(map[string]int64, len(b.Subjects)) // by others, so far
		for id, x := range b.Subjects {
			told[id] = x.Asked
		}
		note(b, asked)
		if b.Settings != before && before != "" {
			// The others here must know before the home does. In the next beat it is told.
			if _, err := l.options.Store.WriteDocument(ctx, d, b.bytes(), store.MaxDocumentTTL); err != nil {
				return err
			}
			return errNothing
		}
		leads := b.Leader == l.self || b.Leader == "" || began-s.turned > silence
		if !leads {
			if len(asked) == 0 {
				return errNothing
			}
			written, err := l.options.Store.WriteDocument(ctx, d, b.bytes(), store.MaxDocumentTTL)
			if err != nil {
				return err
			}
			if written {
				return errNothing
			}
			pause(ctx, try)
			continue
		}
		return s.lead(ctx, d, b, asked, told)
	}
	s.giveBack(asked)
	return fmt.Errorf("%w: the region's shares were changed by others %d times meanwhile", headgate.ErrUnavailable, tries)
}

func pause(ctx context.Context, try int) {
	select {
	case <-time.After(mathrand.N(time.Duration(try+1) * 2 * time.Millisecond)):
	case <-ctx.Done():
	}
}

// asked is what this process was asked for.
type asked struct {
	key   *key
	units int64
}

// collect takes what was asked for since the last beat, and forgets keys that nobody uses. It is idle
// if there is nothing to do.
func (s *shard) collect() (all []asked, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for counter, k := range s.keys {
		units := k.asked.Swap(0)
		// Who has enough with the region's own units needs nobody.
		if k.idle++; units > 0 {
			k.idle = 0
			if k.tight.Swap(false) || s.lent[k.id] != nil {
				all = append(all, asked{k, units})
			}
		} else if k.idle > 2*beats {
			delete(s.keys, counter)
			s.layer.keys.Add(-1)
		}
	}
	return all, len(all) == 0 && !s.active && s.looked != 0
}

func (s *shard) giveBack(all []asked) {
	for _, t := range all {
		t.key.ask(t.units)
	}
}

// look learns from the board what is lent. A turn was published after the board was read before, so
// its time runs from then at the latest.
func (s *shard) look(b *board, now headgate.Instant, began time.Duration, subjects map[string]*subject) {
	before := s.looked
	s.looked = began
	changed := b.Turn != s.turn
	s.mu.Lock()
	defer s.mu.Unlock()
	if changed {
		s.turn, s.turned, s.shares = b.Turn, began, nil
	}
	s.active = false
	for _, x := range subjects {
		s.active = s.active || x.Asked > 0 || len(x.Lent) > 0
	}
	if subjects == nil {
		s.until = 0
	}
	if changed && before != 0 && subjects != nil {
		s.publish(subjects, min(before+b.Left, began+time.Duration(b.Until-now)*time.Microsecond))
	}
}

// publish has requests use what is lent. The lock is held.
func (s *shard) publish(subjects map[string]*subject, until time.Duration) {
	s.lent, s.until = map[string]*subject{}, until
	for id, x := range subjects {
		if len(x.Lent) > 0 {
			s.lent[id] = &subject{Lent: x.Lent, Full: x.Full, Rates: x.Rates}
		}
	}
	for _, k := range s.keys {
		k.local.Store(nil)
	}
}

// note adds what this process was asked for.
func note(b *board, all []asked) {
	for _, t := range all {
		x := b.Subjects[t.key.id]
		rule := t.key.rule.Load()
		if rule == nil {
			continue
		}
		fresh := newSubject(rule, t.key.key)
		if x == nil {
			if len(b.Subjects) >= maxSubjects {
				continue
			}
			x = fresh
			b.Subjects[t.key.id] = x
		}
		x.Limits, x.Tag = fresh.Limits, fresh.Tag
		x.Asked = min(x.Asked+t.units, mostAsked)
	}
}

// lead asks the home, and publishes what it lends.
func (s *shard) lead(ctx context.Context, d store.Document, b *board, asked []asked, told map[string]int64) error {
	began := s.layer.now()
	wants, err := s.measure(ctx, b, began)
	if err == nil {
		err = s.askHome(ctx, b, wants, began)
	}
	published, until := s.layer.now(), s.sure+s.layer.options.Lease
	switch {
	case err != nil:
	case s.sure == 0: // What was published before goes on.
		until = s.until
	default:
		b.Until = d.Now + headgate.Instant((until - began).Microseconds())
		err = s.change(ctx, b, wants)
	}
	if err != nil {
		// The demand is told all the same. What is lent lasts as long as it did.
		written, _ := s.layer.options.Store.WriteDocument(ctx, d, b.bytes(), store.MaxDocumentTTL)
		if !written {
			s.giveBack(asked)
		}
		return err
	}
	for _, w := range wants {
		if w.gone {
			delete(b.Subjects, w.id)
			delete(s.leads, w.id)
		}
	}
	b.Leader, b.Turn = s.layer.self, b.Turn+1
	b.Left = until - published
	mine := b.Subjects
	for try := range tries {
		written, err := s.layer.options.Store.WriteDocument(ctx, d, b.bytes(), store.MaxDocumentTTL)
		if err != nil {
			return err
		}
		if written {
			s.turn, s.turned = b.Turn, published
			s.divide(b)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.publish(mine, until)
			s.shares = s.shares[:0]
			for _, w := range wants {
				s.shares = append(s.shares, w.shares...)
			}
			for _, x := range mine {
				s.active = s.active || len(x.Lent) > 0
			}
			s.active = s.active || len(s.leads) > 0
			return nil
		}
		pause(ctx, try)
		if d, err = s.layer.options.Store.ReadDocument(ctx, s.name()); err != nil {
			return err
		}
		now, err := readBoard(&d)
		if err != nil {
			return err
		}
		if now.Turn >= b.Turn || now.Settings != b.Settings {
			return errNothing // Somebody else leads.
		}
		// What others were asked for meanwhile is for the next beat.
		for id, x := range now.Subjects {
			if x.Asked -= told[id]; mine[id] != nil {
				mine[id].Asked = max(0, x.Asked)
			} else if x.Asked > 0 {
				mine[id] = x
			}
		}
	}
	return fmt.Errorf("%w: the region's shares were changed by others %d times meanwhile", headgate.ErrUnavailable, tries)
}

// want is what a region wants for a subject.
type want struct {
	id      string
	subject *subject
	lead    *lead
	demand  []int64
	used    []int64
	before  map[uint64]int64 // what is lent as all processes know it
	lent    map[uint64]int64 // and what will be
	gone    bool
	shares  []Share
}

// measure finds what each subject wants, and what is in use.
func (s *shard) measure(ctx context.Context, b *board, now time.Duration) ([]*want, error) {
	var all []*want
	var checks []headgate.Check
	var of []*want
	flush := func() error {
		if len(checks) == 0 {
			return nil
		}
		decisions, err := s.layer.options.Store.Take(ctx, headgate.OpPeek, checks, nil)
		if err != nil {
			return err
		}
		for i := range decisions {
			w, at := of[decisions[i].Check], 0
			for j := i; j > 0 && decisions[j-1].Check == decisions[i].Check; j-- {
				at++
			}
			w.used[at] = decisions[i].Limit.Capacity() - decisions[i].Remaining
		}
		checks, of = checks[:0], of[:0]
		return nil
	}
	for id, x := range b.Subjects {
		ld, err := s.leading(id, x, now)
		if err != nil {
			delete(b.Subjects, id)
			continue
		}
		ld.learn(x.Asked, now)
		limits := ld.rule.Limits()
		w := &want{id: id, subject: x, lead: ld, demand: make([]int64, len(limits)), used: make([]int64, len(limits)), lent: map[uint64]int64{}}
		if s.until > now {
			w.before = x.units(ld.rule)
		}
		x.Asked = 0
		all = append(all, w)
		if rule := s.counter(ld.rule, s.floors.Load(), w.before); rule != nil {
			checks, of = append(checks, headgate.Check{Rule: rule, Key: string(x.Key)}), append(of, w)
		}
		if len(checks) == headgate.MaxChecks {
			if err := flush(); err != nil {
				return nil, err
			}
		}
	}
	if err := flush(); err != nil {
		return nil, err
	}
	for _, w := range all {
		limits := w.lead.rule.Limits()
		for i := range limits {
			l := &limits[i]
			floor := s.floors.Load().of(l)
			p := w.lead.peaks[l.Slot()]
			if p == nil {
				p = &peak{units: floor + w.subject.Lent[l.Slot()], at: now}
				w.lead.peaks[l.Slot()] = p
			}
			if w.used[i] >= p.units || now-p.at > s.layer.options.Lease {
				p.units, p.at = w.used[i], now
			}
			ahead := w.lead.rate * 2 * s.layer.options.Lease.Seconds()
			if ahead < 0.5 {
				ahead = 0
			}
			demand := min(w.lead.rate*full(l).Seconds(), float64(w.used[i])+ahead)
			w.demand[i] = max(0, int64(math.Ceil(min(demand, float64(l.Capacity()))))-floor)
			w.used[i] = max(0, p.units-floor)
		}
	}
	return all, nil
}

// leading returns what is remembered of a subject.
func (s *shard) leading(id string, x *subject, now time.Duration) (*lead, error) {
	ld := s.leads[id]
	if ld == nil {
		ld = &lead{since: now - s.layer.options.Lease/beats, peaks: map[uint64]*peak{}}
	}
	same := len(ld.limit) == len(x.Limits) && ld.rule != nil && ld.rule.Tag() == x.Tag
	for i := range x.Limits {
		same = same && ld.limit[i] == x.Limits[i]
	}
	if !same {
		rule, err := x.rule()
		if err != nil {
			return nil, err
		}
		ld.rule, ld.limit = rule, x.Limits
	}
	s.leads[id] = ld
	return ld, nil
}

// learn measures the demand.
func (l *lead) learn(units int64, now time.Duration) {
	elapsed := max((now - l.since).Seconds(), 0.1)
	l.since = now
	switch rate := float64(units) / elapsed; {
	case l.rate == 0 || rate > 2*l.rate:
		l.rate = rate
	case 2*rate < l.rate && l.low, 4*rate < l.rate && l.rate*elapsed > 16:
		l.rate = max(rate, l.rate/8) // It is no accident.
	default:
		l.rate += (rate - l.rate) / 4
		l.low = 2*rate < l.rate
	}
	if l.rate < 1e-3 {
		l.rate = 0
	}
}

// askHome asks for what is wanted. What is lent anew may be used only when it has been read again: a
// home that fails over may forget what it has acknowledged last.
func (s *shard) askHome(ctx context.Context, b *board, wants []*want, began time.Duration) error {
	l := s.layer
	o := &l.options
	name := "regions " + l.settings + " " + strconv.Itoa(s.number)
	came := b.Came
	var first *home
	for try := range tries {
		l.counts.home.Add(1)
		d, err := o.Home.ReadDocument(ctx, name)
		if err != nil {
			return err
		}
		h, err := readHome(&d)
		if err != nil {
			return err
		}
		h.pass(s.seen, began-s.seenAt)
		if first == nil {
			first, _ = readHome(&d)
			first.pass(s.seen, began-s.seenAt)
			if s.seen != nil && s.seen.born == h.Born && s.wrote == h.Beats[o.Region] {
				s.sure, b.Sure = s.renewed, max(b.Sure, s.wrote)
			}
		}
		if _, here := h.Joined[o.Region]; !here {
			h.Joined[o.Region], h.Age = !b.Lent, 0
		}
		switch {
		case b.Came != "" && h.Came[o.Region] != b.Came:
			// The others may have left this document, too, and be lent units by that of other settings.
			h.Born, h.Joined, h.Age = rand.Text(), map[string]bool{o.Region: false}, 0
			h.Came[o.Region] = b.Came
		case h.wentBack(o.Region, b.Sure, s.seen):
			h.Born, h.Joined, h.Age = rand.Text(), map[string]bool{o.Region: !b.Lent}, 0
		case h.all(o):
			b.Came = ""
			for i := range b.Before {
				b.Before[i].Over = max(b.Before[i].Over, h.Age.Truncate(o.Lease))
			}
		default:
			b.Came = ""
		}
		before := h.of(o.Region)
		beat := h.Beats[o.Region]
		h.Beats[o.Region] = nextBeat(max(beat, b.Sure))
		for _, w := range wants {
			limits := w.lead.rule.Limits()
			w.gone, w.shares = true, nil
			for i := range limits {
				lim := &limits[i]
				pool := poolOf(w.id, lim)
				units := h.ask(o, pool, o.lendable(lim), share.Loan{ID: o.Region, Want: w.demand[i], Used: w.used[i], Lasts: o.counted(), Tail: full(lim)})
				known, _ := first.lent(pool, o.Region)
				if s.wrote != first.Beats[o.Region] { // Another process of this region wrote it, maybe just now.
					known = min(known, w.before[lim.Slot()])
				}
				if first.Born != h.Born {
					known = 0
				}
				units = min(units, known)
				delete(w.lent, lim.Slot())
				if units > 0 {
					w.lent[lim.Slot()] = units
				}
				lent, since := h.share(o, pool)
				w.shares = append(w.shares, Share{w.lead.rule.Name(), string(w.subject.Key), *lim, w.lead.rate, s.floors.Load().of(lim), lent, since})
				_, done := h.lent(pool, o.Region)
				w.gone = w.gone && done && w.demand[i] == 0
			}
		}
		h.sweep()
		if fresh := began-s.renewed < o.Lease/rest && s.seen != nil; beat > 0 && first.Born == h.Born && came == b.Came && (fresh || len(wants) == 0) && alike(before, h.of(o.Region)) {
			return nil // Nothing new: writes of regions that are near would be in the way of others.
		}
		h.settled(o.Region)
		l.counts.home.Add(1)
		written, err := o.Home.WriteDocument(ctx, d, h.bytes(), store.MaxDocumentTTL)
		if err != nil {
			s.seen = nil
			return err
		}
		if written {
			s.seen, s.seenAt, s.renewed, s.wrote = h.seen(), l.now(), began, h.Beats[o.Region]
			return nil
		}
		pause(ctx, try*20)
	}
	return fmt.Errorf("%w: the shares of regions were changed by others %d times meanwhile", headgate.ErrUnavailable, tries)
}

// change prepares counters for other shares, and puts what is lent on the board. A bucket's counter is
// told of a new rate before others use it. It drains at the fastest of its rates, and notes for each
// slower one what that one would have in use: so a counter that gets a faster rate again may have
// drained too much, which is charged.
func (s *shard) change(ctx context.Context, b *board, wants []*want) error {
	own, next := s.floors.Load(), newFloors(&s.layer.options, b.Own, b.Before)
	for _, w := range wants {
		limits := w.lead.rule.Limits()
		for i := range limits {
			l := &limits[i]
			if slot := l.Slot(); l.Algorithm == headgate.TokenBucket && own.of(l)+w.before[slot] != next.of(l)+w.lent[slot] {
				if err := s.changeBucket(ctx, w, i, own, next); err != nil {
					return err
				}
				break
			}
		}
		w.subject.Lent, w.subject.Full, w.subject.Rates = w.lent, make(map[uint64]time.Duration, len(w.lent)), nil
		for i := range limits {
			l := &limits[i]
			slot := l.Slot()
			if w.lent[slot] > 0 {
				w.subject.Full[slot] = full(l)
			}
			if p, ok := part(l, next.of(l)+w.lent[slot]); ok && len(w.lent) > 0 && l.Algorithm == headgate.TokenBucket {
				if w.subject.Rates == nil {
					w.subject.Rates = make(map[uint64]int64, len(limits))
				}
				w.subject.Rates[slot] = p.Count
			}
		}
		b.Lent = b.Lent || len(w.lent) > 0
	}
	return nil
}

// changeBucket tells the counter of a subject, of which limit i is the first bucket, of its new rates.
func (s *shard) changeBucket(ctx context.Context, w *want, i int, own, then *floors) error {
	limits := w.lead.rule.Limits()
	now, next := s.counter(w.lead.rule, own, w.before), s.counter(w.lead.rule, then, w.lent)
	if now == nil || next == nil {
		return nil // No share of it admits anything.
	}
	ask := func(op headgate.Op, r *headgate.Rule, cost int64, at headgate.Instant) ([]headgate.Decision, error) {
		return s.layer.options.Store.Take(ctx, op, []headgate.Check{{Rule: r, Key: string(w.subject.Key), Cost: cost, At: at}}, nil)
	}
	after, err := ask(headgate.OpPeek, next, 1, 0)
	if err != nil {
		return err
	}
	before, err := ask(headgate.OpPeek, now, 1, 0)
	if err != nil {
		return err
	}
	extra := 0.0
	for j := i; j < len(limits); j++ {
		if limits[j].Algorithm == headgate.TokenBucket {
			// Decisions tell whole microseconds, in which a fast bucket refills many units.
			part := float64(limits[j].Count) / float64(limits[j].Micros())
			extra = max(extra, inUse(&before[j])-inUse(&after[j])+part)
		}
	}
	if extra > 1e-3 {
		_, err = ask(headgate.OpCharge, next, min(int64(math.Ceil(extra)), headgate.MaxCount), 0)
		return err
	}
	charged, err := ask(headgate.OpCharge, next, 1, 0)
	if err == nil {
		_, err = ask(headgate.OpRefund, next, 1, charged[0].At)
	}
	return err
}

// inUse is how much a decision says is in use of a bucket, with parts of a unit.
func inUse(d *headgate.Decision) float64 {
	return float64(d.ResetAfter) / float64(d.Limit.Period) * float64(d.Limit.Count)
}

// counter is a rule by which the counters of this region are read while so much is lent; nil if there
// is none.
func (s *shard) counter(of *headgate.Rule, own *floors, lent map[uint64]int64) *headgate.Rule {
	limits := of.Limits()
	all := make([]headgate.Limit, len(limits))
	for i := range limits {
		all[i] = counter(&limits[i], own.of(&limits[i])+lent[limits[i].Slot()])
	}
	return like(of, all)
}
