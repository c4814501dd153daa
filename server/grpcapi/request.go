package grpcapi

import (
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// read fills in what all requests have.
func read(r *decide.Request, entries map[string]string, checks []*headgatev1.Check, cost *int64) {
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
	r.Unordered = true
}

// addEntry adds an entry. Of two with one name the later counts, as in any map of
// protobuf.
func addEntry(r *decide.Request, e policy.Entry) {
	if before := r.Entry(e.Name); before != nil {
		before.Value = e.Value
		return
	}
	r.AddEntry(e)
}

// addCheck adds a check. To protobuf an empty text is one that was left out: there is no
// rule of that name, but a key.
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

// complete says that the request has been read: one without checks is decided by its
// entries, even if there are none.
func complete(r *decide.Request) {
	if len(r.Descriptor) > 0 || r.Given&decide.GivenChecks == 0 {
		r.Given |= decide.GivenDescriptor
	}
}
