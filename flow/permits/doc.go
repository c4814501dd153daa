// Package permits bounds how much is in progress at the same time in this process.
//
// # Basics
//
// A [Gate] has a number of permits for each key, or one number for all. It is a
// [flow.Gate], as everything is that lets work begin:
//
//	reports, err := permits.New(permits.Config{
//		Name: "reports", Limit: 3, Queue: 20, MaxWait: 5 * time.Second,
//	})
//	if err != nil {
//		return err
//	}
//	permit, err := reports.Acquire(ctx, flow.Request{Key: account, Cost: 1})
//	if err != nil {
//		return err // a *flow.Rejection says why, and whether to come again
//	}
//	defer permit.Done(flow.Success)
//
// With a Queue, Acquire waits while all permits are in use. Who waits is served by
// class first. Within a class, tenants are served in turn, by cost, so that one that
// sends a lot delays itself. When the queue is full, the one to go is the newest of
// whoever has the most waiting in the least class.
//
// A request may cost several permits. One that does not fit yet lets smaller ones
// overtake it until they have taken as many permits as there are; then what becomes
// free is kept for it. So small requests do not stand still behind a large one, and
// the large one is not starved.
//
// # Caveats
//
// Permits are of this process: two processes admit twice as much. Package shared has
// permits that processes share.
//
// Higher classes are served first for as long as there are any. Bound the wait of the
// lower ones with MaxWait, or by their contexts.
//
// Work that leads back to the same gate must pass the context of
// [flow.Permit.Context] on, or it can wait for a permit that it holds itself.
//
// Memory: what is kept is for keys in use, at most MaxKeys, and for requests in
// progress and waiting. Of a key with nothing in progress nothing is kept.
package permits
