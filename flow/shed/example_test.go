package shed_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/permits"
	"github.com/headgate/headgate/flow/shed"
)

// What waits longer than the queue allows is told so, and not to come again at once.
func Example() {
	server, err := permits.New(permits.Config{Name: "server", Limit: 1, Shared: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	gate, err := shed.New(server, shed.Config{Name: "queue"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	permit, err := gate.Acquire(ctx, flow.Request{})
	fmt.Println("first:", err)

	_, err = gate.Acquire(ctx, flow.Request{Class: flow.Sheddable})
	if rejection, ok := errors.AsType[*flow.Rejection](err); ok {
		fmt.Println("second:", rejection.Reason, "- worth another try:", rejection.Retry)
	}
	permit.Done(flow.Success)
	// Output:
	// first: <nil>
	// second: waited - worth another try: false
}
