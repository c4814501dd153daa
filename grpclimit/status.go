package grpclimit

import (
	"net/http"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/internal/notice"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/inprogress"
)

// The domain and the reasons in the google.rpc.ErrorInfo of the errors that the interceptors
// return.
const (
	Domain            = "headgate"
	ReasonExhausted   = "QUOTA_EXCEEDED"
	ReasonBusy        = "IN_PROGRESS"
	ReasonForbidden   = "DENY_LIST"
	ReasonNoIdentity  = "NO_IDENTITY"
	ReasonUnavailable = "STORE_UNAVAILABLE"
	ReasonDefect      = "LIMITER_DEFECT"
	// ReasonPaused is the reason of a client's interceptors that obey a server's RetryInfo.
	ReasonPaused = "SERVER_WANTS_A_PAUSE"
)

// exhausted is the error of a denied call, unless OnDenied is given.
func exhausted(_ *Call, v headgate.Verdict) error { return Exhausted(&v) }

// Exhausted returns the error for a denial: RESOURCE_EXHAUSTED, with a google.rpc.RetryInfo unless
// the cost can never fit, and a google.rpc.QuotaFailure that names the limits that denied.
func Exhausted(v *headgate.Verdict) error {
	quota := new(errdetails.QuotaFailure)
	for i := range v.Decisions {
		d := &v.Decisions[i]
		if d.Allowed || d.Shadow || d.Limit == nil {
			continue
		}
		quota.Violations = append(quota.Violations, &errdetails.QuotaFailure_Violation{Subject: "rule:" + d.Rule.Name(), Description: d.Limit.String()})
	}
	details := []protoadapt.MessageV1{quota}
	if v.RetryAfter != headgate.Never {
		details = append(details, retryIn(v.RetryAfter))
	}
	text := notice.QuotaExceeded(v).Detail
	if text == "" {
		text = "The call is denied."
	}
	return newStatus(codes.ResourceExhausted, ReasonExhausted, text, details...)
}

// errBusy is RESOURCE_EXHAUSTED if the bound is for this client, and UNAVAILABLE if several clients
// share it.
func errBusy(r *inprogress.Refusal) error {
	code := codes.Unavailable
	details := []protoadapt.MessageV1{}
	if r.Own() {
		code = codes.ResourceExhausted
		details = append(details, &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{
			{Subject: "rule:" + r.Bound.Rule.Name, Description: r.Detail()},
		}})
	}
	if after := r.RetryAfter(); after != headgate.Never {
		details = append(details, retryIn(after))
	}
	return newStatus(code, ReasonBusy, r.Detail(), details...)
}

// errForbidden does not say which entry of the deny list matched, so that the client cannot find a
// way around it.
func errForbidden() error {
	return newStatus(codes.PermissionDenied, ReasonForbidden, "The call is not allowed.")
}

func errNobody(entry string, apiKeys *identity.Keys) error {
	switch entry {
	case factAPIKey.Name:
		return newStatus(codes.Unauthenticated, ReasonNoIdentity, "Send an API key in the metadata "+strings.Join(apiKeys.Names(), " or ")+".")
	case "user":
		return newStatus(codes.Unauthenticated, ReasonNoIdentity, "The call comes from no user who is signed in.")
	case factCertificate.Name:
		return newStatus(codes.Unauthenticated, ReasonNoIdentity, "The call comes without a client certificate.")
	}
	return newStatus(codes.InvalidArgument, ReasonNoIdentity, "The call has no "+entry+", which its limit is counted by.")
}

func errUnclear(why string) error {
	return newStatus(codes.InvalidArgument, ReasonNoIdentity, why)
}

func errUnavailable() error {
	return newStatus(codes.Unavailable, ReasonUnavailable, "The rate limiter could not decide on the call.",
		retryIn(admission.UnavailableFor))
}

// retryIn says when a call may be repeated.
func retryIn(d time.Duration) protoadapt.MessageV1 {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(d)}
}

func errBroken() error {
	return newStatus(codes.Internal, ReasonDefect, "The call could not be handled.")
}

func newStatus(code codes.Code, reason, text string, details ...protoadapt.MessageV1) error {
	s := status.New(code, text)
	all := append([]protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: reason, Domain: Domain}}, details...)
	if detailed, err := s.WithDetails(all...); err == nil {
		return detailed.Err()
	}
	return s.Err() // The details have text that is not UTF-8.
}

// headers returns the dialect's headers as metadata.
func (s *Server) headers(v *headgate.Verdict, rules *policy.Set) metadata.MD {
	h := make(map[string][]string, 4)
	notice.WriteHeaders(h, s.dialect, v)
	if rules != nil {
		notice.WriteWarning(h, s.dialect, v, rules)
	}
	delete(h, "Cache-Control") // Nothing caches answers of gRPC.
	if len(h) == 0 {
		return nil
	}
	md := make(metadata.MD, len(h))
	for name, values := range h {
		md[lower(name)] = values
	}
	return md
}

// lower avoids the work for the usual names.
func lower(name string) string {
	switch name {
	case "X-Ratelimit-Limit":
		return "x-ratelimit-limit"
	case "X-Ratelimit-Remaining":
		return "x-ratelimit-remaining"
	case "X-Ratelimit-Reset":
		return "x-ratelimit-reset"
	}
	return strings.ToLower(name)
}

// tell tells the client of an admitted call its limits.
func (s *Server) tell(c *Call, a *admission.Attempt[*Call]) {
	if md := s.headers(&a.Verdict, a.Rules); md != nil {
		// SetHeader fails only if an interceptor before this one has sent the headers already.
		_ = grpc.SetHeader(c.ctx, md)
	}
}

func (s *Server) setHeader(c *Call, key, value string) {
	_ = grpc.SetHeader(c.ctx, metadata.Pairs(key, value)) // as in tell
}

// setTrailer tells the client of a denied call its limits, in trailers, which come with the error
// even if messages have been sent already.
func (s *Server) setTrailer(c *Call, v *headgate.Verdict) {
	if md := s.headers(v, nil); md != nil {
		_ = grpc.SetTrailer(c.ctx, md) // It fails only outside of a call.
	}
}

// httpStatus is the HTTP status that corresponds to a code, for rules that charge by the outcome.
func httpStatus(code codes.Code) int {
	switch code {
	case codes.OK:
		return http.StatusOK
	case codes.Canceled:
		return 499 // what nginx logs for a client that went away
	case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange:
		return http.StatusBadRequest
	case codes.DeadlineExceeded:
		return http.StatusGatewayTimeout
	case codes.NotFound:
		return http.StatusNotFound
	case codes.AlreadyExists, codes.Aborted:
		return http.StatusConflict
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.ResourceExhausted:
		return http.StatusTooManyRequests
	case codes.Unimplemented:
		return http.StatusNotImplemented
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

// retryAfter returns the time after which a server will take a refused call again, if the error
// says so.
func retryAfter(err error) (time.Duration, bool) {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.ResourceExhausted && s.Code() != codes.Unavailable {
		return 0, false
	}
	for _, d := range s.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok && info.GetRetryDelay().IsValid() {
			return info.GetRetryDelay().AsDuration(), true
		}
	}
	return 0, false
}
