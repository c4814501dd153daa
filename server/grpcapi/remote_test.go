package grpcapi

import (
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/race"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// serveAll serves both services over the store and returns where.
func serveAll(t testing.TB, store headgate.Store, o Options) string {
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
	New(decider, o).Register(server)
	NewStore(decider, StoreOptions{Options: o}).Register(server)
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
	c, err := client.New("passthrough:///"+addr, append([]client.Option{client.Plaintext(), client.Timeout(30 * time.Second)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	// Calls fail at once while a connection is slow to come about.
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		if err := c.Ping(t.Context()); err == nil {
			return c
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// ways are the ways in which a client reaches a server.
var ways = map[string]struct {
	client client.Option
	server Options
}{
	"calls":                  {client.NoStreams(), Options{}},
	"a stream, in turn":      {client.StreamFrom(1), Options{}},
	"a stream, side by side": {client.StreamFrom(1), Options{SideBySide: true}},
}

// eachPath runs a test for each of the ways: under the race detector for the one that has
// goroutines to race, and without it for the others.
func eachPath(t *testing.T, run func(t *testing.T, mk storetest.Maker)) {
	for name, way := range ways {
		if race.Enabled != way.server.SideBySide {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, func(t testing.TB, clock func() int64) headgate.Store {
				return dial(t, serveAll(t, memory.New(memory.Clock(clock)), way.server), way.client).Store()
			})
		})
	}
}

// TestConformance holds a server over gRPC, and the library's client for it, to what
// every store is held to.
func TestConformance(t *testing.T) { eachPath(t, storetest.Run) }

// TestHistories: random requests, those that are remembered and settled among them,
// get the answers that the model and the oracle have.
func TestHistories(t *testing.T) {
	eachPath(t, func(t *testing.T, mk storetest.Maker) { storetest.Histories(t, mk, 6, 15, 80) })
}
