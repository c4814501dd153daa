package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate"
)

// pooled lends a scratch for one request.
func pooled(serve func(*Handler, http.ResponseWriter, *http.Request, *scratch)) func(*Handler, http.ResponseWriter, *http.Request) {
	return func(h *Handler, w http.ResponseWriter, r *http.Request) {
		s := h.pool.Get().(*scratch)
		serve(h, w, r, s)
		// Not deferred: after a panic somebody may still hold the scratch.
		h.release(s)
	}
}

// reserve takes units for a request whose cost is an estimate.
func (h *Handler) reserve(w http.ResponseWriter, r *http.Request, s *scratch) {
	want, p := readQuery(r.URL.RawQuery, headgate.OpTake)
	body, ok := s.receive(w, r, p)
	if !ok {
		return
	}
	decode(body, formTake, &s.request, &s.faults)
	s.ask.Op, s.ask.Policy = headgate.OpTake, h.decider.Policy()
	s.resolve()
	if len(s.faults) != 0 {
		writeProblem(w, faultsProblem(s.faults))
		return
	}
	terms := s.request.terms()
	if terms.For == 0 {
		terms.For = s.ask.Policy.Term(s.ask.Checks)
	}
	reservation, decisions, err := h.decider.Reserve(r.Context(), terms, &s.ask, s.decisions)
	if err != nil {
		h.failed(w, r, err)
		return
	}
	s.decisions = decisions
	if s.ask.Denied != nil {
		s.writeListed(w, want.status)
		return
	}
	verdict := headgate.NewVerdict(s.decisions)
	texts := h.textsOf(s.ask.Policy)
	if want.status && !verdict.Allowed {
		h.writeDenial(w, s, &verdict, texts, want.at)
		return
	}
	s.out = appendMembers(append(s.out[:0], '{'), &verdict, texts, want.at)
	if reservation.ID != "" {
		s.out = appendString(append(s.out, `,"reservation":{"id":`...), reservation.ID)
		left := time.Duration(reservation.Expires-s.decisions[0].At) * time.Microsecond
		s.out = strconv.AppendInt(append(s.out, `,"expires_in_ms":`...), left.Milliseconds(), 10)
		s.out = append(s.out, '}')
	}
	s.out = append(s.out, "}\n"...)
	writeJSON(w, http.StatusOK, s.out)
}

// settle makes the cost of a reservation the real one.
func (h *Handler) settle(w http.ResponseWriter, r *http.Request, s *scratch) {
	h.finish(w, r, s, formSettle)
}

// cancel gives back what a reservation has charged.
func (h *Handler) cancel(w http.ResponseWriter, r *http.Request, s *scratch) {
	h.finish(w, r, s, formCancel)
}

func (h *Handler) finish(w http.ResponseWriter, r *http.Request, s *scratch, f form) {
	// None of the parameters of the other paths has a meaning here.
	_, p := readQuery(r.URL.RawQuery, headgate.OpReset)
	body, ok := s.receive(w, r, p)
	if !ok {
		return
	}
	decode(body, f, &s.request, &s.faults)
	if len(s.faults) != 0 {
		writeProblem(w, faultsProblem(s.faults))
		return
	}
	reservation, err := h.decider.Recall(r.Context(), s.request.reservation)
	if err != nil {
		h.failed(w, r, err)
		return
	}
	set := h.decider.Policy()
	cost := int64(-1) // as estimated
	if f == formCancel || s.request.seen&hasCost != 0 {
		cost = s.request.cost
	}
	units := set.Settle(&reservation, cost, int(s.request.status))
	decisions, err := h.decider.Settle(r.Context(), reservation, units, s.decisions)
	if err != nil {
		h.failed(w, r, err)
		return
	}
	s.decisions = decisions
	verdict := headgate.NewVerdict(s.decisions)
	s.out = appendVerdict(s.out[:0], &verdict, h.textsOf(set), false)
	writeJSON(w, http.StatusOK, s.out)
}
