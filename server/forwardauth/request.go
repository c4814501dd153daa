package forwardauth

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/internal/routes"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
)

// question is a request as a proxy describes it.
type question struct {
	method, target, host string
	// header has the headers that the client has sent, by their canonical names. Only those that the
	// terms name matter.
	header http.Header
	// lookalike says why the application may take another header for one that the terms name, and
	// override why it may take another method than this. Both are usually "".
	lookalike, override string
	// client is the client's address. The zero Addr means that it is not known.
	client netip.Addr
	// given are the entries from Envoy's context extensions.
	given policy.Descriptor
	// route is the entry "route", or "" if it is found by the policy's patterns.
	route string
	cost  int64
	// until is when the proxy stops waiting for the answer, if it says so in a header.
	until time.Time
	// from is the proxy's address, for the log.
	from string
}

// asked returns the question that the headers of the proxy's request describe.
func (t *terms) asked(r *http.Request) question {
	q := question{
		method: first(r.Header[t.method]), target: first(r.Header[t.uri]), host: first(r.Header[t.host]),
		header: r.Header, route: t.route, cost: t.cost,
	}
	for name := range r.Header {
		q.see(t, name)
	}
	if t.joined {
		q.header = t.apart(r.Header)
	}
	if text := first(r.Header[Timeout]); text != "" {
		// Proxies other than Envoy may pass on a client's header. That can only shorten the wait.
		if ms, err := strconv.ParseUint(text, 10, 31); err == nil && ms > 0 {
			q.until = time.Now().Add(time.Duration(ms) * time.Millisecond)
		}
	}
	// The proxy that asks is trusted, whatever its own address is; see newResolver.
	q.client, _ = t.resolver.Client(&http.Request{RemoteAddr: "@", Header: r.Header})
	return q
}

// see looks at the name of one of the client's headers.
func (q *question) see(t *terms, header string) {
	q.lookalike = cmp.Or(q.lookalike, t.single.ConfusableName(header))
	q.override = cmp.Or(q.override, identity.OverriddenBy(header))
}

// overridden returns why the application may take another method than that of the question, or "".
func (q *question) overridden(plan *plan, names *routes.Names) string {
	if names.Forms()&spelling.IgnoredOverrides != 0 || !plan.needed["method"] && (q.route != "" || !names.Methods()) {
		return ""
	}
	_, query, _ := strings.Cut(q.target, "?")
	return cmp.Or(q.override, identity.OverriddenIn(query))
}

// apart returns the headers that may say who the client is, with each value split at commas, because a comma
// may separate two lines that the proxy has joined.
func (t *terms) apart(h http.Header) http.Header {
	cut := make(http.Header)
	for name, lines := range h {
		if t.single.Has(name) == "" && identity.Credential(name) == "" {
			continue
		}
		for _, line := range lines {
			cut[name] = append(cut[name], strings.Split(line, ",")...)
		}
	}
	return cut
}

// check returns which headers are missing or repeated that the proxy must set exactly once.
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

// read returns the path and the route of the request, or the problem to refuse it with.
func (t *terms) read(q *question, plan *plan) (path, route string, refused *httplimit.Problem) {
	raw, ok := pathOf(q.target)
	names := plan.names.of(plan.policy.Set, t.forms)
	overridden := q.overridden(plan, names)
	switch {
	case !ok:
		return "", "", unreadableURI
	case plan.readsMethods && !spelling.Method(q.method):
		return "", "", ambiguousMethod
	case plan.readsMethods && q.method == http.MethodConnect && raw != "":
		return "", "", ambiguousConnect
	case overridden != "":
		return "", "", ambiguous(overridden)
	case raw == "*" && q.method == http.MethodOptions:
		return raw, cmp.Or(q.route, routes.Unmatched), nil
	}
	p, err := spelling.Read(raw, names.Forms())
	switch {
	case !plan.readsPaths, q.route != "" && !plan.needsPath:
		// The spelling of the path makes no difference.
		return p.Text, cmp.Or(q.route, routes.Unmatched), nil
	case err != nil:
	case p.Kept != nil && plan.needsPath:
		err = &spelling.Error{Reason: spelling.Parameters, At: p.At}
	case q.route != "":
		route = q.route
	default:
		route, err = names.Find(&http.Request{Method: q.method, Host: q.host, URL: p.URL()}, &p)
	}
	if err != nil {
		return "", "", ambiguous(err.Error())
	}
	return p.Text, route, nil
}

// pathOf returns the path in the request target as it was received. The target may be a whole URL.
func pathOf(target string) (raw string, ok bool) {
	if target == "" {
		return "", false
	}
	if target[0] != '/' && target != "*" {
		if _, err := url.ParseRequestURI(target); err != nil {
			return "", false
		}
		if _, target, ok = strings.Cut(target, "://"); !ok {
			return "", false
		}
		if i := strings.IndexAny(target, `/?#\`); i >= 0 {
			target = target[i:] // path and query, without the host
		} else {
			target = ""
		}
	}
	raw, _, _ = strings.Cut(target, "?")
	return raw, true
}

// describe fills in the descriptor of the request. It returns the problem if the request must be
// refused, or nil. missing reports that the policy uses the client's address, and that the proxy
// has not sent it.
func (t *terms) describe(q *question, plan *plan, ask *decide.Ask) (refused *httplimit.Problem, missing bool) {
	path, route, refused := t.read(q, plan)
	if refused != nil {
		return refused, false
	}
	host, ok := identity.Hostname(q.host)
	if !ok {
		return ambiguousHost, false
	}
	if why := cmp.Or(q.lookalike, t.single.Unclear(q.header)); why != "" {
		return ambiguous(why), false
	}
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
	add("api_key", t.keys.Of(q.header))
	if q.client.IsValid() {
		add("ip", q.client.String())
	}
	missing = !q.client.IsValid() && plan.needed["ip"]
	add("route", route)
	add("method", q.method)
	add("host", host)
	add("path", path)
	for i := range t.entries {
		add(t.entries[i].entry, strings.TrimSpace(first(q.header[t.entries[i].header])))
	}
	for _, e := range q.given {
		add(e.Name, e.Value)
	}
	ask.Descriptor = d
	return refused, missing
}

func first(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return lines[0]
}
