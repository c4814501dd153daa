package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/identity"
)

// names are headers whose meaning the gateway answers for. They are not changed once
// the gateway serves, and in canonical form.
type names struct {
	// single are those that say who the client is, whoever sends them, and
	// trusted those that only trusted proxies may send: of two lines the server
	// might believe the one that the gateway did not count by.
	single, trusted []string
	// variables has what [variable] makes of them, and of all others that the
	// gateway sets or removes.
	variables map[string]bool
}

// newNames finds them in options that have their defaults.
func newNames(o *Options) *names {
	n := &names{variables: make(map[string]bool)}
	id := &o.Identity
	n.single = append(n.single, id.APIKey...)
	for _, header := range id.Headers {
		n.single = append(n.single, header)
	}
	if id.JWT != nil {
		n.single = append(n.single, id.JWT.Header)
	}
	for _, header := range id.Trusted {
		n.trusted = append(n.trusted, header)
	}
	all := append([]string{forwarded, forwardedFor, forwardedHost, forwardedProto, realIP, string(id.Resolver.Source())}, onlyTrusted...)
	all = append(append(all, n.single...), n.trusted...)
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
		n.variables[variable(name)] = true
	}
	return n
}

// variable is what servers make of a header's name that hand headers on as
// variables, as CGI, WSGI and FastCGI do: there X_Auth_User is X-Auth-User.
func variable(name string) string {
	return strings.Map(func(c rune) rune {
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			return c
		case 'A' <= c && c <= 'Z':
			return c + 'a' - 'A'
		}
		return '_'
	}, name)
}

// forwardedPrefix and forwardedVariable are how headers begin by which proxies tell of
// the client, and what [variable] makes of that.
const (
	forwardedPrefix   = "X-Forwarded-"
	forwardedVariable = "x_forwarded_"
)

// dropAlike removes headers that a server may take for one of the names and the
// gateway does not and, unless the request comes from a trusted proxy, those that only
// such a proxy may send.
func (n *names) dropAlike(h http.Header, trusted bool) {
	for name := range h {
		switch {
		case usual(name):
			if !trusted && strings.HasPrefix(name, forwardedPrefix) {
				delete(h, name)
			}
		case n.answersFor(name):
			delete(h, name)
		}
	}
}

// dropTrailers removes the trailers that servers could take for headers which the
// gateway answers for, or for the connection's: nobody is to say behind a body who the
// client is, or how long it was.
func (n *names) dropTrailers(h http.Header) {
	dropHopByHop(h)
	for name := range h {
		if n.answersFor(name) {
			delete(h, name)
		}
	}
}

func (n *names) answersFor(name string) bool {
	v := variable(name)
	return n.variables[v] || strings.HasPrefix(v, forwardedVariable)
}

// usual reports whether the name is of letters, digits and hyphens only, as nearly all
// are.
func usual(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-':
		default:
			return false
		}
	}
	return true
}

// twice returns what is to be said against a request that has one of the names in
// several lines, or several words for its key, or has the name dropped on the way as one
// of the connection's, or nil: the server would see somebody else than the gateway counts
// by.
func (n *names) twice(h http.Header, trusted bool) *httplimit.Problem {
	lists := [2][]string{n.single}
	if trusted {
		lists[1] = n.trusted
	}
	for _, list := range lists {
		if why := identity.Unclear(h, list); why != "" {
			return ambiguous(why)
		}
	}
	for _, line := range h["Connection"] {
		for token := range strings.SplitSeq(line, ",") {
			name := http.CanonicalHeaderKey(strings.TrimSpace(token))
			if slices.Contains(lists[0], name) || slices.Contains(lists[1], name) {
				return ambiguous(name + " is not the connection's own.")
			}
		}
	}
	return nil
}
