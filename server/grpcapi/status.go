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

// Domain is the domain of the google.rpc.ErrorInfo in every error. The other constants are its
// possible reasons.
const (
	Domain = "headgate"
	// ReasonInvalid means that the request has mistakes.
	ReasonInvalid = "INVALID_REQUEST"
	// ReasonUnknownRule means that the policy does not have the rule.
	ReasonUnknownRule = "UNKNOWN_RULE"
	// ReasonConflict means that the id belongs to another request, or the reservation was settled at
	// another cost.
	ReasonConflict = "CONFLICT"
	// ReasonNoReservation means that the reservation has expired or never existed.
	ReasonNoReservation = "NO_RESERVATION"
	// ReasonNoLedger means that the store does not remember requests by an id.
	ReasonNoLedger = "NO_LEDGER"
	// ReasonUnavailable means that the store did not answer. Whether the request was charged is not
	// known.
	ReasonUnavailable = "STORE_UNAVAILABLE"
	// ReasonStreamEnded means that the stream ended because the server is being shut down. Requests
	// that it has not answered were not charged.
	ReasonStreamEnded = "STREAM_ENDED"
	// ReasonHeld means that the stream ended because too many bytes wait for callers to read their
	// answers; see [MaxHeld].
	ReasonHeld = "TOO_MUCH_UNREAD"
	// ReasonToken means that the token is missing or wrong, or that the server has none for this call.
	ReasonToken = "TOKEN"
	// ReasonTooLarge means that the cost exceeds the limit on what may be in progress. The metadata of
	// the ErrorInfo have both numbers, as cost and limit.
	ReasonTooLarge = "TOO_LARGE"
	// ReasonNotHeld means that the permit has ended, or its holder has given it back.
	ReasonNotHeld = "NOT_HELD"
	// ReasonRevoked means that the permit was revoked.
	ReasonRevoked = "REVOKED"
	// ReasonOtherCost means that the holder has a permit, or a place in line, at another cost.
	ReasonOtherCost = "OTHER_COST"
	// ReasonNoPermits means that the store keeps no permits.
	ReasonNoPermits = "NO_PERMITS"
)

// faultsStatus returns the status of a request with mistakes.
func faultsStatus(list decide.Faults) error {
	code, reason := codes.InvalidArgument, ReasonInvalid
	if list.Kind() == decide.UnknownRule {
		code, reason = codes.NotFound, ReasonUnknownRule
	}
	return faultsAs(code, &errdetails.ErrorInfo{Reason: reason, Domain: Domain}, list)
}

// faultsAs returns the status of a request with mistakes, with the given code and ErrorInfo.
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

// field returns the place in terms of the messages, where the descriptor is called entries.
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

// statusOf returns the status of a request without a verdict, or nil if it has one.
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

// failed returns the status of a call that ended with err.
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
	// Details cannot be encoded if they have names that are not UTF-8. The status then goes without
	// them.
	return s.Err()
}

// errEnded returns the status with which a stream ends when the server is being shut down.
func errEnded() error {
	return newStatus(codes.Unavailable, ReasonStreamEnded, "the server is being shut down; what the stream has not answered was not charged")
}
