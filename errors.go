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

	// ErrFull means that the store has no room left for what the request needs to have
	// kept. Nothing was charged. Such an error is an ErrUnavailable too.
	ErrFull = errors.New("headgate: store full")

	// ErrDamaged means that the value which the store has for a counter of the request is
	// none that a store has written. Nothing was charged. Other counters are not concerned,
	// and to reset this one removes the value. Such an error is an ErrUnavailable too.
	ErrDamaged = errors.New("headgate: damaged counter")

	// ErrConflict means that the id of a request is remembered for another one,
	// or that a reservation was settled at another cost. Nothing was charged. Stores
	// return it as a [*ConflictError].
	ErrConflict = errors.New("headgate: conflict")

	// ErrNoReservation means that there is no reservation by that id which could
	// be settled: it has expired, or there never was one.
	ErrNoReservation = errors.New("headgate: no such reservation")
)

// InvalidError lists everything that is wrong with one value, so that it can be
// mended in one go.
type InvalidError struct {
	// Subject is what was being checked, such as `rule "login"`. It is empty if the
	// problems name it.
	Subject string
	// Problems has every mistake.
	Problems Problems
}

// Error joins the texts of the problems with semicolons.
func (e *InvalidError) Error() string {
	if e.Subject == "" {
		return "headgate: " + e.Problems.String()
	}
	return fmt.Sprintf("headgate: %s: %s", e.Subject, e.Problems)
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// Invalid returns the [*InvalidError] of a value with one mistake. The arguments
// after the field are those of fmt.Sprintf.
func Invalid(subject, field, format string, args ...any) error {
	var p Problems
	p.Add(field, format, args...)
	return p.Err(subject)
}

// Problem is one mistake in a value. Programs look at the field; the text is for
// people, and its wording may change.
type Problem struct {
	// Field is the field with the mistake, written as in JSON: "cost",
	// "limits[1].burst", "checks[0].key". Indexes count from 0. It is empty if the
	// mistake is in no single field.
	Field string
	// Text is a whole sentence: it names the field, the number that was given and
	// the numbers that are allowed.
	Text string
}

// Problems collects the mistakes in one value. The zero Problems has none. It is
// not safe for concurrent use.
type Problems []Problem

// Add adds a mistake. The arguments after the field are those of fmt.Sprintf.
func (p *Problems) Add(field, format string, args ...any) {
	*p = append(*p, Problem{field, fmt.Sprintf(format, args...)})
}

// Err returns an [*InvalidError] with the problems, or nil if there are none.
func (p Problems) Err(subject string) error {
	if len(p) == 0 {
		return nil
	}
	return &InvalidError{Subject: subject, Problems: p}
}

// Texts returns the text of each problem.
func (p Problems) Texts() []string {
	texts := make([]string, len(p))
	for i := range p {
		texts[i] = p[i].Text
	}
	return texts
}

// String joins the texts with semicolons.
func (p Problems) String() string { return strings.Join(p.Texts(), "; ") }

// ConflictError says why an id cannot be used for a request or a settlement. Nothing was
// charged.
type ConflictError struct {
	// Units are what a reservation was to be settled at, after it was settled at
	// others. They are nil if the id is that of another request.
	Units []int64
}

// Error says which of the two it is.
func (e *ConflictError) Error() string { return ErrConflict.Error() + ": " + e.Reason() }

// Reason is the text of the error without what [ErrConflict] says.
func (e *ConflictError) Reason() string {
	if e.Units == nil {
		return "the id is that of another request; give each its own"
	}
	return fmt.Sprintf("the reservation is settled already, at other units than %v", e.Units)
}

// Is makes errors.Is(err, ErrConflict) true.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

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
	case e.Decision.RetryAfter == Never && e.Decision.Rule != nil:
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
