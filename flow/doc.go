// Package flow defines what all packages that admit work have in common: gates, permits and
// rejections.
//
// # Basics
//
// A [Gate] is asked before work begins. The [Request] has a key to count by, a tenant for fair
// queues, a cost, and a [Class] that says how much the work matters. The answer is a [Permit],
// which is given back with an [Outcome] when the work has ended, or a [*Rejection]. A rejection
// says why the gate refused, when to try again, and whether to try again at all:
//
//	report, err := flow.Get(ctx, gate, flow.Request{Key: account, Class: flow.Sheddable},
//		func(ctx context.Context) (Report, error) { return work(ctx) })
//	if rejection, ok := errors.AsType[*flow.Rejection](err); ok {
//		return tooBusy(rejection.RetryAfter)
//	}
//
// [Do] is the same for work without a result. Whoever decides on the outcome calls [Gate.Acquire]
// and [Permit.Done].
//
// There are gates of several kinds:
//
//   - [Rate] limits how often work begins, by a [headgate.Limiter].
//   - Package permits limits how much is in progress at a time for each key, in this process.
//   - Package shared does the same over all processes that share a store.
//   - Package adaptive finds a good limit for how much is in progress at a time.
//   - Package shed puts a queue in front of a gate, and decides which requests wait and which are
//     refused.
//
// [Chain] combines gates into one that admits by all of them or not at all. [Shadow] lets a gate
// measure without refusing. [Observe] reports to hooks what a gate does.
//
// # Caveats
//
// Work that leads back to a gate which has admitted it can wait for itself. Pass the context of
// [Permit.Context] to the work, so that the gate recognizes what it has admitted.
//
// A stream, a long poll or an upgraded connection lasts as long as its client likes. Give its
// permit back with [Ignore], and limit such work by a gate of its own.
//
// A gate trusts the key, tenant and class that it is given. Take them from a trusted source: a
// client that may choose its own class will choose critical, and one that may choose its tenant can
// pretend to be many tenants.
package flow
