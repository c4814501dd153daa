package memcached_test

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memcached"
)

// Two windows for each user, shared by every process that uses the same server.
func ExampleOpen() {
	ctx := context.Background()
	store, err := memcached.Open(ctx, "memcached://127.0.0.1:11211", memcached.Timeout(50*time.Millisecond))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	limiter := headgate.New(store, headgate.MustRule("login",
		headgate.Sliding(20, time.Minute),
		headgate.Sliding(5, 3*time.Second)))
	d, err := limiter.Allow(ctx, "user42")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.Allowed, d.Remaining)
}
