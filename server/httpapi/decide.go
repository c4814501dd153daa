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

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/notice"
	"github.com/headgate/headgate/server/decide"
)

// scratch is the memory for one request, which later requests reuse, so that a decision allocates
// little more than the text of its body.
type scratch struct {
	message
	body []byte
	out  []byte
}

// maxKept is the maximum size of an answer whose memory a pooled scratch keeps, in bytes. Bodies
// are bounded by MaxBody, and checks by what fits into one.
const maxKept = 64 << 10

// pooled returns a handler that gives serve a scratch from the pool.
func pooled(serve func(*Handler, http.ResponseWriter, *http.Request, *scratch)) func(*Handler, http.ResponseWriter, *http.Request) {
	return func(h *Handler, w http.ResponseWriter, r *http.Request) {
		s := h.pool.Get().(*scratch)
		serve(h, w, r, s)
		// Not deferred: after a panic, the scratch may still be referenced and must not be reused.
		s.reset()
		if cap(s.out) > maxKept {
			s.out = nil
		}
		h.pool.Put(s)
	}
}

// deciding returns the handler of the path for op.
func deciding(op headgate.Op, reserve bool) func(*Handler, http.ResponseWriter, *http.Request) {
	return pooled(func(h *Handler, w http.ResponseWriter, r *http.Request, s *scratch) {
		want, p := readQuery(r.URL.RawQuery, op)
		if !s.receive(w, r, formOf(op), p) {
			return
		}
		s.Op, s.Reserve, s.Outcome = op, reserve, want.outcome
		h.answer(w, s, s.Decide(r.Context(), h.decider), want)
	})
}

// settling returns the handler of a path that ends reservations.
func settling(f form) func(*Handler, http.ResponseWriter, *http.Request) {
	return pooled(func(h *Handler, w http.ResponseWriter, r *http.Request, s *scratch) {
		_, p := readQuery(r.URL.RawQuery, noParameters)
		if !s.receive(w, r, f, p) {
			return
		}
		if f == formCancel {
			s.settlement.Given |= decide.GivenCost
		}
		h.answer(w, s, s.Settle(r.Context(), h.decider, s.settlement), wants{})
	})
}

// answer writes the outcome of the request.
func (h *Handler) answer(w http.ResponseWriter, s *scratch, o *decide.Outcome, want wants) {
	switch {
	case o.Kind != decide.Decided:
		writeUndecided(w, s.Faults, o)
		return
	case s.Op == headgate.OpReset:
		names := make([]string, len(s.Checks))
		for i := range names {
			names[i] = s.Checks[i].Rule.Name()
		}
		s.out = encode(map[string][]string{"reset": names})
	case want.status && !o.Verdict.Allowed:
		h.writeDenial(w, s, o, want.at)
		return
	default:
		if want.status {
			httplimit.WriteHeaders(w.Header(), h.options.Dialect, &o.Verdict)
			notice.WriteWarning(w.Header(), h.options.Dialect, &o.Verdict, s.Policy.Set)
		}
		s.out = append(h.appendMembers(append(s.out[:0], '{'), s.Policy.Set, o, want.at), "}\n"...)
	}
	writeJSON(w, s.out)
}

// receive reads the body of a request into s. If p is not nil, the request is already known to be
// wrong. If the body cannot be received, receive answers with the problem and reports false.
// Mistakes in the body are added to s.Faults.
func (s *scratch) receive(w http.ResponseWriter, r *http.Request, f form, p *problem) bool {
	var body string
	if p == nil {
		p = checkType(r.Header)
	}
	if p == nil {
		body, p = s.readBody(r)
	}
	if p == nil {
		decode(body, f, &s.message)
		return true
	}
	if p.Status == http.StatusRequestEntityTooLarge || p.Status == http.StatusRequestTimeout {
		// The rest of the body is not worth reading.
		w.Header()["Connection"] = []string{"close"}
	}
	writeProblem(w, p)
	return false
}

// wants is what the query of a request asks for.
type wants struct {
	status bool // A denial is answered with 429 or 403.
	at     bool // The answer has the time of the decision.
	// outcome says that the caller settles what is charged by the outcome, and nothing else.
	outcome bool
}

// noParameters stands for paths without query parameters, whatever their operation. OpReset has
// none.
const noParameters = headgate.OpReset

// named returns what a parameter for op sets, or nil if there is none of the name.
func (w *wants) named(name string, op headgate.Op) *bool {
	switch {
	case name == "status" && (op == headgate.OpTake || op == headgate.OpPeek):
		return &w.status
	case name == "at" && op == headgate.OpTake:
		return &w.at
	case name == "outcome" && op == headgate.OpTake:
		return &w.outcome
	}
	return nil
}

// readQuery reads the query of a request for op. Most requests have none, or parameters that are true:
// these need no map.
func readQuery(raw string, op headgate.Op) (wants, *problem) {
	var w wants
	for rest := raw; rest != ""; {
		var pair string
		pair, rest, _ = strings.Cut(rest, "&")
		name, value, _ := strings.Cut(pair, "=")
		to := w.named(name, op)
		if to == nil || *to || value != "true" {
			return readAnyQuery(raw, op)
		}
		*to = true
	}
	return w, nil
}

// readAnyQuery is readQuery for queries with escapes or mistakes, too.
func readAnyQuery(raw string, op headgate.Op) (wants, *problem) {
	var w wants
	values, err := url.ParseQuery(raw)
	if err != nil {
		return w, &problem{Status: http.StatusBadRequest, Detail: "the query is not understood; it may have escapes that are not complete"}
	}
	var list decide.Faults
	for _, name := range slices.Sorted(maps.Keys(values)) {
		given, to := values[name], w.named(name, op)
		if to == nil {
			list.Add(decide.Malformed, decide.Place{List: "query", Name: name}, "is not a parameter of this path")
			continue
		}
		if len(given) != 1 || given[0] != "true" && given[0] != "false" {
			list.Add(decide.Malformed, decide.Place{List: "query", Name: name}, "must be true or false, once")
			continue
		}
		*to = given[0] == "true"
	}
	if list != nil {
		return w, faultsProblem(list)
	}
	return w, nil
}

// checkType accepts only JSON. A browser sends JSON to another origin only with that origin's
// permission (CORS), which this server never gives.
func checkType(h http.Header) *problem {
	switch given := h["Content-Type"]; {
	case len(h["Content-Encoding"]) != 0:
		return &problem{Status: http.StatusUnsupportedMediaType, Detail: "the body must not be encoded; leave Content-Encoding out"}
	case len(given) == 1 && given[0] == "application/json":
		return nil
	case len(given) == 1:
		media, params, err := mime.ParseMediaType(given[0])
		if charset, ok := params["charset"]; err == nil && media == "application/json" && (!ok || strings.EqualFold(charset, "utf-8")) {
			return nil
		}
	}
	return &problem{Status: http.StatusUnsupportedMediaType, Detail: "the body must come with Content-Type: application/json (with curl: --json instead of -d)"}
}

// readBody reads the body into the scratch and returns a copy as a string, whose memory keys and
// names can share.
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
			return "", &problem{Status: http.StatusRequestTimeout, Detail: "the body did not arrive in time"}
		}
		return "", &problem{Status: http.StatusBadRequest, Detail: "the body ended before its time or is not framed as HTTP wants it"}
	}
}

func tooLarge() *problem {
	return &problem{Status: http.StatusRequestEntityTooLarge, Detail: fmt.Sprintf("the body may have %d bytes", MaxBody)}
}
