package storetest

import (
	"context"
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
// store and on the [Model] and, where it knows the algorithms, on the [Oracle],
// and fails where two of them differ in any field of any decision: rates with
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
	// Half an hour off, and by name: reservations must be read elsewhere.
	zone, err := time.LoadLocation("Asia/Kolkata")
	if err != nil {
		t.Fatal(err)
	}
	for i := range histories {
		h := &history{single: single, zone: zone, rng: rand.New(rand.NewPCG(seed, uint64(i))), clock: NewClock(Epoch)}
		if err := h.run(mk(t, h.clock.Now), steps); err != nil {
			t.Fatalf("history %d of seed %d: %v", i, seed, err)
		}
	}
}

type history struct {
	rng   *rand.Rand
	clock *Clock
	zone  *time.Location
	// single histories have one check in each request.
	single bool
	rules  []*headgate.Rule
	// lists are the lists of limits that each rule has for the same keys: by tariff, by
	// an override, or because two versions of the policy are in use side by side. Each
	// request draws one of them. Most histories have several.
	lists [][]*headgate.Rule
	// ever are all lists that each rule has had.
	ever  [][]*headgate.Rule
	past  []taken // what can be refunded
	long  bool    // logs of hundreds of entries, which stores keep in other ways
	late  int64   // the latest time so far
	notes notes   // requests with ids, unless the store remembers none
}

// keys are few, so that histories come back to them.
var keys = [...]string{"a", "b"}

type taken struct {
	check headgate.Check
	at    int64
}

func (h *history) run(store headgate.Store, steps int) error {
	h.rules = make([]*headgate.Rule, 1+h.rng.IntN(3))
	known := h.rng.IntN(4) != 0 // the oracle knows no calendars
	if h.long = h.rng.IntN(6) == 0; h.long {
		h.rules, steps = h.rules[:1], 4*steps
	}
	ledger, remembers := store.(headgate.Ledger)
	h.notes.on = remembers && h.rng.IntN(3) == 0
	h.notes.gives = h.notes.on && h.rng.IntN(2) == 0
	h.lists, h.ever = make([][]*headgate.Rule, len(h.rules)), make([][]*headgate.Rule, len(h.rules))
	several := h.rng.IntN(4) != 0
	for i := range h.rules {
		h.rules[i] = h.rule(fmt.Sprintf("r%d", i), known)
		h.lists[i] = []*headgate.Rule{h.rules[i]}
		for several && h.rng.IntN(5) != 0 && len(h.lists[i]) < 5 {
			h.lists[i] = append(h.lists[i], h.another(h.lists[i], known))
		}
		h.ever[i] = slices.Clone(h.lists[i])
	}
	others := []headgate.Store{NewModel(h.clock.Now)}
	if known {
		others = append(others, NewOracle(h.clock.Now))
	}
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
				next := h.another(h.ever[i], known)
				h.lists[i][h.rng.IntN(len(h.lists[i]))] = next
				h.ever[i] = append(h.ever[i], next)
			}
		} else if h.rng.IntN(40) == 0 {
			i := h.rng.IntN(len(h.rules))
			busy, err := h.busy(others[0], h.rules[i])
			if err != nil {
				return fmt.Errorf("step %d: %w", n, err)
			}
			h.rules[i] = h.changed(h.rules[i], busy)
			h.ever[i] = append(h.ever[i], h.rules[i])
			// A store may forget a counter when it would have been free under the
			// limits that it was charged under, unless it is looked at before.
			for _, key := range keys {
				for _, each := range append(others, store) {
					if _, err := each.Take(ctx, headgate.OpPeek, []headgate.Check{{Rule: h.rules[i], Key: key}}, nil); err != nil {
						return fmt.Errorf("step %d: peek: %w", n, err)
					}
				}
			}
		}
		op, checks := h.request()
		if h.notes.on {
			if done, err := h.remember(ledger, others, op, checks); err != nil {
				return fmt.Errorf("step %d at %d: %w", n, h.clock.Now(), err)
			} else if done {
				continue
			}
		}
		if op == headgate.OpReset {
			// A store need not know other lists than that of the request.
			if err := h.reset(append(others, store), checks); err != nil {
				return fmt.Errorf("step %d: %w", n, err)
			}
			continue
		}
		var err error
		if got, err = store.Take(ctx, op, checks, got[:0]); err != nil {
			return fmt.Errorf("step %d: %w", n, err)
		}
		for _, other := range others {
			if want, err = other.Take(ctx, op, checks, want[:0]); err != nil {
				return fmt.Errorf("step %d: %T: %w", n, other, err)
			}
			if !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
				return fmt.Errorf("step %d at %d: %s of %v:\n%s%T:\n%s", n, h.clock.Now(), op, describeChecks(checks), describeDecisions(got), other, describeDecisions(want))
			}
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
