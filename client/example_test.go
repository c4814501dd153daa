package client_test

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	headgatev1 "github.com/headgate/headgate/api/headgate/v1"
	"github.com/headgate/headgate/client"
)

// Ask by the rules of the server's policy.
func ExampleClient_Check() {
	c, err := client.New("127.0.0.1:9090", client.Plaintext())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	v, err := c.Check(ctx, &headgatev1.CheckRequest{Entries: map[string]string{"user": "ada", "route": "GET /v1/search"}})
	switch {
	case err != nil:
		fmt.Println("nobody decided, so that is yours to do:", err)
	case v.GetAllowed():
		fmt.Println("go on")
	default:
		fmt.Println("come back in", time.Duration(v.GetRetryAfterMs())*time.Millisecond)
	}
}

// Bring your own rules, as to any other store.
func ExampleClient_Store() {
	c, err := client.New("127.0.0.1:9090", client.Plaintext(), client.Token("the-token-of-the-servers-store"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = c.Close() }()
	limiter := headgate.New(c.Store(), headgate.MustRule("login", headgate.PerMinute(20)))
	fmt.Printf("%T\n", limiter) // and limiter.Allow(ctx, user)
	// Output: *headgate.Limiter
}
