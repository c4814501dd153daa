package grpclimit_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/grpclimit"
	"github.com/headgate/headgate/store/memory"
)

// Every API key gets two calls a minute, and all of them together a thousand a
// second. Health checks pass.
func ExampleNewServer() {
	limit, err := grpclimit.NewServer(memory.New(),
		grpclimit.Limit(grpclimit.ByAPIKey(), headgate.MustRule("client", headgate.Sliding(2, time.Minute))),
		grpclimit.Limit(grpclimit.Everyone(), headgate.MustRule("all", headgate.PerSecond(1000))),
		grpclimit.Cost(func(c *grpclimit.Call) int64 {
			if strings.HasPrefix(c.Method, "/grpc.health.v1.Health/") {
				return 0
			}
			return 1
		}))
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = grpc.NewServer(limit.Options()...)

	// What happens to three calls of one client:
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("x-api-key", "k1"))
	info := &grpc.UnaryServerInfo{FullMethod: "/shop.Orders/Create"}
	for range 3 {
		_, err := limit.Unary(ctx, nil, info, func(context.Context, any) (any, error) { return "done", nil })
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// OK
	// ResourceExhausted
}

// A client keeps to ten calls a second for each partner, waits for two seconds at
// most, and repeats calls that a partner has refused once.
func ExampleNewClient() {
	limit, err := grpclimit.NewClient(memory.New(),
		grpclimit.ClientLimit(grpclimit.ByTarget(), headgate.MustRule("partner", headgate.PerSecond(10))),
		grpclimit.MaxWait(2*time.Second),
		grpclimit.Retries(1))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(limit.Options()), "interceptors")
	// Output: 2 interceptors
}

// A stream's messages are paced rather than refused.
func ExampleMessageLimit() {
	_, err := grpclimit.NewServer(memory.New(),
		grpclimit.MessageLimit(grpclimit.ByAPIKey(), headgate.MustRule("events", headgate.PerSecond(100))),
		grpclimit.HoldMessages(10*time.Second))
	fmt.Println(err)
	// Output: <nil>
}

// The cost of a call is known when it has ended.
func ExampleSettle() {
	store := memory.New()
	tokens := headgate.MustRule("tokens", headgate.Per(1000, time.Hour))
	limit, err := grpclimit.NewServer(store,
		grpclimit.Limit(grpclimit.Everyone(), tokens),
		grpclimit.Cost(func(*grpclimit.Call) int64 { return 500 }), // reserved
		grpclimit.Settle(func(_ *grpclimit.Call, end grpclimit.End) int64 {
			if end.Code != codes.OK {
				return 0
			}
			return end.Cost
		}))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = limit.Unary(context.Background(), nil, &grpc.UnaryServerInfo{FullMethod: "/llm.Model/Complete"}, func(ctx context.Context, _ any) (any, error) {
		grpclimit.SetCost(ctx, 42)
		return "done", nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	d, err := headgate.New(store, tokens).Peek(context.Background(), "", 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.Remaining, "remain")
	// Output: 958 remain
}
