package candidate

import (
	"maps"

	"github.com/headgate/headgate/policy"
)

// Bound is what a rule lets be in progress.
type Bound struct {
	// Limit is how many units each key has, and Most how many any key has: that of a tariff or
	// of an override may be larger.
	Limit int64 `json:"limit"`
	Most  int64 `json:"most"`
	// WaitMS is how long a request waits, in milliseconds, and Queue how many do so for each
	// key in one process.
	WaitMS int64 `json:"wait_ms"`
	Queue  int   `json:"queue"`
	// Shared says that the rule counts over all processes, and TTLMS after which time the store
	// frees the permits of one that has died, in milliseconds.
	Shared bool  `json:"shared"`
	TTLMS  int64 `json:"ttl_ms,omitempty"`
}

// Rebound is a rule whose bound on what is in progress differs between the policies.
type Rebound struct {
	Rule string `json:"rule"`
	// Live and Candidate are the bounds; nil where the rule has none.
	Live      *Bound `json:"live"`
	Candidate *Bound `json:"candidate"`
}

// rebounds compares the bounds of the policies, in the order of the rules in force, those of
// new rules last. Requests do not show them: a question to the service ends before the request
// does, so nobody knows how long it would have been in progress.
func rebounds(live, candidate *policy.Set) []Rebound {
	var all []Rebound
	compare := func(name string) {
		before, after := live.Rule(name), candidate.Rule(name)
		if !sameBound(before, after) {
			all = append(all, Rebound{name, boundOf(before), boundOf(after)})
		}
	}
	for _, r := range live.Rules() {
		compare(r.Name)
	}
	for _, r := range candidate.Rules() {
		if live.Rule(r.Name) == nil {
			compare(r.Name)
		}
	}
	return all
}

func boundOf(r *policy.Rule) *Bound {
	if r == nil || r.InProgress == nil {
		return nil
	}
	p := r.InProgress
	b := &Bound{Limit: p.Limit, Most: p.Most(), WaitMS: p.Wait.Milliseconds(), Queue: p.Waiting(), Shared: p.Shared}
	for i := range r.Overrides {
		b.Most = max(b.Most, r.Overrides[i].InProgress)
	}
	if p.Shared {
		b.TTLMS = p.Term().Milliseconds()
	}
	return b
}

// sameBound reports whether two rules, which may be nil, let the same be in progress, but for
// overrides.
func sameBound(a, b *policy.Rule) bool {
	x, y := boundOf(a), boundOf(b)
	if x == nil || y == nil {
		return x == y
	}
	return *x == *y && a.InProgress.Entry == b.InProgress.Entry && maps.Equal(a.InProgress.Values, b.InProgress.Values)
}
