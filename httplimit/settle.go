package httplimit

import (
	"context"
	"net/http"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/internal/admission"
)

// Response is how a request has ended.
type Response struct {
	// Status is the status that was sent: 500 if the handler panicked before it
	// sent one.
	Status int
	// Bytes is the length of the body that was written.
	Bytes int64
	// Cost is what the handler said with [SetCost], or -1.
	Cost int64
}

// Settle makes the cost of a request that of [Cost], or one unit, an estimate, which
// is reserved; when the request has ended the function says what it really cost, 0 or
// more. What was estimated too much is given back, and what is missing is charged
// whether it fits or not. The rules of a [Policy] say how long a request may take, and
// what becomes of one whose end nobody told, because the process died; of one that took
// longer, what is missing is charged, and nothing is given back. The store must
// be a [headgate.Ledger]. Settling takes one more call to it.
func Settle(cost func(r *http.Request, end Response) int64) Option {
	return func(s *settings) {
		s.Needs("Settle", cost != nil)
		s.settle = cost
	}
}

// Passage is an admitted request of which something depends on how it ends: its charge, or
// permits of rules or of a gate. It is told by [Passage.End], once.
type Passage struct {
	m      *middleware
	held   *admission.Passage[*http.Request]
	r      *http.Request
	header http.Header // of the response
}

// Context returns a context for the handler: by it [SetCost] and [Done] find the passage,
// and a second pass of the request under the same bounds is known as a part of it. It is
// ctx itself if there is nothing of that.
func (p *Passage) Context(ctx context.Context) context.Context { return p.held.Context(ctx) }

// SetCost is for handlers behind a middleware with [Settle]: it says what the request
// of that context has really cost, for the function of Settle to read. It reports
// whether there is such a middleware. The last call counts.
func SetCost(ctx context.Context, cost int64) bool {
	return admission.SetCost[*http.Request](ctx, cost)
}

// End gives the permits back, and settles what the request was charged by the status and
// the length of the body that were sent. It outlives the request's context by a second at
// most. A nil passage has nothing to end.
func (p *Passage) End(status int, bytes int64) {
	if p == nil {
		return
	}
	p.held.Done(p.outcome(status))
	p.held.End(status, func(r *http.Request, said int64) int64 {
		return p.m.settle(r, Response{status, bytes, said})
	})
}

// serve has next answer the request, and ends the passage by what it sees.
func (p *Passage) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	seen := &witness{ResponseWriter: w, passage: p}
	panicked := true
	defer func() {
		if seen.status == 0 {
			seen.status = http.StatusOK
			if panicked {
				seen.status = http.StatusInternalServerError
			}
		}
		if panicked || seen.flushed.Load() || seen.waited() {
			p.held.Done(flow.Ignore)
		}
		p.End(seen.status, seen.bytes)
	}()
	if ctx := p.Context(r.Context()); ctx != r.Context() {
		r = r.WithContext(ctx)
		if p.m.through != nil {
			seen.watch(r)
		}
	}
	next.ServeHTTP(seen, r)
	panicked = false
}
