package forwardauth

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/routes"
)

// check looks for what the proxy must set and has not, or not alone. It returns
// what is wrong.
func (t *terms) check(h http.Header) (problems []string) {
	for _, name := range []string{t.method, t.uri, t.host} {
		switch lines := h[name]; {
		case len(lines) > 1:
			problems = append(problems, fmt.Sprintf("%s is there %d times: the proxy must set it in place of what the client sends", name, len(lines)))
		case name != t.host && first(lines) == "":
			problems = append(problems, name+" is missing: the proxy must set it")
		}
	}
	return problems
}

// describe fills in the descriptor of the request that the headers of r describe.
// It returns why that cannot be decided on, or nil, and whether the policy looks at
// the client's address and the proxy has not told it.
func (t *terms) describe(r *http.Request, plan *plan, ask *decide.Ask) (refused *httplimit.Problem, missing bool) {
	u, err := url.ParseRequestURI(first(r.Header[t.uri]))
	if err != nil {
		return unreadableURI, false
	}
	asked := &http.Request{Method: first(r.Header[t.method]), Host: first(r.Header[t.host]), URL: u}
	other := routes.Otherwise(asked)
	route := t.route
	if route == "" {
		route = plan.names.Of(asked)
		if other != nil && plan.names.Of(other) != route {
			return ambiguousPath, false
		}
	}
	path := routes.CleanPath(u.Path)
	if other != nil && plan.needed["path"] && other.URL.Path != path {
		return ambiguousPath, false
	}
	refused = t.twice(r.Header)
	d := ask.Descriptor[:0]
	add := func(name, value string) {
		switch {
		case value == "":
		case len(value) <= policy.MaxValue:
			d = append(d, policy.Entry{Name: name, Value: value})
		case plan.needed[name]:
			refused = tooLong(name)
		}
	}
	add("api_key", httplimit.APIKey(r.Header, t.keys))
	a, ok := t.client(r)
	if ok {
		add("ip", a.String())
	}
	missing = !ok && plan.needed["ip"]
	add("route", route)
	add("method", asked.Method)
	add("host", httplimit.Hostname(asked.Host))
	add("path", path)
	for i := range t.entries {
		add(t.entries[i].entry, strings.TrimSpace(first(r.Header[t.entries[i].header])))
	}
	ask.Descriptor = d
	return refused, missing
}

// twice returns what is to be said against a request that has a header in several
// lines by which it is counted, or several words for its key: the application might
// believe the one that is not.
func (t *terms) twice(h http.Header) *httplimit.Problem {
	for _, name := range t.keys {
		if len(h[name]) > 1 {
			return severalLines(name, len(h[name]))
		}
	}
	for i := range t.entries {
		if name := t.entries[i].header; len(h[name]) > 1 {
			return severalLines(name, len(h[name]))
		}
	}
	return httplimit.UnclearAPIKey(h, t.keys)
}

// client is the address of the client, as the proxy that asks tells it.
func (t *terms) client(r *http.Request) (netip.Addr, bool) {
	return t.resolver.Client(&http.Request{RemoteAddr: "@", Header: r.Header})
}

func first(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return lines[0]
}
