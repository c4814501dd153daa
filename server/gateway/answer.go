package gateway

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/internal/notice"
	"github.com/headgate/headgate/policy/inprogress"
)

// outcome is the result of a request, for the log and the metrics.
type outcome uint8

const (
	passed      outcome = iota // sent to an upstream server
	open                       // sent to an upstream server without a decision
	denied                     // by a limit
	listed                     // denied by the policy's deny list
	crowded                    // denied because there was no permit
	refused                    // by the gateway itself: no route, no valid token, too large
	unavailable                // there was no decision
	unanswered                 // no upstream server has answered
	clientGone                 // the client has gone, or was too slow
	broken                     // ended by a defect

	outcomes // the number of them
)

// outcomeNames are the names of outcomes in the log and the metrics.
var outcomeNames = [outcomes]string{
	"passed", "open", "denied", "listed", "shed", "refused", "unavailable", "unanswered", "client_gone", "broken",
}

// Problems that are the same for all requests. They must not be changed.
var (
	defect           = &httplimit.Problem{Title: "The request could not be handled", Status: http.StatusInternalServerError}
	noRoute          = &httplimit.Problem{Title: "There is nothing here", Status: http.StatusNotFound, Detail: "The gateway has no route for the request."}
	methodNotAllowed = &httplimit.Problem{Title: "The method is not allowed", Status: http.StatusMethodNotAllowed, Detail: "The gateway passes on neither CONNECT nor TRACE."}
	ambiguousMethod  = ambiguous("Its method has small letters, which some servers take for capital ones.")
	ambiguousHost    = ambiguous(identity.Unhosted)
	ambiguousSpace   = ambiguous("There is a space in its target, which ends there for some servers. Send %20 instead.")
	fragment         = ambiguous(`Servers read its path in different ways: there is a "#" in it. Send a path without it.`)
	lengthRequired   = &httplimit.Problem{Title: "The request has no length", Status: http.StatusLengthRequired, Detail: "A body of HTTP/1.0 has a Content-Length."}
	bodySlow         = &httplimit.Problem{Title: "The request took too long", Status: http.StatusRequestTimeout, Detail: "Its body did not come in time."}
	bodyBroken       = &httplimit.Problem{Title: "The request is not complete", Status: http.StatusBadRequest, Detail: "Its body ended before its time or is not framed as HTTP wants it."}
	noAnswer         = &httplimit.Problem{Title: "The upstream server does not answer", Status: http.StatusBadGateway}
	lateAnswer       = &httplimit.Problem{Title: "The upstream server does not answer in time", Status: http.StatusGatewayTimeout}
	noToken          = &httplimit.Problem{Title: "The request has no token", Status: http.StatusUnauthorized, Detail: "Send one in the header that it is expected in."}
	noUpstream       = &httplimit.Problem{Title: "No upstream server is available", Status: http.StatusServiceUnavailable, RetryAfterMS: 1000}
)

func tooLong(entry string) *httplimit.Problem {
	return &httplimit.Problem{Title: "The request is too large", Status: http.StatusRequestHeaderFieldsTooLarge, Detail: fmt.Sprintf("What it gives as its %s is too long.", entry)}
}

func bodyTooLarge(most int64) *httplimit.Problem {
	return &httplimit.Problem{Title: "The request is too large", Status: http.StatusRequestEntityTooLarge, Detail: fmt.Sprintf("Its body may have %d bytes.", most)}
}

// ambiguous returns the problem for a request that different servers read in different ways.
func ambiguous(detail string) *httplimit.Problem {
	p := httplimit.Problem(notice.Ambiguous(detail))
	return &p
}

// unauthorized returns the problem for a token that is not accepted. It does not say which part of
// the token is wrong: only its issuer needs to know.
func unauthorized(err error) *httplimit.Problem {
	p := &httplimit.Problem{Title: "The request has no valid token", Status: http.StatusUnauthorized, Detail: "The token is not valid."}
	switch {
	case errors.Is(err, errNoToken):
		return noToken
	case errors.Is(err, errExpired):
		p.Detail = "The token has expired."
	case errors.Is(err, errNotYet):
		p.Detail = "The token is not valid yet."
	}
	return p
}

// answer answers the request here, and tells the client about its limits.
func (x *exchange) answer(p *httplimit.Problem) {
	h := x.w.Header()
	x.tell(h)
	if p.Status == http.StatusUnauthorized {
		h.Set("Www-Authenticate", x.challenge())
	}
	x.closeAfter(h)
	p.Write(x.w, x.r)
}

// tell tells the client about its limits.
func (x *exchange) tell(h http.Header) {
	if x.decided {
		httplimit.WriteHeaders(h, x.g.options.Dialect, &x.charge.Verdict)
		notice.WriteWarning(h, x.g.options.Dialect, &x.charge.Verdict, x.plan.policy.Set)
	}
	if x.outcome == open {
		h["X-Ratelimit-Unenforced"] = []string{"store-unavailable"}
	}
}

// challenge returns the WWW-Authenticate header that every 401 must have.
func (x *exchange) challenge() string {
	if x.refusal == noToken {
		return "Bearer"
	}
	return `Bearer error="invalid_token"`
}

// unanswered answers the request if the upstream server does not. It is the proxy's ErrorHandler.
func (x *exchange) unanswered(_ http.ResponseWriter, _ *http.Request, err error) {
	x.outcome = unanswered
	x.failedLoad(err)
	p := noAnswer
	var late net.Error
	switch failure := x.clientFailure(); {
	case errors.Is(failure, errTooLarge):
		p, x.outcome = bodyTooLarge(x.route.maxBody), refused
	case errors.Is(failure, errTooSlow):
		p, x.outcome = bodySlow, clientGone
	case inprogress.Lost(x.r.Context()):
		x.outcome = unavailable
		lost := httplimit.Problem(notice.ReducedCapacity(admission.UnavailableFor))
		lost.Detail = "The right to have the request in progress was lost."
		p = &lost
	case x.r.Context().Err() != nil:
		x.outcome = clientGone
		x.closeAfter(x.w.Header())
		x.w.WriteHeader(httplimit.StatusClientGone)
		return
	case failure != nil:
		p, x.outcome = bodyBroken, clientGone
	case errors.Is(err, errNoTarget):
		p = noUpstream
	case errors.As(err, &late) && late.Timeout(), errors.Is(err, context.DeadlineExceeded):
		p = lateAnswer
	}
	x.g.counts.answers.add(p.Status)
	x.answer(p)
}

// clientFailure returns the error on the client's side of the request, or nil.
func (x *exchange) clientFailure() error {
	if x.body == nil {
		return nil
	}
	return x.body.failure()
}
