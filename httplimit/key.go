package httplimit

import (
	"context"
	"net/http"
	"strings"

	"github.com/headgate/headgate/internal/admission"
	"github.com/headgate/headgate/internal/identity"
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
	return s.keys.Alike(r.Header)
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
