package resp

import (
	"errors"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// refuse answers for an error. That of a store is for the log of whoever runs the
// server: it may name addresses that are no caller's business.
func (k *call) refuse(err error) {
	text, invalid := mistakes(err)
	var conflict *headgate.ConflictError
	switch {
	case invalid:
		k.fail("ERR", k.command.name+": "+text)
	case errors.Is(err, policy.ErrUnknownRule):
		k.fail("NORULE", headgate.Text(err)+"; HG.RULES lists them")
	case errors.As(err, &conflict):
		k.fail("CONFLICT", conflict.Reason())
	case errors.Is(err, headgate.ErrConflict):
		k.fail("CONFLICT", "the id belongs to another request, or the reservation was settled at another cost; nothing was charged")
	case errors.Is(err, headgate.ErrNoReservation):
		k.fail("NORESERVATION", "there is no reservation by this id that can be settled: it has expired, or there never was one")
	case errors.Is(err, errors.ErrUnsupported):
		k.fail("ERR", "the store does not remember requests by an id")
	default:
		k.fail("UNAVAILABLE", "the store did not answer in time; whether the request was charged is not known")
	}
}

// mistakes returns what is wrong with the request, if that is what the error says.
func mistakes(err error) (text string, invalid bool) {
	var e *headgate.InvalidError
	if errors.As(err, &e) {
		return e.Problems.String(), true
	}
	return "", false
}
