package app

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/redis/doctor"
)

// Examination is what [Examine] has found out about a store.
type Examination struct {
	Store    string    `json:"store"`
	Findings []Finding `json:"findings"`
	// Memory is how much memory each rule's counters take, estimated from a sample of Sampled keys.
	Memory  []RuleMemory `json:"memory"`
	Sampled int64        `json:"sampled_keys"`
	bad     bool
}

// Finding is the result of one check of the store.
type Finding struct {
	// Node is the server's address; empty for the store as a whole.
	Node string `json:"node,omitempty"`
	What string `json:"what"`
	// Level is "ok", "warning" or "bad".
	Level string `json:"level"`
	Text  string `json:"text"`
	// Fix says what to change; empty if nothing has to be changed.
	Fix string `json:"fix,omitempty"`
}

// RuleMemory is how much memory the counters of one rule take.
type RuleMemory struct {
	Rule        string `json:"rule"`
	Keys        int64  `json:"keys"`
	BytesPerKey int64  `json:"bytes_per_key"`
}

// Bad reports whether one of the findings is bad.
func (e *Examination) Bad() bool { return e.bad }

// examineTimeout is the deadline of each call of an examination. It is long, because the
// examination must report on a slow store, not fail.
const examineTimeout = 5 * time.Second

// Examine checks a store for operational problems; see [redis.Store.Diagnose]. The
// error is a [*SettingsError] or wraps [ErrUnavailable].
func Examine(ctx context.Context, url string) (*Examination, error) {
	if problems := checkStore(url); problems != nil {
		return nil, &SettingsError{prefixed("store: ", problems)}
	}
	if url == memoryStore {
		return nil, &SettingsError{[]string{"store: the memory store is in the server's process, and there is nothing to look at from here"}}
	}
	if !strings.HasPrefix(url, "redis") {
		return nil, &SettingsError{[]string{"store: only Redis and Valkey can be examined"}}
	}
	store, err := redis.Open(ctx, url, redis.Timeout(examineTimeout))
	var invalid *headgate.InvalidError
	switch {
	case errors.As(err, &invalid):
		return nil, &SettingsError{prefixed("store: ", invalid.Problems.Texts())}
	case err != nil:
		return nil, &unavailable{"the store " + describeStore(url) + " cannot be used", err}
	}
	defer store.Close()
	d, err := store.Diagnose(ctx)
	if err != nil {
		return nil, &unavailable{"the store " + describeStore(url) + " does not answer", err}
	}
	e := &Examination{Store: describeStore(url), Sampled: d.Sampled, Memory: []RuleMemory{}, bad: d.Worst() == doctor.Bad}
	for _, f := range d.Findings {
		e.Findings = append(e.Findings, Finding{f.Node, f.What, f.Level.String(), f.Text, f.Fix})
	}
	for _, m := range d.Memory {
		e.Memory = append(e.Memory, RuleMemory(m))
	}
	return e, nil
}
