package httplimit

import (
	"context"
	"net/http"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/internal/admission"
)

// Response describes how a request has ended.
type Response struct {
	// Status is the status that was sent; 500 if the handler panicked before it sent one.
	Status int
	// Bytes is the length of the body that was written.
	Bytes int64
	// Cost is the cost that the handler gave with [SetCost], or -1.
	Cost int64
}

// Settle makes the cost of a request (that of [Cost], or one unit) an estimate, which is reserved.
// When the request has ended, the function returns its real cost, 0 or more. If that is less than
// the estimate, the difference is given back. If it is more, the difference is charged, whether it
// fits or not.
//
// The rules of a [Policy] say how long a request may take, and what happens to the units if nobody
// reports its end, because the process died. If a request took longer than that, a difference is
// still charged, but none is given back.
//
// The store must be a [headgate.Ledger]. Settling takes one more call to it.
func Settle(cost func(r *http.Request, end Response) int64) Option {
	return func(s *settings) {
		s.Needs("Settle", cost != nil)
		s.settle = cost
	}
}

// Passage is an admitted request whose end matters, for its charge, for permits of rules, or for
// the permit of a gate. Call [Passage.End] once when the request has ended.
type Passage struct {
	m      *middleware
	held   *admission.Passage[*http.Request]
	r      *http.Request
	header http.Header // of the response
}

// Context returns the context for the handler. [SetCost] and [Done] find the passage in it. It also
// shows that a second pass of the request under the same bounds is a part of the first. It is ctx
// itself if none of that is needed.
func (p *Passage) Context(ctx context.Context) context.Context { return p.held.Context(ctx) }

// SetCost is for handlers behind a middleware with [Settle]. It sets the real cost of the request
// whose context this is, for the function of Settle to read. It reports whether there is such a
// middleware. The last call counts.
func SetCost(ctx context.Context, cost int64) bool {
	return admission.SetCost[*http.Request](ctx, cost)
}

// End gives the permits back, and settles the charge by the status and by the length of the body
// that were sent. It takes at most a second after the request's context has ended. On a nil passage
// it does nothing.
func (p *Passage) End(status int, bytes int64) {
	if p == nil {
		return
	}
	p.held.Done(p.outcome(status))
	p.held.End(status, func(r *http.Request, said int64) int64 {
		return p.m.settle(r, Response{status, bytes, said})
	})
}

// serve lets next answer the request, and ends the passage with what was sent.
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
