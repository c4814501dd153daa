package dashboard

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/insightapi"
)

// Options are what a [Handler] works with. API is required.
type Options struct {
	// API answers what the pages ask.
	API *insightapi.Handler
	// Token is what administrators show. Empty means that nobody has to.
	Token string
	// Logins bounds how often a network may try to sign in; its key is an IPv4 address, or
	// the /64 of an IPv6 address. Required with a Token.
	Logins *headgate.Limiter
	// Hosts are the names by which the dashboard is asked for, beside localhost and
	// addresses.
	Hosts []string
	// Secure says that the dashboard is served over TLS.
	Secure bool
	// Audit is told who signs in and out; nil means nobody.
	Audit *insightapi.Audit
	// Logger takes what goes wrong; nil means none.
	Logger *slog.Logger
}

// Handler serves the dashboard. It is safe for concurrent use; make one with [New], and end
// it with Close.
type Handler struct {
	o        Options
	sessions sessions
	stream   *stream
	origin   *http.CrossOriginProtection
}

// New returns a handler.
func New(o Options) *Handler {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Audit == nil {
		o.Audit = new(insightapi.Audit)
	}
	return &Handler{o: o, stream: newStream(o.API), origin: http.NewCrossOriginProtection()}
}

// Close ends all streams.
func (h *Handler) Close() { h.stream.close() }

// policyOfContent is what the pages may load and do: nothing from elsewhere, no script and
// no style within a page, and no text that becomes markup.
const policyOfContent = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// policyOfLab is what the page with the Lab may do besides: run what is compiled to
// WebAssembly. A browser keeps the policy of the document, so that links to this page and
// away from it load another one.
var policyOfLab = strings.Replace(policyOfContent, "script-src 'self'", "script-src 'self' 'wasm-unsafe-eval'", 1)

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to := w.Header()
	to.Set("Content-Security-Policy", policyOfContent)
	if r.URL.Path == "/lab" {
		to.Set("Content-Security-Policy", policyOfLab)
	}
	to.Set("X-Content-Type-Options", "nosniff")
	to.Set("Referrer-Policy", "no-referrer")
	to.Set("Cross-Origin-Opener-Policy", "same-origin")
	to.Set("Cross-Origin-Resource-Policy", "same-origin")
	to.Set("X-Frame-Options", "DENY")
	if !h.knownHost(r.Host) {
		refuse(w, http.StatusMisdirectedRequest, "the dashboard is not called by this name; --dashboard-host adds one")
		return
	}
	if err := h.origin.Check(r); err != nil {
		refuse(w, http.StatusForbidden, "the request comes from another site")
		return
	}
	switch path := r.URL.Path; {
	case path == "/session":
		h.serveSession(w, r)
	case strings.HasPrefix(path, "/api/"):
		if !h.signedIn(r) {
			refuse(w, http.StatusUnauthorized, "sign in first")
			return
		}
		if path == "/api/stream" {
			h.serveStream(w, r)
			return
		}
		inner := r.Clone(r.Context())
		inner.URL.Path = insightapi.Prefix + strings.TrimPrefix(path, "/api/")
		h.o.API.ServeHTTP(w, inner)
	default:
		serveStatic(w, r)
	}
}

// refuse answers a request that gets nothing.
func refuse(w http.ResponseWriter, status int, detail string) {
	answer(w, status, struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(status), status, detail})
}

func answer(w http.ResponseWriter, status int, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // It holds texts and numbers, which encode.
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // There is nobody to tell.
}

// knownHost reports whether the dashboard is called so. Addresses cannot be taken over by
// another site, as names can.
func (h *Handler) knownHost(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	return name == "localhost" || net.ParseIP(name) != nil || slices.ContainsFunc(h.o.Hosts, func(own string) bool { return strings.EqualFold(own, name) })
}

// serveSession signs in (POST with the token), signs out (DELETE), or says whether somebody
// is signed in (GET).
func (h *Handler) serveSession(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		answer(w, http.StatusOK, map[string]bool{"signed_in": h.signedIn(r), "token_needed": h.o.Token != ""})
	case http.MethodPost:
		h.signIn(w, r)
	case http.MethodDelete:
		// Only what somebody who was signed in has done belongs in the audit: others could
		// fill it with entries of their own until the real ones are forgotten.
		if h.sessions.end(h.cookieOf(r)) {
			h.o.Audit.Add(insightapi.Entry{Who: r.RemoteAddr, What: "logout", OK: true})
		}
		http.SetCookie(w, h.cookie("", -1))
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Allow", "GET, HEAD, POST, DELETE")
		refuse(w, http.StatusMethodNotAllowed, "this path takes GET, HEAD, POST and DELETE")
	}
}

// maxLogin bounds the body of an attempt to sign in: a token has at most 1024 bytes.
const maxLogin = 4 << 10

func (h *Handler) signIn(w http.ResponseWriter, r *http.Request) {
	if h.o.Token == "" {
		refuse(w, http.StatusConflict, "there is no token, and nobody has to sign in")
		return
	}
	verdict, err := h.o.Logins.Allow(r.Context(), network(r.RemoteAddr))
	if err != nil {
		h.o.Logger.ErrorContext(r.Context(), "an attempt to sign in was not decided", slog.Any("error", err))
		refuse(w, http.StatusServiceUnavailable, "try again")
		return
	}
	if !verdict.Allowed {
		after := strconv.FormatInt(decide.Ceil(verdict.RetryAfter, time.Second), 10)
		w.Header().Set("Retry-After", after)
		refuse(w, http.StatusTooManyRequests, "too many attempts from this address; try again in "+after+" seconds")
		return
	}
	var body struct {
		Token string `json:"token"`
	}
	err = json.NewDecoder(http.MaxBytesReader(w, r.Body, maxLogin)).Decode(&body)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		refuse(w, http.StatusRequestEntityTooLarge, "the body is too large for a token")
	case err != nil:
		refuse(w, http.StatusBadRequest, `the body must be an object with a token`)
	case !same(body.Token, h.o.Token):
		h.o.Audit.Add(insightapi.Entry{Who: r.RemoteAddr, What: "login"})
		refuse(w, http.StatusUnauthorized, "this is not the admin token of the server")
	default:
		// Only failures are held against an address: many people may share one.
		if err := h.o.Logins.Refund(r.Context(), network(r.RemoteAddr), 1, verdict.At); err != nil {
			h.o.Logger.WarnContext(r.Context(), "a successful attempt to sign in counts as a failed one", slog.Any("error", err))
		}
		h.o.Audit.Add(insightapi.Entry{Who: r.RemoteAddr, What: "login", OK: true})
		http.SetCookie(w, h.cookie(h.sessions.begin(), int(sessionFor.Seconds())))
		w.WriteHeader(http.StatusNoContent)
	}
}

// network is what attempts to sign in from an address are counted by. Whoever has one IPv6
// address usually has all of its /64, and could take another one for each attempt.
func network(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap().WithZone(""); ip.Is6() {
		ip = netip.PrefixFrom(ip, 64).Masked().Addr()
	}
	return ip.String()
}

func (h *Handler) signedIn(r *http.Request) bool {
	return h.o.Token == "" || h.sessions.valid(h.cookieOf(r))
}
