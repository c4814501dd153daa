package grpclimit

import (
	"context"

	"google.golang.org/grpc/status"

	"github.com/headgate/headgate/internal/admission"
)

// enter lets a call in or returns what it ends with. The passage is to be told of
// its end; nil if nothing depends on that.
func (s *Server) enter(c *Call) (*admission.Passage[*Call], error) {
	a := s.calls.Try(c.ctx, c, 0)
	if a.Outcome == admission.Passed {
		s.tell(c, a)
	}
	p, err := a.Passage, s.answer(c, a)
	a.Free()
	return p, err
}

// message lets a message pass, at once or after a while, or returns what its stream
// ends with.
func (s *Server) message(c *Call) error {
	a := s.messages.Try(c.ctx, c, s.hold)
	err := s.answer(c, a)
	a.Free()
	return err
}

// answer returns what a call or stream ends with, or nil if it goes on.
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
		return errNobody(a.Entry, s.reader.apiKeys)
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

// undecided returns what a call ends with on which there is no verdict.
func undecided(a *admission.Attempt[*Call]) error {
	switch a.Outcome {
	case admission.Unavailable:
		return errUnavailable()
	case admission.Ended:
		return status.FromContextError(a.Err).Err()
	}
	return errBroken()
}

// SetCost is for handlers behind an interceptor with [Settle]: it says what the call
// of that context has really cost, for the function of Settle to read. It reports
// whether there is such an interceptor. The last call counts.
func SetCost(ctx context.Context, cost int64) bool { return admission.SetCost[*Call](ctx, cost) }

// end gives the permits back and settles what the call was charged. It outlives the call's context by a second
// at most.
func (s *Server) end(p *admission.Passage[*Call], end End) {
	p.End(httpStatus(end.Code), func(c *Call, said int64) int64 {
		end.Cost = said
		return s.settle(c, end)
	})
}
