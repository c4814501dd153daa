// Package shared bounds how much is in progress at the same time in all processes that
// use one store.
//
// # Basics
//
// A [Gate] has a number of permits for each key. It is a [flow.Gate], as everything is
// that lets work begin:
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
// The permits are those of a store: in Redis or Valkey, in PostgreSQL, or in memory. A
// permit is a lease. It is renewed while the work goes on, and ends by itself, a TTL after
// it was last renewed, if the process has gone. When a lease is lost the context of
// [flow.Permit.Context] ends, by Config.Margin before others may have the permit; its
// cause is a [*LostError].
//
// # Fences
//
// No lease can stop work that does not look: a process that was suspended in the middle of
// a write goes on with it, however late. Where that must not happen, send the fence of
// [FenceOf] with each write, and have the resource refuse one that is older than what it
// has seen for the same slot.
//
// # Waiting
//
// At most eight requests of a process stand in the store's line for a key, and ask again
// and again: the first of the line about 50 times a second, those behind it less. The
// others wait in this process, by class and in turn by tenant. Processes are served in
// turn. What is given back in this process is asked for at once.
//
// # When the store does not answer
//
// By Config.OnError a request is refused with the store's error, or let in, or let in
// while this process has no more in progress than its share. Leases that cannot be renewed
// are lost in the first case. In the other two their work goes on.
//
// # Caveats
//
// A permit costs a call to the store, and another one to give it back. With Config.Linger
// most permits of a busy process cost none, where the limit is far from being reached.
//
// A machine that is suspended stops the clock by which a process knows that its lease has
// ended. It finds out with its next renewal. What the store loses at a failover is lost:
// the holder finds out with its next renewal, and until then there may be one holder too
// many. Fences hold in both cases.
//
// Work that leads back to the same gate must pass the context of [flow.Permit.Context] on,
// or it can wait for a permit that it holds itself.
package shared
