// Package async has a layer around a [headgate.Store] that decides requests from what this
// process knows and tells the store afterwards.
//
// # Basics
//
// Make a [Layer] around the store and ask its Store. The layer decides checks whose Consistency is
// [headgate.Async]. A request without such a check goes straight to the store inside.
//
//	reports, err := async.New(store, async.Options{})
//	if err != nil {
//		return err
//	}
//	defer reports.Close(ctx) // reports what is left
//	limiter := headgate.New(reports.Store(), rules...)
//
// The store decides the first two requests for a key. From then on this node knows how much is
// left, how fast it refills, and which part of the demand arrives here. The node admits its own
// share by itself, and reports the admitted units once in each [Options.Interval]. A request that
// does not fit into the share asks the store. Decisions from memory have [headgate.SourceAsync].
//
// # Caveats
//
// Too many units may be admitted: docs/consistency.md has the bound. The surplus is a debt that the
// next requests have to wait for.
//
// A leaky bucket and a penalty need the store's answer to each request. A rule that has one of them
// is counted strictly, and so are requests with an id and reservations.
//
// A refund is kept until every node has had the time to report what it admitted. If this node
// admitted the units and has not reported them yet, the refund takes effect at once. See
// docs/consistency.md.
package async
