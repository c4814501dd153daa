// Package async has a layer around a [headgate.Store] that decides requests from what this
// process knows and tells the store afterwards.
//
// # Basics
//
// Make a [Layer] around the store and ask its Store. It concerns checks whose Consistency is
// [headgate.Async]; a request without any goes straight to the store inside.
//
//	reports, err := async.New(store, async.Options{})
//	if err != nil {
//		return err
//	}
//	defer reports.Close(ctx) // reports what is left
//	limiter := headgate.New(reports.Store(), rules...)
//
// The store decides the first two requests for a key. From then on this node knows how much
// is left, what refills, and how much of the demand comes to itself. It admits by itself what
// its part of that allows, and reports what it has admitted once in [Options.Interval]. A
// request that does not fit asks the store. Decisions from memory have
// [headgate.SourceAsync].
//
// # Caveats
//
// Too many may be admitted: docs/consistency.md has the bound. What was too much counts as
// debt against what comes next.
//
// A limit with a leaky bucket or a penalty needs the store's answer to each request. A rule
// that has one is counted strictly, and so are requests with an id and reservations.
//
// A refund is kept until every node has had the time to report what it admitted, unless this
// node has not reported the units itself yet. See docs/consistency.md.
package async
