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

// Admit reports whether the request may go on. If so, the headers that tell the
// client its limits are set in w, and nothing else is done to it. If not, the
// request is answered by w: nothing may be written to it any more. A leaky
// bucket's delay is over when Admit returns. The request's body is not read,
// unless a function of the options does.
func (g *Gate) Admit(w http.ResponseWriter, r *http.Request) bool { return g.m.admit(w, r) }
