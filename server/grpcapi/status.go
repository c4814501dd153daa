package grpcapi

import (
	"context"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate/server/decide"
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
	// ReasonHeld is the end of a stream because too much waits for its answers to be
	// read; see [MaxHeld].
	ReasonHeld = "TOO_MUCH_UNREAD"
	// ReasonToken is a token that is missing or another one.
	ReasonToken = "TOKEN"
	// ReasonTooLarge is a cost that exceeds the limit of what may be in progress. The
	// metadata of the ErrorInfo have both, as cost and limit.
	ReasonTooLarge = "TOO_LARGE"
	// ReasonNotHeld is a permit that has ended, or that its holder has given back.
	ReasonNotHeld = "NOT_HELD"
	// ReasonRevoked is a permit that somebody has revoked.
	ReasonRevoked = "REVOKED"
	// ReasonOtherCost is a holder that has a permit, or a place in line, at another cost.
	ReasonOtherCost = "OTHER_COST"
	// ReasonNoPermits is a store that keeps no permits.
	ReasonNoPermits = "NO_PERMITS"
)

// faultsStatus is the error of a request with mistakes.
func faultsStatus(list decide.Faults) error {
	code, reason := codes.InvalidArgument, ReasonInvalid
	if list.Kind() == decide.UnknownRule {
		code, reason = codes.NotFound, ReasonUnknownRule
	}
	return faultsAs(code, &errdetails.ErrorInfo{Reason: reason, Domain: Domain}, list)
}

// faultsAs is the error of a request with mistakes, for the reason that is given.
func faultsAs(code codes.Code, why *errdetails.ErrorInfo, list decide.Faults) error {
	bad := new(errdetails.BadRequest)
	for i := range list {
		bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: field(list[i].Place), Description: list[i].Text})
	}
	text := list.Summary()
	if len(list) > 1 {
		text += ", the first of them"
	}
	return detailed(code, text+": "+field(list[0].Place)+": "+list[0].Text, why, bad)
}

// field is the place as the messages have it, to which the descriptor is entries.
func field(p decide.Place) string {
	if p.List == "descriptor" {
		p.List = "entries"
	}
	if p.List == "" && p.Name == "descriptor" {
		p.Name = "entries"
	}
	return p.String()
}

// undecided are the codes and reasons of requests without a verdict.
var undecided = [...]struct {
	code   codes.Code
	reason string
}{
	decide.Refused:       {codes.InvalidArgument, ReasonInvalid},
	decide.Conflict:      {codes.Aborted, ReasonConflict},
	decide.NoReservation: {codes.NotFound, ReasonNoReservation},
	decide.Unsupported:   {codes.Unimplemented, ReasonNoLedger},
	decide.Unavailable:   {codes.Unavailable, ReasonUnavailable},
	decide.NotHeld:       {codes.FailedPrecondition, ReasonNotHeld},
	decide.Revoked:       {codes.FailedPrecondition, ReasonRevoked},
	decide.OtherCost:     {codes.Aborted, ReasonOtherCost},
	decide.NoPermits:     {codes.Unimplemented, ReasonNoPermits},
}

// statusOf is the error of a request without a verdict, or nil if it has one.
func statusOf(ctx context.Context, list decide.Faults, o *decide.Outcome) error {
	switch o.Kind {
	case decide.Decided:
		return nil
	case decide.Faulty:
		if large := o.TooLarge; large != nil {
			return faultsAs(codes.InvalidArgument, &errdetails.ErrorInfo{Reason: ReasonTooLarge, Domain: Domain, Metadata: map[string]string{
				"cost": strconv.FormatInt(large.Cost, 10), "limit": strconv.FormatInt(large.Limit, 10),
			}}, list)
		}
		return faultsStatus(list)
	case decide.Gone:
		return status.FromContextError(ctx.Err()).Err()
	case decide.Refused:
		var refused decide.Faults
		for _, problem := range o.Invalid.Problems {
			refused.Add(decide.OutOfRange, decide.Place{Name: o.Invalid.Subject}, "%s", problem.Text)
		}
		if refused != nil {
			return faultsStatus(refused)
		}
	case decide.Unavailable:
		return newStatus(codes.Unavailable, ReasonUnavailable, o.Text(), &errdetails.RetryInfo{RetryDelay: durationpb.New(decide.ComeBack)})
	}
	return newStatus(undecided[o.Kind].code, undecided[o.Kind].reason, o.Text())
}

// failed is the status of a call that ended with an error.
func failed(ctx context.Context, err error) error {
	return statusOf(ctx, nil, decide.Fail(ctx, err))
}

// newStatus returns a status with an ErrorInfo and other details.
func newStatus(code codes.Code, reason, text string, details ...protoadapt.MessageV1) error {
	return detailed(code, text, append([]protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: reason, Domain: Domain}}, details...)...)
}

// detailed returns a status with details.
func detailed(code codes.Code, text string, details ...protoadapt.MessageV1) error {
	s := status.New(code, text)
	if whole, err := s.WithDetails(details...); err == nil {
		return whole.Err()
	}
	// Only details that cannot be encoded, by names that are not UTF-8, end here.
	return s.Err()
}

// errEnded is how a stream ends when the server is being shut down.
func errEnded() error {
	return newStatus(codes.Unavailable, ReasonStreamEnded, "the server is being shut down; what the stream has not answered was not charged")
}
