package client

import (
	"cmp"
	"context"
	"time"
	"unicode/utf8"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/flow/shared"
	"github.com/headgate/headgate/store"
)

// Permits are those of one rule of the server's policy, which has in_progress with shared:
// true. They are what [shared.New] makes a gate of; see [Client.Gate]. They are safe for
// concurrent use.
//
// The keys are those of the rule, as in a check by name. The rule says how many permits
// there are and how many may wait, whatever requests say, and bounds for how long a lease
// lasts. Beside the errors that [store.Permits] names there is one that wraps
// errors.ErrUnsupported, if the server's store keeps no permits.
//
// Holders and Revoke are for admins: [Token] is to show the server's admin token.
type Permits struct {
	c    *Client
	rule string
}

var _ store.Permits = (*Permits)(nil)

// maxKeep is for how long at most servers keep a place in line.
const maxKeep = 10 * time.Second

// Permits returns the permits of the named rule. They have the client's connection, and end
// with the client.
func (c *Client) Permits(rule string) *Permits { return &Permits{c, rule} }

// Gate returns a gate over the permits of the named rule. It renews leases as long as the
// work goes on, and ends the context of a permit before its lease ends: see the package
// flow/shared. A config without a Name has the rule's. Leave Prefix and Limit out: the keys
// are those of the rule, and so is the limit. The error is a [*headgate.InvalidError]. Close
// the gate before the client.
func (c *Client) Gate(rule string, config shared.Config) (*shared.Gate, error) {
	config.Name = cmp.Or(config.Name, rule)
	config.Limit = cmp.Or(config.Limit, store.MaxPermits)
	return shared.New(c.Permits(rule), config)
}

// check returns an [*headgate.InvalidError] for names that protobuf cannot send.
func (p *Permits) check(key, holder string) error {
	var problems headgate.Problems
	for _, text := range []struct{ field, value string }{{"rule", p.rule}, {"key", key}, {"holder", holder}} {
		if !utf8.ValidString(text.value) {
			problems.Add(text.field, "the %s is not UTF-8", text.field)
		}
	}
	return problems.Err("permit")
}

// Acquire implements [store.Permits]. The request's Limit and Queue do not count.
func (p *Permits) Acquire(ctx context.Context, r store.PermitRequest) (store.PermitAnswer, error) {
	if err := p.check(r.Key, r.Holder); err != nil {
		return store.PermitAnswer{}, err
	}
	m := &headgatev1.AcquireRequest{
		Rule: p.rule, Key: r.Key, Holder: r.Holder,
		TtlMs: r.TTL.Milliseconds(), KeepMs: min(r.Wait, maxKeep).Milliseconds(),
	}
	if r.Cost != 0 {
		m.Cost = &r.Cost
	}
	answer, err := ask(ctx, p.c, "acquire", m, p.c.permits.Acquire)
	if err != nil {
		return store.PermitAnswer{}, err
	}
	a := store.PermitAnswer{
		Waiting: answer.GetWaiting(), Ahead: int(answer.GetAhead()),
		InUse: answer.GetInUse(), Line: int(answer.GetLine()), Limit: answer.GetLimit(),
	}
	if permit := answer.GetPermit(); permit != nil {
		a.Lease = lease(r.Key, permit)
	} else {
		a.Unleased = answer.GetAllowed()
	}
	return a, nil
}

// Renew implements [store.Permits].
func (p *Permits) Renew(ctx context.Context, key, holder string, epoch int64, ttl time.Duration) (store.Lease, error) {
	if err := p.check(key, holder); err != nil {
		return store.Lease{}, err
	}
	m := &headgatev1.RenewRequest{Rule: p.rule, Key: key, Holder: holder, Epoch: epoch, TtlMs: ttl.Milliseconds()}
	permit, err := ask(ctx, p.c, "renew", m, p.c.permits.Renew)
	if err != nil {
		return store.Lease{}, err
	}
	return lease(key, permit), nil
}

// Release implements [store.Permits].
func (p *Permits) Release(ctx context.Context, key, holder string, epoch int64) (bool, error) {
	if err := p.check(key, holder); err != nil {
		return false, err
	}
	m := &headgatev1.ReleaseRequest{Rule: p.rule, Key: key, Holder: holder, Epoch: epoch}
	answer, err := ask(ctx, p.c, "release", m, p.c.permits.Release)
	return answer.GetReleased(), err
}

// Holders implements [store.Permits].
func (p *Permits) Holders(ctx context.Context, key string) (store.PermitHolders, error) {
	if err := p.check(key, ""); err != nil {
		return store.PermitHolders{}, err
	}
	answer, err := ask(ctx, p.c, "holders", &headgatev1.HoldersRequest{Rule: p.rule, Key: key}, p.c.permits.Holders)
	if err != nil {
		return store.PermitHolders{}, err
	}
	var held store.PermitHolders
	for _, permit := range answer.GetPermits() {
		held.Leases = append(held.Leases, lease(key, permit))
	}
	for _, w := range answer.GetWaiting() {
		held.Waiting = append(held.Waiting, store.Ticket{Holder: w.GetHolder(), Cost: w.GetCost(), Remaining: milliseconds(w.GetExpiresInMs())})
	}
	return held, nil
}

// Revoke implements [store.Permits].
func (p *Permits) Revoke(ctx context.Context, key, holder string) (bool, error) {
	if err := p.check(key, holder); err != nil {
		return false, err
	}
	m := &headgatev1.RevokeRequest{Rule: p.rule, Key: key, Holder: holder}
	answer, err := ask(ctx, p.c, "revoke", m, p.c.permits.Revoke)
	return answer.GetRevoked(), err
}

func lease(key string, m *headgatev1.Permit) store.Lease {
	l := store.Lease{
		Key: key, Holder: m.GetHolder(), Fence: store.Fence{Epoch: m.GetEpoch(), Slots: make([]int, len(m.GetSlots()))},
		Remaining: milliseconds(m.GetExpiresInMs()), TTL: milliseconds(m.GetTtlMs()), Revoked: m.GetRevoked(),
	}
	for i, slot := range m.GetSlots() {
		l.Slots[i] = int(slot)
	}
	return l
}

// milliseconds bounds what a server says to what a lease can last.
func milliseconds(n int64) time.Duration {
	return time.Duration(min(max(n, 0), store.MaxTTL.Milliseconds())) * time.Millisecond
}
