package memory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// charged charges units one by one and returns what each limit of the rule has left.
func charged(t *testing.T, s *memory.Store, rule *headgate.Rule, key string, costs ...int64) []int64 {
	t.Helper()
	for _, cost := range costs {
		s.Charge([]headgate.Check{{Rule: rule, Key: key, Cost: cost}})
	}
	decisions, err := s.Take(t.Context(), headgate.OpPeek, []headgate.Check{{Rule: rule, Key: key}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var left []int64
	for i := range decisions {
		left = append(left, decisions[i].Remaining)
	}
	return left
}

// TestCharge: each limit is charged by itself, and whether there is room or not. A
// window forgets what is too much when it ends, and a bucket never gets it.
func TestCharge(t *testing.T) {
	now := int64(1_763_712_000_000_000)
	s := memory.New(memory.Clock(func() int64 { return now }))
	fixed := headgate.Limit{Algorithm: headgate.FixedWindow, Count: 3, Period: 10 * time.Second}
	counter := headgate.Limit{Algorithm: headgate.SlidingCounter, Count: 3, Period: 10 * time.Second}
	rule := headgate.MustRule("r", headgate.PerHour(5), headgate.PerHour(100), fixed, counter, headgate.Sliding(3, 10*time.Second), headgate.Sliding(100, time.Hour))
	for i, step := range []struct {
		after time.Duration
		costs []int64
		want  string
	}{
		{0, nil, "[5 100 3 3 3 100]"},
		{0, []int64{1, 1}, "[3 98 1 1 1 98]"},
		{0, []int64{1, 1, 1, 1}, "[0 94 0 0 0 94]"},
		{0, []int64{7, 0}, "[0 86 0 0 0 86]"}, // zero is one
		// What the windows had too much of is gone with them, and the hour's bucket
		// owes no more than it holds: it refills one unit in 12 minutes.
		{20 * time.Second, nil, "[0 86 3 3 3 86]"},
		{12*time.Minute - 20*time.Second, nil, "[1 100 3 3 3 86]"},
		{0, []int64{2}, "[0 98 1 1 1 84]"}, // as much as fits
		{time.Hour, nil, "[5 100 3 3 3 100]"},
		// A clock that steps back frees nothing.
		{0, []int64{2}, "[3 98 1 1 1 98]"},
		{-5 * time.Second, []int64{1}, "[2 97 0 0 0 97]"},
	} {
		now += step.after.Microseconds()
		if got := fmt.Sprint(charged(t, s, rule, "k", step.costs...)); got != step.want {
			t.Errorf("step %d: %s are left, want %s", i+1, got, step.want)
		}
	}
	// Several checks at once, of keys of their own.
	one := headgate.MustRule("one", headgate.PerHour(5))
	s.Charge([]headgate.Check{{Rule: one, Key: "a", Cost: 2}, {Rule: one, Key: "b", Cost: 3, Shadow: true}})
	if a, b := charged(t, s, one, "a")[0], charged(t, s, one, "b")[0]; a != 3 || b != 2 {
		t.Errorf("%d and %d are left", a, b)
	}
}

func TestChargeAllocatesNothing(t *testing.T) {
	s := memory.New()
	checks := []headgate.Check{
		{Rule: headgate.MustRule("a", headgate.PerSecond(5), headgate.PerHour(1000)), Key: "k"},
		{Rule: headgate.MustRule("b", headgate.Limit{Algorithm: headgate.SlidingCounter, Count: 5, Period: time.Hour}), Key: "k"},
	}
	if got := testing.AllocsPerRun(1000, func() { s.Charge(checks) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}
