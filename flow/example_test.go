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

// A gate is asked, the work is done, and the permit is given back by one call.
func ExampleDo() {
	gate, err := permits.New(permits.Config{Name: "reports", Limit: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	request := flow.Request{Key: "account 7"}
	err = flow.Do(ctx, gate, request, func(context.Context) error {
		fmt.Println("the report is made")
		// Other callers are refused meanwhile.
		return flow.Do(ctx, gate, request, func(context.Context) error { return nil })
	})
	rejection, ok := errors.AsType[*flow.Rejection](err)
	fmt.Println("a second one:", ok && rejection.Reason == flow.ReasonBusy)
	// Output:
	// the report is made
	// a second one: true
}

// A result comes back with its type.
func ExampleGet() {
	gate, err := permits.New(permits.Config{Name: "reports", Limit: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	rows, err := flow.Get(context.Background(), gate, flow.Request{Key: "account 7"},
		func(context.Context) (int, error) { return 42, nil })
	fmt.Println(rows, err)
	// Output: 42 <nil>
}

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
