package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// Clock is a clock that tests set. It is safe for concurrent use.
type Clock struct{ micros atomic.Int64 }

// NewClock returns a clock that stands at the given time.
func NewClock(t time.Time) *Clock {
	c := new(Clock)
	c.micros.Store(t.UnixMicro())
	return c
}

// Now is the time in microseconds since the Unix epoch.
func (c *Clock) Now() int64 { return c.micros.Load() }

// Add moves the clock, back if d is negative.
func (c *Clock) Add(d time.Duration) { c.micros.Add(d.Microseconds()) }

// Epoch is where the clocks of the suite's tests begin: no window's boundary.
var Epoch = time.Date(2026, 3, 28, 22, 59, 57, 123457000, time.UTC)

// Steps is how many random steps a test of histories goes through altogether: usual, or
// what the environment variable HEADGATE_STEPS says, for longer searches.
func Steps(t testing.TB, usual int) int {
	t.Helper()
	text := os.Getenv("HEADGATE_STEPS")
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("HEADGATE_STEPS is %q; it must be a number of steps, 1 or more", text)
	}
	return n
}

// Histories runs random histories of takes, peeks, refunds and resets on the
// store and on the [Model], and fails where they differ in any field of any decision: rates with
// remainders, costs, several windows and rules, stepped clocks, limits that
// change while in use. The same seed gives the same histories.
func Histories(t *testing.T, mk Maker, seed uint64, histories, steps int) {
	t.Helper()
	runHistories(t, mk, seed, histories, steps, false)
}

// HistoriesSingle is Histories for a store that takes one check at a time.
func HistoriesSingle(t *testing.T, mk Maker, seed uint64, histories, steps int) {
	t.Helper()
	runHistories(t, mk, seed, histories, steps, true)
}

func runHistories(t *testing.T, mk Maker, seed uint64, histories, steps int, single bool) {
	t.Helper()
	// One is half an hour off. All have names: reservations must be read elsewhere.
	zones := []*time.Location{nil}
	for _, name := range []string{"Asia/Kolkata", "Europe/Berlin"} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		zones = append(zones, zone)
	}
	for i := range histories {
		h := &history{single: single, zones: zones, rng: rand.New(rand.NewPCG(seed, uint64(i))), clock: NewClock(Epoch)}
		if err := h.run(mk(t, h.clock.Now), steps); err != nil {
			t.Fatalf("history %d of seed %d: %v", i, seed, err)
		}
	}
}

type history struct {
	rng   *rand.Rand
	clock *Clock
	zones []*time.Location
	// single histories have one check in each request.
	single bool
	rules  []*headgate.Rule
	// lists are the lists of limits that each rule has for the same keys: by tariff, by
	// an override, or because two versions of the policy are in use side by side. Each
	// request draws one of them. Most histories have several.
	lists [][]*headgate.Rule
	// ever are all lists that each rule has had.
	ever [][]*headgate.Rule
	past []taken // what can be refunded
	// calendars are histories with windows of a calendar.
	calendars bool
	long      bool  // logs of hundreds of entries, which stores keep in other ways
	late      int64 // the latest time so far
	notes     notes // requests with ids, unless the store remembers none
}

// keys are few, so that histories come back to them.
var keys = [...]string{"a", "b"}

type taken struct {
	check headgate.Check
	at    int64
}

func (h *history) run(store headgate.Store, steps int) error {
	h.rules = make([]*headgate.Rule, 1+h.rng.IntN(3))
	h.calendars = h.rng.IntN(4) == 0
	if h.long = h.rng.IntN(6) == 0; h.long {
		h.rules, steps = h.rules[:1], 4*steps
	}
	ledger, remembers := store.(headgate.Ledger)
	h.notes.on = remembers && h.rng.IntN(3) == 0
	h.notes.gives = h.notes.on && h.rng.IntN(2) == 0
	h.lists, h.ever = make([][]*headgate.Rule, len(h.rules)), make([][]*headgate.Rule, len(h.rules))
	several := h.rng.IntN(4) != 0
	for i := range h.rules {
		h.rules[i] = h.rule(fmt.Sprintf("r%d", i))
		h.lists[i] = []*headgate.Rule{h.rules[i]}
		for several && h.rng.IntN(5) != 0 && len(h.lists[i]) < 5 {
			h.lists[i] = append(h.lists[i], h.another(h.lists[i]))
		}
		h.ever[i] = slices.Clone(h.lists[i])
	}
	model := NewModel(h.clock.Now)
	ctx := context.Background()
	var got, want []headgate.Decision
	for n := range steps {
		h.tick()
		if s, ok := store.(Sweeper); ok && h.notes.gives {
			if err := s.Sweep(ctx); err != nil {
				return fmt.Errorf("step %d: sweep: %w", n, err)
			}
		}
		if several {
			for i := range h.rules {
				h.rules[i] = h.lists[i][h.rng.IntN(len(h.lists[i]))]
			}
			if i := h.rng.IntN(len(h.rules)); h.rng.IntN(60) == 0 {
				next := h.another(h.ever[i])
				h.lists[i][h.rng.IntN(len(h.lists[i]))] = next
				h.ever[i] = append(h.ever[i], next)
			}
		} else if h.rng.IntN(40) == 0 {
			i := h.rng.IntN(len(h.rules))
			busy, err := h.busy(model, h.rules[i])
			if err != nil {
				return fmt.Errorf("step %d: %w", n, err)
			}
			h.rules[i] = h.changed(h.rules[i], busy)
			h.ever[i] = append(h.ever[i], h.rules[i])
			// A store may forget a counter when it would have been free under the
			// limits that it was charged under, unless it is looked at before.
			for _, key := range keys {
				for _, each := range []headgate.Store{model, store} {
					if _, err := each.Take(ctx, headgate.OpPeek, []headgate.Check{{Rule: h.rules[i], Key: key}}, nil); err != nil {
						return fmt.Errorf("step %d: peek: %w", n, err)
					}
				}
			}
		}
		op, checks := h.request()
		if h.notes.on {
			if done, err := h.remember(ledger, model, op, checks); err != nil {
				return fmt.Errorf("step %d at %d: %w", n, h.clock.Now(), err)
			} else if done {
				continue
			}
		}
		if op == headgate.OpReset {
			// A store need not know other lists than that of the request.
			if err := h.reset([]headgate.Store{model, store}, checks); err != nil {
				return fmt.Errorf("step %d: %w", n, err)
			}
			continue
		}
		var err error
		if got, err = store.Take(ctx, op, checks, got[:0]); err != nil {
			return fmt.Errorf("step %d: %w", n, err)
		}
		if want, err = model.Take(ctx, op, checks, want[:0]); err != nil {
			return fmt.Errorf("step %d: model: %w", n, err)
		}
		if !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
			return fmt.Errorf("step %d at %d: %s of %v:\n%smodel:\n%s", n, h.clock.Now(), op, describeChecks(checks), describeDecisions(got), describeDecisions(want))
		}
		if verdict := headgate.NewVerdict(got); op == headgate.OpTake && verdict.Allowed {
			for _, c := range checks {
				h.past = append(h.past, taken{c, h.clock.Now()})
			}
		} else if op == headgate.OpTake && verdict.RetryAfter > 0 && verdict.RetryAfter < headgate.MaxPeriod && h.rng.IntN(2) == 0 {
			// Come back when it fits, or a microsecond before.
			h.clock.Add(verdict.RetryAfter - time.Duration(h.rng.IntN(2))*time.Microsecond)
		}
	}
	return nil
}

// reset forgets what the keys of a request have used, under every list of its rules.
func (h *history) reset(stores []headgate.Store, checks []headgate.Check) error {
	for _, c := range checks {
		for i := range h.rules {
			if h.rules[i].Name() != c.Rule.Name() {
				continue
			}
			for _, r := range h.ever[i] {
				for _, s := range stores {
					if _, err := s.Take(context.Background(), headgate.OpReset, []headgate.Check{{Rule: r, Key: c.Key}}, nil); err != nil {
						return fmt.Errorf("%T: %w", s, err)
					}
				}
			}
		}
	}
	return nil
}

// tick moves the clock: mostly a little, sometimes to where much has expired,
// sometimes back.
func (h *history) tick() {
	h.late = max(h.late, h.clock.Now())
	if h.long && h.rng.IntN(50) != 0 {
		h.clock.Add(time.Duration(h.rng.IntN(20)) * time.Millisecond)
		return
	}
	switch h.rng.IntN(20) {
	case 0, 1, 2, 3, 4, 5, 6:
	case 7:
		if !h.notes.on && h.late-h.clock.Now() < 50_000_000 {
			h.clock.Add(-time.Duration(h.rng.Int64N(int64(3 * time.Second))))
		}
	case 8:
		if h.notes.on { // what is forgotten stays so, or not
			return
		}
		// A store need not remember what was free for longer than a minute.
		back := time.Duration(h.rng.Int64N(int64(time.Minute)))
		h.clock.Add(-max(0, back-time.Duration(h.late-h.clock.Now())*time.Microsecond))
	case 9:
		h.clock.Add(time.Duration(h.rng.Int64N(int64(2 * time.Hour))))
	case 10, 11, 12:
		h.clock.Add(time.Duration(h.rng.IntN(4)) * time.Microsecond)
	default:
		h.clock.Add(time.Duration(h.rng.Int64N(int64(2 * time.Second))))
	}
}

// request makes up what to do next.
func (h *history) request() (headgate.Op, []headgate.Check) {
	op := headgate.OpTake
	switch n := h.rng.IntN(100); {
	case n < 10:
		op = headgate.OpPeek
	case n < 20:
		op = headgate.OpRefund
	case n < 21 && (!h.long || h.rng.IntN(20) == 0):
		op = headgate.OpReset
	case n < 25:
		op = headgate.OpCharge
	}
	var checks []headgate.Check
	order, many := h.rng.Perm(len(h.rules)), 1+h.rng.IntN(len(h.rules))
	if h.single {
		many = 1
	}
	for _, i := range order[:many] {
		c := headgate.Check{Rule: h.rules[i], Key: keys[h.rng.IntN(len(keys))], Cost: h.cost(h.rules[i]), Shadow: h.rng.IntN(8) == 0}
		if op == headgate.OpRefund && len(h.past) > 0 && h.rng.IntN(2) == 0 {
			if p := h.past[len(h.past)-1-h.rng.IntN(min(len(h.past), 6))]; p.check.Rule.Name() == c.Rule.Name() {
				c.Key, c.Cost, c.At = p.check.Key, p.check.Cost, headgate.Instant(p.at)
			}
		}
		checks = append(checks, c)
	}
	return op, checks
}

func (h *history) cost(r *headgate.Rule) int64 {
	l := &r.Limits()[h.rng.IntN(len(r.Limits()))]
	if h.long && h.rng.IntN(20) != 0 {
		return 1 + h.rng.Int64N(2)
	}
	switch h.rng.IntN(10) {
	case 0:
		return 1 + h.rng.Int64N(min(headgate.MaxCount, l.Capacity()+1))
	case 1, 2:
		return 1 + h.rng.Int64N(max(1, l.Capacity()/4))
	case 3:
		return 1 + h.rng.Int64N(12)
	}
	return 1
}

// busy says of each limit of a rule whether units are in use under every key.
func (h *history) busy(store headgate.Store, r *headgate.Rule) ([]bool, error) {
	busy := make([]bool, len(r.Limits()))
	for k, key := range keys {
		decisions, err := store.Take(context.Background(), headgate.OpPeek, []headgate.Check{{Rule: r, Key: key}}, nil)
		if err != nil {
			return nil, err
		}
		for i := range decisions {
			busy[i] = (k == 0 || busy[i]) && decisions[i].ResetAfter > 0
		}
	}
	return busy, nil
}

func describeChecks(checks []headgate.Check) string {
	s := ""
	for _, c := range checks {
		s += fmt.Sprintf("[%v key %s cost %d at %d]", c.Rule, c.Key, c.Units(), c.At)
	}
	return s
}

func describeDecisions(decisions []headgate.Decision) string {
	s := ""
	for _, d := range decisions {
		s += fmt.Sprintf("  %s %v of %s: allowed %t, remaining %d, retry %v, reset %v, delay %v, at %d\n",
			d.Limit.Algorithm, d.Limit, d.Rule.Name(), d.Allowed, d.Remaining, d.RetryAfter, d.ResetAfter, d.Delay, d.At)
	}
	return s
}

// limit makes up a limit. Some have rates with long remainders, some products
// beyond 64 bits.
func (h *history) limit() headgate.Limit {
	if h.long && h.rng.IntN(4) != 0 {
		return headgate.Sliding(40+h.rng.Int64N(600), time.Duration(1+h.rng.IntN(20))*time.Second)
	}
	l := headgate.Limit{Algorithm: headgate.Algorithm(h.rng.IntN(5)), Count: 1 + h.rng.Int64N(30)}
	switch h.rng.IntN(8) {
	case 0:
		l.Period = time.Duration(1+h.rng.IntN(50)) * time.Microsecond
	case 1:
		l.Period = time.Duration(1+h.rng.IntN(30)) * 24 * time.Hour
		l.Count = 1 + h.rng.Int64N(headgate.MaxLog)
	case 2:
		l.Period = time.Duration(1+h.rng.Int64N(10_000_000)) * time.Microsecond
	default:
		l.Period = time.Duration(1+h.rng.IntN(90)) * time.Second
	}
	if h.rng.IntN(6) == 0 && l.Algorithm != headgate.SlidingWindow {
		l.Count = 1 + h.rng.Int64N(h.anySize())
	}
	switch l.Algorithm {
	case headgate.TokenBucket, headgate.LeakyBucket:
		if h.rng.IntN(2) == 0 {
			l.Burst = 1 + h.rng.Int64N(4*l.Count)
			l.Burst = min(l.Burst, headgate.MaxCount)
		}
	case headgate.FixedWindow:
		switch h.rng.IntN(3) {
		case 0:
			l.Align = headgate.AlignFirst
		case 1:
			if h.calendars {
				l.Align, l.Period = headgate.AlignMinute+headgate.Alignment(h.rng.IntN(6)), 0
				l.Location = h.zones[h.rng.IntN(len(h.zones))]
			}
		}
	}
	return l
}

// penalty makes up a penalty.
func (h *history) penalty() headgate.Limit {
	period := time.Duration(1+h.rng.Int64N(int64(20*time.Second/time.Microsecond))) * time.Microsecond
	block := time.Duration(1+h.rng.IntN(20_000)) * time.Millisecond
	l := headgate.Blocking(1+h.rng.Int64N(4), period, block, 0)
	if h.rng.IntN(3) != 0 {
		l.MaxBlock = block * time.Duration(1+h.rng.IntN(20))
	}
	return l
}

func (h *history) rule(name string) *headgate.Rule {
	for {
		limits := make([]headgate.Limit, 1+h.rng.IntN(3))
		for i := range limits {
			limits[i] = h.limit()
		}
		if h.rng.IntN(4) == 0 {
			limits = slices.Insert(limits, h.rng.IntN(len(limits)+1), h.penalty())
		}
		if r, err := headgate.NewRule(name, limits...); err == nil {
			return r
		}
	}
}

// another makes up one more list of limits of a rule: one of those that there are with
// other counts, in another order, with a limit more or less, or one of its own.
func (h *history) another(lists []*headgate.Rule) *headgate.Rule {
	like := lists[h.rng.IntN(len(lists))]
	for {
		limits := slices.Clone(like.Limits())
		h.rng.Shuffle(len(limits), func(i, j int) { limits[i], limits[j] = limits[j], limits[i] })
		switch h.rng.IntN(5) {
		case 0:
			limits = limits[:1+h.rng.IntN(len(limits))]
		case 1:
			limits = append(limits, h.limit())
		case 2:
			limits[h.rng.IntN(len(limits))] = h.limit()
		case 3:
			limits = h.rule(like.Name()).Limits()
		}
		for i := range limits {
			h.recount(&limits[i])
		}
		if h.notes.gives {
			agree(limits, lists)
		}
		if r, err := headgate.NewRule(like.Name(), limits...); err == nil {
			return r
		}
	}
}

// recount gives a limit another count or burst.
func (h *history) recount(l *headgate.Limit) {
	if h.rng.IntN(2) == 0 {
		return
	}
	switch l.Algorithm {
	case headgate.TokenBucket, headgate.LeakyBucket:
		l.Burst = 1 + h.rng.Int64N(min(headgate.MaxCount, 4*l.Capacity()))
		if h.rng.IntN(3) != 0 && !h.notes.gives {
			l.Count = h.recounted(4 * l.Count)
		}
	case headgate.SlidingWindow:
		l.Count = 1 + h.rng.Int64N(min(headgate.MaxLog, 2*l.Count))
	case headgate.Penalty:
		period := l.Period
		*l = h.penalty()
		l.Period = period
	default:
		l.Count = h.recounted(2 * l.Count)
	}
}

// recounted makes up a count of at most so many, or now and then one of quite another size.
func (h *history) recounted(most int64) int64 {
	if h.rng.IntN(12) == 0 {
		most = h.anySize()
	}
	return 1 + h.rng.Int64N(min(headgate.MaxCount, most))
}

// anySize returns a bound for counts whose products have up to 98 bits.
func (h *history) anySize() int64 {
	return []int64{ordinary, 1 << 32, 1e13, headgate.MaxCount}[h.rng.IntN(4)]
}

// agree gives buckets that share a counter with one of another list the same rate.
func agree(limits []headgate.Limit, lists []*headgate.Rule) {
	for i := range limits {
		l := &limits[i]
		for _, r := range lists {
			for _, o := range r.Limits() {
				if o.Algorithm != l.Algorithm || o.Period != l.Period {
					continue
				}
				if l.Algorithm == headgate.TokenBucket || l.Algorithm == headgate.LeakyBucket {
					l.Burst = max(l.Burst, l.Count)
					l.Count = o.Count
				}
			}
		}
	}
}

// changed gives a rule other counts and bursts. A bucket that is full is not made
// slower: by the new rate it would not be, but the store may have forgotten it.
func (h *history) changed(r *headgate.Rule, busy []bool) *headgate.Rule {
	limits := append([]headgate.Limit(nil), r.Limits()...)
	for i := range limits {
		l := &limits[i]
		switch l.Algorithm {
		case headgate.TokenBucket, headgate.LeakyBucket:
			l.Burst = 1 + h.rng.Int64N(min(headgate.MaxCount, 4*l.Capacity()))
			if count := h.recounted(2 * l.Count); !h.notes.gives {
				l.Count = count
			}
		case headgate.SlidingWindow:
			l.Count = 1 + h.rng.Int64N(min(headgate.MaxLog, 2*l.Count))
		case headgate.Penalty:
			// Not the longest block: a store may have forgotten what it would keep.
			l.Count = 1 + h.rng.Int64N(4)
		default:
			l.Count = h.recounted(2 * l.Count)
		}
	}
	if next, err := headgate.NewRule(r.Name(), limits...); err == nil {
		return next
	}
	return r
}

// notes are what a history knows of the requests that it gave ids.
type notes struct {
	on   bool
	next int
	past []noted
	// gives is true if reservations give units back when they expire. Stores may do that
	// in another order than the model, and so all lists have the same rates then.
	gives bool
}

type noted struct {
	terms       headgate.Terms
	checks      []headgate.Check
	reserve     bool
	reservation []headgate.Reservation // of the store and of the model
}

// Sweeper is a store that gives back expired reservations now and then, and at
// once when it is asked to.
type Sweeper interface {
	Sweep(ctx context.Context) error
}

// told is what a ledger's method returned, so that two can be compared.
type told struct {
	decisions   []headgate.Decision
	reservation headgate.Reservation
	err         error
}

// sentinels are the errors that ledgers must agree on.
var sentinels = []error{headgate.ErrConflict, headgate.ErrNoReservation}

func (o *told) differs(p *told) bool {
	for _, e := range sentinels {
		if errors.Is(o.err, e) != errors.Is(p.err, e) {
			return true
		}
	}
	if len(o.decisions)+len(p.decisions) > 0 && !reflect.DeepEqual(o.decisions, p.decisions) {
		return true
	}
	a, b := &o.reservation, &p.reservation
	return (o.reservation.ID == "") != (p.reservation.ID == "") || a.Expires != b.Expires || !slices.EqualFunc(a.Checks, b.Checks, sameCheck)
}

func sameCheck(a, b headgate.Check) bool {
	return a.Rule.Name() == b.Rule.Name() && slices.EqualFunc(a.Rule.Limits(), b.Rule.Limits(), func(x, y headgate.Limit) bool { return x.String() == y.String() }) &&
		a.Key == b.Key && a.Units() == b.Units() && a.At == b.At && a.GiveBack == b.GiveBack && a.Shadow == b.Shadow && max(a.Factor, 1) == max(b.Factor, 1)
}

func (o *told) String() string {
	return fmt.Sprintf("%v, reservation %q until %d of %s\n%s", o.err, o.reservation.ID, o.reservation.Expires, describeChecks(o.reservation.Checks), describeDecisions(o.decisions))
}

// remember does, now and then, something with an id instead of a step without, and
// reports whether it did.
func (h *history) remember(store headgate.Ledger, model headgate.Ledger, op headgate.Op, checks []headgate.Check) (bool, error) {
	ctx := context.Background()
	if op != headgate.OpTake || h.rng.IntN(2) == 0 {
		return false, nil
	}
	var doing string
	var do func(i int, l headgate.Ledger) told
	var keep *noted
	past := h.notes.past[max(0, len(h.notes.past)-6):]
	switch n := h.rng.IntN(10); {
	case n < 4 && len(past) > 0:
		p := &past[h.rng.IntN(len(past))]
		if p.reservation[0].ID == "" {
			return false, nil
		}
		units := p.reservation[0].Units(1 + h.rng.Int64N(3))
		for i := range units {
			switch h.rng.IntN(4) {
			case 0:
				units[i] = 0
			case 1:
				units[i] = p.reservation[0].Checks[i].Units() + h.rng.Int64N(4)
			case 2:
				units[i] = h.rng.Int64N(p.reservation[0].Checks[i].Units() + 1)
			}
		}
		doing = fmt.Sprintf("settle %s at %v", p.terms.ID, units)
		do = func(i int, l headgate.Ledger) (o told) {
			o.decisions, o.err = l.Settle(ctx, p.reservation[i], units, nil)
			return o
		}
	case n < 5 && len(past) > 0:
		p := &past[h.rng.IntN(len(past))]
		if p.reservation[0].ID == "" {
			return false, nil
		}
		doing = "recall " + p.terms.ID
		do = func(i int, l headgate.Ledger) (o told) {
			o.reservation, o.err = l.Recall(ctx, p.reservation[i].ID)
			return o
		}
	default:
		p := noted{
			terms:   headgate.Terms{ID: fmt.Sprintf("id %d", h.notes.next), For: time.Duration(1+h.rng.IntN(20_000)) * time.Millisecond},
			checks:  slices.Clone(checks),
			reserve: h.rng.IntN(2) == 0,
		}
		h.notes.next++
		for i := range p.checks {
			if p.reserve {
				p.checks[i].GiveBack = h.notes.gives && h.rng.IntN(2) == 0
				p.checks[i].Factor = h.rng.Int64N(3)
			}
		}
		if len(past) > 0 && h.rng.IntN(3) == 0 { // the same again
			p = past[h.rng.IntN(len(past))]
			switch h.rng.IntN(6) {
			case 0:
				p.reserve = !p.reserve
			case 1:
				p.checks = slices.Clone(checks)
			case 2: // by the rules as they are now
				p.checks = slices.Clone(p.checks)
				for i := range p.checks {
					for _, r := range h.rules {
						if r.Name() == p.checks[i].Rule.Name() {
							p.checks[i].Rule = r
						}
					}
				}
			}
		}
		doing = fmt.Sprintf("once %q for %v, reserve %t: %s", p.terms.ID, p.terms.For, p.reserve, describeChecks(p.checks))
		p.reservation = make([]headgate.Reservation, 2)
		keep = &p
		do = func(i int, l headgate.Ledger) (o told) {
			if p.reserve {
				o.reservation, o.decisions, o.err = l.Reserve(ctx, p.terms, p.checks, nil)
			} else {
				o.decisions, o.err = l.TakeOnce(ctx, p.terms, p.checks, nil)
			}
			p.reservation[i] = o.reservation
			return o
		}
	}
	got := do(0, store)
	if got.err != nil && !errors.Is(got.err, sentinels[0]) && !errors.Is(got.err, sentinels[1]) {
		return true, fmt.Errorf("%s: %w", doing, got.err)
	}
	if want := do(1, model); got.differs(&want) {
		return true, fmt.Errorf("%s: %smodel: %s", doing, &got, &want)
	}
	if keep != nil && got.err == nil {
		h.notes.past = append(h.notes.past, *keep)
	}
	return true, nil
}
