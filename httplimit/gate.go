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

// Enter is Admit for requests whose charge may depend on how they end: it returns a
// passage to be told of that, or nil if it does not depend on it.
func (g *Gate) Enter(w http.ResponseWriter, r *http.Request) (p *Passage, ok bool) {
	return g.m.enter(w, r)
}

// Admit reports whether the request may go on. If so, the headers that tell the
// client its limits are set in w, and nothing else is done to it. If not, the
// request is answered by w: nothing may be written to it any more. A leaky
// bucket's delay is over when Admit returns. The request's body is not read,
// unless a function of the options does. What [Settle] and the rules of a policy
// say of how a request ends has no effect: see Enter.
func (g *Gate) Admit(w http.ResponseWriter, r *http.Request) bool {
	_, ok := g.m.enter(w, r)
	return ok
}
