// Command worker is one process of a fleet that calls a partner, as fast as it may:
//
//	worker -partner http://127.0.0.1:8095 -headgate 127.0.0.1:9090 -calls 40
//
// All workers that name the same Headgate server make 15 calls a second together, and a burst
// of three. Without -headgate each calls as fast as it can.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/httplimit/outbound"
)

// atATime is how many calls a worker has under way.
const atATime = 8

func main() {
	partner := flag.String("partner", "http://127.0.0.1:8095", "`URL` of the partner")
	server := flag.String("headgate", "", "`address` of a Headgate server that was started with --grpc-store; none for no limits")
	calls := flag.Int("calls", 40, "how many calls to make")
	flag.Parse()
	if err := work(*partner, *server, *calls); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func work(partner, server string, calls int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	caller := http.DefaultClient
	if server != "" {
		// The server is the store that the fleet shares. Redis or PostgreSQL would do as well.
		c, err := client.New(server, client.Plaintext(), client.Timeout(10*time.Second))
		if err != nil {
			return err
		}
		defer c.Close()
		transport, err := limited(c.Store())
		if err != nil {
			return err
		}
		caller = &http.Client{Transport: transport}
	}
	var left, answered atomic.Int64
	left.Store(int64(calls))
	var all sync.WaitGroup
	for range atATime {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := get(ctx, caller, partner+"/items"); err == nil {
					answered.Add(1)
				}
			}
		})
	}
	all.Wait()
	fmt.Printf("%d of %d calls were answered\n", answered.Load(), calls)
	return nil
}

// limited is a transport below the partner's limit of 60 in two seconds. The margin is for
// requests that are held up on their way, so that they arrive closer together than they left.
func limited(store headgate.Store) (http.RoundTripper, error) {
	rule, err := headgate.NewRule("partner", headgate.Limit{Count: 15, Period: time.Second, Burst: 3})
	if err != nil {
		return nil, err
	}
	return outbound.New(store, nil, outbound.Config{
		Limits:     []outbound.Limit{{Rules: []*headgate.Rule{rule}}},
		MaxWait:    time.Minute, // a call waits for its turn
		FailClosed: true,        // without the store no call is made: being blocked costs more
	})
}

func get(ctx context.Context, caller *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := caller.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	return nil
}
