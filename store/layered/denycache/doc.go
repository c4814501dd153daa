// Package denycache has a layer around a [headgate.Store] that remembers denials. A key that
// was denied is denied again from memory until the time that the store named, so that the
// store sees nothing of clients that come back at once.
//
// # Basics
//
// Make a [Layer] around the store, outside of all other layers, and ask its Store:
//
//	denials, err := denycache.New(store, denycache.Options{All: true})
//	if err != nil {
//		return err
//	}
//	defer denials.Close(ctx)
//	limiter := headgate.New(denials.Store(), rules...)
//
// A denial is remembered for a rule, key and cost, if it was the store's own and not that of a
// lease, a local count or a fallback. A rule whose limits have changed counts as another rule.
// The denials of a key are forgotten when this process takes, gives back, settles or resets
// units of the key. With a [Bus] they are also forgotten when another process on the bus gives
// back, settles or resets units.
//
// An answer from memory has only the decisions of the checks that deny, with
// [headgate.SourceCache]. Their times count from now; Remaining is as the store said it.
//
// # Penalties
//
// A block by a [headgate.Penalty] answers requests of every cost. Nothing else is remembered of
// rules with a penalty, since the penalty counts denials. For the same reason the store is
// asked if another rule of the request has a penalty, unless a block denies the request.
//
// # Caveats
//
// Units that come back without a call, such as those of a reservation that has expired, are
// noticed when [Options.Trust] is over. Requests with an id and peeks always go to the store.
// The RetryAfter of a remembered denial may be too short if another check of the request would
// demand a longer wait.
//
// # Reasons
//
// A server that frees units tells all others, because it does not know which of them remember the
// denial. Messages that are not full leave 10 ms apart, so that a thousand settlements a second are
// a hundred messages.
package denycache
