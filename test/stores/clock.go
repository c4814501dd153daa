package stores

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

const (
	stepPeriod = 10 * time.Hour
	stepCount  = 40 // units of each limit
)

// stepRules are limits that do not refill by the time that a test takes.
func stepRules() []*headgate.Rule {
	return []*headgate.Rule{
		headgate.MustRule("step.bucket", headgate.Per(stepCount, stepPeriod)),
		headgate.MustRule("step.sliding", headgate.Sliding(stepCount, stepPeriod)),
		headgate.MustRule("step.fixed", headgate.Limit{Algorithm: headgate.FixedWindow, Count: stepCount, Period: stepPeriod, Align: headgate.AlignFirst}),
		headgate.MustRule("step.counter", headgate.Limit{Algorithm: headgate.SlidingCounter, Count: stepCount, Period: stepPeriod}),
	}
}

// steps are callers of a store whose clock steps meanwhile.
type steps struct {
	t        testing.TB
	rules    []*headgate.Rule
	take     func(ctx context.Context, op headgate.Op, rule int) (headgate.Decision, error)
	admitted []atomic.Int64
	free     []int64 // units that the clock has let be admitted so far
}

func newSteps(t testing.TB, store headgate.Store, consistency headgate.Consistency, rules []*headgate.Rule) *steps {
	return &steps{
		t: t, rules: rules, admitted: make([]atomic.Int64, len(rules)), free: make([]int64, len(rules)),
		take: func(ctx context.Context, op headgate.Op, rule int) (headgate.Decision, error) {
			out, err := store.Take(ctx, op, []headgate.Check{{Rule: rules[rule], Key: "k", Hints: headgate.Hints{Consistency: consistency}}}, nil)
			if err != nil {
				return headgate.Decision{}, err
			}
			return out[0], nil
		},
	}
}

// call has four callers for each rule take units until the function that it returns is called.
func (s *steps) call() (stop func()) {
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	for i := range 4 * len(s.rules) {
		all.Go(func() {
			for i %= len(s.rules); ctx.Err() == nil; time.Sleep(time.Millisecond) {
				switch d, err := s.take(s.t.Context(), headgate.OpTake, i); {
				case err != nil:
					s.t.Errorf("%s: %v", s.rules[i].Name(), err)
					return
				case d.Allowed:
					s.admitted[i].Add(1)
				}
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// freed says how many units of each rule may be admitted from now on.
func (s *steps) freed(units ...int64) {
	for i := range s.free {
		s.free[i] += units[i]
	}
}

// spent waits until all units that are free have been admitted, and reports any more.
func (s *steps) spent(after any) {
	s.t.Helper()
	Until(s.t, "what the clock has freed is used up", func() bool {
		for i := range s.admitted {
			if s.admitted[i].Load() < s.free[i] && !s.t.Failed() {
				return false
			}
		}
		return true
	})
	time.Sleep(100 * time.Millisecond) // for the callers to be admitted what they must not be
	for i, rule := range s.rules {
		if got := s.admitted[i].Load(); got != s.free[i] {
			s.t.Errorf("after a step of %v: %s: %d units were admitted in all, want %d", after, rule.Name(), got, s.free[i])
		}
	}
}

// waits reports rules that admit a unit, or promise the next one later than their windows can last.
func (s *steps) waits() {
	s.t.Helper()
	for i, rule := range s.rules {
		d, err := s.take(s.t.Context(), headgate.OpPeek, i)
		if err != nil || d.Allowed || d.RetryAfter <= 0 || d.RetryAfter > 2*stepPeriod {
			s.t.Errorf("%s is frozen, or free: %+v, %v", rule.Name(), d, err)
		}
	}
}

// backwards are steps back.
var backwards = []time.Duration{-time.Second, -time.Hour, -3 * time.Hour, -30 * time.Hour}

// ClockSteps holds a store to what docs/guarantees.md says of its clock, which set puts so
// far ahead of the machine's: with callers at work, steps back free nothing and freeze
// nothing, and a step ahead frees what time would have. The counters must be fresh.
func ClockSteps(t testing.TB, store headgate.Store, consistency headgate.Consistency, set func(ahead time.Duration)) {
	t.Helper()
	s := newSteps(t, store, consistency, stepRules())
	// What the clock is ahead: so that it begins in the middle of a sliding counter's window.
	at := (stepPeriod/2 - time.Duration(time.Now().UnixNano())%stepPeriod).Truncate(time.Second)
	set(at)
	defer s.call()()
	step := func(by time.Duration) {
		t.Helper()
		at += by
		set(at)
		s.spent(by)
	}
	s.freed(stepCount, stepCount, stepCount, stepCount)
	s.spent("nothing")
	for _, back := range backwards {
		step(back)
	}
	s.waits()
	s.freed(stepCount/10, 0, 0, 0)
	step(stepPeriod / 10)
	s.freed(stepCount, stepCount, stepCount, stepCount)
	step(4 * stepPeriod) // a sliding counter needs two periods after the one that it is in
	step(-2 * time.Hour)
	step(-at)
}

// WallClockSteps holds a store that goes by the monotonic clock to what docs/guarantees.md says
// of steps of the wall clock, which set puts so far ahead of the machine's: with callers at work,
// they free nothing and freeze nothing. Only a window of the calendar ends when the wall clock
// says so. The counters must be fresh.
func WallClockSteps(t testing.TB, store headgate.Store, set func(ahead time.Duration)) {
	t.Helper()
	calendar := func(name string, count int64) *headgate.Rule {
		return headgate.MustRule(name, headgate.Limit{Algorithm: headgate.FixedWindow, Count: count, Period: stepPeriod})
	}
	// The end of its window tells which time the store takes for that of the wall clock.
	teller := newSteps(t, store, headgate.Strict, []*headgate.Rule{calendar("step.teller", headgate.MaxCount)})
	goTo := func(ahead time.Duration) {
		t.Helper()
		set(ahead)
		Until(t, "the calendar follows the wall clock", func() bool {
			d, err := teller.take(t.Context(), headgate.OpTake, 0)
			end := stepPeriod - time.Duration(time.Now().Add(ahead).UnixNano())%stepPeriod
			return err == nil && (d.ResetAfter-end).Abs() < time.Minute
		})
	}
	s := newSteps(t, store, headgate.Strict, append(stepRules(), calendar("step.calendar", stepCount)))
	// So that no window of the calendar ends by itself.
	at := (stepPeriod/2 - time.Duration(time.Now().UnixNano())%stepPeriod).Truncate(time.Second)
	goTo(at)
	defer s.call()()
	s.freed(stepCount, stepCount, stepCount, stepCount, stepCount)
	s.spent("nothing")
	for _, back := range backwards[:2] {
		goTo(at + back)
		s.spent(back)
	}
	s.waits()
	s.freed(0, 0, 0, 0, stepCount)
	goTo(at + 4*stepPeriod)
	s.spent(4 * stepPeriod)
	goTo(at)
	s.spent(-4 * stepPeriod)
}
