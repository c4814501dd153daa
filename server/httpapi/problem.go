package httpapi

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

// problem is an answer that is no decision (RFC 9457).
type problem struct {
	// kind is the URI of the problem's type; "" where the status says it all.
	kind string
	// title is the same for every problem of a kind; "" is that of the status.
	title  string
	status int
	detail string
	faults faults
}

// appendProblem writes the problem's object but for the closing brace, so that
// more members can follow.
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
		b = appendString(append(b, `{"field":`...), p.faults[i].Field)
		b = append(appendString(append(b, `,"detail":`...), p.faults[i].Detail), '}')
	}
	return append(b, ']')
}

func writeProblem(w http.ResponseWriter, p *problem) {
	write(w, typeProblem, p.status, append(appendProblem(nil, p), "}\n"...))
}

// faultsProblem is the problem of a request that has mistakes.
func faultsProblem(list faults) *problem {
	p := &problem{status: list.status(), faults: list, detail: "the request has a mistake"}
	switch n := len(list); {
	case n >= maxFaults:
		p.detail = fmt.Sprintf("the request has at least %d mistakes", n)
	case n > 1:
		p.detail = fmt.Sprintf("the request has %d mistakes", n)
	}
	return p
}

// comeBack is when a caller may try again after the store did not answer. The
// store may be back at once or much later; nobody knows.
const comeBack = time.Second

// writeUnavailable answers for a store that did not decide.
func writeUnavailable(w http.ResponseWriter) {
	p := httplimit.ReducedCapacity(comeBack)
	w.Header()["Retry-After"] = []string{strconv.Itoa(int(comeBack / time.Second))}
	writeProblem(w, &problem{
		kind: p.Type, title: p.Title, status: p.Status,
		detail: "the store did not answer in time; whether the request was charged is not known",
	})
}

// writeDenial answers 429 with the verdict in headers and in the body.
func (h *Handler) writeDenial(w http.ResponseWriter, s *scratch, v *headgate.Verdict, t *texts, at bool) {
	quota := httplimit.QuotaExceeded(v)
	httplimit.WriteHeaders(w.Header(), h.options.Dialect, v)
	b := appendProblem(s.out[:0], &problem{kind: quota.Type, title: quota.Title, status: quota.Status, detail: quota.Detail})
	b = append(b, `,"violated-policies":[`...)
	for i, name := range quota.ViolatedPolicies {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, name)
	}
	s.out = append(appendMembers(append(b, "],"...), v, t, at), "}\n"...)
	write(w, typeProblem, quota.Status, s.out)
}

// writeListed answers a request that the policy's deny list turns away: no store
// was asked, and waiting does not help.
func (s *scratch) writeListed(w http.ResponseWriter, status bool) {
	b, code, kind := append(s.out[:0], '{'), http.StatusOK, typeJSON
	if status {
		code, kind = http.StatusForbidden, typeProblem
		b = append(appendProblem(s.out[:0], &problem{status: code, detail: "the policy's deny list turns the request away"}), ',')
	}
	b = append(b, `"allowed":false,"denied_by":{"list":`...)
	b = appendString(b, s.ask.Denied.Name)
	s.out = append(b, `},"retry_after_ms":-1,"delay_ms":0,"decisions":[]}`+"\n"...)
	write(w, kind, code, s.out)
}

// The values are shared by all responses: nobody appends to a header's values
// here.
var (
	typeJSON    = []string{"application/json"}
	typeProblem = []string{"application/problem+json"}
)

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	write(w, typeJSON, status, body)
}

// countedByServer is the size up to which net/http finds the Content-Length
// itself.
const countedByServer = 2048

func write(w http.ResponseWriter, kind []string, status int, body []byte) {
	header := w.Header()
	header["Content-Type"] = kind
	if len(body) >= countedByServer {
		header["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	w.WriteHeader(status)
	// The caller may be gone; there is nobody to tell.
	_, _ = w.Write(body)
}
