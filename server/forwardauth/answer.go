package forwardauth

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/internal/notice"
)

// ProblemHeader has the problem document of a refusal, for proxies that cannot pass on the status
// and the body, such as nginx. The proxy can send it as the body of its own answer.
const ProblemHeader = "Headgate-Problem"

// maxProblem is the maximum length of that header's value, in bytes, so that all headers fit into
// the buffers of usual proxies.
const maxProblem = 2048

// Problems that are always the same. They must not be changed.
var (
	ambiguousMethod  = ambiguous("Its method has small letters, which some servers take for capital ones.")
	ambiguousConnect = ambiguous("A CONNECT with a path opens a WebSocket over HTTP/2, which reaches some servers as a GET.")
	ambiguousHost    = ambiguous(identity.Unhosted)
	unreadableURI    = &httplimit.Problem{Title: "The request has no valid URI", Status: http.StatusBadRequest}
)

func tooLong(entry string) *httplimit.Problem {
	p := httplimit.Problem(notice.TooLong(entry))
	return &p
}

// uncountable returns the problem for a request that the rules cannot be applied to.
func uncountable(detail string) *httplimit.Problem {
	p := httplimit.Problem(notice.Uncountable(detail))
	return &p
}

// ambiguous returns the problem for a request that servers may read in different ways.
func ambiguous(detail string) *httplimit.Problem {
	p := httplimit.Problem(notice.Ambiguous(detail))
	return &p
}

// warnEvery is the minimum time between log entries about misconfigured proxies, because such a
// proxy makes the same mistake with every request.
const warnEvery = 10 * time.Second

// due reports whether a warning may be logged again after the last one. If so, it counts as logged now.
func due(last *atomic.Int64) bool {
	now, then := time.Now().UnixNano(), last.Load()
	return now-then >= int64(warnEvery) && last.CompareAndSwap(then, now)
}

// nameless logs that a request has no client's address. The request is decided nevertheless,
// because clients on a Unix socket have no address.
func (h *Handler) nameless(ctx context.Context, t *terms, q *question) {
	if due(&h.warnedNameless) {
		h.options.Logger.LogAttrs(ctx, slog.LevelWarn, "a proxy does not send the client's address; rules that need it do not apply to such requests",
			slog.String("from", q.from), slog.String("header", t.ip))
	}
}

// logMisconfigured logs that a proxy asks in the wrong way.
func (h *Handler) logMisconfigured(ctx context.Context, from string, problems []string) {
	if due(&h.warned) {
		h.options.Logger.LogAttrs(ctx, slog.LevelError, "a proxy is not configured for forward auth; its requests are not decided",
			slog.String("at", h.at), slog.String("from", from), slog.String("problem", strings.Join(problems, "; ")))
	}
}

// misconfigured answers a proxy that asks in the wrong way. No proxy takes the status for an answer
// about the client's request. The details are for the operator.
func (h *Handler) misconfigured(w http.ResponseWriter, r *http.Request, problems []string) {
	h.logMisconfigured(r.Context(), r.RemoteAddr, problems)
	p := httplimit.Problem{Title: "The proxy is not configured for forward auth", Status: http.StatusInternalServerError, Detail: strings.Join(problems, "; ")}
	p.Write(w, r)
}

// refuse answers that the request may not pass. If the proxy has asked for another status for
// denials than 429, a denial gets that status and any other refusal below 500 gets 403, and the
// problem document is in a header too.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, t *terms, p *httplimit.Problem) {
	if t.denied == http.StatusTooManyRequests || p.Status >= http.StatusInternalServerError {
		p.Write(w, r)
		return
	}
	status := http.StatusForbidden
	if p.Status == http.StatusTooManyRequests {
		status = t.denied
	}
	w.Header()[ProblemHeader] = []string{inHeader(*p)}
	p.Write(&withStatus{w, status}, r)
}

// inHeader returns the problem document as one line of ASCII. A document that is too long loses its
// details.
func inHeader(p httplimit.Problem) string {
	text, err := json.Marshal(&p)
	if err == nil && len(text) > maxProblem {
		p.ViolatedPolicies, p.Detail = nil, ""
		text, err = json.Marshal(&p)
	}
	if err != nil {
		return ""
	}
	var b strings.Builder
	for _, c := range string(text) {
		switch {
		case c <= '~':
			b.WriteRune(c)
		case c <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			c -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+c>>10, 0xdc00+c&0x3ff)
		}
	}
	return b.String()
}

// withStatus replaces the status that is written by its own.
type withStatus struct {
	http.ResponseWriter
	status int
}

// WriteHeader sends w.status instead.
func (w *withStatus) WriteHeader(int) { w.ResponseWriter.WriteHeader(w.status) }

// maxKnown is the maximum number of parameter texts that are cached. There is one text for each
// place in the proxies' configurations.
const maxKnown = 256

// known caches what parameters say. It is safe for concurrent use.
type known struct {
	terms sync.Map // of *terms, by the text of the parameters

	mu    sync.Mutex // guards count
	count int
}

// of returns what the parameters in a text say, or their mistakes.
func (k *known) of(text string) (*terms, []string) {
	if t, ok := k.terms.Load(text); ok {
		return t.(*terms), nil
	}
	t, problems := readTerms(text)
	if problems != nil {
		return nil, problems
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.count < maxKnown {
		k.count++
		k.terms.Store(strings.Clone(text), t)
	}
	return t, nil
}
