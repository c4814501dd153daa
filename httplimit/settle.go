package httplimit

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"

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

// Passage is an admitted request whose charge depends on how it ends. It is told by
// [Passage.End], once.
type Passage struct {
	m    *middleware
	held *admission.Passage[*http.Request]
}

// Context returns a context by which [SetCost] finds the passage, or ctx itself if there
// is no [Settle].
func (p *Passage) Context(ctx context.Context) context.Context { return p.held.Context(ctx) }

// SetCost is for handlers behind a middleware with [Settle]: it says what the request
// of that context has really cost, for the function of Settle to read. It reports
// whether there is such a middleware. The last call counts.
func SetCost(ctx context.Context, cost int64) bool {
	return admission.SetCost[*http.Request](ctx, cost)
}

// End settles what the request was charged, by the status and the length of the body that
// were sent. It outlives the request's context by a second at most. A nil passage has
// nothing to settle.
func (p *Passage) End(status int, bytes int64) {
	if p == nil {
		return
	}
	p.held.End(status, func(r *http.Request, said int64) int64 {
		return p.m.settle(r, Response{status, bytes, said})
	})
}

// serve has next answer the request, and settles it by what it sees.
func (p *Passage) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	seen := &witness{ResponseWriter: w}
	panicked := true
	defer func() {
		if seen.status == 0 {
			seen.status = http.StatusOK
			if panicked {
				seen.status = http.StatusInternalServerError
			}
		}
		p.End(seen.status, seen.bytes)
	}()
	if ctx := p.Context(r.Context()); ctx != r.Context() {
		r = r.WithContext(ctx)
	}
	next.ServeHTTP(seen, r)
	panicked = false
}

// witness is a ResponseWriter that notes what is sent. It can flush and be hijacked
// if what it wraps can.
type witness struct {
	http.ResponseWriter
	status int
	bytes  int64
}

// Unwrap is for [http.ResponseController].
func (w *witness) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *witness) WriteHeader(status int) {
	// What comes before 200 is not the end, unless the protocol changes.
	if w.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *witness) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// ReadFrom lets the server send files as fast as it can.
func (w *witness) ReadFrom(src io.Reader) (int64, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := io.Copy(w.ResponseWriter, src)
	w.bytes += n
	return n, err
}

// Flush implements [http.Flusher].
func (w *witness) Flush() { _ = w.FlushError() }

// FlushError is for [http.ResponseController]. To flush is to send a status.
func (w *witness) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	if w.status == 0 && !errors.Is(err, http.ErrNotSupported) {
		w.status = http.StatusOK
	}
	return err
}

// Hijack implements [http.Hijacker].
func (w *witness) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil && w.status == 0 {
		w.status = http.StatusSwitchingProtocols
	}
	return conn, rw, err
}
