// Package retry decides whether and when to repeat a call to another service. It knows no protocol:
// the transports for net/http and gRPC use it, and other clients can.
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
// The budget keeps retries from making an overload worse. If each of several layers tries three
// times on its own, one call becomes nine or 27 attempts; with budgets of a tenth, it is little
// more than one. A [Throttle] goes further: if a service rejects everything, it fails most calls
// before they are sent.
//
// # Caveats
//
// This package does not know whether a call may be repeated: a call without an answer may have been
// carried out.
package retry
