package httplimit

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/notice"
)

// lines writes headers as they would be sent, sorted.
func lines(h http.Header) string {
	var out []string
	for name, values := range h {
		for _, v := range values {
			out = append(out, name+": "+v)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// decisionOf is a decision of the rule's nth limit.
func decisionOf(rule *headgate.Rule, n int, d headgate.Decision) headgate.Decision {
	d.Rule, d.Limit = rule, &rule.Limits()[n]
	return d
}

func TestProblem(t *testing.T) {
	t.Parallel()
	rule := headgate.MustRule("login", headgate.Sliding(20, time.Minute), headgate.Sliding(5, 3*time.Second))
	verdict := func(retry time.Duration) *headgate.Verdict {
		v := headgate.NewVerdict([]headgate.Decision{
			decisionOf(rule, 0, headgate.Decision{Allowed: true, Remaining: 15}),
			decisionOf(rule, 1, headgate.Decision{RetryAfter: retry}),
		})
		return &v
	}
	for _, tt := range []struct {
		name    string
		problem Problem
		body    string
		retry   string
	}{
		{
			"denied", QuotaExceeded(verdict(1_839_001 * time.Microsecond)),
			`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"The assigned quota is exceeded","status":429,` +
				`"detail":"Rule \"login\" admits 5 per 3s; the request fits in 1.84s.","violated-policies":["login per 3s"],"retry_after_ms":1840}`, "2",
		},
		{
			"never", QuotaExceeded(verdict(headgate.Never)),
			`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"The assigned quota is exceeded","status":429,` +
				`"detail":"The request costs more than rule \"login\" can ever admit (5 per 3s).","violated-policies":["login per 3s"],"retry_after_ms":-1}`, "",
		},
		{
			"unavailable", Problem(notice.ReducedCapacity(5 * time.Second)),
			`{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Capacity is reduced for the moment","status":503,` +
				`"detail":"The rate limiter could not decide on the request.","retry_after_ms":5000}`, "5",
		},
		{"another", Problem{Title: "Not found", Status: 404}, `{"title":"Not found","status":404}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			tt.problem.Write(w, httptest.NewRequest("GET", "/", nil))
			if got := strings.TrimSpace(w.Body.String()); got != tt.body {
				t.Errorf("body\n%s\nwant\n%s", got, tt.body)
			}
			if !json.Valid(w.Body.Bytes()) {
				t.Error("the body is not JSON")
			}
			h := w.Header()
			if w.Code != tt.problem.Status || h.Get("Content-Type") != "application/problem+json" || h.Get("Cache-Control") != "no-store" || h.Get("Retry-After") != tt.retry {
				t.Errorf("status %d, headers\n%s", w.Code, lines(h))
			}
			head := httptest.NewRecorder()
			tt.problem.Write(head, httptest.NewRequest("HEAD", "/", nil))
			if head.Body.Len() != 0 || head.Header().Get("Content-Length") != h.Get("Content-Length") {
				t.Errorf("HEAD: %d bytes of body, Content-Length %q, GET has %q", head.Body.Len(), head.Header().Get("Content-Length"), h.Get("Content-Length"))
			}
		})
	}
}
