// Command ask asks a Headgate server by the rules of its policy: from as many
// goroutines as it is told to, so that the client uses a stream.
//
//	go run ./examples/grpc/ask -headgate 127.0.0.1:9090 -callers 50
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/client"
)

func main() {
	server := flag.String("headgate", "127.0.0.1:9090", "`address` of a Headgate server's gRPC")
	callers := flag.Int("callers", 50, "how many ask at the same time")
	each := flag.Int("each", 20, "how often each asks")
	timeout := flag.Duration("timeout", client.DefaultTimeout, "how long the server may take to answer")
	flag.Parse()
	if err := run(*server, *callers, *each, *timeout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(server string, callers, each int, timeout time.Duration) error {
	c, err := client.New(server, client.Plaintext(), client.Timeout(timeout))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	ctx := context.Background()
	if err := c.Ping(ctx); err != nil {
		return err
	}
	var (
		admitted, denied, failed atomic.Int64
		all                      sync.WaitGroup
	)
	for range callers {
		all.Go(func() {
			for range each {
				v, err := c.Check(ctx, &headgatev1.CheckRequest{Entries: map[string]string{"user": "ada", "route": "GET /v1/search"}})
				switch {
				case err != nil:
					failed.Add(1)
				case v.GetAllowed():
					admitted.Add(1)
				default:
					denied.Add(1)
				}
			}
		})
	}
	all.Wait()
	fmt.Printf("%d admitted, %d denied, %d without an answer\n", admitted.Load(), denied.Load(), failed.Load())
	return nil
}
