package grpcapi_test

import (
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/grpcapi"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// serveAll serves both services over the store and returns where.
func serveAll(t testing.TB, store headgate.Store, o grpcapi.Options) string {
	t.Helper()
	set, err := policy.New([]policy.Rule{{Limits: headgate.MustRule("wide", headgate.Per(1_000_000, time.Hour)), Direct: true}})
	if err != nil {
		t.Fatal(err)
	}
	decider := &decide.Over{Rules: func() decide.Policy { return decide.Policy{Set: set, Version: 1} }, Store: store}
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	grpcapi.New(decider, o).Register(server)
	grpcapi.NewStore(decider, grpcapi.StoreOptions{Options: o}).Register(server)
	var served sync.WaitGroup
	served.Go(func() {
		if err := server.Serve(l); err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	t.Cleanup(func() {
		server.Stop()
		served.Wait()
	})
	return l.Addr().String()
}

func dial(t testing.TB, addr string, options ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New("passthrough:///"+addr, append([]client.Option{client.WithoutTLS(), client.WithTimeout(30 * time.Second)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return c
}

// ways are the ways in which a client reaches a server.
var ways = map[string]struct {
	client client.Option
	server grpcapi.Options
}{
	"calls":                  {client.WithoutStreams(), grpcapi.Options{}},
	"a stream, in turn":      {client.WithStreamFrom(1), grpcapi.Options{}},
	"a stream, side by side": {client.WithStreamFrom(1), grpcapi.Options{SideBySide: true}},
}

// TestConformance holds a server over gRPC, and the library's client for it, to what
// every store is held to.
func TestConformance(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t testing.TB, clock func() int64) headgate.Store {
				return dial(t, serveAll(t, memory.New(memory.WithClock(clock)), way.server), way.client).Store()
			})
		})
	}
}

// TestHistories: random requests, those that are remembered and settled among them,
// get the answers that the model and the oracle have.
func TestHistories(t *testing.T) {
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Histories(t, func(t testing.TB, clock func() int64) headgate.Store {
				return dial(t, serveAll(t, memory.New(memory.WithClock(clock)), way.server), way.client).Store()
			}, 6, 15, 80)
		})
	}
}
