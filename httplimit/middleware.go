package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/notice"
)

// middleware answers requests as its gate decides. It is immutable and safe for concurrent use.
type middleware struct {
	settings
	gate *admission.Gate[*http.Request]
}

// serve decides one request, and answers it or lets next answer it. If the end of the request does
// not matter, next gets the original writer, so that flushing, hijacking and everything else works.
func (m *middleware) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	p, ok := m.enter(w, r)
	switch {
	case !ok:
	case p == nil:
		next.ServeHTTP(w, r)
	default:
		p.serve(w, r, next)
	}
}

// enter reports whether the request may go on. If not, it has been answered.
func (m *middleware) enter(w http.ResponseWriter, r *http.Request) (p *Passage, ok bool) {
	a := m.gate.Try(r.Context(), r, 0)
	ok = m.answer(w, r, a)
	if a.Passage != nil {
		p = &Passage{m, a.Passage, r, w.Header()}
	}
	a.Free()
	return p, ok
}

// answer tells the client what was decided, and reports whether the request may go on.
func (m *middleware) answer(w http.ResponseWriter, r *http.Request, a *admission.Attempt[*http.Request]) (ok bool) {
	switch a.Outcome {
	case admission.Passed:
		WriteHeaders(w.Header(), m.dialect, &a.Verdict)
		if a.Rules != nil {
			notice.WriteWarning(w.Header(), m.dialect, &a.Verdict, a.Rules)
		}
	case admission.Open:
		if m.unenforced != "" {
			w.Header()[m.unenforced] = []string{"store-unavailable"}
		}
	case admission.Busy:
		m.busy(w, r, a.Refusal)
		return false
	case admission.Denied:
		WriteHeaders(w.Header(), m.dialect, &a.Verdict)
		m.denied(w, r, a.Verdict)
		return false
	case admission.Shed:
		m.shed(w, r, a.Rejection)
		return false
	default:
		m.refuse(w, r, a)
		return false
	}
	return true
}

// refuse answers a request for which there is no verdict.
func (m *middleware) refuse(w http.ResponseWriter, r *http.Request, a *admission.Attempt[*http.Request]) {
	p := Problem{Title: "The request could not be handled", Status: http.StatusInternalServerError}
	switch a.Outcome {
	case admission.Ended:
		if !errors.Is(a.Err, context.DeadlineExceeded) {
			w.WriteHeader(StatusClientGone)
			return
		}
		p = Problem(notice.ReducedCapacity(admission.UnavailableFor))
		p.Detail = "The request's deadline came before the rate limiter's decision."
	case admission.Unavailable:
		p = Problem(notice.ReducedCapacity(admission.UnavailableFor))
	case admission.Lacking:
		p = m.nobody(a.Entry)
	case admission.Unclear:
		p = Problem(notice.Ambiguous(a.Why))
	case admission.Listed:
		p = Problem(notice.Forbidden())
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("Www-Authenticate", m.keys.Challenge())
	}
	p.Write(w, r)
}

// nobody is the problem document for a request without an identity.
func (m *middleware) nobody(entry string) Problem {
	p := Problem{Title: "The request has no identity", Status: http.StatusUnauthorized}
	switch entry {
	case factAPIKey.Name:
		p.Detail = "Send an API key in the header " + strings.Join(m.keys.Names(), " or ") + "."
	case "user":
		p.Detail = "The request comes from no user who is signed in."
	default:
		p.Status = http.StatusBadRequest
		p.Detail = fmt.Sprintf("The request has no %s, which its limit is counted by.", entry)
	}
	return p
}
