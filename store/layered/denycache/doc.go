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
// A denial is remembered for a rule, key and cost. Only denials by the store itself are: not
// those of a lease, a local count or a fallback. A rule whose limits were changed is another
// rule. What is remembered of a key is forgotten when this process takes, gives back, settles
// or resets units of it, and with a [Bus] when any process that shares the bus gives back,
// settles or resets some.
//
// An answer from memory has the decisions of the checks that deny alone, with
// [headgate.SourceCache]. Their times are as of now, and what remains is as it was.
//
// # Penalties
//
// A block by a [headgate.Penalty] answers requests of every cost. Nothing else is remembered of
// rules with a penalty, since the penalty counts denials. For the same reason the store is
// asked if another rule of the request has a penalty, unless a block denies the request.
//
// # Caveats
//
// Units that come back without a word, such as those of a reservation that has expired, are
// noticed when [Options.Trust] is over. Requests with an id and peeks are always answered by
// the store. A request may be told to come back while another check of it would have it wait
// for longer.
package denycache
