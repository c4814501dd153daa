package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/identity"
)

// names are the headers whose meaning the gateway is responsible for, in canonical form. They do
// not change while the gateway serves.
type names struct {
	// keys are the headers with an API key, and tokens the one with a token. single are all headers that identify the client, whoever
	// sends them, and trusted those that only trusted proxies may send. If a request had two lines of
	// one of them, the server might believe the line by which the gateway did not count.
	keys, tokens, single, trusted identity.Keys
	// variables has the results of [identity.Variable] for these headers, and for all others that the
	// gateway sets or removes.
	variables map[string]bool
	// withheld are the headers that the gateway does not pass on as they come. The value is whether
	// it does for a trusted proxy.
	withheld map[string]bool
}

// newNames collects the names from options that have their defaults.
func newNames(o *Options) *names {
	n := &names{variables: make(map[string]bool), withheld: make(map[string]bool)}
	id := &o.Identity
	add := func(to *identity.Keys, header string) { _ = to.Add(header, http.CanonicalHeaderKey) } // checked with the options
	for _, header := range id.APIKey {
		add(&n.keys, header)
		add(&n.single, header)
	}
	for _, header := range id.Headers {
		add(&n.single, header)
	}
	if id.JWT != nil {
		add(&n.tokens, id.JWT.Header)
		add(&n.single, id.JWT.Header)
	}
	for _, header := range id.Trusted {
		add(&n.trusted, header)
	}
	all := append([]string{forwarded, forwardedFor, forwardedHost, forwardedProto, realIP, string(id.Resolver.Source())}, onlyTrusted...)
	all = append(append(all, n.single.Names()...), n.trusted.Names()...)
	changes := []*Headers{&o.Request}
	for i := range o.Routes {
		changes = append(changes, &o.Routes[i].Request)
	}
	for _, c := range changes {
		all = append(all, c.Remove...)
		for i := range c.Set {
			all = append(all, c.Set[i].Name)
		}
	}
	for _, name := range all {
		n.variables[identity.Variable(name)] = true
	}
	for _, name := range slices.Concat(onlyTrusted, n.trusted.Names(), []string{string(id.Resolver.Source())}) {
		n.withheld[name] = true
	}
	// A CGI program would get Proxy as the variable HTTP_PROXY.
	for _, name := range append([]string{forwarded, forwardedFor, forwardedHost, forwardedProto, realIP, "Proxy"}, gatewayfile.HopByHop...) {
		n.withheld[name] = false
	}
	return n
}

// forwardedPrefix begins the headers in which proxies describe the client. forwardedVariable is
// what [identity.Variable] returns for it.
const (
	forwardedPrefix   = "X-Forwarded-"
	forwardedVariable = "x_forwarded_"
)

// passes reports whether a client's header is passed on as it is. It is not if the gateway sets it,
// or if a server, but not the gateway, may take it for one of the names. Headers that only trusted
// proxies may send are passed on only for them.
func (n *names) passes(name string, trusted bool) bool {
	if !identity.Usual(name) {
		return !n.answersFor(name)
	}
	if trusting, withheld := n.withheld[name]; withheld {
		return trusted && trusting
	}
	return trusted || !strings.HasPrefix(name, forwardedPrefix)
}

// dropTrailers removes trailers that a server could take for the gateway's headers, or for those of
// the connection. Otherwise a client could still claim after the body who it is, or how long the
// body was.
func (n *names) dropTrailers(h http.Header) {
	dropHopByHop(h)
	for name := range h {
		if n.answersFor(name) {
			delete(h, name)
		}
	}
}

func (n *names) answersFor(name string) bool {
	v := identity.Variable(name)
	return n.variables[v] || strings.HasPrefix(v, forwardedVariable)
}

// twice returns the problem of a request that has one of the names in several lines, or several
// words for its key, or that makes the next server drop the name as a header of the connection.
// Otherwise it returns nil. Such a server would see another client than the one by which the
// gateway counts.
func (n *names) twice(h http.Header, trusted bool) *httplimit.Problem {
	lists := [2]*identity.Keys{&n.single, new(identity.Keys)}
	if trusted {
		lists[1] = &n.trusted
	}
	for _, list := range lists {
		if why := list.Unclear(h); why != "" {
			return ambiguous(why)
		}
	}
	for _, line := range h["Connection"] {
		for token := range strings.SplitSeq(line, ",") {
			for _, list := range lists {
				if name := list.Has(strings.TrimSpace(token)); name != "" {
					return ambiguous(name + " is not the connection's own.")
				}
			}
		}
	}
	return nil
}
