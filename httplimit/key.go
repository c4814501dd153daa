package httplimit

import (
	"context"
	"net/http"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/internal/spelling"
)

// Key says what requests are counted by. Make one with the By functions, [Everyone] or [Combine]. A
// policy.Rule of the same name whose Per has the same entries makes the same keys: secrets are
// hashed, addresses are brought to one form, and several values are joined so that different
// combinations never give the same key.
type Key struct{ of admission.Key[*http.Request] }

// fact is an entry of the descriptor and how to find it in a request.
type fact = admission.Fact[*http.Request]

// by is a key of the values of facts.
func by(facts ...*fact) Key { return Key{admission.By(facts...)} }

// The facts that every middleware knows; see [Policy]. Those without a function are found
// by options; see [settings.finders].
var (
	factAPIKey = &fact{Name: "api_key"}
	factIP     = &fact{Name: "ip"}
	factRoute  = &fact{Name: "route"}
	factMethod = &fact{Name: "method", Find: func(r *http.Request) string { return r.Method }}
	factHost   = &fact{Name: "host", Find: host, Unclear: unclearHost}
	factPath   = &fact{Name: "path"}

	known = []*fact{factAPIKey, factIP, factRoute, factMethod, factHost, factPath}
)

// ByIP is a counter for each client address, as [TrustProxies] finds it. IPv6 addresses are counted
// by their prefix; see [IPv6Prefix]. This identity is missing only if the peer has no address, as
// on a Unix socket.
func ByIP() Key { return by(factIP) }

// ByAPIKey is a counter for each API key, which is read as [APIKeyHeaders] says. API keys are
// secret: counters are kept under a hash; see [HashKey]. If a request has one of these headers
// several times, or more than one word after Bearer, it is answered with 400, whatever [OnMissing]
// says, because servers do not agree on which of them is the key.
func ByAPIKey() Key { return by(factAPIKey) }

// ByUser is a counter for each user. The function finds the user in the request's context, where
// authentication has put it. An empty name means that there is no user.
func ByUser(user func(context.Context) string) Key {
	f := &fact{Name: "user"}
	if user != nil {
		f.Find = func(r *http.Request) string { return user(r.Context()) }
	}
	return by(f)
}

// ByRoute is a counter for each route; see [Route].
func ByRoute() Key { return by(factRoute) }

// ByHeader is a counter for each value of a header that is not a secret, such as the name of a
// tenant. The entry is the header's name in lower case. Clients can write any header, so use one
// that the proxy in front of the service sets. A request that has the header several times is
// answered with 400.
func ByHeader(name string) Key {
	return by(&fact{
		Name:    strings.ToLower(name),
		Find:    func(r *http.Request) string { return r.Header.Get(name) },
		Unclear: func(r *http.Request) string { return identity.SeveralLines(r.Header, http.CanonicalHeaderKey(name)) },
	})
}

// ByFunc is a counter for each value that find returns; "" means that there is none. The entry's
// name, such as "tenant", may have letters, digits and _ - . : only. Values of the entries "token"
// and "authorization" are hashed, as API keys are.
func ByFunc(entry string, find func(*http.Request) string) Key {
	return by(&fact{Name: entry, Find: find})
}

// Everyone is one counter that all requests share.
func Everyone() Key { return by() }

// Combine is a counter for each combination of values, such as those of ByUser and ByRoute. All of
// the values must be present.
func Combine(keys ...Key) Key {
	parts := make([]admission.Key[*http.Request], len(keys))
	for i := range keys {
		parts[i] = keys[i].of
	}
	return Key{admission.Combine(parts...)}
}

// finders find the facts that depend on options.
func (s *settings) finders() map[*fact]fact {
	path := fact{Find: s.path, Unclear: s.unclearPath}
	route := fact{Find: s.route, Unclear: s.unclearRoute}
	if s.readElsewhere { // It is asked of every request then.
		path.Unclear, route.Unclear = nil, nil
	}
	return map[*fact]fact{
		factAPIKey: {
			Find:    func(r *http.Request) string { return s.keys.Of(r.Header) },
			Unclear: s.unclearKey,
		},
		factIP:    {Find: s.ip},
		factRoute: route,
		factPath:  path,
	}
}

func host(r *http.Request) string {
	name, _ := identity.Hostname(r.Host)
	return name
}

func unclearHost(r *http.Request) string {
	if _, ok := identity.Hostname(r.Host); !ok {
		return identity.Unhosted
	}
	return ""
}

// unclearKey returns why servers read the request's API key in different ways, or "". This program
// does not take X_Api_Key for X-Api-Key, but a server behind it may.
func (s *settings) unclearKey(r *http.Request) string {
	if why := s.keys.Unclear(r.Header); why != "" || !s.readElsewhere {
		return why
	}
	return s.keys.Confusable(r.Header)
}

// ip returns the client's whole address as text. Where the request has that very
// text it is shared instead of made anew.
func (s *settings) ip(r *http.Request) string {
	lines := r.Header[string(s.resolver.Source())]
	a, ok := s.resolver.Client(r.RemoteAddr, lines)
	if !ok {
		return ""
	}
	var buf [64]byte
	b := a.AppendTo(buf[:0])
	if remote := r.RemoteAddr; len(remote) >= len(b) && remote[:len(b)] == string(b) {
		return remote[:len(b)]
	}
	if len(lines) > 0 {
		if last := lines[len(lines)-1]; strings.HasSuffix(last, string(b)) {
			return last[len(last)-len(b):]
		}
	}
	return string(b)
}

// route is the pattern that the mux matched, or what [Route] says.
func (s *settings) route(r *http.Request) string {
	switch {
	case s.routeOf != nil:
		return s.routeOf(s.asRead(r))
	case r.Pattern != "":
		return r.Pattern
	}
	return r.Method + " " + s.path(r)
}

// MuxRoute returns a function for [Route] that asks the mux which pattern it will match. Use it for
// a middleware around the whole mux, where the request does not have its pattern yet. All requests
// that match no pattern share the route [Unmatched].
func MuxRoute(mux *http.ServeMux) func(*http.Request) string {
	return func(r *http.Request) string {
		if _, pattern := mux.Handler(r); pattern != "" {
			return pattern
		}
		return Unmatched
	}
}

// Unmatched is the route of requests for which [MuxRoute] finds no pattern.
const Unmatched = "unmatched"

// Source is the name of the header in which trusted proxies pass on the client's address.
// [XForwardedFor] and [Forwarded] are lists to which each proxy adds. Any other name, such as
// "X-Real-IP" or "CF-Connecting-IP", is a header with a single address, which the trusted proxy
// sets. It is a string.
type Source = identity.Source

// The sources that are lists.
const (
	XForwardedFor = identity.XForwardedFor
	Forwarded     = identity.Forwarded // RFC 7239
)

// Resolver finds the address of the client that sent a request. It believes a
// forwarded address only when the connection comes from a trusted proxy. The
// zero Resolver trusts nobody: the client is the peer of the connection. It is
// immutable and safe for concurrent use.
type Resolver struct{ of identity.Resolver }

// NewResolver returns a resolver that believes the named header if it comes from one of the
// proxies. A proxy is a prefix ("10.0.0.0/8"), an address ("::1"), or "unix" for all peers on a
// Unix socket, which have no address. The error is a [*headgate.InvalidError] with every mistake. A
// prefix that covers all addresses is a mistake, because any client could then pretend to be
// another one.
func NewResolver(source Source, proxies ...string) (*Resolver, error) {
	res, problems := identity.NewResolver(source, proxies)
	if err := problems.Err("client addresses"); err != nil {
		return nil, err
	}
	return &Resolver{*res}, nil
}

// Client returns the client's address: an IPv4 address as such, not mapped into IPv6, and without a
// zone. Usually it is the peer of the connection. If that is a trusted proxy, the source header
// decides. A list is read from its right end, where the nearest proxy has written; the first
// address that is not a trusted proxy is the client. If an entry is not an address, the
// trusted proxy that was read last counts as the client. ok is false if there is no address at all,
// as on a Unix socket.
func (res *Resolver) Client(r *http.Request) (addr netip.Addr, ok bool) {
	return res.of.Client(r.RemoteAddr, r.Header[string(res.of.Source())])
}

// Trusts reports whether the request comes from a trusted proxy, so that its headers about the
// client can be believed.
func (res *Resolver) Trusts(r *http.Request) bool { return res.of.Trusts(r.RemoteAddr) }

// Source is the header that the resolver believes, in canonical form; "" if it
// believes none.
func (res *Resolver) Source() Source { return res.of.Source() }

// PathForm is a form of paths that servers read in different ways, together with one way to read
// it; see [Paths].
type PathForm uint16

// The ways to read such forms.
const (
	// IgnoredOverrides says that the method is that of the request line, whatever headers such as
	// X-HTTP-Method-Override and the parameter _method say.
	IgnoredOverrides = PathForm(spelling.IgnoredOverrides)
	// EncodedSlashes says that %2F and %5C belong to the segment in which they are, as in
	// /projects/group%2Fname.
	EncodedSlashes = PathForm(spelling.EncodedSlashes)
	// DoubleEncoding says that paths are decoded once: %2541 is the text %41, not A.
	DoubleEncoding = PathForm(spelling.DoubleEncoding)
	// LeadingSlashes says that //a is the same as /a, or is not served, but never means the host a.
	LeadingSlashes = PathForm(spelling.LeadingSlashes)
	// CutParameters says that a ; and what follows it in a segment is removed before anything is
	// decoded, as Tomcat, Jetty and Spring do.
	CutParameters = PathForm(spelling.CutParameters)
	// KeptParameters says that ; is a character like any other. It excludes
	// CutParameters.
	KeptParameters = PathForm(spelling.KeptParameters)
	// OtherBytes says that bytes that are not UTF-8, such as %FF, are kept as they are, or refused.
	OtherBytes = PathForm(spelling.OtherBytes)
	// CutPathInfo says that /login.php/x is /login.php, as in PHP.
	CutPathInfo = PathForm(spelling.CutPathInfo)
	// FrontController says that /index.php/login is /login, as in frameworks for PHP.
	FrontController = PathForm(spelling.FrontController)
	// KeptPathInfo says that .php is text like any other. It excludes the two above.
	KeptPathInfo = PathForm(spelling.KeptPathInfo)
	// IgnoreCase says that /Login is the same as /login.
	IgnoreCase = PathForm(spelling.IgnoreCase)
	// ExactCase says that it is not. It excludes IgnoreCase.
	ExactCase = PathForm(spelling.ExactCase)
	// IgnoreSlash says that /login/ is the same as /login.
	IgnoreSlash = PathForm(spelling.IgnoreSlash)
	// ExactSlash says that it is not. It excludes IgnoreSlash.
	ExactSlash = PathForm(spelling.ExactSlash)
	// CutExtensions says that /login.json is the same as /login, as in Rails.
	CutExtensions = PathForm(spelling.CutExtensions)
)

// Paths says that another server than this program's router reads the paths of requests, such as
// one behind a reverse proxy, and how that server reads certain forms. If servers that read these
// forms in the same way can still read a request's path in different ways, the request is answered
// with 400, whatever entries the limits use. A function given with [Route], such as [MuxRoute],
// sees the path as that server reads it.
//
// Without this option, such paths are refused only if the path itself matters: for the entry path
// of a [Policy], or for the route of a request that has no pattern.
func Paths(forms ...PathForm) Option {
	return func(s *settings) {
		s.readElsewhere = true
		for _, f := range forms {
			s.forms |= spelling.Forms(f)
		}
		if problem := s.forms.Problem(); problem != "" {
			s.Bad("Paths", "Paths: %s", problem)
		}
	}
}

// readPath reads the path of a request. That of OPTIONS * is "*".
func (s *settings) readPath(r *http.Request) (spelling.Path, *spelling.Error) {
	if r.URL.Path == "*" && r.Method == http.MethodOptions {
		return spelling.Path{Text: "*"}, nil
	}
	return spelling.Read(r.URL.EscapedPath(), s.forms)
}

// path is the entry of that name.
func (s *settings) path(r *http.Request) string {
	p, _ := s.readPath(r)
	return p.Text
}

// unclearRoute is unclearPath for a route that is made from the path. How a pattern matches a path
// is decided by the router that serves it.
func (s *settings) unclearRoute(r *http.Request) string {
	if s.routeOf != nil || r.Pattern != "" {
		return ""
	}
	return s.unclearPath(r)
}

// unclearPath returns why the path of a request can be read in two ways, or "".
func (s *settings) unclearPath(r *http.Request) string {
	p, err := s.readPath(r)
	switch {
	case err != nil:
		return err.Error()
	case p.Kept != nil:
		return (&spelling.Error{Reason: spelling.Parameters, At: p.At}).Error()
	case s.forms&spelling.CutParameters != 0 && s.routeOf == nil && r.Pattern != "" && p.Cut:
		// The pattern was found by the path with its parameters.
		return `Servers read its path in different ways: it has parameters, behind ";".`
	case s.readElsewhere && s.forms&spelling.IgnoredOverrides == 0 && identity.Overridden(r.Header, r.URL.RawQuery) != "":
		return identity.Overridden(r.Header, r.URL.RawQuery)
	case !spelling.Method(r.Method):
		return "Its method has small letters, which some servers take for capital ones."
	}
	return ""
}

// asRead returns the request with its path as it is read, for functions that ask a router.
func (s *settings) asRead(r *http.Request) *http.Request {
	if !s.readElsewhere {
		return r
	}
	p, err := s.readPath(r)
	if err != nil || p.Is(r.URL) {
		return r
	}
	read := *r
	read.URL = p.URL()
	read.URL.RawQuery = r.URL.RawQuery
	return &read
}
