package headgate

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Sentinel errors, to be tested with errors.Is.
var (
	// ErrInvalid marks a limit, rule or check that can never work, whatever
	// the state of the store. The error's text names the field and the numbers.
	ErrInvalid = errors.New("headgate: invalid")

	// ErrDenied is what a [*DeniedError] is.
	ErrDenied = errors.New("headgate: denied")

	// ErrUnavailable means that the store did not answer, or not in time. The
	// request may or may not have been charged: the call must not be repeated
	// blindly. What to do with the request (let it in, turn it away) is the
	// caller's choice.
	ErrUnavailable = errors.New("headgate: store unavailable")

	// ErrConflict means that the id of a request is remembered for another one,
	// or that a reservation was settled at another cost. Nothing was charged.
	ErrConflict = errors.New("headgate: conflict")

	// ErrNoReservation means that there is no reservation by that id which could
	// be settled: it has expired, or there never was one.
	ErrNoReservation = errors.New("headgate: no such reservation")
)

// InvalidError lists everything that is wrong with one value, so that it can be
// mended in one go.
type InvalidError struct {
	// Subject is what was being checked, such as `rule "login"`.
	Subject string
	// Problems has one line for each mistake: the field, the number that was
	// given and the number that is allowed.
	Problems []string
}

// Error joins the problems with semicolons.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("headgate: %s: %s", e.Subject, strings.Join(e.Problems, "; "))
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// DeniedError is a denial in the shape of an error, for the calls that have no
// other way to say it.
type DeniedError struct {
	// Decision is the limit that decided.
	Decision Decision
	// Reason says why waiting ended, where waiting was what the caller asked
	// for: "the context's deadline comes first", for instance. It may be empty.
	Reason string
}

// Error names the rule, the limit and the time to wait.
func (e *DeniedError) Error() string {
	var b strings.Builder
	b.WriteString("headgate: denied")
	if e.Decision.Rule != nil {
		fmt.Fprintf(&b, " by rule %q, limit %q", e.Decision.Rule.Name(), e.Decision.Limit)
	}
	switch {
	case e.Decision.RetryAfter == Never:
		b.WriteString(": the cost can never fit")
	case e.Decision.RetryAfter > 0:
		fmt.Fprintf(&b, ": fits in %v", e.Decision.RetryAfter.Round(time.Microsecond))
	}
	if e.Reason != "" {
		b.WriteString("; ")
		b.WriteString(e.Reason)
	}
	return b.String()
}

// Is makes errors.Is(err, ErrDenied) true.
func (e *DeniedError) Is(target error) bool { return target == ErrDenied }
