package ci

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

func TestSixthAttempt(t *testing.T) {
	clock := memory.NewManualClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	logins := headgate.New(memory.New(memory.Clock(clock.Micros)), headgate.MustRule("login", headgate.Sliding(5, 15*time.Minute)))
	for range 5 {
		attempt(t, logins, true)
	}
	attempt(t, logins, false)
	clock.Advance(15 * time.Minute)
	attempt(t, logins, true)
}

func TestSixthAttemptInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logins := headgate.New(memory.New(), headgate.MustRule("login", headgate.Sliding(5, 15*time.Minute)))
		for range 5 {
			attempt(t, logins, true)
		}
		attempt(t, logins, false)
		time.Sleep(15 * time.Minute)
		attempt(t, logins, true)
	})
}

func attempt(t *testing.T, logins *headgate.Limiter, want bool) {
	t.Helper()
	d, err := logins.Allow(t.Context(), "ada")
	if err != nil || d.Allowed != want {
		t.Errorf("allowed is %t, want %t: %v", d.Allowed, want, err)
	}
}
