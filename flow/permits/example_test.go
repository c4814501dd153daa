package permits_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/permits"
)

func Example() {
	reports, err := permits.New(permits.Config{Name: "reports", Limit: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	first, err := reports.TryAcquire(ctx, flow.Request{Key: "account 7"})
	fmt.Println("first:", err)

	_, err = reports.TryAcquire(ctx, flow.Request{Key: "account 7"})
	fmt.Println("second:", err)
	if rejection, ok := errors.AsType[*flow.Rejection](err); ok {
		fmt.Println("reason:", rejection.Reason, "- worth another try:", rejection.Retry)
	}

	_, err = reports.TryAcquire(ctx, flow.Request{Key: "account 8"})
	fmt.Println("another account:", err)

	first.Done(flow.Success)
	_, err = reports.TryAcquire(ctx, flow.Request{Key: "account 7"})
	fmt.Println("after the first:", err)
	// Output:
	// first: <nil>
	// second: flow: gate "reports": no permit is free (1 of 1 in use, 0 waiting)
	// reason: busy - worth another try: true
	// another account: <nil>
	// after the first: <nil>
}
