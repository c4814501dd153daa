// Command service is a gRPC service that limits its callers: each API key may make
// 3 calls in any 10 seconds, unless -limit says otherwise. Several of it share their limits if each is told of the same
// Headgate server.
//
//	go run ./examples/grpc/service
//	go run ./examples/grpc/service -headgate 127.0.0.1:9090
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/grpclimit"
	"github.com/headgate/headgate/store/memory"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9100", "`address` to listen at")
	server := flag.String("headgate", "", "`address` of a Headgate server with --grpc-store; none counts in this process")
	limit := flag.String("limit", "3 per 10s", "the `limit` of each API key")
	timeout := flag.Duration("timeout", client.DefaultTimeout, "how long the server may take to decide; without its answer a call is let in")
	flag.Parse()
	if err := run(*listen, *server, *limit, *timeout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(listen, server, limit string, timeout time.Duration) error {
	var store headgate.Store = memory.New()
	if server != "" {
		c, err := client.New(server, client.Plaintext(), client.Timeout(timeout))
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		store = c.Store()
	}
	parsed, err := headgate.ParseLimit(headgate.SlidingWindow, limit)
	if err != nil {
		return err
	}
	rule, err := headgate.NewRule("client", parsed)
	if err != nil {
		return err
	}
	limited, err := grpclimit.NewServer(store, grpclimit.Limit(grpclimit.ByAPIKey(), rule))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println("listening at " + listener.Addr().String())
	g := grpc.NewServer(limited.Options()...)
	testpb.RegisterTestServiceServer(g, service{})
	return g.Serve(listener)
}

// service is what there is to be limited.
type service struct {
	testpb.UnimplementedTestServiceServer
}

// EmptyCall does the work.
func (service) EmptyCall(context.Context, *testpb.Empty) (*testpb.Empty, error) {
	return new(testpb.Empty), nil
}
