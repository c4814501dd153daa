// Package layered is about stores around a [headgate.Store]: layers, which compose as HTTP
// handlers do. Each is a package of its own.
//
// # Basics
//
// Four layers spare the store calls, or spare the service the store's outage:
//
//   - Package fallback decides while the store does not answer: each check does what its
//     OnError says.
//   - Package lease takes units of busy keys in advance and admits requests from memory, for
//     checks with [headgate.Leased]. It never admits too many.
//   - Package async admits from what this process knows and tells the store afterwards, for
//     checks with [headgate.Async]. It may admit too many.
//   - Package denycache denies a key from memory that was denied, until it may come again.
//
// All have the same shape: New(inner, Options) makes a layer around a store, Store is the
// store to ask, Stats tells what became of it, and Close ends it; see [Layer]. Use those that
// you need, in this order: a fallback right around the store that may fail, then leases, then
// async, and the deny cache outermost. Close them from the outside in.
//
//	without, err := fallback.New(redis, fallback.Options{
//		Local:   memory.New(),
//		Default: headgate.OnErrorLocal,
//	})
//	if err != nil {
//		return err
//	}
//	defer without.Close(ctx)
//	denials, err := denycache.New(without.Store(), denycache.Options{All: true})
//	if err != nil {
//		return err
//	}
//	defer denials.Close(ctx)
//	limiter := headgate.New(denials.Store(), rules...)
//
// # Caveats
//
// None of them is worth its cost around a store/memory. What each saves, and what it costs in
// exactness, is in docs/consistency.md.
//
// # Reasons
//
// A layer is not itself a store, because Go fixes the methods of a type: Store returns a Ledger if
// the inner store is one, and a plain store otherwise.
//
// Counters are known by rule name and key, as in the store, whichever version of the rule is asked
// about. Only a lease goes by the rule itself, because its units were taken under the limits of
// that version.
//
// The order is deny cache, async and lease, fallback, store: an outer layer learns only from
// decisions that the store made.
package layered

import (
	"context"

	"github.com/headgate/headgate"
)

// Layer is a layer around a store. It is safe for concurrent use.
type Layer interface {
	// Store returns the store to ask: a [headgate.Ledger] if the one inside is one.
	Store() headgate.Store
	// Close ends the layer's background work, and tells the inner store what it still has to know,
	// as far as the context allows. The error says what could not be done. The inner store stays
	// open.
	Close(ctx context.Context) error
}
