package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// domain is that of the server's errors, and the reasons are what they say.
const (
	domain              = "headgate"
	reasonInvalid       = "INVALID_REQUEST"
	reasonUnknownRule   = "UNKNOWN_RULE"
	reasonConflict      = "CONFLICT"
	reasonNoReservation = "NO_RESERVATION"
	reasonNoLedger      = "NO_LEDGER"
	reasonUnavailable   = "STORE_UNAVAILABLE"
	reasonStreamEnded   = "STREAM_ENDED"
	reasonToken         = "TOKEN"
	reasonTooLarge      = "TOO_LARGE"
	reasonNotHeld       = "NOT_HELD"
	reasonRevoked       = "REVOKED"
	reasonOtherCost     = "OTHER_COST"
	reasonNoPermits     = "NO_PERMITS"
)

// reasonOf is the server's reason for a status, or "" if the status is none of the
// service's own.
func reasonOf(s *status.Status) string { return infoOf(s).GetReason() }

// infoOf is why the server has given a status, or nil if the status is none of the
// service's own.
func infoOf(s *status.Status) *errdetails.ErrorInfo {
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.GetDomain() == domain {
			return info
		}
	}
	return nil
}

// tooLarge has the numbers that the server says.
func tooLarge(s *status.Status) *store.TooLargeError {
	numbers := infoOf(s).GetMetadata()
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(numbers[name], 10, 64)
		return n
	}
	return &store.TooLargeError{Cost: number("cost"), Limit: number("limit")}
}

// undecided reports whether a stream that ended with err says that what it has not
// answered was not decided.
func undecided(err error) bool {
	s := status.Convert(err)
	if refuses(err) {
		return true
	}
	return reasonOf(s) == reasonStreamEnded
}

// refuses reports whether the server has no such stream, or not for this client.
func refuses(err error) bool {
	s := status.Convert(err)
	return s.Code() == codes.Unimplemented || reasonOf(s) == reasonToken
}

// failed turns what a call ended with into an error of the library: each wraps what
// it was, so that [status.FromError] finds the server's details.
func failed(doing string, err error) error {
	switch {
	case errors.Is(err, headgate.ErrUnavailable):
		return fmt.Errorf("%s: %w", doing, err)
	case errors.Is(err, errClosed), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %s: %w", headgate.ErrUnavailable, doing, err)
	}
	s, ok := status.FromError(err)
	if !ok {
		return fmt.Errorf("%w: %s: %w", headgate.ErrUnavailable, doing, err)
	}
	switch reasonOf(s) {
	case reasonInvalid, reasonUnknownRule:
		return fmt.Errorf("%w: %w", invalid(s), err)
	case reasonConflict:
		return fmt.Errorf("%w: %s: %w", headgate.ErrConflict, doing, err)
	case reasonNoReservation:
		return fmt.Errorf("%w: %s: %w", headgate.ErrNoReservation, doing, err)
	case reasonTooLarge:
		return fmt.Errorf("%s: %w: %w", doing, tooLarge(s), err)
	case reasonNotHeld:
		return fmt.Errorf("%s: %w: %w", doing, store.ErrNotHeld, err)
	case reasonRevoked:
		return fmt.Errorf("%s: %w: %w", doing, store.ErrRevoked, err)
	case reasonOtherCost:
		return fmt.Errorf("%s: %w: %w", doing, store.ErrOtherCost, err)
	case reasonNoLedger, reasonNoPermits:
		return fmt.Errorf("%w: %s: %w", errors.ErrUnsupported, doing, err)
	}
	switch s.Code() {
	case codes.Unimplemented:
		return fmt.Errorf("%w: %s: the server does not offer this service; its store has to be turned on, with --grpc-store: %w", headgate.ErrUnavailable, doing, err)
	case codes.Canceled:
		return fmt.Errorf("%w: %s: %w: %w", headgate.ErrUnavailable, doing, context.Canceled, err)
	case codes.DeadlineExceeded:
		return fmt.Errorf("%w: %s: %w: %w", headgate.ErrUnavailable, doing, context.DeadlineExceeded, err)
	}
	return fmt.Errorf("%w: %s: %w", headgate.ErrUnavailable, doing, err)
}

// resultError is the error of a result that has no answer.
func resultError(s *spb.Status) error {
	if err := status.ErrorProto(s); err != nil {
		return err
	}
	return errors.New("the server gave neither an answer nor an error")
}

// invalid lists what the server found wrong with a request.
func invalid(s *status.Status) *headgate.InvalidError {
	e := &headgate.InvalidError{Subject: "request"}
	for _, d := range s.Details() {
		if bad, ok := d.(*errdetails.BadRequest); ok {
			for _, v := range bad.GetFieldViolations() {
				e.Problems.Add(v.GetField(), "%s %s", v.GetField(), v.GetDescription())
			}
		}
	}
	if e.Problems == nil {
		e.Problems.Add("", "%s", s.Message())
	}
	return e
}
