package app

import (
	"log/slog"
	"time"
)

// ClockStart is what a clock shows that is turned by hand, until it is moved: the same in every run
// of a test.
var ClockStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// clockMistakes returns what is wrong with the settings of a clock that is turned by hand.
func (s *Settings) clockMistakes() (problems []string) {
	if !s.ManualClock {
		return nil
	}
	if s.Store != memoryStore {
		problems = append(problems, "--clock: manual is for the memory store, because other stores decide by a clock of their own; leave --store out, or --clock")
	}
	if s.AdminToken == "" {
		problems = append(problems, "--clock: manual needs an admin token, without which nobody could move the clock; give HEADGATE_ADMIN_TOKEN")
	}
	return problems
}

// clockDetail is what /readyz says of a clock that is turned by hand.
func (s *Settings) clockDetail() string {
	if s.clock == nil {
		return ""
	}
	return "the clock is turned by hand (--clock manual) and shows " + s.clock.Now().Format(time.RFC3339Nano) + ": this server is for tests, and limits nothing in earnest"
}

// turnClock returns the function that moves a clock that is turned by hand, or nil.
func (a *App) turnClock() func(time.Duration) time.Time {
	clock := a.settings.clock
	if clock == nil {
		return nil
	}
	a.settings.Logger.Warn("the clock is turned by hand (--clock manual): limits, permits and reservations end only when POST /v1/clock moves it; this server is for tests",
		slog.Time("now", clock.Now()))
	return clock.Advance
}
