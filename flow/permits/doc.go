// Package permits limits how much work is in progress at the same time in this process.
//
// # Basics
//
// A [Gate] has a number of permits for each key, or one number for all keys together. It is a
// [flow.Gate]:
//
//	reports, err := permits.New(permits.Config{
//		Name: "reports", Limit: 3, Queue: 20, MaxWait: 5 * time.Second,
//	})
//	if err != nil {
//		return err
//	}
//	err = flow.Do(ctx, reports, flow.Request{Key: account, Cost: 1}, report)
//
// A [*flow.Rejection] says why a request was refused, and whether to come again.
//
// With a Queue, Acquire waits while all permits are in use. More important classes are served
// first. Within a class, tenants are served in turn, by cost, so a tenant that sends a lot delays
// only itself. When the queue is full, the newest request of the tenant with the most waiting
// requests, in the least important class, gives way.
//
// A request may cost several permits. If it does not fit yet, smaller requests overtake it until
// they have taken as many permits as there are; from then on, permits that become free are kept for
// it. So small requests do not wait long behind a large one, and the large one is not starved.
//
// # Caveats
//
// Permits are local to this process: two processes admit twice as much. Processes can share the
// permits of package shared.
//
// Higher classes are served first for as long as there are any. Bound the wait of the
// lower ones with MaxWait, or by their contexts.
//
// Work that leads back to the same gate must pass the context of
// [flow.Permit.Context] on, or it can wait for a permit that it holds itself.
//
// Memory is used only for keys in use, at most MaxKeys, and for requests that are in progress or
// wait. Nothing is kept for a key with nothing in progress and nobody waiting.
package permits
