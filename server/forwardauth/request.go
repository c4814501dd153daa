package forwardauth

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/internal/routes"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
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

// read finds the path and the route of the request that the headers of r describe. It
// returns what there is to be said against them, or nil.
func (t *terms) read(r *http.Request, plan *plan) (asked *http.Request, path, route string, refused *httplimit.Problem) {
	asked = &http.Request{Method: first(r.Header[t.method]), Host: first(r.Header[t.host])}
	raw, ok := pathOf(first(r.Header[t.uri]))
	switch {
	case !ok:
		return asked, "", "", unreadableURI
	case plan.readsMethods && !spelling.Method(asked.Method):
		return asked, "", "", ambiguousMethod
	case raw == "*" && asked.Method == http.MethodOptions:
		return asked, raw, cmp.Or(t.route, routes.Unmatched), nil
	}
	p, err := spelling.Read(raw, t.forms)
	switch {
	case !plan.readsPaths, t.route != "" && !plan.needsPath:
		// How it is spelled makes no difference.
		return asked, p.Text, cmp.Or(t.route, routes.Unmatched), nil
	case err != nil:
	case p.Kept != nil && plan.needsPath:
		err = &spelling.Error{Reason: spelling.Parameters, At: p.At}
	case t.route != "":
		route = t.route
	default:
		asked.URL = p.URL()
		route, err = plan.names.Find(asked, &p)
	}
	if err != nil {
		return asked, "", "", ambiguous(err.Error())
	}
	return asked, p.Text, route, nil
}

// pathOf is the path in the target of a request as it came, which may be a whole URL.
func pathOf(target string) (raw string, ok bool) {
	if target[0] != '/' && target != "*" {
		if _, err := url.ParseRequestURI(target); err != nil {
			return "", false
		}
		if _, target, ok = strings.Cut(target, "://"); !ok {
			return "", false
		}
		if i := strings.IndexAny(target, `/?#\`); i >= 0 {
			target = target[i:] // without the host
		} else {
			target = ""
		}
	}
	raw, _, _ = strings.Cut(target, "?")
	return raw, true
}

// describe fills in the descriptor of the request that the headers of r describe.
// It returns why that cannot be decided on, or nil, and whether the policy looks at
// the client's address and the proxy has not told it.
func (t *terms) describe(r *http.Request, plan *plan, ask *decide.Ask) (refused *httplimit.Problem, missing bool) {
	asked, path, route, refused := t.read(r, plan)
	if refused != nil {
		return refused, false
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
	add("api_key", identity.APIKey(r.Header, t.keys))
	a, ok := t.client(r)
	if ok {
		add("ip", a.String())
	}
	missing = !ok && plan.needed["ip"]
	add("route", route)
	add("method", asked.Method)
	add("host", identity.Hostname(asked.Host))
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
	for i := range t.entries {
		if why := identity.Unclear(h, []string{t.entries[i].header}); why != "" {
			return ambiguous(why)
		}
	}
	if why := identity.Unclear(h, t.keys); why != "" {
		return ambiguous(why)
	}
	return nil
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
