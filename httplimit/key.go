package httplimit

import (
	"context"
	"net/http"
	"strings"

	"github.com/headgate/headgate/internal/bindings"
)

// Key says what a counter is kept for. Make one with the By functions,
// [Everyone] or [Combine]. A counter is kept under the same key as by a
// policy.Rule of the same name whose Per has the same entries: secrets are
// hashed, addresses brought to one form, and several values joined so that no
// two combinations meet.
type Key struct {
	of bindings.Key[*middleware, *http.Request]
}

// fact is an entry of the descriptor and how to find it in a request.
type fact = bindings.Fact[*middleware, *http.Request]

// binding is rules that count by one key.
type binding = bindings.Binding[*middleware, *http.Request]

// by is a key of the values of facts.
func by(facts ...*fact) Key {
	return Key{bindings.Key[*middleware, *http.Request]{Facts: facts, Made: true}}
}

// The facts that every middleware knows; see [Policy].
var (
	factAPIKey = &fact{Name: "api_key", Find: (*middleware).apiKey}
	factIP     = &fact{Name: "ip", Find: (*middleware).ip}
	factRoute  = &fact{Name: "route", Find: (*middleware).route}
	factMethod = &fact{Name: "method", Find: func(_ *middleware, r *http.Request) string { return r.Method }}
	factHost   = &fact{Name: "host", Find: func(_ *middleware, r *http.Request) string { return Hostname(r.Host) }}
	factPath   = &fact{Name: "path", Find: (*middleware).path}

	known = []*fact{factAPIKey, factIP, factRoute, factMethod, factHost, factPath}
)

// ByIP is a counter for each client address, as [TrustProxies] finds it, with
// IPv6 addresses counted by their prefix; see [IPv6Prefix]. Only a peer that has
// no address, on a Unix socket, lacks this identity.
func ByIP() Key { return by(factIP) }

// ByAPIKey is a counter for each API key, wherever [APIKeyHeaders] says that it
// stands. The API key is a secret: counters are kept under a hash; see
// [HashKey]. A request with several lines of one of these headers, or with more than one
// word behind Bearer, is answered with 400, whatever [OnMissing] says: see
// [UnclearAPIKey].
func ByAPIKey() Key { return by(factAPIKey) }

// ByUser is a counter for each user, whom the function finds in the request's
// context, where authentication has put them. An empty name is no user.
func ByUser(user func(context.Context) string) Key {
	f := &fact{Name: "user"}
	if user != nil {
		f.Find = func(_ *middleware, r *http.Request) string { return user(r.Context()) }
	}
	return by(f)
}

// ByRoute is a counter for each route; see [Route].
func ByRoute() Key { return by(factRoute) }

// ByHeader is a counter for each value of a header that is not a secret, such as
// the name of a tenant; the entry is the header's name in lower case. Clients
// write headers as they like: use one that the proxy in front of the service
// sets. A request with several lines of it is answered with 400.
func ByHeader(name string) Key {
	f := newFact(strings.ToLower(name), func(r *http.Request) string { return r.Header.Get(name) })
	f.Header = http.CanonicalHeaderKey(name)
	return by(f)
}

// ByFunc is a counter for each value that find returns; "" is none. The entry's
// name, such as "tenant", has letters, digits and _ - . : only. Values of the
// entries "token" and "authorization" are hashed, as API keys are.
func ByFunc(entry string, find func(*http.Request) string) Key {
	return by(newFact(entry, find))
}

// Everyone is one counter that all requests share.
func Everyone() Key { return by() }

// Combine is a counter for each combination of values, such as those of ByUser
// and ByRoute. All of them must be present.
func Combine(keys ...Key) Key {
	parts := make([]bindings.Key[*middleware, *http.Request], len(keys))
	for i := range keys {
		parts[i] = keys[i].of
	}
	return Key{bindings.Combine(parts...)}
}

func newFact(name string, find func(*http.Request) string) *fact {
	f := &fact{Name: name}
	if find != nil {
		f.Find = func(_ *middleware, r *http.Request) string { return find(r) }
	}
	return f
}

// apiKey returns the first API key that the configured headers hold.
func (m *middleware) apiKey(r *http.Request) string { return APIKey(r.Header, m.keyHeaders) }

// ip returns the client's whole address as text. Where the request has that very
// text it is shared instead of made anew.
func (m *middleware) ip(r *http.Request) string {
	a, ok := m.resolver.Client(r)
	if !ok {
		return ""
	}
	var buf [64]byte
	b := a.AppendTo(buf[:0])
	if s := r.RemoteAddr; len(s) >= len(b) && s[:len(b)] == string(b) {
		return s[:len(b)]
	}
	if lines := r.Header[string(m.resolver.source)]; len(lines) > 0 {
		if s := lines[len(lines)-1]; strings.HasSuffix(s, string(b)) {
			return s[len(s)-len(b):]
		}
	}
	return string(b)
}

// route is the pattern that the mux matched, or what [Route] says.
func (m *middleware) route(r *http.Request) string {
	switch {
	case m.routeOf != nil:
		return m.routeOf(m.asRead(r))
	case r.Pattern != "":
		return r.Pattern
	}
	return r.Method + " " + m.path(r)
}

// MuxRoute returns a function for [Route] that asks the mux which pattern it
// will match. It is for a middleware that stands around the whole mux, where the
// request does not have its pattern yet. Requests that match no pattern have the
// route [Unmatched], all of them together.
func MuxRoute(mux *http.ServeMux) func(*http.Request) string {
	return func(r *http.Request) string {
		if _, pattern := mux.Handler(r); pattern != "" {
			return pattern
		}
		return Unmatched
	}
}

// Unmatched is the route of requests that [MuxRoute] finds no pattern for.
const Unmatched = "unmatched"

// Hostname is the host of a request without a port and in lower case, so that one
// host has one spelling.
func Hostname(host string) string {
	// A port may have leading zeros, or no digits at all.
	if colon := strings.LastIndexByte(host, ':'); colon >= 0 && strings.Trim(host[colon+1:], "0123456789") == "" {
		host = host[:colon]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
