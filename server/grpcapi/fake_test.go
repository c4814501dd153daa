package grpcapi

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/models"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store/memory"
)

// rules has a rule of every kind that the API treats differently.
func rules(t testing.TB) *policy.Set {
	t.Helper()
	set, err := policy.New([]policy.Rule{
		{
			Limits: headgate.MustRule("auth.createToken", headgate.Sliding(20, time.Minute), headgate.Sliding(5, 3*time.Second)),
			Match:  []policy.Condition{policy.Equal("route", "POST /v1/token")},
			Per:    []policy.Part{{Entry: "api_key"}},
		},
		{
			Limits: headgate.MustRule("heavy", headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 10, Period: time.Second, Burst: 500_000_000}),
			Match:  []policy.Condition{policy.Prefix("route", "GET /export/")},
			Cost:   3,
		},
		{Limits: headgate.MustRule("direct", headgate.PerSecond(2)), Direct: true},
		{Limits: headgate.MustRule("wide", headgate.Per(1000, time.Hour)), Direct: true, Soft: 50},
		{
			Limits: headgate.MustRule("guesses", headgate.Per(10, time.Hour)), Direct: true,
			ChargeOn: policy.Statuses{{First: 401, Last: 401}}, Reservation: policy.Reservation{For: 7 * time.Second},
		},
		{
			Limits: headgate.MustRule("budget", headgate.Per(1000, time.Hour)),
			Match:  []policy.Condition{policy.Equal("route", "POST /v1/messages")}, Counts: models.Money,
		},
		{Limits: headgate.MustRule("watched", headgate.Per(1, time.Hour)), Direct: true, Mode: policy.ModeShadow},
	}, policy.Denied(policy.ListEntry{Name: "scanners", Match: []policy.Condition{policy.Prefix("route", "GET /wp-")}}),
		policy.Models(models.Model{Name: "m", Priced: true, Input: 1_000_000, CachedInput: 100_000, CacheWrite: 2_000_000, Output: 3_000_000}))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// epoch is when the clock of tests stands, in microseconds.
const epoch = 1_763_712_000_000_000

// backend is what the services of a test ask: a memory store whose clock stands,
// and which fails when it is told to.
type backend struct {
	headgate.Ledger
	set *policy.Set

	mu    sync.Mutex // guards what follows
	err   error
	began int           // calls of Take that have begun
	hold  chan struct{} // calls wait until it is closed
}

func newBackend(t testing.TB) *backend {
	return &backend{Ledger: memory.New(memory.Clock(func() int64 { return epoch })), set: rules(t)}
}

func (b *backend) Policy() decide.Policy {
	return decide.Policy{Set: b.set, Version: 1, Hash: "5ec2e7"}
}

func (b *backend) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	b.mu.Lock()
	b.began++
	err, hold := b.err, b.hold
	b.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return dst, ctx.Err()
		}
	}
	if err != nil {
		return dst, err
	}
	return b.Ledger.Take(ctx, op, checks, dst)
}

func (b *backend) with(change func(*backend)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b)
}

func (b *backend) decider() decide.Decider { return &decide.Over{Rules: b.Policy, Store: b} }

// calls is how many calls of Take have begun.
func (b *backend) calls() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.began
}

// waitFor waits until n calls of Take have begun.
func (b *backend) waitFor(t testing.TB, n int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); b.calls() < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d calls have begun within 30 s, want %d", b.calls(), n)
		}
	}
}

// connect serves what register registers and connects to it.
func connect(t testing.TB, register ...func(grpc.ServiceRegistrar)) *grpc.ClientConn {
	t.Helper()
	return connectWith(t, nil, register...)
}

func connectWith(t testing.TB, options []grpc.ServerOption, register ...func(grpc.ServiceRegistrar)) *grpc.ClientConn {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	server := grpc.NewServer(append(options, grpc.WaitForHandlers(true))...)
	for _, add := range register {
		add(server)
	}
	var served sync.WaitGroup
	served.Go(func() {
		if err := server.Serve(l); err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	conn, err := grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Errorf("closing the connection: %v", err)
		}
		server.Stop()
		served.Wait()
	})
	return conn
}

func serve(t testing.TB, b *backend, o Options) headgatev1.HeadgateClient {
	t.Helper()
	return headgatev1.NewHeadgateClient(connect(t, New(b.decider(), o).Register))
}

func by(rule, key string, cost ...int64) *headgatev1.Check {
	c := &headgatev1.Check{Rule: rule, Key: key}
	if len(cost) > 0 {
		c.Cost = &cost[0]
	}
	return c
}

func checking(checks ...*headgatev1.Check) *headgatev1.CheckRequest {
	return &headgatev1.CheckRequest{Checks: checks}
}

// problem is what an error says: its code, its reason and the fields.
func problem(t testing.TB, err error) (codes.Code, string, map[string]string) {
	t.Helper()
	s := status.Convert(err)
	reason, fields := "", map[string]string{}
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			reason = d.GetReason()
			if d.GetDomain() != Domain {
				t.Errorf("the domain is %q", d.GetDomain())
			}
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				fields[v.GetField()] = v.GetDescription()
			}
		}
	}
	return s.Code(), reason, fields
}

// storeOnly is a decider over a store that is no ledger.
type storeOnly struct {
	decide.Decider
	store headgate.Store
}

func (s storeOnly) Take(ctx context.Context, ask *decide.Ask, dst []headgate.Decision) ([]headgate.Decision, error) {
	return (&decide.Over{Rules: s.Policy, Store: s.store}).Take(ctx, ask, dst)
}
