// Command postgres is the example of the README with its counters in PostgreSQL: each user
// may log in 20 times a minute, and 5 times in 3 seconds. Every process that uses the
// same server shares them.
//
//	go run . postgres://user:password@127.0.0.1:5432/limits user42
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/postgres"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: postgres URL USER")
		os.Exit(2)
	}
	if err := login(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("welcome")
}

func login(ctx context.Context, url, user string) error {
	store, err := postgres.Open(ctx, url, postgres.Timeout(time.Second))
	if err != nil {
		return err
	}
	defer store.Close()
	limiter := headgate.New(store, headgate.MustRule("login",
		headgate.Sliding(20, time.Minute),
		headgate.Sliding(5, 3*time.Second)))

	d, err := limiter.Allow(ctx, user)
	if err != nil {
		return err // the store could not answer
	}
	if !d.Allowed {
		return fmt.Errorf("too many logins; try again in %v", d.RetryAfter)
	}
	return nil
}
