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

// Options are the settings of a [Handler]. API is required.
type Options struct {
	// API answers the requests of the pages.
	API *insightapi.Handler
	// Token is the token with which administrators sign in. If it is empty, nobody has to sign in.
	Token string
	// Logins limits how often a network may fail to sign in. Its key is an IPv4 address, or the /64 of
	// an IPv6 address. It is required with a Token.
	Logins *headgate.Limiter
	// Hosts are the host names of the dashboard, besides localhost and IP addresses.
	Hosts []string
	// Secure says that the dashboard is served over TLS.
	Secure bool
	// Audit records who signs in and out. Nil means that nothing is recorded.
	Audit *insightapi.Audit
	// Logger gets errors. Nil means no log.
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

// New returns a handler with the given settings.
func New(o Options) *Handler {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Audit == nil {
		o.Audit = new(insightapi.Audit)
	}
	return &Handler{o: o, stream: newStream(o.API), origin: http.NewCrossOriginProtection()}
}

// Close ends all streams and waits for the goroutine that feeds them.
func (h *Handler) Close() { h.stream.close() }

// policyOfContent is the Content-Security-Policy of the pages. They may load nothing from
// elsewhere, have no inline scripts or styles, and may not turn text into markup.
const policyOfContent = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// policyOfLab is the policy of the page with the Lab, which may also run WebAssembly. A browser
// applies the policy with which the document was loaded, so links to and from this page must load a
// new document.
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

// refuse answers a request with an error (RFC 9457).
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
		panic(err) // It has only texts and numbers, which can always be encoded.
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // An error has no consequence: the client may be gone.
}

// knownHost reports whether the dashboard may be called by this host. IP addresses are always
// allowed: another site can make its own name resolve here, but cannot use an address.
func (h *Handler) knownHost(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	return name == "localhost" || net.ParseIP(name) != nil || slices.ContainsFunc(h.o.Hosts, func(own string) bool { return strings.EqualFold(own, name) })
}

// serveSession signs in (POST with the token), signs out (DELETE), or answers whether the client is
// signed in, and whether there is a history to choose from (GET).
func (h *Handler) serveSession(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		answer(w, http.StatusOK, map[string]bool{"signed_in": h.signedIn(r), "token_needed": h.o.Token != "", "history": h.o.API.HasHistory()})
	case http.MethodPost:
		h.signIn(w, r)
	case http.MethodDelete:
		// Only the sign-out of a valid session is audited. Otherwise anybody could fill the audit until
		// real entries are dropped.
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

// maxLogin is the maximum size of the body of an attempt to sign in, in bytes. A token has at most
// 1024 bytes.
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
		// Only failures count, because many people may share one address.
		if err := h.o.Logins.Refund(r.Context(), network(r.RemoteAddr), 1, verdict.At); err != nil {
			h.o.Logger.WarnContext(r.Context(), "a successful attempt to sign in counts as a failed one", slog.Any("error", err))
		}
		h.o.Audit.Add(insightapi.Entry{Who: r.RemoteAddr, What: "login", OK: true})
		http.SetCookie(w, h.cookie(h.sessions.begin(), int(sessionFor.Seconds())))
		w.WriteHeader(http.StatusNoContent)
	}
}

// network returns the key by which attempts to sign in from an address are counted. For IPv6 it is
// the /64, because whoever has one address usually has the whole /64, and could use a new address
// for each attempt.
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
