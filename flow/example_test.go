package flow_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/permits"
	"github.com/headgate/headgate/store/memory"
)

// Each account may have one report at a time, and two an hour. What the first gate
// refuses is not charged to the second.
func ExampleChain() {
	atOnce, err := permits.New(permits.Config{Name: "at once", Limit: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	limiter := headgate.New(memory.New(), headgate.MustRule("reports", headgate.PerHour(2)))
	reports := flow.Chain(atOnce, flow.Rate("an hour", limiter))

	ctx := context.Background()
	request := flow.Request{Key: "account 7"}
	begin := func() flow.Permit {
		permit, err := reports.Acquire(ctx, request)
		if rejection, ok := errors.AsType[*flow.Rejection](err); ok {
			fmt.Println("refused:", rejection.Reason)
		} else if err == nil {
			fmt.Println("begun")
		}
		return permit
	}
	first := begin()
	begin()
	first.Done(flow.Success)
	begin().Done(flow.Success)
	begin()
	// Output:
	// begun
	// refused: busy
	// begun
	// refused: rate
}

// A gate that only measures lets everything in, and shows what it would refuse.
func ExampleShadow() {
	gate, err := permits.New(permits.Config{Name: "reports", Limit: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	shadow := flow.Shadow(flow.Observe(gate, flow.Hooks{
		Rejected: func(_ context.Context, r flow.Request, rejection *flow.Rejection, _ time.Duration) {
			fmt.Println("would be refused:", r.Key, rejection.Reason)
		},
	}))
	for range 2 {
		_, err := shadow.Acquire(context.Background(), flow.Request{Key: "account 7"})
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// would be refused: account 7 busy
	// <nil>
}
