package httpapi

import (
	"net/http"

	"github.com/headgate/headgate/server/decide"
)

// explain answers what binds a request and why, and charges nothing.
func (h *Handler) explain(w http.ResponseWriter, r *http.Request, s *scratch) {
	_, p := readQuery(r.URL.RawQuery, noParameters)
	if !s.receive(w, r, formCheck, p) {
		return
	}
	e, o := s.Explain(r.Context(), h.decider)
	if o.Kind != decide.Decided {
		writeUndecided(w, s.Faults, o)
		return
	}
	writeJSON(w, encode(&e))
}
