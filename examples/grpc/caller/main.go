// Command caller makes calls to the service and keeps to what that says: a call that
// is refused is made again when the service wants it, if that is soon.
//
//	go run ./examples/grpc/caller -calls 5 -wait 20s
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/grpclimit"
)

func main() {
	address := flag.String("service", "127.0.0.1:9100", "`address` of the service")
	key := flag.String("key", "k1", "API `key`")
	calls := flag.Int("calls", 5, "how many `calls` to make")
	wait := flag.Duration("wait", 0, "how long a call may wait")
	flag.Parse()
	if err := run(*address, *key, *calls, *wait); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(address, key string, calls int, wait time.Duration) error {
	limit, err := grpclimit.NewClient(nil, grpclimit.MaxWait(wait), grpclimit.Retries(1))
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(address, append(limit.Options(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	api := testpb.NewTestServiceClient(conn)
	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-api-key", key)
	for i := range calls {
		var header metadata.MD
		_, err := api.EmptyCall(ctx, new(testpb.Empty), grpc.Header(&header))
		left := header.Get("x-ratelimit-remaining")
		switch s := status.Convert(err); {
		case err == nil && len(left) == 0: // Nobody decided, and the service lets such calls in.
			fmt.Printf("call %d: done, without a decision\n", i+1)
		case err == nil:
			fmt.Printf("call %d: done, %s left\n", i+1, left[0])
		case errors.Is(err, headgate.ErrDenied):
			fmt.Printf("call %d: not made. %s\n", i+1, s.Message())
		default:
			fmt.Printf("call %d: %s. %s\n", i+1, s.Code(), s.Message())
		}
	}
	return nil
}
