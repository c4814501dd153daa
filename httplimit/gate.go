package httplimit

import (
	"net/http"

	"github.com/headgate/headgate"
)

// Gate decides on requests for a framework whose middleware is no
// func(http.Handler) http.Handler. Use [New] wherever it can be used. A Gate is
// immutable and safe for concurrent use; make one with [NewGate].
type Gate struct{ m *middleware }

// NewGate returns a gate with the options of [New], and with its errors.
func NewGate(store headgate.Store, opts ...Option) (*Gate, error) {
	m, err := newMiddleware(store, opts)
	if err != nil {
		return nil, err
	}
	return &Gate{m}, nil
}

// Enter is Admit for requests of which something may depend on how they end: their
// charge, or a permit. It returns a passage to be told of that, or nil if nothing does.
// Whoever gets a passage must end it, even if the handler panics.
func (g *Gate) Enter(w http.ResponseWriter, r *http.Request) (p *Passage, ok bool) {
	return g.m.enter(w, r)
}

// Admit reports whether the request may go on. If so, the headers that tell the
// client its limits are set in w, and nothing else is done to it. If not, the
// request is answered by w: nothing may be written to it any more. A leaky
// bucket's delay is over when Admit returns. The request's body is not read,
// unless a function of the options does. What [Settle] and the rules of a policy
// say of how a request ends has no effect, and what they let be in progress only counts
// while Admit runs: see Enter.
func (g *Gate) Admit(w http.ResponseWriter, r *http.Request) bool {
	p, ok := g.m.enter(w, r)
	if p != nil {
		p.held.Leave()
	}
	return ok
}
