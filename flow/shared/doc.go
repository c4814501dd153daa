// Package shared limits how much work is in progress at the same time in all processes that use one
// store.
//
// # Basics
//
// A [Gate] has a number of permits for each key. It is a [flow.Gate]:
//
//	reports, err := shared.New(permits, shared.Config{
//		Name: "reports", Limit: 3, TTL: 30 * time.Second, Queue: 20, MaxWait: 5 * time.Second,
//	})
//	if err != nil {
//		return err
//	}
//	defer reports.Close(ctx)
//	permit, err := reports.Acquire(ctx, flow.Request{Key: account})
//	if err != nil {
//		return err // a *flow.Rejection says why, and whether to come again
//	}
//	defer permit.Done(flow.Ignore)
//	err = report(permit.Context(ctx))
//
// The permits are kept by a store: in Redis or Valkey, in PostgreSQL, or in memory. A permit is a
// lease. It is renewed while the work goes on. If the process is gone, the lease ends by itself,
// one TTL after its last renewal. When a lease is lost, the context of [flow.Permit.Context] ends,
// with a [*LostError] as its cause. That happens Config.Margin before others may have the permit.
//
// # Fences
//
// A lease cannot stop work that does not check it: a process that was suspended in the middle of a
// write continues the write later, however late. If that must not happen, send the fence of
// [FenceOf] with each write, and let the resource refuse a fence that is older than one that it has
// seen for the same slot.
//
// # Waiting
//
// At most eight requests of a process stand in the store's line for a key. They ask repeatedly: the
// first of the line about 50 times a second, and the others less often. The other requests wait in
// this process; more important classes are served first, and the tenants of a class in turn.
// Processes are served in turn. A permit that is given back in this process is asked for at once.
//
// # When the store does not answer
//
// Config.OnError says whether a request is refused with the store's error, admitted, or admitted
// while this process has no more than its share in progress. In the first case, leases that cannot
// be renewed are lost. In the other two, their work goes on.
//
// # Caveats
//
// A permit needs one call to the store, and another to give it back. With Config.Linger, most
// permits of a busy process need no call while the limit is far from being reached.
//
// When a machine is suspended, the clock by which a process knows that its lease has ended may
// stop. The process finds out with its next renewal. If the store loses leases in a failover, a
// holder also finds out with its next renewal, and until then there may be one holder too many.
// Fences are valid in both cases.
//
// Work that leads back to the same gate must pass the context of [flow.Permit.Context] on,
// or it can wait for a permit that it holds itself.
//
// # Reasons
//
// Who waits asks again, because a message is lost with its connection and wakes every waiter. Only
// the head of the line asks often.
//
// Epochs are times: a counter alone would begin anew when a key expires, and give two holders the
// same fence after a failover. Revoked units come back late, because the holder may be at work
// until its lease ends. The goroutine of the leases never calls the store, since a call that hangs
// would delay the end of other contexts.
package shared
