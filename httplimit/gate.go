package httplimit

import (
	"net/http"

	"github.com/headgate/headgate"
)

// Gate decides requests for frameworks whose middleware is not a func(http.Handler) http.Handler.
// If yours is, use [New]. A Gate is immutable and safe for concurrent use. Make one with [NewGate].
type Gate struct{ m *middleware }

// NewGate returns a gate. The options and the errors are those of [New].
func NewGate(store headgate.Store, opts ...Option) (*Gate, error) {
	m, err := newMiddleware(store, opts)
	if err != nil {
		return nil, err
	}
	return &Gate{m}, nil
}

// Enter is Admit for requests whose end matters: for their charge, or for a permit. It returns a
// passage that must be told of the end, or nil if the end does not matter. A caller that gets a
// passage must end it, even if the handler panics.
func (g *Gate) Enter(w http.ResponseWriter, r *http.Request) (p *Passage, ok bool) {
	return g.m.enter(w, r)
}

// Admit reports whether the request may go on. If so, it has set the headers that tell the client
// its limits. If not, it has answered the request, and nothing more may be written to w. Admit
// waits for the delay of a leaky bucket. It does not read the request's body, unless a function of
// the options does.
//
// Admit ignores how a request ends, so [Settle] and the rules of a policy that charge by the
// outcome have no effect, and bounds on what is in progress count the request only while Admit
// runs. Use Enter for these.
func (g *Gate) Admit(w http.ResponseWriter, r *http.Request) bool {
	p, ok := g.m.enter(w, r)
	if p != nil {
		p.held.Leave()
	}
	return ok
}
