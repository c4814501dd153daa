// Package history reads what was counted longer ago than an insight.Recorder keeps: from Prometheus, or
// from a bounded file that the process keeps itself.
//
// # Basics
//
// A [File] takes the minutes of a recorder every ten minutes, and keeps them for [Kept]. [Prometheus]
// asks a server that scrapes the instances. Both answer a [Question]:
//
//	past, err := history.NewPrometheus(address, client).Read(ctx, history.Question{From: from, Until: until, Step: time.Hour})
//
// # Caveats
//
// Nobody keeps keys that long: only requests and rules have a history. A File is of one process;
// Prometheus knows all of them.
package history

import (
	"context"
	"time"

	"github.com/headgate/headgate/telemetry/insight"
)

// Kept is how far back a [File] reaches, and the longest time that a [Question] may be about.
const Kept = 7 * 24 * time.Hour

// Question asks for the counts of a rule, or of all requests if Rule is "", from From until Until, which
// are whole minutes and a whole number of steps apart.
type Question struct {
	Rule        string
	From, Until time.Time
	Step        time.Duration
}

// StepOf returns the length of the steps for a range, given since when minutes are kept one by one.
func StepOf(from, until, minutes time.Time) time.Duration {
	switch {
	case !from.Before(minutes):
		return time.Minute
	case until.Sub(from) <= 24*time.Hour:
		return coarse
	}
	return time.Hour
}

// blank is an answer that knows nothing yet.
func (q *Question) blank() insight.Past {
	past := insight.Past{Minutes: []insight.Minute{}}
	for at := q.From; at.Before(q.Until); at = at.Add(q.Step) {
		past.Minutes = append(past.Minutes, insight.Minute{At: at.Unix(), Unknown: true})
	}
	return past
}

// Reader answers questions. It is safe for concurrent use.
type Reader interface {
	Read(ctx context.Context, q Question) (insight.Past, error)
	// Marks returns what has happened, in the order of time.
	Marks(ctx context.Context, from, until time.Time) ([]Mark, error)
	// Source says where the answers come from, for people and without secrets.
	Source() string
	// Whole reports whether the answers are about all instances, and not about this one alone.
	Whole() bool
}

// Mark is something that happened, for charts to mark.
type Mark struct {
	// At is when it happened or began, and Until when it ended, in milliseconds since 1970. Until is zero
	// for what has no length, or has not ended.
	At    int64 `json:"at"`
	Until int64 `json:"until,omitempty"`
	// Kind is "policy" (another version is in force), "reload" (one was not taken), "outage" (of the
	// store) or "start" (of an instance).
	Kind string `json:"kind"`
	Text string `json:"text"`
	// Rules are the rules that a change of the policy has added, changed or removed.
	Rules []string `json:"rules,omitempty"`
}
