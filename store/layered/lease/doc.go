// Package lease has a layer around a [headgate.Store] that takes units of busy keys in advance and
// admits their requests from memory.
//
// # Basics
//
// Make a [Layer] around the store and ask its Store. The layer decides checks whose Consistency is
// [headgate.Leased]. A request without such a check goes straight to the store inside.
//
//	leases, err := lease.New(store, lease.Options{})
//	if err != nil {
//		return err
//	}
//	defer leases.Close(ctx) // gives back what is held
//	limiter := headgate.New(leases.Store(), rules...)
//
// A key is leased when it gets eight requests within the time D below. A lease is what its requests
// need for half of D, and at most 1/(2 × Nodes) of what the store has left. Where little is left,
// the store decides each request.
//
// Decisions from a lease have [headgate.SourceLease]. Their At is the time at which the units were
// charged. Their Remaining is what the store had left then, plus what this node holds.
//
// # What it promises
//
// No limit ever admits more than its algorithm allows, whatever happens to nodes and calls. Units
// are in use in the store from the moment a node takes them until they are given back or expire, so
// the units of a node that dies stay used. Held units are admitted at most a time D after they were
// charged. So the store is asked to enforce a rule that is stricter by what D can add, the same on
// every node and for every key:
//
//   - A token bucket of rate r and burst B has a burst of B' = B − ⌈r·D⌉. What is
//     admitted in a time T was charged in one of T + D: at most B' + r·(T + D) ≤ B + r·T.
//   - A sliding window of N per P becomes N per P + D. What is admitted within P was
//     charged within P + D: at most N.
//   - A fixed window and a sliding counter stay as they are. Units are held at most until the
//     end of the window that they were charged in.
//
// D is a fiftieth of the shortest period of the rule's limits (for a bucket: of the time from empty
// to full), and at most a second. It is counted on this node's clock, from before the units were
// asked for. A 64th of D is kept in reserve for clocks that run at different speeds.
//
// # Caveats
//
// A request may be denied too early because other nodes hold units; docs/consistency.md has the
// bound.
//
// A rule with a leaky bucket or a penalty is never leased, nor is one whose D is below 5 ms
// or whose limits admit fewer than ten units at once. Such rules are enforced as they are.
//
// The store inside must end each call at a deadline of its own.
package lease
