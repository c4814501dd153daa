package httpapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/notice"
	"github.com/headgate/headgate/server/decide"
)

// problem is an answer that is not a decision (RFC 9457).
type problem struct {
	// Type is the URI of the problem's type, or "" if the status says enough.
	Type string `json:"type,omitempty"`
	// Title is the same for every problem of a type. "" means the text of the status.
	Title  string        `json:"title"`
	Status int           `json:"status"`
	Detail string        `json:"detail"`
	Errors []faultyField `json:"errors,omitempty"`
}

type faultyField struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

func faultyFieldOf(f *decide.Fault) faultyField {
	to := faultyField{cmp.Or(f.Place.String(), "body"), f.Text}
	if f.Kind == decide.UnknownRule {
		to.Detail += "; GET /v1/rules lists the rules"
	}
	return to
}

// encode returns the text of a value that has only texts, numbers and lists, which can always be
// encoded. What decides requests writes its answers itself, in encode.go.
func encode(v any) []byte {
	var b bytes.Buffer
	to := json.NewEncoder(&b)
	to.SetEscapeHTML(false)
	if err := to.Encode(v); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func writeProblem(w http.ResponseWriter, p *problem) { writeWith(w, p, p) }

// writeWith answers with a problem and further members. whole is a struct with the problem in it.
func writeWith(w http.ResponseWriter, p *problem, whole any) {
	p.Title = cmp.Or(p.Title, http.StatusText(p.Status))
	write(w, typeProblem, p.Status, encode(whole))
}

// faultStatuses are the statuses of requests with faults, by the greatest kind of fault.
var faultStatuses = [...]int{
	decide.UnknownRule: http.StatusNotFound,
	decide.OutOfRange:  http.StatusUnprocessableEntity,
	decide.Malformed:   http.StatusBadRequest,
}

// faultsProblem returns the problem for a request with mistakes.
func faultsProblem(list decide.Faults) *problem {
	p := &problem{Status: faultStatuses[list.Kind()], Detail: list.Summary()}
	for i := range list {
		p.Errors = append(p.Errors, faultyFieldOf(&list[i]))
	}
	return p
}

// undecidedStatuses are the statuses of other requests without a verdict.
var undecidedStatuses = [...]int{
	decide.Refused:       http.StatusUnprocessableEntity,
	decide.Conflict:      http.StatusConflict,
	decide.NoReservation: http.StatusNotFound,
	decide.Unsupported:   http.StatusNotImplemented,
	decide.Unavailable:   http.StatusServiceUnavailable,
	decide.NotHeld:       http.StatusGone,
	decide.Revoked:       http.StatusGone,
	decide.OtherCost:     http.StatusConflict,
	decide.NoPermits:     http.StatusNotImplemented,
}

// writeUndecided answers a request without a verdict.
func writeUndecided(w http.ResponseWriter, list decide.Faults, o *decide.Outcome) {
	switch o.Kind {
	case decide.Gone: // Nobody reads an answer.
	case decide.Faulty:
		writeProblem(w, faultsProblem(list))
	case decide.Unavailable:
		p := notice.ReducedCapacity(decide.ComeBack)
		w.Header()["Retry-After"] = []string{strconv.Itoa(int(decide.ComeBack / time.Second))}
		writeProblem(w, &problem{Type: p.Type, Title: p.Title, Status: p.Status, Detail: o.Text()})
	case decide.Revoked:
		p := &problem{Status: http.StatusGone, Detail: o.Text()}
		writeWith(w, p, struct {
			*problem
			Revoked bool `json:"revoked"`
		}{p, true})
	default:
		writeProblem(w, &problem{Status: undecidedStatuses[o.Kind], Detail: o.Text()})
	}
}

// writeDenial answers 429, with the verdict in headers and in the body. It answers 403 if the
// policy's deny list has denied the request, because then waiting does not help.
func (h *Handler) writeDenial(w http.ResponseWriter, s *scratch, o *decide.Outcome, at bool) {
	p := struct {
		problem
		Violated []string `json:"violated-policies,omitempty"`
	}{problem: problem{Title: http.StatusText(http.StatusForbidden), Status: http.StatusForbidden, Detail: "the policy's deny list turns the request away"}}
	if o.Listed == nil {
		quota := httplimit.QuotaExceeded(&o.Verdict)
		httplimit.WriteHeaders(w.Header(), h.options.Dialect, &o.Verdict)
		p.problem, p.Violated = problem{Type: quota.Type, Title: quota.Title, Status: quota.Status, Detail: quota.Detail}, quota.ViolatedPolicies
	}
	s.out = append(s.out[:0], bytes.TrimSuffix(encode(&p), []byte("}\n"))...)
	s.out = append(h.appendMembers(append(s.out, ','), s.Policy.Set, o, at), "}\n"...)
	write(w, typeProblem, p.Status, s.out)
}

// These values are shared by all responses and must not be changed.
var (
	typeJSON    = []string{"application/json"}
	typeProblem = []string{"application/problem+json"}
)

func writeJSON(w http.ResponseWriter, body []byte) { write(w, typeJSON, http.StatusOK, body) }

// countedByServer is the size in bytes below which net/http sets the Content-Length itself.
const countedByServer = 2048

func write(w http.ResponseWriter, kind []string, status int, body []byte) {
	header := w.Header()
	header["Content-Type"] = kind
	if len(body) >= countedByServer {
		header["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	w.WriteHeader(status)
	// An error has no consequence: the client may be gone.
	_, _ = w.Write(body)
}
