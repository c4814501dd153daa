package shared_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/shared"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// Each account may have one export at a time, in all processes that use the store. Here two
// gates stand for two processes.
func Example() {
	permits, err := store.PermitsOf(memory.New()) // or a store in Redis or PostgreSQL
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	config := shared.Config{Name: "exports", Prefix: "export ", Limit: 1, TTL: 30 * time.Second}
	here, err := shared.New(permits, config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer here.Close(ctx)
	there, err := shared.New(permits, config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer there.Close(ctx)

	permit, err := here.Acquire(ctx, flow.Request{Key: "account 7"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fence, err := shared.FenceOf(permit.Context(ctx))
	fmt.Println("slots:", fence.Slots, err)

	_, err = there.Acquire(ctx, flow.Request{Key: "account 7"})
	if rejection, ok := errors.AsType[*flow.Rejection](err); ok {
		fmt.Println("refused:", rejection.Reason)
	}
	permit.Done(flow.Success)
	permit, err = there.Acquire(ctx, flow.Request{Key: "account 7"})
	fmt.Println("free again:", err == nil)
	permit.Done(flow.Success)
	// Output:
	// slots: [0] <nil>
	// refused: busy
	// free again: true
}
