package gateway

import (
	"errors"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/inprogress"
)

// newBusy returns the bounds on requests in progress in the gateway's own options, as a policy, or
// nil if there are none. It adds what is wrong with them to problems.
func newBusy(all []Concurrency, hashKey []byte, problems *headgate.Problems) *policy.Set {
	if len(all) == 0 {
		return nil
	}
	var rules []policy.Rule
	for _, c := range all {
		rules = append(rules, policy.Rule{
			Name: c.Name, Match: c.Match, Per: c.Per, InProgress: &policy.InProgress{Limit: int64(c.Limit)},
		})
	}
	set, err := policy.New(rules, policy.HashKey(hashKey))
	if mistaken, ok := errors.AsType[*policy.Error](err); ok {
		for _, m := range mistaken.Mistakes {
			problems.Add("concurrency", "concurrency %q: %s", m.Rule, m.Text)
		}
	} else if err != nil {
		problems.Add("concurrency", "concurrency: %v", err)
	}
	return set
}

// enter takes the permits that the request needs, both for the options and for the given bounds of
// the policy.
func (x *exchange) enter(bounds []policy.Bound) error {
	ctx := x.r.Context()
	if x.g.busy != nil {
		own, err := x.g.busy.Decide(x.facts, 1, nil)
		if err != nil {
			return err
		}
		if x.permits, err = x.g.own.Enter(ctx, own.Bounds, x.permits); err != nil {
			return err
		}
	}
	if len(bounds) == 0 {
		return nil
	}
	held := len(x.permits)
	var err error
	if x.permits, err = x.g.keeper.Enter(ctx, bounds, x.permits); err != nil {
		x.leave()
		return err
	}
	if policy.Shared(bounds) {
		// The request must end when a permit is lost.
		x.r = x.r.WithContext(inprogress.Context(ctx, x.permits[held:]))
	}
	return nil
}

// leave gives the permits back.
func (x *exchange) leave() {
	inprogress.Leave(x.permits, flow.Ignore)
	clear(x.permits)
	x.permits = x.permits[:0]
}

// Adaptive returns the numbers of the gates that find limits for upstreams, by the names of the
// upstreams.
func (g *Gateway) Adaptive() map[string]flow.Stats { return g.gates.Stats() }

// Keepers returns the keepers of the bounds in force: that of the policy and that of the options.
func (g *Gateway) Keepers() []*inprogress.Keeper { return []*inprogress.Keeper{g.keeper, g.own} }

// Gates returns the numbers of the bounds in force, of the options and of the policy, by their
// names. What they refused is counted when requests are refused.
func (g *Gateway) Gates() map[string]flow.Stats {
	var all map[string]flow.Stats
	for _, s := range append(g.keeper.Stats(), g.own.Stats()...) {
		if all == nil {
			all = make(map[string]flow.Stats)
		}
		s.Stats.Rejected = s.Refused
		all[s.Rule] = s.Stats
	}
	return all
}
