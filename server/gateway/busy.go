package gateway

import (
	"errors"
	"fmt"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/permits"
	"github.com/headgate/headgate/policy"
)

// busy bounds how many requests are in progress. It is a policy of its own, so
// that conditions and keys are the same as everywhere; its limits are never asked.
type busy struct {
	set    *policy.Set
	limits map[*headgate.Rule]*busyLimit
}

// busyLimit is one bound.
type busyLimit struct {
	Concurrency
	permits *permits.Gate
}

// newBusy returns the bounds, or nil if there are none, and adds what is wrong with them.
func newBusy(all []Concurrency, hashKey []byte, problems *headgate.Problems) *busy {
	if len(all) == 0 {
		return nil
	}
	b := &busy{limits: make(map[*headgate.Rule]*busyLimit)}
	var rules []policy.Rule
	for i, c := range all {
		rule, err := headgate.NewRule(c.Name, headgate.PerSecond(1))
		if err != nil {
			problems.Add(fmt.Sprintf("concurrency[%d].name", i), "concurrency %q: its name cannot be one: %v", c.Name, err)
			continue
		}
		rules = append(rules, policy.Rule{Match: c.Match, Per: c.Per, Limits: rule})
		gate, err := permits.New(permits.Config{
			Name: c.Name, Limit: int64(c.Limit), MaxKeys: headgate.MaxCount,
		})
		if err == nil { // else the options have been found wrong
			b.limits[rule] = &busyLimit{c, gate}
		}
	}
	set, err := policy.New(rules, policy.WithHashKey(hashKey))
	var mistaken *policy.Error
	switch {
	case errors.As(err, &mistaken):
		for _, m := range mistaken.Mistakes {
			problems.Add("concurrency", "concurrency %q: %s", m.Rule, m.Text)
		}
	case err != nil:
		problems.Add("concurrency", "concurrency: %v", err)
	}
	b.set = set
	return b
}

// adopt has the bounds go on counting what the others have counted that bound the
// same by the same: those requests are still in progress.
func (b *busy) adopt(others *busy) {
	if b == nil || others == nil {
		return
	}
	for _, l := range b.limits {
		for _, other := range others.limits {
			if l.Name == other.Name && slices.Equal(l.Per, other.Per) {
				// The limit is one that the options were found right with.
				if err := other.permits.SetLimit(int64(l.Limit)); err == nil {
					l.permits = other.permits
				}
			}
		}
	}
}

// enter takes a permit for each bound that the request meets, or none. It returns
// the bound that has none left, or nil.
func (x *exchange) enter() (*busyLimit, error) {
	b := x.g.busy
	if b == nil {
		return nil, nil
	}
	checks, err := b.set.Match(x.facts, 1, x.charge.Checks[:0])
	x.charge.Checks = checks
	if err != nil {
		return nil, err
	}
	for i := range checks {
		limit := b.limits[checks[i].Rule]
		permit, err := limit.permits.TryAcquire(x.r.Context(), flow.Request{Key: checks[i].Key})
		switch _, full := errors.AsType[*flow.Rejection](err); {
		case full:
			x.leave()
			return limit, nil
		case err != nil:
			x.leave()
			return nil, err
		}
		x.permits = append(x.permits, permit)
	}
	return nil, nil
}

// leave gives the permits back.
func (x *exchange) leave() {
	for _, permit := range x.permits {
		permit.Done(flow.Ignore)
	}
	x.permits = x.permits[:0]
}

// Gates are the bounds in force, by their names, each with what it counts.
func (g *Gateway) Gates() map[string]flow.Stats {
	b := g.current.Load().busy
	if b == nil {
		return nil
	}
	all := make(map[string]flow.Stats, len(b.limits))
	for _, l := range b.limits {
		all[l.Name] = l.permits.Stats()
	}
	return all
}
