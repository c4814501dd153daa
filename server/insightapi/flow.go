package insightapi

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/telemetry/insight"
)

// FlowReport is the answer to GET flow, for all instances together.
type FlowReport struct {
	FlowPart
	// Consumers are the consumers of queues in other programs. Programs are these programs.
	Consumers []Consumer `json:"consumers"`
	Programs  []Instance `json:"programs"`
	Instances []Instance `json:"instances"`
}

// FlowPart is what one instance knows about what is in progress.
type FlowPart struct {
	Gates []Gate `json:"gates"`
	// Permits are the keys with permits in use, those that use the largest part of their limit first.
	// MoreKeys is the number of further keys. It may be too high, because several instances may count
	// the same key of a shared store.
	Permits  []PermitUse `json:"permits"`
	MoreKeys int64       `json:"more_keys"`
	// Unlisted says that there were too many keys, so that some are neither listed nor counted.
	Unlisted bool `json:"unlisted,omitempty"`
}

// Gate is the state of a gate, which bounds how much is in progress.
type Gate struct {
	Instance string `json:"instance"`
	Name     string `json:"name"`
	// Kind is "permits", "shared permits" (Held then counts those of this instance) or "adaptive"
	// (Limit then follows what an upstream can take).
	Kind string `json:"kind"`
	// Limit is the number of permits for each key, Held the number that all keys hold together, and
	// Keys the number of keys that hold any.
	Limit int64 `json:"limit"`
	Held  int64 `json:"held"`
	Keys  int64 `json:"keys"`
	// Waiting is the number of requests that wait for a permit, and Rejected how many were rejected.
	Waiting  int64 `json:"waiting"`
	Rejected int64 `json:"rejected"`
}

// Use is one key with permits in use, as this process knows it.
type Use struct {
	Rule, Key string
	// Shared says that the permits are in the store, which has those of all processes.
	Shared         bool
	Limit          int64
	InUse, Waiting int64
}

// PermitUse is the use of the permits of one key.
type PermitUse struct {
	// Instance is the name of the instance that has the permits, or "" for the store that the
	// instances share.
	Instance string       `json:"instance"`
	Rule     string       `json:"rule"`
	Key      insight.Name `json:"key"`
	// Shared says that the permits have holders. Otherwise they belong to requests in progress in one
	// instance.
	Shared bool `json:"shared"`
	// Limit is the limit in units, or zero if it is not known. InUse is the number of units in use,
	// and Waiting the number of holders that wait.
	Limit   int64 `json:"limit"`
	InUse   int64 `json:"in_use"`
	Waiting int64 `json:"waiting"`
	// Holders hold the units, those that have held them longest first. Waiters wait in line, in its
	// order. MoreHolders and MoreWaiters are the numbers of further ones.
	Holders     []PermitHolder `json:"holders"`
	MoreHolders int            `json:"more_holders"`
	Waiters     []PermitWaiter `json:"waiters"`
	MoreWaiters int            `json:"more_waiters"`
	// Error says why the holders are not known.
	Error string `json:"error,omitempty"`
}

// PermitHolder is the holder of a permit.
type PermitHolder struct {
	Holder insight.Name `json:"holder"`
	Units  int64        `json:"units"`
	// Since is when the permit was acquired, in milliseconds since 1970 on the store's clock.
	// ExpiresInMS is how long it lasts unless it is renewed, in milliseconds.
	Since       int64 `json:"since"`
	ExpiresInMS int64 `json:"expires_in_ms"`
	// Revoked says that the permit cannot be renewed.
	Revoked bool `json:"revoked"`
}

// PermitWaiter is a holder with a place in line.
type PermitWaiter struct {
	Holder      insight.Name `json:"holder"`
	Units       int64        `json:"units"`
	ExpiresInMS int64        `json:"expires_in_ms"`
}

const (
	// askedKeys is the maximum number of keys whose holders the store is asked for. shownHolders is
	// the maximum number of holders, and of waiters, that are shown for one key.
	askedKeys    = 256
	shownHolders = 20
	// heldWithin is how long an instance may take to ask the store.
	heldWithin = time.Second
)

func (h *Handler) flow(q *query) (any, *failure) {
	own := h.flowPart(q)
	parts, instances := ask[FlowPart](h, q)
	for _, p := range parts {
		own.merge(p)
	}
	slices.SortFunc(own.Permits, fuller)
	if n := len(own.Permits); n > q.limit && !q.local {
		own.Permits, own.MoreKeys = own.Permits[:q.limit], own.MoreKeys+int64(n-q.limit)
	}
	return h.whole(q, own, func() any {
		out := FlowReport{FlowPart: own, Instances: instances, Consumers: []Consumer{}, Programs: []Instance{}}
		if h.o.Consumers != nil {
			out.Consumers, out.Programs = h.o.Consumers.Ask(q.ctx)
		}
		return out
	})
}

// merge adds what another instance knows. Both may know the same permits of a shared store; these
// are listed once.
func (f *FlowPart) merge(o FlowPart) {
	f.Gates = append(f.Gates, o.Gates...)
	f.MoreKeys, f.Unlisted = f.MoreKeys+o.MoreKeys, f.Unlisted || o.Unlisted
	for _, p := range o.Permits {
		at := slices.IndexFunc(f.Permits, func(own PermitUse) bool {
			return own.Instance == p.Instance && own.Rule == p.Rule && own.Key.Raw == p.Key.Raw
		})
		switch {
		case at < 0:
			f.Permits = append(f.Permits, p)
		case f.Permits[at].Error != "":
			f.Permits[at] = p
		}
	}
}

// fuller orders by the used part of the limit, then by the number that waits, then by the units in
// use.
func fuller(a, b PermitUse) int {
	full := func(p PermitUse) int64 { return p.InUse * 1000 / max(p.Limit, p.InUse, 1) }
	return cmp.Or(
		cmp.Compare(full(b), full(a)), cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.InUse, a.InUse),
		strings.Compare(a.Rule, b.Rule), strings.Compare(a.Key.Raw, b.Key.Raw), strings.Compare(a.Instance, b.Instance),
	)
}

// flowPart returns what this instance knows.
func (h *Handler) flowPart(q *query) FlowPart {
	f := FlowPart{Gates: []Gate{}, Permits: []PermitUse{}}
	if h.o.Gates != nil {
		f.Gates = append(f.Gates, h.o.Gates()...)
	}
	for i := range f.Gates {
		f.Gates[i].Instance = h.o.Name
	}
	var shared []decide.PermitKey
	if h.o.Uses != nil {
		var uses []Use
		uses, f.MoreKeys = h.o.Uses(askedKeys)
		for _, u := range uses {
			if u.Shared {
				shared = append(shared, decide.PermitKey{Rule: u.Rule, Key: u.Key})
				continue
			}
			f.Permits = append(f.Permits, PermitUse{
				Instance: h.o.Name, Rule: u.Rule, Key: insight.Name{Raw: u.Key}, Limit: u.Limit, InUse: u.InUse, Waiting: u.Waiting,
				Holders: []PermitHolder{}, Waiters: []PermitWaiter{},
			})
		}
	}
	h.addHeld(q.ctx, &f, shared)
	return f
}

// addHeld asks the store who holds the permits of the given keys, and of the keys that callers have
// acquired or renewed permits for lately.
func (h *Handler) addHeld(ctx context.Context, f *FlowPart, keys []decide.PermitKey) {
	if h.o.Permits == nil || h.o.Permits.Store == nil {
		return
	}
	p := h.o.Policy()
	rules := p.Rules()
	for i := range rules {
		// The key of a rule with one counter for all is known, and other processes may hold its permits.
		if r := &rules[i]; r.InProgress != nil && r.InProgress.Shared && len(r.Per) == 0 {
			keys = append(keys, decide.PermitKey{Rule: r.Name})
		}
	}
	recent, all := h.o.Permits.Recent()
	keys = append(keys, recent...)
	f.Unlisted = !all
	ctx, cancel := context.WithTimeout(ctx, heldWithin)
	defer cancel()
	known, failed := make(map[decide.PermitKey]bool, len(keys)), ""
	for _, key := range keys {
		if known[key] {
			continue
		}
		if known[key] = true; len(known) > askedKeys {
			f.MoreKeys++
			continue
		}
		var held store.PermitHolders
		if failed == "" {
			var err error
			if held, err = h.o.Permits.HoldersOf(ctx, key); errors.Is(err, headgate.ErrUnavailable) || ctx.Err() != nil {
				failed = "the store did not answer in time" // The store is not asked for the other keys.
			} else if err != nil {
				f.Permits = append(f.Permits, h.permitUse(p, key, &held, errtext.Text(err)))
				continue
			}
		}
		if failed != "" || len(held.Leases) > 0 || len(held.Waiting) > 0 {
			f.Permits = append(f.Permits, h.permitUse(p, key, &held, failed))
		}
	}
}

func (h *Handler) permitUse(p decide.Policy, of decide.PermitKey, held *store.PermitHolders, failed string) PermitUse {
	d, hashed := p.Set.KeyEntries(of.Rule, of.Key)
	u := PermitUse{
		Rule: of.Rule, Key: insight.Name{Raw: of.Key}, Shared: true, Limit: p.Set.PermitLimit(of.Rule, d, hashed...),
		InUse: held.InUse(), Waiting: int64(len(held.Waiting)), Holders: []PermitHolder{}, Waiters: []PermitWaiter{}, Error: failed,
	}
	if h.o.OwnPermits {
		u.Instance = h.o.Name
	}
	slices.SortFunc(held.Leases, func(a, b store.Lease) int {
		return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), strings.Compare(a.Holder, b.Holder))
	})
	for _, l := range held.Leases[:min(len(held.Leases), shownHolders)] {
		// An epoch is the store's clock in microseconds when the permit was acquired.
		u.Holders = append(u.Holders, PermitHolder{insight.Name{Raw: l.Holder}, l.Cost(), l.Epoch / 1000, l.Remaining.Milliseconds(), l.Revoked})
	}
	for _, t := range held.Waiting[:min(len(held.Waiting), shownHolders)] {
		u.Waiters = append(u.Waiters, PermitWaiter{insight.Name{Raw: t.Holder}, t.Cost, t.Remaining.Milliseconds()})
	}
	u.MoreHolders, u.MoreWaiters = len(held.Leases)-len(u.Holders), len(held.Waiting)-len(u.Waiters)
	return u
}

// revoke forbids the renewal of a permit. As a safeguard, the caller must repeat the name of the
// rule in "confirm".
func (h *Handler) revoke(q *query) (any, *failure) {
	var body struct {
		Rule    string `json:"rule"`
		Key     string `json:"key"`
		Holder  string `json:"holder"`
		Confirm string `json:"confirm"`
	}
	if err := q.decode(&body); err != nil {
		return nil, wrong(http.StatusBadRequest, "the body must be an object with rule, key and holder (their ids) and confirm")
	}
	rule, key, problem := h.keyOf(body.Rule, body.Key)
	if problem != nil {
		return nil, problem
	}
	holder, err := insight.ParseID(body.Holder)
	switch {
	case err != nil || len(holder.Raw) < 1 || len(holder.Raw) > store.MaxHolder:
		return nil, wrong(http.StatusBadRequest, "holder must be the id of a holder")
	case rule.InProgress == nil || !rule.InProgress.Shared:
		return nil, wrong(http.StatusUnprocessableEntity, "the rule has no permits with holders")
	case body.Confirm != rule.Name:
		return nil, wrong(http.StatusUnprocessableEntity, "confirm must repeat the name of the rule: the holder cannot renew its permit after that")
	}
	ctx, cancel := context.WithTimeout(q.ctx, stateWithin)
	defer cancel()
	revoked, err := h.o.Permits.RevokeOf(ctx, decide.PermitKey{Rule: rule.Name, Key: key.Raw}, holder.Raw, q.r.RemoteAddr)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return nil, wrong(http.StatusUnprocessableEntity, errtext.Text(err))
	case err != nil:
		return nil, wrong(http.StatusServiceUnavailable, decide.Fail(ctx, err).Text())
	}
	return struct {
		Revoked bool `json:"revoked"`
	}{revoked}, nil
}
