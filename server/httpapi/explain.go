package httpapi

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/decide"
)

// serveExplain says what binds a request and why, and charges nothing.
func (h *Handler) serveExplain(w http.ResponseWriter, r *http.Request) {
	s := h.pool.Get().(*scratch)
	h.explain(w, r, s)
	// Not deferred: after a panic somebody may still hold the scratch.
	h.release(s)
}

func (h *Handler) explain(w http.ResponseWriter, r *http.Request, s *scratch) {
	// None of the parameters of the other paths has a meaning here.
	_, p := readQuery(r.URL.RawQuery, headgate.OpReset)
	body, ok := s.receive(w, r, p)
	if !ok {
		return
	}
	decode(body, formCheck, &s.request, &s.faults)
	if s.request.seen&hasChecks != 0 {
		s.faults.add(http.StatusUnprocessableEntity, place{name: "checks"}, "cannot be explained; send the descriptor of a request")
	}
	if len(s.faults) != 0 {
		writeProblem(w, faultsProblem(s.faults))
		return
	}
	set := h.decider.Policy()
	e := set.Explain(s.request.descriptor, s.request.cost)
	if e.Error == "" {
		if checks := e.Checks(); len(checks) > 0 {
			var err error
			ask := decide.Ask{Op: headgate.OpPeek, Policy: set, Checks: checks}
			if s.decisions, err = h.decider.Take(r.Context(), &ask, s.decisions); err != nil {
				h.failed(w, r, err)
				return
			}
		}
		e.Observe(set.Set, s.decisions)
	}
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	if err := to.Encode(&e); err != nil {
		// It holds texts, numbers and lists of them, all of which encode.
		panic(err)
	}
	writeJSON(w, http.StatusOK, b.Bytes())
}
