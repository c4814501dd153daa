// Package admission is the one way of a request through a middleware or an interceptor:
// facts, checks, decision, passage. Adapters (httplimit, grpclimit) say how facts are
// found in their requests, and answer for each [Outcome] in their protocol.
//
// # Basics
//
// An adapter fills in [Options] and makes one [Gate] for each kind of thing that it
// limits, such as calls and messages:
//
//	gates := admission.New(&options, admission.Group[*http.Request]{Option: "Limit", Bindings: limits, UsesPolicy: true})
//
// For each request it asks [Gate.Try], and answers by the [Attempt]:
//
//	facts      Options.Facts and Known, of which only those are looked for that a rule needs
//	checks     what the bindings and the policy make of the facts
//	permits    of the policy's bounds on what is in progress, which may be waited for
//	charge     Charge.Decide: the store decides, a leaky bucket's delay is waited for
//	outcome    Passed, Open, Lacking, Unclear, TooLong, Listed, Denied, Busy, Unavailable, Ended or Broken
//	passage    of an admitted request of which something depends on how it ends
//
// A [Passage] holds what has to be told how the request ended: its permits, and its charge
// if units are given back after some statuses or a reservation is settled.
//
// [Charge] is the part that knows nothing of facts. The gateway, which finds its checks
// elsewhere, uses it alone.
//
// # Caveats
//
// An Attempt belongs to a pool. Nothing of it may be used after [Attempt.Free], but for
// its Passage.
package admission
