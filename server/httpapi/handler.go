package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/server/decide"
)

// MaxBody is the maximum size of a body, in bytes. 64 checks with keys of usual length need about a
// tenth of it.
const MaxBody = 64 << 10

// Options are the settings of a handler. The zero Options are good for tests.
type Options struct {
	// Ready reports whether the service can decide. While it returns an error, GET /readyz answers
	// 503, without the error's text. Its context ends with the request or after ReadyWithin. Nil means
	// always ready.
	Ready func(ctx context.Context) error
	// ReadyWithin is how long Ready may take; zero means one second.
	ReadyWithin time.Duration
	// Detail returns a text that GET /readyz adds when the service is ready, or "". Anybody may read
	// it. Nil means no text.
	Detail func() string
	// Admin has the paths that need the admin token.
	Admin Admin
	// Auth answers /v1/auth and all paths below it, for any method. Proxies ask there. Nil means that
	// there are no such paths.
	Auth http.Handler
	// Metrics answers GET /metrics. Nil means that there is no such path.
	Metrics http.Handler
	// Dialect selects the headers that tell limits, in answers to requests with ?status=true.
	Dialect httplimit.Dialect
	// Permits serves the rules that bound what is in progress over all processes. Nil means that calls
	// about permits fail.
	Permits *decide.Permits
	// Logger gets panics and, with AccessLog, every request. Nil means no log.
	Logger *slog.Logger
	// AccessLog logs every request: method, path, status, duration and address. The query and the body
	// are never logged, because they may hold keys.
	AccessLog bool
}

// Handler serves the API. It is safe for concurrent use; make one with [New].
type Handler struct {
	decider decide.Decider
	options Options
	routes  map[string]*route
	texts   *decide.Texts[text]
	rules   atomic.Pointer[rulesText]
	pool    sync.Pool // of *scratch
}

// route is the handler of one path.
type route struct {
	method string // or anyMethod
	serve  func(h *Handler, w http.ResponseWriter, r *http.Request)
}

// authPath is where proxies ask. Parameters may follow in the path.
const authPath = "/v1/auth"

// anyMethod stands for all methods.
const anyMethod = "ANY"

// New returns a handler that asks decider.
func New(decider decide.Decider, options Options) *Handler {
	if options.ReadyWithin == 0 {
		options.ReadyWithin = time.Second
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	h := &Handler{decider: decider, options: options, texts: decide.NewTexts(newText)}
	h.pool.New = func() any { return new(scratch) }
	h.routes = map[string]*route{
		"/v1/check":           {http.MethodPost, deciding(headgate.OpTake, false)},
		"/v1/peek":            {http.MethodPost, deciding(headgate.OpPeek, false)},
		"/v1/refund":          {http.MethodPost, deciding(headgate.OpRefund, false)},
		"/v1/reset":           {http.MethodPost, deciding(headgate.OpReset, false)},
		"/v1/reserve":         {http.MethodPost, deciding(headgate.OpTake, true)},
		"/v1/settle":          {http.MethodPost, settling(formSettle)},
		"/v1/cancel":          {http.MethodPost, settling(formCancel)},
		"/v1/permits/acquire": {http.MethodPost, pooled((*Handler).acquirePermit)},
		"/v1/permits/renew":   {http.MethodPost, pooled((*Handler).renewPermit)},
		"/v1/permits/release": {http.MethodPost, pooled((*Handler).releasePermit)},
		"/v1/permits/revoke":  {http.MethodPost, admins(pooled((*Handler).revokePermit))},
		"/v1/permits/holders": {http.MethodGet, admins((*Handler).listHolders)},
		"/v1/explain":         {http.MethodPost, pooled((*Handler).explain)},
		"/v1/clock":           {http.MethodPost, admins((*Handler).serveClock)},
		"/v1/reload":          {http.MethodPost, (*Handler).serveReload},
		"/v1/rules":           {http.MethodGet, (*Handler).serveRules},
		"/v1/candidate":       {http.MethodGet, (*Handler).serveCandidate},
		"/healthz":            {http.MethodGet, (*Handler).serveHealth},
		"/readyz":             {http.MethodGet, (*Handler).serveReady},
		"/openapi.json":       {http.MethodGet, (*Handler).serveOpenAPI},
	}
	if options.Auth != nil {
		h.routes[authPath] = &route{anyMethod, func(h *Handler, w http.ResponseWriter, r *http.Request) {
			h.options.Auth.ServeHTTP(w, r)
		}}
	}
	if options.Admin.Insight != nil {
		for path, method := range options.Admin.Insight.Paths() {
			h.routes[path] = &route{method, admins(func(h *Handler, w http.ResponseWriter, r *http.Request) {
				h.options.Admin.Insight.ServeHTTP(w, r)
			})}
		}
	}
	if options.Metrics != nil {
		h.routes["/metrics"] = &route{http.MethodGet, func(h *Handler, w http.ResponseWriter, r *http.Request) {
			h.options.Metrics.ServeHTTP(w, r)
		}}
	}
	return h
}

// Instant reports whether requests for a path wait for nothing but the store. These are the paths
// that decide or settle.
func Instant(path string) bool {
	switch path {
	case "/v1/check", "/v1/peek", "/v1/refund", "/v1/reset", "/v1/reserve", "/v1/settle", "/v1/cancel":
		return true
	}
	return false
}

// ServeHTTP answers one request. A panic is logged and answered with 500.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.options.AccessLog {
		h.serve(w, r)
		return
	}
	start := time.Now()
	seen := &witness{ResponseWriter: w}
	defer func() {
		h.options.Logger.LogAttrs(r.Context(), slog.LevelInfo, "request",
			slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Int("status", seen.status),
			slog.Duration("took", time.Since(start)), slog.String("from", r.RemoteAddr))
	}()
	h.serve(seen, r)
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler { //nolint:errorlint // net/http documents this very value.
				panic(p)
			}
			h.options.Logger.LogAttrs(r.Context(), slog.LevelError, "a request caused a panic",
				slog.String("method", r.Method), slog.String("path", r.URL.Path),
				slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			writeProblem(w, &problem{Status: http.StatusInternalServerError, Detail: "the server has a defect, which is in its log; whether the request was charged is not known"})
		}
	}()
	route, ok := h.routes[routed(r)]
	switch {
	case !ok:
		writeProblem(w, &problem{Status: http.StatusNotFound, Detail: "there is nothing at this path; /openapi.json lists what there is"})
	case route.method == anyMethod || r.Method == route.method || r.Method == http.MethodHead && route.method == http.MethodGet:
		route.serve(h, w, r)
	default:
		allow := route.method
		if allow == http.MethodGet {
			allow = "GET, HEAD"
		}
		w.Header()["Allow"] = []string{allow}
		writeProblem(w, &problem{Status: http.StatusMethodNotAllowed, Detail: "this path takes " + strings.ReplaceAll(allow, ", ", " and ")})
	}
}

// routed returns the path of the route for a request, if there is one.
func routed(r *http.Request) string {
	if strings.HasPrefix(r.URL.Path, authPath+"/") {
		return authPath
	}
	return r.URL.Path
}

// Route returns the path of the route that answers the request, or "" if none does.
func (h *Handler) Route(r *http.Request) string {
	if path := routed(r); h.routes[path] != nil {
		return path
	}
	return ""
}

// serveHealth answers that the process runs, whatever the state of its store. It is for supervisors
// that restart processes.
func (h *Handler) serveHealth(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, []byte("{\"status\":\"ok\"}\n"))
}

// serveReady answers whether requests can be decided. It is for load balancers.
func (h *Handler) serveReady(w http.ResponseWriter, r *http.Request) {
	if h.options.Ready != nil {
		ctx, cancel := context.WithTimeout(r.Context(), h.options.ReadyWithin)
		defer cancel()
		if err := h.options.Ready(ctx); err != nil {
			writeProblem(w, &problem{Status: http.StatusServiceUnavailable, Detail: "not ready to decide: the store does not answer, or the server is being shut down"})
			return
		}
	}
	answer := struct {
		Status string `json:"status"`
		Detail string `json:"detail,omitempty"`
	}{Status: "ready"}
	if h.options.Detail != nil {
		answer.Detail = h.options.Detail()
	}
	writeJSON(w, encode(answer))
}

func (h *Handler) serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, openAPI)
}

// witness records the status for the access log.
type witness struct {
	http.ResponseWriter
	status int
}

// WriteHeader records the status, and calls WriteHeader of the wrapped writer.
func (w *witness) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *witness) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap returns the wrapped writer, for [http.ResponseController].
func (w *witness) Unwrap() http.ResponseWriter { return w.ResponseWriter }
