// Package fallback has a layer around a [headgate.Store] that decides while the store does not
// answer: each check does what its OnError says.
//
// # Basics
//
// Make a [Layer] right around the store that may fail, inside of all other layers, and ask
// its Store:
//
//	without, err := fallback.New(redis, fallback.Options{
//		Local:   memory.New(),
//		Default: headgate.OnErrorLocal,
//	})
//	if err != nil {
//		return err
//	}
//	defer without.Close(ctx)
//	limiter := headgate.New(without.Store(), rules...)
//
// # The breaker
//
// A store that has answered nothing for half a second, or has refused calls for 100 ms, opens a
// circuit breaker, if [Options.Failures] calls in a row have failed. A shorter pause costs no
// caller his decision who waits for its end. While the breaker is open no request waits for the
// store: each check does what its OnError says, and one probe at a time finds out whether the
// store is back. Then the store gets a growing part of the requests, and all of them after
// [Options.Ramp].
//
// If a caller's context ends before the store's own deadline, and the checks can be decided
// without the store, the store is given three quarters of the caller's time.
//
// # What decides without the store
//
// A request may have checks that say different things. If any of them that is no shadow says
// deny, there is no decision: the error is the store's, and nothing is charged. Otherwise
// those that say local decide, all or none, by this node's share of their limits, and those
// that say allow let the request pass. A refund is dealt with in the same way. A reset needs
// the store, and fails.
//
// The share of a limit is its count and its burst divided by the number of nodes alive,
// rounded down and one at least. Nodes are counted through the store while it answers; see
// [Members]. Together they admit at most the whole limit, except for limits below the number
// of nodes, and for nodes that joined within the last few seconds. Local counters are charged
// with what this node admits while the store answers, so that nobody begins afresh when it is
// gone.
//
// What was admitted without the store is charged to it in the background when it is back, one
// call at a time, for as many keys as [Options.Debts].
//
// # Caveats
//
// The store must end each call by a deadline of its own, as those of this project do: nothing
// can be learnt from a call that never returns.
//
// There is one breaker for all of the store. On a cluster of which a part is gone the calls to
// the others succeed and keep it closed, and those to the part that is gone wait for their
// deadline.
//
// A call that failed may have counted in the store, and its request counts locally as well. It
// is refused a little early then, never too late. What other nodes give back of the units that
// this node has admitted stays used in this node's share, until its limit forgets them.
//
// # Reasons
//
// The breaker opens after half a second without any answer, and not after a number or share of
// failures: a store that answers some requests is worth asking, and at 500 requests a second twenty
// callers wait for the same pause of 40 ms. A process that was stopped itself finds its deadlines
// over and the answers unread, so the breaker waits for ticks that come on time.
//
// A limit's slot does not depend on its count. So local counters that were charged while the store
// still answered are those of the share, whatever the number of nodes is by then.
//
// Requests are not replayed to the store in their order, so a debt is never more than what is still
// in use locally.
package fallback
