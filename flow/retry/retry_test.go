package retry

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestBudget: retries stay within a share of calls and the floor, however they come.
func TestBudget(t *testing.T) {
	t.Parallel()
	b := NewBudget(0.1, 3)
	for range 3 {
		if !b.Take() {
			t.Fatal("the floor is not there")
		}
	}
	if b.Take() {
		t.Error("there is more than the floor")
	}
	for range 10 {
		b.Call()
	}
	if !b.Take() || b.Take() {
		t.Error("ten calls pay for one retry")
	}
	b.GiveBack()
	if !b.Take() || b.Take() {
		t.Error("what was given back is there once")
	}
	for range 1_000_000 {
		b.Call()
	}
	taken := 0
	for b.Take() {
		taken++
	}
	if taken != 3+hoard {
		t.Errorf("%d retries were saved up, want %d", taken, 3+hoard)
	}
}

// TestBudgetHolds: whatever the order of calls and retries, there are at most share × calls +
// floor of these.
func TestBudgetHolds(t *testing.T) {
	t.Parallel()
	for range 200 {
		share, floor := rand.Float64(), rand.IntN(20)
		b := NewBudget(share, floor)
		calls, retries := 0, 0
		for range 2000 {
			if rand.IntN(2) == 0 {
				b.Call()
				calls++
			} else if b.Take() {
				retries++
			}
			if float64(retries) > share*float64(calls)+float64(floor)+1e-6 {
				t.Fatalf("%d retries of %d calls, with a share of %v and a floor of %d", retries, calls, share, floor)
			}
		}
	}
}

// TestBackoff: waits are spread over the whole bound, which doubles; what was asked for is
// never undercut.
func TestBackoff(t *testing.T) {
	t.Parallel()
	b := Backoff{Base: 100 * time.Millisecond, Max: time.Second}
	for tries, most := range map[int]time.Duration{1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 4: 800 * time.Millisecond, 5: time.Second, 100: time.Second} {
		least, longest := most, time.Duration(0)
		for range 2000 {
			wait := b.Wait(tries, 0)
			least, longest = min(least, wait), max(longest, wait)
		}
		if longest > most || longest < most*9/10 || least > most/10 {
			t.Errorf("after %d tries waits are %v to %v, want 0 to %v", tries, least, longest, most)
		}
	}
	for range 2000 {
		if wait := b.Wait(1, 2*time.Second); wait < 2*time.Second || wait > 2200*time.Millisecond {
			t.Fatalf("asked for 2s, it waits for %v", wait)
		}
	}
	if wait := (Backoff{Base: time.Hour, Max: 1<<63 - 2}).Wait(64, 0); wait < 0 {
		t.Errorf("it waits for %v", wait)
	}
}
