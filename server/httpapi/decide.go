package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// scratch is what one request needs and the next can use again, so that a
// decision allocates little but the text of its body.
type scratch struct {
	body      []byte
	out       []byte
	request   request
	faults    faults
	ask       decide.Ask
	decisions []headgate.Decision
}

// maxKept bounds the answer that a pooled scratch keeps room for. Bodies are
// bounded by MaxBody, and checks by what fits into one.
const maxKept = 64 << 10

// release gives the scratch back, without what it knows of the request.
func (h *Handler) release(s *scratch) {
	s.request.reset()
	clear(s.ask.Checks)
	clear(s.ask.Named)
	clear(s.decisions)
	clear(s.faults)
	s.ask = decide.Ask{Checks: s.ask.Checks[:0], Named: s.ask.Named[:0]}
	s.decisions, s.faults = s.decisions[:0], s.faults[:0]
	if cap(s.out) > maxKept {
		s.out = nil
	}
	h.pool.Put(s)
}

// deciding returns what serves the path of op.
func deciding(op headgate.Op) func(*Handler, http.ResponseWriter, *http.Request) {
	return func(h *Handler, w http.ResponseWriter, r *http.Request) {
		s := h.pool.Get().(*scratch)
		h.decide(w, r, op, s)
		// Not deferred: after a panic somebody may still hold the scratch.
		h.release(s)
	}
}

func (h *Handler) decide(w http.ResponseWriter, r *http.Request, op headgate.Op, s *scratch) {
	want, p := readQuery(r.URL.RawQuery, op)
	body, ok := s.receive(w, r, p)
	if !ok {
		return
	}
	decode(body, formOf(op), &s.request, &s.faults)
	if op == headgate.OpTake && s.request.seen&(hasID|hasLifetime) == hasLifetime {
		s.faults.add(http.StatusUnprocessableEntity, place{name: "lifetime_ms"}, `goes with an "id"`)
	}
	s.ask.Op, s.ask.Policy = op, h.decider.Policy()
	s.resolve()
	if len(s.faults) != 0 {
		writeProblem(w, faultsProblem(s.faults))
		return
	}
	decisions, err := h.take(r.Context(), s)
	if err != nil {
		h.failed(w, r, err)
		return
	}
	s.decisions = decisions
	if s.ask.Denied != nil && (op == headgate.OpTake || op == headgate.OpPeek) {
		s.writeListed(w, want.status)
		return
	}
	if op == headgate.OpReset {
		s.out = appendReset(s.out[:0], s.ask.Checks)
		writeJSON(w, http.StatusOK, s.out)
		return
	}
	verdict := headgate.NewVerdict(s.decisions)
	texts := h.textsOf(s.ask.Policy)
	if want.status && !verdict.Allowed {
		h.writeDenial(w, s, &verdict, texts, want.at)
		return
	}
	if want.status {
		httplimit.WriteHeaders(w.Header(), h.options.Dialect, &verdict)
		httplimit.WriteWarning(w.Header(), h.options.Dialect, &verdict, s.ask.Policy.Set)
	}
	s.out = appendVerdict(s.out[:0], &verdict, texts, want.at)
	writeJSON(w, http.StatusOK, s.out)
}

// take has the ask of a scratch decided, once if it has an id.
func (h *Handler) take(ctx context.Context, s *scratch) ([]headgate.Decision, error) {
	if s.request.id == "" {
		return h.decider.Take(ctx, &s.ask, s.decisions)
	}
	return h.decider.TakeOnce(ctx, s.request.terms(), &s.ask, s.decisions)
}

// terms are how the request is to be remembered.
func (r *request) terms() headgate.Terms {
	return headgate.Terms{ID: r.id, For: time.Duration(r.lifetime) * time.Millisecond}
}

// receive returns the body of a request, of which p is known to be wrong already
// unless it is nil. If there is anything wrong, it answers and reports false.
func (s *scratch) receive(w http.ResponseWriter, r *http.Request, p *problem) (body string, ok bool) {
	if p == nil {
		p = checkType(r.Header)
	}
	if p == nil {
		body, p = s.readBody(r)
	}
	if p == nil {
		return body, true
	}
	if p.status == http.StatusRequestEntityTooLarge || p.status == http.StatusRequestTimeout {
		// What is left of the body is not worth reading.
		w.Header()["Connection"] = []string{"close"}
	}
	writeProblem(w, p)
	return "", false
}

// textsOf returns the texts for set, which are made anew when the policy was
// changed.
func (h *Handler) textsOf(set decide.Policy) *texts {
	t := h.texts.Load()
	if t == nil || t.set != set {
		t = newTexts(set)
		h.texts.Store(t)
	}
	return t
}

// resolve finds the checks that the request means. What the request asks for
// and the policy has not is a fault.
func (s *scratch) resolve() {
	r, set := &s.request, s.ask.Policy
	if s.faults.status() == http.StatusBadRequest {
		return
	}
	for i := range r.named {
		c := &r.named[i]
		if c.seen&hasRule == 0 {
			continue
		}
		cost := c.cost
		if !validCost(cost) {
			cost = 1 // noted already; the key may have mistakes of its own
		}
		checks, err := set.AppendCheck(s.ask.Checks, c.rule, c.key, cost)
		if c.seen&hasKey == 0 && !errors.Is(err, policy.ErrUnknownRule) {
			continue // noted already
		}
		if err != nil {
			s.refuse(place{in: "checks", index: i + 1}, err)
			continue
		}
		s.ask.Checks = checks
		s.ask.Named = append(s.ask.Named, decide.Named{Rule: c.rule, Key: c.key, Cost: cost})
	}
	if len(s.faults) != 0 {
		return
	}
	if r.seen&hasDescriptor != 0 {
		outcome, err := set.Decide(r.descriptor, r.cost, s.ask.Checks)
		if err != nil {
			s.refuse(place{name: "descriptor"}, err)
		}
		s.ask.Descriptor, s.ask.Cost = r.descriptor, r.cost
		s.ask.Checks, s.ask.Denied, s.ask.Allowed = outcome.Checks, outcome.Denied, outcome.Allowed
	}
	for i := range s.ask.Checks {
		s.ask.Checks[i].At = r.at
	}
	// The store would refuse the same, but does not know the field.
	if len(s.ask.Checks) > 1 && len(s.faults) == 0 {
		if err := headgate.Validate(headgate.OpTake, s.ask.Checks); err != nil {
			p := place{name: "checks"}
			if r.seen&hasDescriptor != 0 {
				p.name = "descriptor"
			}
			s.refuse(p, err)
		}
	}
}

// refuse notes why the policy will not have the part of the request at p.
func (s *scratch) refuse(p place, err error) {
	var invalid *headgate.InvalidError
	switch {
	case errors.Is(err, policy.ErrUnknownRule):
		p.name = "rule"
		s.faults.add(http.StatusNotFound, p, "%s; GET /v1/rules lists the rules", headgate.Text(err))
	case errors.As(err, &invalid):
		for _, problem := range invalid.Problems {
			at := p
			if p.in == "checks" {
				at.name = problem.Field
			}
			s.faults.add(http.StatusUnprocessableEntity, at, "%s", problem.Text)
		}
	default:
		s.faults.add(http.StatusUnprocessableEntity, p, "%s", headgate.Text(err))
	}
}

// failed answers for a store that did not decide. Its error is for the log of
// whoever runs the server: it may name addresses that are no caller's business.
func (h *Handler) failed(w http.ResponseWriter, r *http.Request, err error) {
	var invalid *headgate.InvalidError
	switch {
	case r.Context().Err() != nil:
		// The caller is gone, and nobody reads an answer.
	case errors.As(err, &invalid):
		writeProblem(w, &problem{status: http.StatusUnprocessableEntity, detail: invalid.Problems.String()})
	case errors.Is(err, headgate.ErrConflict):
		writeProblem(w, &problem{status: http.StatusConflict, detail: headgate.Text(err)})
	case errors.Is(err, headgate.ErrNoReservation):
		writeProblem(w, &problem{status: http.StatusNotFound, detail: "there is no such reservation: it has expired, or there never was one; nothing was changed"})
	case errors.Is(err, errors.ErrUnsupported):
		writeProblem(w, &problem{status: http.StatusNotImplemented, detail: headgate.Text(err)})
	default:
		writeUnavailable(w)
	}
}

// wants is what the query of a request asks for.
type wants struct {
	status bool // A denial is to be a status.
	at     bool // The answer is to hold the time of the decision.
}

// readQuery reads the query, which the usual request has not.
func readQuery(raw string, op headgate.Op) (wants, *problem) {
	var w wants
	if raw == "" {
		return w, nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return w, &problem{status: http.StatusBadRequest, detail: "the query is not understood; it may have escapes that are not complete"}
	}
	var list faults
	for _, name := range slices.Sorted(maps.Keys(values)) {
		given := values[name]
		var to *bool
		switch {
		case name == "status" && (op == headgate.OpTake || op == headgate.OpPeek):
			to = &w.status
		case name == "at" && op == headgate.OpTake:
			to = &w.at
		default:
			list.add(http.StatusBadRequest, place{in: "query", name: name}, "is not a parameter of this path")
			continue
		}
		if len(given) != 1 || given[0] != "true" && given[0] != "false" {
			list.add(http.StatusBadRequest, place{in: "query", name: name}, "must be true or false, once")
			continue
		}
		*to = given[0] == "true"
	}
	if list != nil {
		return w, faultsProblem(list)
	}
	return w, nil
}

// checkType lets only JSON pass. A browser sends it across origins only with
// leave, which nobody gives it here.
func checkType(h http.Header) *problem {
	switch given := h["Content-Type"]; {
	case len(h["Content-Encoding"]) != 0:
		return &problem{status: http.StatusUnsupportedMediaType, detail: "the body must not be encoded; leave Content-Encoding out"}
	case len(given) == 1 && given[0] == "application/json":
		return nil
	case len(given) == 1:
		media, params, err := mime.ParseMediaType(given[0])
		if charset, ok := params["charset"]; err == nil && media == "application/json" && (!ok || strings.EqualFold(charset, "utf-8")) {
			return nil
		}
	}
	return &problem{status: http.StatusUnsupportedMediaType, detail: "the body must come with Content-Type: application/json (with curl: --json instead of -d)"}
}

// readBody reads the body into the scratch and returns it as text of its own,
// which keys and names can share.
func (s *scratch) readBody(r *http.Request) (string, *problem) {
	if r.ContentLength > MaxBody {
		return "", tooLarge()
	}
	want := max(int(r.ContentLength)+1, 512)
	if cap(s.body) < want {
		s.body = make([]byte, 0, want)
	}
	s.body = s.body[:0]
	for {
		if len(s.body) == cap(s.body) {
			s.body = append(s.body, 0)[:len(s.body)]
		}
		n, err := r.Body.Read(s.body[len(s.body):cap(s.body)])
		s.body = s.body[:len(s.body)+n]
		switch {
		case len(s.body) > MaxBody:
			return "", tooLarge()
		case err == nil:
			continue
		case errors.Is(err, io.EOF):
			return string(s.body), nil
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
			return "", &problem{status: http.StatusRequestTimeout, detail: "the body did not arrive in time"}
		}
		return "", &problem{status: http.StatusBadRequest, detail: "the body ended before its time or is not framed as HTTP wants it"}
	}
}

func tooLarge() *problem {
	return &problem{status: http.StatusRequestEntityTooLarge, detail: fmt.Sprintf("the body may have %d bytes", MaxBody)}
}

// appendReset writes which rules' counters were forgotten.
func appendReset(b []byte, checks []headgate.Check) []byte {
	b = append(b, `{"reset":[`...)
	for i := range checks {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, checks[i].Rule.Name())
	}
	return append(b, "]}\n"...)
}
