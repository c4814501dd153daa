package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate"
)

// Domain is that of the google.rpc.ErrorInfo in every error, and the Reasons are
// what it may say.
const (
	Domain = "headgate"
	// ReasonInvalid is a request with mistakes.
	ReasonInvalid = "INVALID_REQUEST"
	// ReasonUnknownRule is a rule that the policy has not.
	ReasonUnknownRule = "UNKNOWN_RULE"
	// ReasonConflict is an id that belongs to another request.
	ReasonConflict = "CONFLICT"
	// ReasonNoReservation is a reservation that has expired or never was.
	ReasonNoReservation = "NO_RESERVATION"
	// ReasonNoLedger is a store that does not remember requests.
	ReasonNoLedger = "NO_LEDGER"
	// ReasonUnavailable is a store that did not answer. Whether the request was
	// charged is not known.
	ReasonUnavailable = "STORE_UNAVAILABLE"
	// ReasonStreamEnded is the end of a stream because the server is being shut
	// down: what it has not answered was not charged.
	ReasonStreamEnded = "STREAM_ENDED"
	// ReasonToken is a token that is missing or another one.
	ReasonToken = "TOKEN"
)

// fault is one mistake in a request.
type fault struct {
	code   codes.Code
	field  string
	detail string
}

// faults are the mistakes of one request.
type faults []fault

// maxFaults bounds what one hostile request can make the answer hold.
const maxFaults = 32

func (f *faults) add(field, format string, args ...any) {
	f.addAs(codes.InvalidArgument, field, fmt.Sprintf(format, args...))
}

func (f *faults) addAs(code codes.Code, field, detail string) {
	if len(*f) < maxFaults {
		*f = append(*f, fault{code, field, detail})
	}
}

// status is the error of a request with mistakes. One with values out of range is
// that, whatever else is wrong: a rule that is not there may well be there once the
// rest is right.
func (f faults) status() error {
	code, reason := codes.NotFound, ReasonUnknownRule
	bad := new(errdetails.BadRequest)
	for i := range f {
		if f[i].code == codes.InvalidArgument {
			code, reason = codes.InvalidArgument, ReasonInvalid
		}
		bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: f[i].field, Description: f[i].detail})
	}
	text := "the request has a mistake: " + f[0].field + ": " + f[0].detail
	switch n := len(f); {
	case n >= maxFaults:
		text = "the request has at least " + strconv.Itoa(n) + " mistakes, the first of them: " + f[0].field + ": " + f[0].detail
	case n > 1:
		text = "the request has " + strconv.Itoa(n) + " mistakes, the first of them: " + f[0].field + ": " + f[0].detail
	}
	return newStatus(code, reason, text, bad)
}

// comeBack is when a caller may try again after the store did not answer. The
// store may be back at once or much later; nobody knows.
const comeBack = time.Second

// failed is the status of a request that was not decided. The error of a store is
// for the log of whoever runs the server: it may name addresses that are no
// caller's business.
func failed(ctx context.Context, err error) error {
	var invalid *headgate.InvalidError
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.As(err, &invalid):
		var list faults
		for _, problem := range invalid.Problems {
			list.addAs(codes.InvalidArgument, invalid.Subject, problem.Text)
		}
		if list != nil {
			return list.status()
		}
		return newStatus(codes.InvalidArgument, ReasonInvalid, headgate.Text(err))
	case errors.Is(err, headgate.ErrConflict):
		return newStatus(codes.Aborted, ReasonConflict, "the id belongs to another request, or the reservation was settled at another cost; nothing was charged")
	case errors.Is(err, headgate.ErrNoReservation):
		return newStatus(codes.NotFound, ReasonNoReservation, "there is no reservation of this id: it has expired, or there never was one")
	case errors.Is(err, errors.ErrUnsupported):
		return newStatus(codes.Unimplemented, ReasonNoLedger, "the server's store does not remember requests by an id")
	}
	return newStatus(codes.Unavailable, ReasonUnavailable, "the store did not answer in time; whether the request was charged is not known",
		&errdetails.RetryInfo{RetryDelay: durationpb.New(comeBack)})
}

// newStatus returns a status with an ErrorInfo and other details.
func newStatus(code codes.Code, reason, text string, details ...protoadapt.MessageV1) error {
	s := status.New(code, text)
	all := append([]protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: reason, Domain: Domain}}, details...)
	if detailed, err := s.WithDetails(all...); err == nil {
		return detailed.Err()
	}
	// Only details that cannot be encoded, by names that are not UTF-8, end here.
	return s.Err()
}

// errEnded is how a stream ends when the server is being shut down.
func errEnded() error {
	return newStatus(codes.Unavailable, ReasonStreamEnded, "the server is being shut down; what the stream has not answered was not charged")
}
