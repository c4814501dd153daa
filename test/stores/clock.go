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

// ClockSteps holds a store to what docs/guarantees.md says of its clock, which set puts so
// far ahead of the machine's: with callers at work, steps back free nothing and freeze
// nothing, and a step ahead frees what time would have. The counters must be fresh.
func ClockSteps(t testing.TB, store headgate.Store, consistency headgate.Consistency, set func(ahead time.Duration)) {
	t.Helper()
	rules := stepRules()
	admitted := make([]atomic.Int64, len(rules))
	take := func(ctx context.Context, op headgate.Op, rule int) (headgate.Decision, error) {
		out, err := store.Take(ctx, op, []headgate.Check{{Rule: rules[rule], Key: "k", Hints: headgate.Hints{Consistency: consistency}}}, nil)
		if err != nil {
			return headgate.Decision{}, err
		}
		return out[0], nil
	}
	free := make([]int64, len(rules)) // units that the clock has let be admitted so far
	freed := func(units ...int64) {
		for i := range free {
			free[i] += units[i]
		}
	}
	spent := func() bool {
		for i := range admitted {
			if admitted[i].Load() < free[i] && !t.Failed() {
				return false
			}
		}
		return true
	}
	// What the clock is ahead: so that it begins in the middle of a sliding counter's window.
	at := (stepPeriod/2 - time.Duration(time.Now().UnixNano())%stepPeriod).Truncate(time.Second)
	set(at)
	var all sync.WaitGroup
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	defer all.Wait()
	defer stop()
	for i := range 4 * len(rules) {
		all.Go(func() {
			for i %= len(rules); ctx.Err() == nil; time.Sleep(time.Millisecond) {
				switch d, err := take(t.Context(), headgate.OpTake, i); {
				case err != nil:
					t.Errorf("%s: %v", rules[i].Name(), err)
					return
				case d.Allowed:
					admitted[i].Add(1)
				}
			}
		})
	}
	step := func(by time.Duration) {
		t.Helper()
		at += by
		set(at)
		Until(t, "what the clock has freed is used up", spent)
		time.Sleep(100 * time.Millisecond) // for the callers to be admitted what they must not be
		for i, rule := range rules {
			if got := admitted[i].Load(); got != free[i] {
				t.Errorf("after a step of %v: %s: %d units were admitted in all, want %d", by, rule.Name(), got, free[i])
			}
		}
	}
	freed(stepCount, stepCount, stepCount, stepCount)
	Until(t, "the limits are used up", spent)
	for _, back := range []time.Duration{-time.Second, -time.Hour, -3 * time.Hour, -30 * time.Hour} {
		step(back)
	}
	for i, rule := range rules {
		d, err := take(t.Context(), headgate.OpPeek, i)
		if err != nil || d.Allowed || d.RetryAfter <= 0 || d.RetryAfter > 2*stepPeriod {
			t.Errorf("%s is frozen, or free: %+v, %v", rule.Name(), d, err)
		}
	}
	freed(stepCount/10, 0, 0, 0)
	step(stepPeriod / 10)
	freed(stepCount, stepCount, stepCount, stepCount)
	step(4 * stepPeriod) // a sliding counter needs two periods after the one that it is in
	step(-2 * time.Hour)
	step(-at)
}
