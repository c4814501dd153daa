// Package store holds what authors of stores and of layers need, and callers do not.
//
// # Basics
//
// [Validate], [ValidateOnce] and [ValidateSettle] are what every [headgate.Store] and
// [headgate.Ledger] begins with, so that all of them refuse the same input with the same
// words. [NewReservation] makes the reservation of an admitted request. A store may offer
// [Single] besides. Package store/storetest shows whether a store keeps its promises.
//
// [Permits] is what a store offers that keeps permits for several processes: leases of
// at most so many units for each key, which end by themselves when their holder is gone.
// Callers use a gate that is made of it.
//
// [Book] is the state of one key, and decides: who gets a lease, who waits, and what has
// ended. It knows no clock and no lock. A store that can run Go keeps a Book for each key
// and calls it with the store's time, as the memory store and package store/cas do. The
// store in Redis has the same steps in a script; the suite of package store/storetest
// holds both to the same answers.
package store
