// Package retry decides whether a call to somebody else is tried again, and when. It knows
// no protocol: the transports of net/http and gRPC use it, and so can other clients.
//
// # Basics
//
// A call that has failed, and may be repeated, takes a retry from the [Budget] and waits for
// as long as [Backoff.Wait] says:
//
//	budget.Call()
//	for try := 1; ; try++ {
//		err := send(ctx)
//		if err == nil || try == tries || !budget.Take() {
//			return err
//		}
//		if err := sleep(ctx, backoff.Wait(try, asked)); err != nil {
//			return err
//		}
//	}
//
// The budget is what keeps retries from making a bad moment worse. Each of several layers
// that tries three times on its own makes nine or 27 attempts of a call; with budgets of a
// tenth it is little more than one. A [Throttle] goes further: it fails calls to somebody who
// hardly answers, before they are sent.
//
// # Caveats
//
// Whether a call may be repeated at all is not for this package to know: one that was not
// answered may have been carried out.
package retry
