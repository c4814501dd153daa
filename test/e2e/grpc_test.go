package e2e

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/test/servers"
)

const grpcPolicy = `
rules:
  - name: mail
    per: [user]
    limits: [5 per 300d]
`

// serveGRPC starts a server that speaks gRPC and takes rules from callers, and
// returns a client of it.
func serveGRPC(t *testing.T, options []client.Option, args ...string) (*server, *client.Client) {
	t.Helper()
	s := serve(t, append([]string{"--config", policyFile(t, grpcPolicy), "--grpc-listen", "127.0.0.1:0", "--grpc-store"}, args...)...)
	c, err := client.New(grpcAddress(t, s), append([]client.Option{client.Plaintext(), client.Timeout(client.MaxTimeout)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return s, c
}

// TestGRPCShared: two servers over one Redis, each asked over a stream with its
// requests decided side by side, admit exactly the limit between them: by the
// policy's rule and by one that the callers bring.
func TestGRPCShared(t *testing.T) {
	servers.Each(t, func(t *testing.T, redis *servers.Server) {
		rule := headgate.MustRule("own", headgate.Sliding(500, 24*time.Hour))
		var admitted, byPolicy atomic.Int64
		var all sync.WaitGroup
		var running []*server
		for range 2 {
			s, c := serveGRPC(t, []client.Option{client.StreamFrom(1)}, "--store", patiently(redis.URL()), "--store-timeout", "30s")
			running = append(running, s)
			limiter := headgate.New(c.Store(), rule)
			for range 16 {
				all.Go(func() {
					for range 20 {
						d, err := limiter.Allow(t.Context(), "k")
						if err != nil {
							t.Error(err)
							return
						}
						if d.Allowed {
							admitted.Add(1)
						}
					}
					v, err := c.Check(t.Context(), &headgatev1.CheckRequest{Entries: map[string]string{"user": "ann"}})
					if err != nil {
						t.Error(err)
						return
					}
					if v.GetAllowed() {
						byPolicy.Add(1)
					}
				})
			}
		}
		all.Wait()
		if admitted.Load() != 500 || byPolicy.Load() != 5 {
			t.Errorf("%d of 640 were admitted by the callers' rule, want 500, and %d of 32 by the policy's, want 5", admitted.Load(), byPolicy.Load())
		}
		for _, s := range running {
			if code := s.stop(t); code != 0 {
				t.Errorf("a server with streams open ended with %d:\n%s", code, s.logged())
			}
		}
	})
}

// TestGRPCReservation: what one server has reserved, another one settles.
func TestGRPCReservation(t *testing.T) {
	servers.Each(t, func(t *testing.T, redis *servers.Server) {
		_, first := serveGRPC(t, nil, "--store", patiently(redis.URL()), "--store-timeout", "30s")
		_, second := serveGRPC(t, nil, "--store", patiently(redis.URL()), "--store-timeout", "30s")
		r, err := first.Reserve(t.Context(), &headgatev1.ReserveRequest{Entries: map[string]string{"user": "ann"}, Cost: pointer(4)})
		if err != nil || !r.GetVerdict().GetAllowed() {
			t.Fatalf("%v, %v", r, err)
		}
		for range 2 {
			v, err := second.Settle(t.Context(), &headgatev1.SettleRequest{Reservation: r.GetReservation(), Cost: pointer(1)})
			if err != nil || v.GetDecisions()[0].GetRemaining() != 4 {
				t.Errorf("%v, %v", v, err)
			}
		}
		if _, err := second.Cancel(t.Context(), "nobody's"); !errors.Is(err, headgate.ErrNoReservation) {
			t.Errorf("no reservation: %v", err)
		}
		// The same for rules of the callers' own.
		rule := headgate.MustRule("own", headgate.Per(10, 300*24*time.Hour))
		made, _, err := first.Store().Reserve(t.Context(), headgate.Terms{ID: "job-1"}, []headgate.Check{{Rule: rule, Key: "\xff\x00", Cost: 7}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		found, err := second.Store().Recall(t.Context(), made.ID)
		if err != nil || len(found.Checks) != 1 || found.Checks[0].Key != "\xff\x00" || found.Expires != made.Expires {
			t.Fatalf("found %+v, %v; made %+v", found, err, made)
		}
		if d, err := second.Store().Settle(t.Context(), found, []int64{2}, nil); err != nil || d[0].Remaining != 8 {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

func pointer(n int64) *int64 { return &n }
