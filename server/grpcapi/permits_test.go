package grpcapi

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/shared"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

const permitToken = "open-sesame"

// permitServer gives permits from memory, until it is stopped.
type permitServer struct {
	*memory.Store

	listener *bufconn.Listener
	stop     func()
}

func newPermitServer(t *testing.T) *permitServer {
	t.Helper()
	tenant := []policy.Part{{Entry: "tenant"}}
	set, err := policy.New([]policy.Rule{
		{Name: "report", Per: tenant, InProgress: &policy.InProgress{Limit: 2, Shared: true, TTL: 6 * time.Second, Wait: time.Minute}},
		{Name: "hasty", InProgress: &policy.InProgress{Limit: 1, Shared: true}},
		{Name: "shadow", Mode: policy.ModeShadow, InProgress: &policy.InProgress{Limit: 1, Shared: true}},
		{Limits: headgate.MustRule("rate", headgate.PerSecond(1)), Direct: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &permitServer{Store: memory.New(), listener: bufconn.Listen(1 << 20)}
	permits := &decide.Permits{Rules: func() decide.Policy { return decide.Policy{Set: set, Version: 1} }, Store: s.Store}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	NewPermits(permits, PermitsOptions{AdminToken: permitToken}).Register(server)
	var served sync.WaitGroup
	served.Go(func() {
		if err := server.Serve(s.listener); err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	s.stop = sync.OnceFunc(func() {
		server.Stop()
		served.Wait()
	})
	t.Cleanup(s.stop)
	return s
}

func (s *permitServer) dial(t *testing.T, options ...client.Option) *client.Client {
	t.Helper()
	options = append(options, client.Plaintext(), client.Timeout(10*time.Second),
		client.DialOptions(grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.listener.DialContext(ctx) })))
	c, err := client.New("passthrough:///test", options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Every call and every refusal, as the client has them.
func TestPermitCalls(t *testing.T) {
	t.Parallel()
	s := newPermitServer(t)
	reports := s.dial(t).Permits("report")
	ask := func(holder string, cost int64) store.PermitRequest {
		return store.PermitRequest{Key: "k", Holder: holder, Cost: cost, TTL: time.Hour}
	}
	first, err := reports.Acquire(t.Context(), ask("a", 0))
	if err != nil || !first.Granted() || first.Limit != 2 || first.InUse != 1 || first.Lease.TTL != 6*time.Second || first.Lease.Holder != "a" || first.Lease.Key != "k" {
		t.Fatalf("%+v, %v", first, err)
	}
	if again, err := reports.Acquire(t.Context(), ask("a", 1)); err != nil || again.Lease.Epoch != first.Lease.Epoch {
		t.Errorf("again: %+v, %v", again, err)
	}
	if none, err := reports.Acquire(t.Context(), ask("b", 2)); err != nil || none.Granted() || none.Waiting || none.InUse != 1 {
		t.Errorf("two more: %+v, %v", none, err)
	}
	waiting := ask("b", 2)
	waiting.Wait = time.Hour // longer than a server keeps it
	if placed, err := reports.Acquire(t.Context(), waiting); err != nil || placed.Granted() || !placed.Waiting || placed.Line != 1 {
		t.Errorf("with a place: %+v, %v", placed, err)
	}
	if l, err := reports.Renew(t.Context(), "k", "a", first.Lease.Epoch, time.Second); err != nil || l.Epoch != first.Lease.Epoch || l.TTL != time.Second || l.Remaining > time.Second {
		t.Errorf("renewed: %+v, %v", l, err)
	}
	admin := s.dial(t, client.Token(permitToken)).Permits("report")
	if held, err := admin.Holders(t.Context(), "k"); err != nil || len(held.Leases) != 1 || held.Leases[0].Holder != "a" || len(held.Waiting) != 1 || held.Waiting[0].Holder != "b" || held.Waiting[0].Cost != 2 {
		t.Errorf("holders: %+v, %v", held, err)
	}
	for holder, want := range map[string]bool{"a": true, "nobody": false} {
		if revoked, err := admin.Revoke(t.Context(), "k", holder); err != nil || revoked != want {
			t.Errorf("revoked %s: %v, %v", holder, revoked, err)
		}
	}
	for _, c := range []struct {
		name string
		call func() error
		want error
	}{
		{"renew what was revoked", func() error {
			_, err := reports.Renew(t.Context(), "k", "a", first.Lease.Epoch, time.Second)
			return err
		}, store.ErrRevoked},
		{"renew what is not held", func() error {
			_, err := reports.Renew(t.Context(), "k", "a", 1, time.Second)
			return err
		}, store.ErrNotHeld},
		{"another cost", func() error { _, err := reports.Acquire(t.Context(), ask("b", 1)); return err }, store.ErrOtherCost},
		{"too large", func() error { _, err := reports.Acquire(t.Context(), ask("c", 3)); return err }, store.ErrTooLarge},
		{"no such rule", func() error {
			_, err := s.dial(t).Permits("x").Acquire(t.Context(), ask("a", 1))
			return err
		}, headgate.ErrInvalid},
		{"a rule without a bound", func() error {
			_, err := s.dial(t).Permits("rate").Acquire(t.Context(), ask("a", 1))
			return err
		}, headgate.ErrInvalid},
		{"no holder", func() error { _, err := reports.Acquire(t.Context(), ask("", 1)); return err }, headgate.ErrInvalid},
		{"not UTF-8", func() error { _, err := reports.Release(t.Context(), "k\xff", "a", 0); return err }, headgate.ErrInvalid},
		{"holders without the token", func() error { _, err := reports.Holders(t.Context(), "k"); return err }, headgate.ErrUnavailable},
		{"revoke with another token", func() error {
			_, err := s.dial(t, client.Token("geheim")).Permits("report").Revoke(t.Context(), "k", "a")
			return err
		}, headgate.ErrUnavailable},
	} {
		if err := c.call(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	_, err = reports.Acquire(t.Context(), ask("c", 3))
	if large, ok := errors.AsType[*store.TooLargeError](err); !ok || large.Cost != 3 || large.Limit != 2 {
		t.Errorf("too large: %v", err)
	}
	for i, want := range []bool{true, false} {
		if released, err := reports.Release(t.Context(), "k", "a", first.Lease.Epoch); err != nil || released != want {
			t.Errorf("release %d: %v, %v", i+1, released, err)
		}
	}
	// In shadow the work begins without a lease.
	shadow := s.dial(t).Permits("shadow")
	for i, holder := range []string{"a", "b"} {
		r := store.PermitRequest{Holder: holder, TTL: time.Minute}
		if a, err := shadow.Acquire(t.Context(), r); err != nil || a.Granted() != (i == 0) || a.Unleased != (i == 1) {
			t.Errorf("in shadow, %s: %+v, %v", holder, a, err)
		}
	}
}

func TestPermitStatuses(t *testing.T) {
	t.Parallel()
	none := headgatev1.NewPermitsClient(connect(t, NewPermits(nil, PermitsOptions{}).Register))
	_, err := none.Acquire(t.Context(), &headgatev1.AcquireRequest{Rule: "r", Holder: "h"})
	if code, reason, _ := problem(t, err); code != codes.Unimplemented || reason != ReasonNoPermits {
		t.Errorf("without permits: %v", err)
	}
	_, err = none.Holders(t.Context(), &headgatev1.HoldersRequest{Rule: "r"})
	if code, reason, _ := problem(t, err); code != codes.PermissionDenied || reason != ReasonToken {
		t.Errorf("without an admin token: %v", err)
	}
	s := newPermitServer(t)
	conn, err := grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return s.listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	api := headgatev1.NewPermitsClient(conn)
	_, err = api.Acquire(t.Context(), &headgatev1.AcquireRequest{Rule: "hasty", Key: "k", TtlMs: 1, WaitMs: -1, KeepMs: 99})
	code, reason, fields := problem(t, err)
	if code != codes.InvalidArgument || reason != ReasonInvalid || len(fields) != 4 {
		t.Errorf("mistakes: %v, %v", err, fields)
	}
	// A call that may wait is answered before its deadline, with what there is.
	if a, err := api.Acquire(t.Context(), &headgatev1.AcquireRequest{Rule: "hasty", Holder: "a"}); err != nil || !a.GetAllowed() || a.GetPermit().GetEpoch() == 0 {
		t.Fatalf("%v, %v", a, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, err := api.Acquire(ctx, &headgatev1.AcquireRequest{Rule: "hasty", Holder: "b", WaitMs: 600_000})
	if err != nil || a.GetAllowed() || a.GetWaiting() || a.GetInUse() != 1 || a.GetLimit() != 1 || a.GetRetryAfterMs() != 1000 {
		t.Errorf("a rule that lets nobody wait: %v, %v", a, err)
	}
}

// A gate over the service keeps its permits as long as the work goes on, whatever its own
// TTL is; who waits gets the next one; and the context of a permit that was revoked, or
// cannot be renewed, ends before the lease does.
func TestPermitGate(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		s := newPermitServer(t)
		c := s.dial(t)
		gate, err := c.Gate("report", shared.Config{Queue: 10, MaxWait: time.Minute, Owner: "test"})
		if err != nil {
			t.Fatal(err)
		}
		request := flow.Request{Key: "k"}
		var held []flow.Permit
		var contexts []context.Context
		for range 2 {
			permit, err := gate.Acquire(t.Context(), request)
			if err != nil {
				t.Fatal(err)
			}
			held, contexts = append(held, permit), append(contexts, permit.Context(t.Context()))
		}
		fence, err := shared.FenceOf(contexts[0])
		if err != nil || fence.Epoch == 0 || len(fence.Slots) != 1 {
			t.Errorf("the fence is %v, %v", fence, err)
		}
		_, err = gate.TryAcquire(t.Context(), request)
		if rejection, ok := errors.AsType[*flow.Rejection](err); !ok || rejection.Limit != 2 || rejection.InUse != 2 {
			t.Errorf("a third: %v", err)
		}
		_, err = gate.Acquire(t.Context(), flow.Request{Key: "k", Cost: 3})
		if rejection, ok := errors.AsType[*flow.Rejection](err); !ok || rejection.Reason != flow.ReasonTooLarge || rejection.Limit != 2 {
			t.Errorf("too large: %v", err)
		}
		time.Sleep(5 * time.Minute) // many times the rule's ttl
		if contexts[0].Err() != nil || contexts[1].Err() != nil || gate.Stats().Lost != 0 || gate.Stats().Renewed < 100 {
			t.Fatalf("after five minutes: %+v", gate.Stats())
		}

		// Who waits gets what is given back.
		next := make(chan flow.Permit, 1)
		go func() {
			permit, err := gate.Acquire(t.Context(), request)
			if err != nil {
				t.Error(err)
			}
			next <- permit
		}()
		time.Sleep(time.Second)
		held[0].Done(flow.Success)
		held[0] = <-next
		contexts[0] = held[0].Context(t.Context())

		// An admin revokes one, whose holder learns of it when it renews.
		listed, err := s.Holders(t.Context(), "report k")
		if err != nil || len(listed.Leases) != 2 {
			t.Fatal(listed, err)
		}
		admin := s.dial(t, client.Token(permitToken)).Permits("report")
		if revoked, err := admin.Revoke(t.Context(), "k", listed.Leases[0].Holder); !revoked || err != nil {
			t.Fatal(revoked, err)
		}
		time.Sleep(2*time.Second + time.Second/2)
		ended := 0
		for _, ctx := range contexts {
			if ctx.Err() != nil {
				ended++
				if !errors.Is(context.Cause(ctx), store.ErrRevoked) {
					t.Errorf("the context ended with %v", context.Cause(ctx))
				}
			}
		}
		if ended != 1 {
			t.Errorf("%d contexts have ended after one was revoked", ended)
		}

		// The server goes: the other permit is lost before its lease ends.
		s.stop()
		time.Sleep(6*time.Second - 600*time.Millisecond)
		for _, ctx := range contexts {
			if !errors.Is(context.Cause(ctx), shared.ErrLost) {
				t.Errorf("without a server the context has %v", context.Cause(ctx))
			}
		}
		for _, permit := range held {
			permit.Done(flow.Ignore)
		}
		gone, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := gate.Close(gone); err != nil {
			t.Error(err)
		}
	})
}
