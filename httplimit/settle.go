package httplimit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/headgate/headgate"
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
		if cost == nil {
			s.bad("Settle needs a function")
		}
		s.settle = cost
	}
}

// take has the store decide, and reserves if the cost is to be settled.
func (m *middleware) take(ctx context.Context, s *scratch) (r headgate.Reservation, decisions []headgate.Decision, err error) {
	if m.ledger == nil {
		decisions, err = m.store.Take(ctx, headgate.OpTake, s.checks, s.decisions[:0])
		return r, decisions, err
	}
	var terms headgate.Terms
	if m.set != nil {
		terms.For = m.set.Term(s.checks)
	}
	return m.ledger.Reserve(ctx, terms, s.checks, s.decisions[:0])
}

// release gives back what a request has taken that is not let in after all.
func (m *middleware) release(ctx context.Context, r *http.Request, checks []headgate.Check, reservation headgate.Reservation) {
	if reservation.ID == "" {
		m.giveBack(ctx, r, checks)
		return
	}
	if _, err := m.ledger.Settle(ctx, reservation, make([]int64, len(reservation.Checks)), nil); err != nil {
		m.failed(r, fmt.Errorf("cancel what a request has reserved: %w", err))
	}
}

// Passage is an admitted request whose charge depends on how it ends. It is told by
// [Passage.End], once.
type Passage struct {
	m           *middleware
	r           *http.Request
	charged     []headgate.Check     // unless there is a
	reservation headgate.Reservation // that holds them
	cost        atomic.Int64         // that the handler said, or -1
}

// newPassage returns what is to be told of the request's end, or nil.
func (m *middleware) newPassage(r *http.Request, checks []headgate.Check, decisions []headgate.Decision, reservation headgate.Reservation) *Passage {
	if reservation.ID == "" && (m.set == nil || !m.set.Awaits(checks)) {
		return nil
	}
	p := &Passage{m: m, r: r, reservation: reservation}
	p.cost.Store(-1)
	if reservation.ID == "" {
		// The checks stand in a scratch that the next request uses.
		p.charged = Charged(append([]headgate.Check(nil), checks...), decisions)
	}
	return p
}

// costKey is what the context of a request has its passage under.
type costKey struct{}

// Context returns a context by which [SetCost] finds the passage.
func (p *Passage) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, costKey{}, p)
}

// SetCost is for handlers behind a middleware with [Settle]: it says what the request
// of that context has really cost, for the function of Settle to read. It reports
// whether there is such a middleware. The last call counts.
func SetCost(ctx context.Context, cost int64) bool {
	p, ok := ctx.Value(costKey{}).(*Passage)
	if ok {
		p.cost.Store(max(cost, 0))
	}
	return ok
}

// End settles what the request was charged. It outlives the request's context by a
// second at most. A nil passage has nothing to settle.
func (p *Passage) End(status int, bytes int64) {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.r.Context()), giveBackWithin)
	defer cancel()
	if p.reservation.ID == "" {
		p.refund(ctx, status)
		return
	}
	cost := p.m.settle(p.r, Response{status, bytes, p.cost.Load()})
	if cost < 0 || cost > headgate.MaxCount {
		p.m.failed(p.r, fmt.Errorf("%w: the function of Settle returned %d for %s %s, must be 0 to %d; the request stays charged as estimated", headgate.ErrInvalid, cost, p.r.Method, p.r.URL.Path, headgate.MaxCount))
		return
	}
	units := p.reservation.Units(cost)
	if p.m.set != nil {
		units = p.m.set.Settle(&p.reservation, cost, status)
	}
	if err := SettleOrCharge(ctx, p.m.ledger, p.reservation, units); err != nil {
		p.m.failed(p.r, fmt.Errorf("settle what a request has cost: %w", err))
	}
}

// SettleOrCharge settles a reservation at these units, one for each of its checks. Of
// one that has expired it charges what is missing, or whoever makes an answer last
// would get the rest of it for nothing. Errors are the ledger's.
func SettleOrCharge(ctx context.Context, ledger headgate.Ledger, r headgate.Reservation, units []int64) error {
	_, err := ledger.Settle(ctx, r, units, nil)
	if !errors.Is(err, headgate.ErrNoReservation) {
		return err
	}
	missing := r.Late(units)
	if missing == nil {
		return nil
	}
	_, err = ledger.Take(ctx, headgate.OpCharge, missing, nil)
	return err
}

// refund gives back what does not count by the request's status.
func (p *Passage) refund(ctx context.Context, status int) {
	var back []headgate.Check
	for _, c := range p.charged {
		if !p.m.set.Charged(&c, status) {
			back = append(back, c)
		}
	}
	if len(back) > 0 {
		p.m.giveBack(ctx, p.r, back)
	}
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
	if p.reservation.ID != "" {
		r = r.WithContext(p.Context(r.Context()))
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
