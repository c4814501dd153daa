package grpcapi

import (
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/server/decide"
)

// read fills in the fields that all requests have.
func read(r *decide.Request, entries map[string]string, checks []*headgatev1.Check, cost *int64, used *headgatev1.Usage) {
	for name, value := range entries {
		r.AddEntry(policy.Entry{Name: name, Value: value})
	}
	for _, c := range checks {
		n := decide.Named{Rule: c.GetRule(), Key: c.GetKey(), Cost: c.GetCost()}
		if c.Cost != nil {
			n.Given = decide.GivenCost
		}
		addCheck(r, n)
	}
	if cost != nil {
		r.Cost = *cost
		r.Given |= decide.GivenCost
	}
	if used != nil {
		u := newUsage(used)
		r.Usage = &u
		r.Given |= decide.GivenUsage
	}
	r.Unordered = true
}

func newUsage(m *headgatev1.Usage) models.Usage {
	return models.Usage{Model: m.GetModel(), Input: m.GetInputTokens(), CachedInput: m.GetCachedInputTokens(), CacheWrite: m.GetCacheWriteTokens(), Output: m.GetOutputTokens()}
}

// addEntry adds an entry. If two entries have the same name, the later one counts, as in any
// protobuf map.
func addEntry(r *decide.Request, e policy.Entry) {
	if before := r.Entry(e.Name); before != nil {
		before.Value = e.Value
		return
	}
	r.AddEntry(e)
}

// addCheck adds a check. Protobuf does not distinguish an empty string from a missing one. So an
// empty rule is taken as missing, because no rule has that name, and an empty key as given.
func addCheck(r *decide.Request, n decide.Named) {
	n.Given |= decide.GivenKey
	if n.Rule != "" {
		n.Given |= decide.GivenRule
	}
	r.Given |= decide.GivenChecks
	r.AddCheck(n)
}

// setTerms sets the terms by which the request is remembered.
func setTerms(r *decide.Request, id string, lifetimeMS int64) {
	if r.ID = id; id != "" {
		r.Given |= decide.GivenID
	}
	if r.LifetimeMS = lifetimeMS; lifetimeMS != 0 {
		r.Given |= decide.GivenLifetime
	}
}

// complete ends the reading of a request. A request without checks is decided by its entries, even
// if there are none.
func complete(r *decide.Request) {
	if len(r.Descriptor) > 0 || r.Given&decide.GivenChecks == 0 {
		r.Given |= decide.GivenDescriptor
	}
}
