// Package flow is the vocabulary of everything that lets work begin: gates, permits,
// and rejections.
//
// # Basics
//
// A [Gate] is asked before work begins, with a [Request]: a key to count by, a tenant
// to be fair to, a cost, and a [Class] that says how much the work matters. The answer
// is a [Permit], which is given back with an [Outcome] when the work has ended, or a
// [*Rejection], which says why, when to come again, and whether to come again at all:
//
//	permit, err := gate.Acquire(ctx, flow.Request{Key: account, Class: flow.Sheddable})
//	if rejection, ok := errors.AsType[*flow.Rejection](err); ok {
//		return tooBusy(rejection.RetryAfter)
//	} else if err != nil {
//		return err
//	}
//	defer permit.Done(flow.Ignore) // if what follows panics
//	answer, err := work(permit.Context(ctx))
//	if errors.Is(err, context.DeadlineExceeded) {
//		permit.Done(flow.Overload)
//	} else {
//		permit.Done(flow.Success)
//	}
//
// There are gates of several kinds:
//
//   - [Rate] says how often, by a [headgate.Limiter].
//   - Package permits says how much at once, for each key.
//   - Package shared says the same over all processes that share a store.
//   - Package adaptive finds out how much at once is good.
//   - Package shed puts a queue in front of a gate, and decides who waits and who goes.
//
// [Chain] makes one gate of several, which let in all or nothing. [Shadow] has a gate
// only measure. [Observe] tells hooks what a gate does.
//
// # Caveats
//
// Work that leads back to a gate which it has passed can wait for itself. Hand the
// context of [Permit.Context] to the work; by it a gate recognizes what it has let in.
//
// A stream, a long poll or an upgraded connection lasts as long as its client likes.
// Give its permit back with [Ignore], and bound such work by permits of its own.
//
// A gate does what it is told about key, tenant and class. Take them from whom you
// trust: a client that may choose its own class is critical, and one that may choose
// its own tenant is many.
package flow
