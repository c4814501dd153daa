// Package inprogress keeps what the rules of a policy let be in progress at the same time.
//
// # Basics
//
// A [policy.Set] says which bounds bind a request (policy.Outcome has them beside the
// checks), and a [Keeper] has the permits. Whoever sees requests from their beginning to
// their end takes the permits, asks the store for the rates, and gives the permits back:
//
//	keeper := inprogress.New(inprogress.Options{})
//	if err := keeper.Use(set); err != nil {
//		return err
//	}
//	// for each request
//	found, err := set.Decide(descriptor, 1, nil)
//	if err != nil {
//		return err
//	}
//	held, err := keeper.Enter(ctx, found.Bounds, nil)
//	if err != nil {
//		return err // an *inprogress.Refusal says which rule, and when to come again
//	}
//	defer inprogress.Leave(held, flow.Ignore)
//
// Permits come before rates: what they refuse is then charged nothing, and what a rate
// denies gives its permits back, which costs nothing and cannot fail. Middleware,
// interceptors and the gateway do all of this.
//
// # Caveats
//
// Permits are those of one Keeper. Two middlewares of one process count together only if
// they are given the same one.
//
// A request that waits holds the permits of the bounds before it. All requests take their
// permits in the order of the rules, so they cannot block each other for ever, and every
// wait has an end.
//
// # Reasons
//
// Permits are taken before rates are charged. In the other order a request that waits in vain would
// have been charged, and a refund is not exact, while giving a permit back is.
package inprogress
