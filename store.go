package headgate

import "context"

// Store keeps counters, in this process or in a database that several processes
// share. Implementations are safe for concurrent use.
type Store interface {
	// Take carries out op for all checks or for none, at one reading of its clock.
	// For OpTake it decides every limit of every check. If each check that is not a
	// shadow admits the request, all of those are charged, and the shadows whose own
	// limits admit it; else nothing is. Take appends a Decision for each limit to dst,
	// in the order of the checks and of their rules' limits, and returns the extended
	// slice. OpReset appends nothing.
	//
	// An error means that there is no decision. It is an [*InvalidError] if the
	// checks are at fault, or wraps [ErrUnavailable] if the store is.
	Take(ctx context.Context, op Op, checks []Check, dst []Decision) ([]Decision, error)
}

// Op is what a [Store] is asked to do with the checks of a request.
type Op uint8

const (
	// OpTake charges every check, if all of them admit the request, else none.
	OpTake Op = iota
	// OpPeek decides as OpTake would, and charges nothing.
	OpPeek
	// OpRefund gives the cost back. See [Check.At].
	OpRefund
	// OpReset forgets what each key has used under its rule.
	OpReset
	// OpCharge charges every check whether its limits admit it or not: for units
	// that were admitted already, by somebody who could not ask first. A limit
	// that has not so much left is overdrawn, and admits nothing until it would
	// have been free again: a bucket as long as it takes to refill what it owes, a
	// window for its period. The decisions tell the state after it, and are Allowed.
	OpCharge

	ops // the number of operations
)

var opNames = [ops]string{"take", "peek", "refund", "reset", "charge"}

// String returns "take", "peek", "refund", "reset" or "charge".
func (o Op) String() string { return nameOf(opNames[:], "op", uint8(o)) }
