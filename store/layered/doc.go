// Package layered has stores around a [headgate.Store]. Each is one itself, so that
// they compose as HTTP handlers do.
//
// # Basics
//
// Four layers spare their store calls, or the service the store's outage:
//
//   - [NewFallback] decides while the store does not answer: each check does what its
//     OnError says.
//   - [NewLease] takes units of busy keys in advance and admits requests from memory, for
//     checks with [headgate.Leased]. It never admits too many.
//   - [NewAsync] admits from what this process knows and tells the store afterwards, for
//     checks with [headgate.Async]. It may admit too many.
//   - [NewDenials] answers for a key that was denied, until it may come again.
//
// Use those that you need, in this order: a fallback right around the store that may
// fail, and denials outermost.
//
//	fallback, err := layered.NewFallback(ctx, redis, memory.New(), layered.FallbackOptions{Default: headgate.OnErrorLocal})
//	if err != nil {
//		return err
//	}
//	defer fallback.Close()
//	denials := layered.NewDenials(fallback.Store(), layered.DenyCacheOptions{All: true})
//	defer denials.Close()
//	limiter := headgate.New(denials.Store(), rules...)
//
// Around a store/memory none of them is worth its cost. What each saves, and what it
// costs in exactness, is in docs/consistency.md.
//
// # The breaker
//
// Calls that fail in a row open a fallback's circuit breaker. While it is open no
// request waits for the store: each check does what its OnError says, and one probe at
// a time finds out whether the store is back.
//
// # What decides without the store
//
// A request may have checks that say different things. If any of them that is no
// shadow says deny, there is no decision: the error is the store's, and nothing is
// charged. Otherwise those that say local decide, all or none, by this node's share
// of their limits, and those that say allow let the request pass. A refund is
// dealt with in the same way; a reset needs the store, and fails.
//
// The share of a limit is its count and its burst divided by the number of nodes
// alive, rounded down and one at least. Nodes are counted through the store while
// it is well; see [Members]. Together they admit at most the whole limit, but for
// limits below the number of nodes, and for nodes that joined within the last few
// seconds. Local counters are charged with what this node admits while the store is
// well, so that nobody begins afresh when it is gone.
//
// When the store is back it gets a growing part of the requests, all of them after
// [FallbackOptions.Ramp]. What was admitted without it is charged to it in the
// background, one call at a time, for as many keys as [FallbackOptions.Debts].
//
// # Caveats
//
// The store must end each call by a deadline of its own, as those of this project do:
// from a call that never returns nothing can be learnt.
//
// A fallback has one breaker for all of its store. On a cluster of which a part is
// gone the calls to the others succeed and keep it closed, and those to the part that
// is gone wait for their deadline.
//
// A call that failed may have counted in the store, and its request counts locally
// as well. It is refused a little early then, never too late.
package layered
