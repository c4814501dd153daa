package grpclimit

import (
	"context"

	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/internal/admission"
)

// enter admits a call, or returns the error with which it ends. The passage must be told of the
// call's end; it is nil if the end does not matter.
func (s *Server) enter(c *Call) (*admission.Passage[*Call], error) {
	a := s.calls.Try(c.ctx, c, 0)
	if a.Outcome == admission.Passed {
		s.tell(c, a)
	}
	p, err := a.Passage, s.answer(c, a)
	a.Free()
	return p, err
}

// message admits a message, possibly after a wait, or returns the error with which its stream ends.
func (s *Server) message(c *Call) error {
	a := s.messages.Try(c.ctx, c, s.hold)
	err := s.answer(c, a)
	a.Free()
	return err
}

// answer returns the error with which a call or stream ends, or nil if it goes on.
func (s *Server) answer(c *Call, a *admission.Attempt[*Call]) error {
	switch a.Outcome {
	case admission.Passed:
		return nil
	case admission.Open:
		if s.unenforced != "" {
			s.setHeader(c, s.unenforced, "store-unavailable")
		}
		return nil
	case admission.Lacking:
		return errNobody(a.Entry, &s.reader.apiKeys)
	case admission.Unclear:
		return errUnclear(a.Why)
	case admission.Listed:
		return errForbidden()
	case admission.Shed:
		return s.shed(c, a.Rejection)
	case admission.Busy:
		return errBusy(a.Refusal)
	case admission.Denied:
		s.setTrailer(c, &a.Verdict)
		return s.denied(c, a.Verdict)
	}
	return undecided(a)
}

// undecided returns the error of a call for which there is no verdict.
func undecided(a *admission.Attempt[*Call]) error {
	switch a.Outcome {
	case admission.Unavailable:
		return errUnavailable()
	case admission.Ended:
		return status.FromContextError(a.Err).Err()
	}
	return errBroken()
}

// SetCost is for handlers behind an interceptor with [Settle]. It sets the real cost of the call
// whose context this is, for the function of Settle to read. It reports whether there is such an
// interceptor. The last call counts.
func SetCost(ctx context.Context, cost int64) bool { return admission.SetCost[*Call](ctx, cost) }

// end gives the permits back and settles the charge. It takes at most a second after the call's
// context has ended.
func (s *Server) end(p *admission.Passage[*Call], end End) {
	p.End(httpStatus(end.Code), func(c *Call, said int64) int64 {
		end.Cost = said
		return s.settle(c, end)
	})
}
