package grpcapi

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store"
)

// PermitsOptions are the settings of [Permits].
type PermitsOptions struct {
	// AdminToken is what callers of Holders and Revoke must send, as "authorization: Bearer TOKEN". If
	// it is empty, nobody may call them.
	AdminToken string
}

// Permits serves permits by the rules in force. It is safe for concurrent use; make one with
// [NewPermits].
type Permits struct {
	headgatev1.UnimplementedPermitsServer

	permits *decide.Permits
	admin   token
}

var _ headgatev1.PermitsServer = (*Permits)(nil)

// NewPermits returns a service that asks permits.
func NewPermits(permits *decide.Permits, options PermitsOptions) *Permits {
	return &Permits{permits: permits, admin: newToken(options.AdminToken)}
}

// Register adds the service to a server.
func (p *Permits) Register(r grpc.ServiceRegistrar) { headgatev1.RegisterPermitsServer(r, p) }

// admit returns an error unless the call has the admin token.
func (p *Permits) admit(ctx context.Context) error {
	if !p.admin.set {
		return newStatus(codes.PermissionDenied, ReasonToken, "nobody may ask for this here: the server has no admin token")
	}
	if !p.admin.shown(ctx) {
		return newStatus(codes.Unauthenticated, ReasonToken, "the admin token is missing or another one; send it as authorization: Bearer TOKEN")
	}
	return nil
}

// permitCall returns a call with the fields that all calls have. As in addCheck, an empty rule is
// taken as missing, and an empty key as given.
func permitCall(rule, key, holder string) *decide.PermitCall {
	c := &decide.PermitCall{Rule: rule, Key: key, Holder: holder, Given: decide.GivenKey}
	if rule != "" {
		c.Given |= decide.GivenRule
	}
	return c
}

// Acquire implements the service.
func (p *Permits) Acquire(ctx context.Context, m *headgatev1.AcquireRequest) (*headgatev1.AcquireResponse, error) {
	c := permitCall(m.GetRule(), m.GetKey(), m.GetHolder())
	c.TTLMS, c.WaitMS, c.KeepMS = m.GetTtlMs(), m.GetWaitMs(), m.GetKeepMs()
	if m.Cost != nil {
		c.Cost, c.Given = m.GetCost(), c.Given|decide.GivenCost
	}
	a, o := p.permits.Acquire(ctx, c)
	if err := statusOf(ctx, c.Faults, o); err != nil {
		return nil, err
	}
	answer := &headgatev1.AcquireResponse{
		Allowed: a.Allowed, Shadow: a.Shadow, Waiting: a.Waiting, Ahead: int32(a.Ahead),
		InUse: a.InUse, Limit: a.Limit, Line: int32(a.Line), RetryAfterMs: decide.Millis(a.RetryAfter),
	}
	if a.Open {
		answer.Source = headgate.SourceOpen.String()
	}
	if a.Granted() {
		answer.Permit = newPermit(&a.Lease)
	}
	return answer, nil
}

// Renew implements the service.
func (p *Permits) Renew(ctx context.Context, m *headgatev1.RenewRequest) (*headgatev1.Permit, error) {
	c := permitCall(m.GetRule(), m.GetKey(), m.GetHolder())
	c.Epoch, c.TTLMS = m.GetEpoch(), m.GetTtlMs()
	lease, o := p.permits.Renew(ctx, c)
	if err := statusOf(ctx, c.Faults, o); err != nil {
		return nil, err
	}
	return newPermit(&lease), nil
}

// Release implements the service.
func (p *Permits) Release(ctx context.Context, m *headgatev1.ReleaseRequest) (*headgatev1.ReleaseResponse, error) {
	c := permitCall(m.GetRule(), m.GetKey(), m.GetHolder())
	c.Epoch = m.GetEpoch()
	released, o := p.permits.Release(ctx, c)
	if err := statusOf(ctx, c.Faults, o); err != nil {
		return nil, err
	}
	return &headgatev1.ReleaseResponse{Released: released}, nil
}

// Holders implements the service.
func (p *Permits) Holders(ctx context.Context, m *headgatev1.HoldersRequest) (*headgatev1.HoldersResponse, error) {
	if err := p.admit(ctx); err != nil {
		return nil, err
	}
	c := permitCall(m.GetRule(), m.GetKey(), "")
	held, limit, o := p.permits.Holders(ctx, c)
	if err := statusOf(ctx, c.Faults, o); err != nil {
		return nil, err
	}
	answer := &headgatev1.HoldersResponse{InUse: held.InUse(), Limit: limit}
	for i := range held.Leases {
		answer.Permits = append(answer.Permits, newPermit(&held.Leases[i]))
	}
	for i := range held.Waiting {
		t := &held.Waiting[i]
		answer.Waiting = append(answer.Waiting, &headgatev1.WaitingHolder{Holder: t.Holder, Cost: t.Cost, ExpiresInMs: t.Remaining.Milliseconds()})
	}
	return answer, nil
}

// Revoke implements the service.
func (p *Permits) Revoke(ctx context.Context, m *headgatev1.RevokeRequest) (*headgatev1.RevokeResponse, error) {
	if err := p.admit(ctx); err != nil {
		return nil, err
	}
	c := permitCall(m.GetRule(), m.GetKey(), m.GetHolder())
	if from, ok := peer.FromContext(ctx); ok {
		c.From = from.Addr.String()
	}
	revoked, o := p.permits.Revoke(ctx, c)
	if err := statusOf(ctx, c.Faults, o); err != nil {
		return nil, err
	}
	return &headgatev1.RevokeResponse{Revoked: revoked}, nil
}

func newPermit(l *store.Lease) *headgatev1.Permit {
	m := &headgatev1.Permit{
		Holder: l.Holder, Epoch: l.Epoch, Slots: make([]int32, len(l.Slots)),
		// Rounded down, so that a renewal within this time is not too late.
		ExpiresInMs: l.Remaining.Milliseconds(), TtlMs: l.TTL.Milliseconds(), Revoked: l.Revoked,
	}
	for i, slot := range l.Slots {
		m.Slots[i] = int32(slot)
	}
	return m
}
