package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/notice"
	"github.com/headgate/headgate/server/decide"
)

// problem is an answer that is not a decision (RFC 9457).
type problem struct {
	// kind is the URI of the problem's type, or "" if the status says enough.
	kind string
	// title is the same for every problem of a kind. "" means the text of the status.
	title  string
	status int
	detail string
	faults decide.Faults
}

// appendProblem writes the problem's object without the closing brace, so that more members can
// follow.
func appendProblem(b []byte, p *problem) []byte {
	b = append(b, '{')
	if p.kind != "" {
		b = append(appendString(append(b, `"type":`...), p.kind), ',')
	}
	title := p.title
	if title == "" {
		title = http.StatusText(p.status)
	}
	b = appendString(append(b, `"title":`...), title)
	b = strconv.AppendInt(append(b, `,"status":`...), int64(p.status), 10)
	b = appendString(append(b, `,"detail":`...), p.detail)
	if len(p.faults) == 0 {
		return b
	}
	b = append(b, `,"errors":[`...)
	for i := range p.faults {
		if i > 0 {
			b = append(b, ',')
		}
		field, text := fieldAndText(&p.faults[i])
		b = appendString(append(b, `{"field":`...), field)
		b = append(appendString(append(b, `,"detail":`...), text), '}')
	}
	return append(b, ']')
}

func writeProblem(w http.ResponseWriter, p *problem) {
	write(w, typeProblem, p.status, append(appendProblem(nil, p), "}\n"...))
}

// fieldAndText returns the field and the text of a fault for the caller.
func fieldAndText(f *decide.Fault) (field, text string) {
	if field = f.Place.String(); field == "" {
		field = "body"
	}
	if f.Kind == decide.UnknownRule {
		return field, f.Text + "; GET /v1/rules lists the rules"
	}
	return field, f.Text
}

// faultStatuses are the statuses of requests with faults, by the greatest kind of fault.
var faultStatuses = [...]int{
	decide.UnknownRule: http.StatusNotFound,
	decide.OutOfRange:  http.StatusUnprocessableEntity,
	decide.Malformed:   http.StatusBadRequest,
}

// faultsProblem returns the problem for a request with mistakes.
func faultsProblem(list decide.Faults) *problem {
	return &problem{status: faultStatuses[list.Kind()], faults: list, detail: list.Summary()}
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
		writeProblem(w, &problem{kind: p.Type, title: p.Title, status: p.Status, detail: o.Text()})
	case decide.Revoked:
		b := appendProblem(nil, &problem{status: http.StatusGone, detail: o.Text()})
		write(w, typeProblem, http.StatusGone, append(b, ",\"revoked\":true}\n"...))
	default:
		writeProblem(w, &problem{status: undecidedStatuses[o.Kind], detail: o.Text()})
	}
}

// writeDenial answers 429, with the verdict in headers and in the body. It answers 403 if the
// policy's deny list has denied the request, because then waiting does not help.
func (h *Handler) writeDenial(w http.ResponseWriter, s *scratch, o *decide.Outcome, at bool) {
	var b []byte
	status := http.StatusForbidden
	if o.Listed != nil {
		b = appendProblem(s.out[:0], &problem{status: status, detail: "the policy's deny list turns the request away"})
	} else {
		quota := httplimit.QuotaExceeded(&o.Verdict)
		status = quota.Status
		httplimit.WriteHeaders(w.Header(), h.options.Dialect, &o.Verdict)
		b = appendProblem(s.out[:0], &problem{kind: quota.Type, title: quota.Title, status: status, detail: quota.Detail})
		b = append(b, `,"violated-policies":[`...)
		for i, name := range quota.ViolatedPolicies {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, name)
		}
		b = append(b, ']')
	}
	s.out = append(h.appendMembers(append(b, ','), s.Policy.Set, o, at), "}\n"...)
	write(w, typeProblem, status, s.out)
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
