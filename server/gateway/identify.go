package gateway

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"

	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/internal/routes"
	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/policy"
)

// identified is the first stage of an exchange: what the gateway finds out about a request, which is
// its route, who sent it, and whether the gateway refuses it. It asks nobody but the source of the
// keys of tokens.
type identified struct {
	g       *inner
	r       *http.Request // its context ends when a permit is lost
	plan    *plan
	route   *route
	name    string // the entry "route"
	host    string // the entry "host"
	path    string // the entry "path", if anything looks at it
	trusted bool   // the connection comes from a trusted proxy
	ip      string
	ipKnown bool
	token   *token
	facts   policy.Descriptor
	llm     *metering
	// refusal is the answer to a request that the gateway refuses although the rules admit it. It
	// also tells the verdict.
	refusal *httplimit.Problem
}

// identify finds the route, the client, and reasons to refuse the request. describe is called next.
func (id *identified) identify() {
	id.plan = id.g.plan()
	resolver := id.g.options.Identity.Resolver
	id.trusted = resolver.Source() != "" && resolver.Trusts(id.r)
	id.look()
}

// look finds the route and the token, and reasons to refuse the request.
func (id *identified) look() {
	var hosted bool
	id.host, hosted = identity.Hostname(id.r.Host)
	wrong := id.read()
	switch {
	case id.r.Method == http.MethodConnect || id.r.Method == http.MethodTrace:
		// CONNECT is for another kind of proxy, and TRACE would show the client what the gateway
		// adds.
		id.refuse(methodNotAllowed)
	case !hosted:
		id.refuse(ambiguousHost)
	case wrong != nil:
		id.refuse(wrong)
	case noLength(id.r):
		id.refuse(lengthRequired)
	case id.route == nil:
		id.refuse(noRoute)
	case id.route.maxBody > 0 && id.r.ContentLength > id.route.maxBody:
		id.refuse(bodyTooLarge(id.route.maxBody))
	}
	if p := id.g.names.twice(id.r.Header, id.trusted); p != nil {
		id.refuse(p)
	}
	if id.g.tokens == nil {
		return
	}
	var err error
	if id.token, err = id.g.tokens.of(id.r.Context(), id.g.names.tokens.Of(id.r.Header)); err != nil {
		id.refuse(unauthorized(err))
	} else if id.token == nil {
		_ = id.apiKey() // The log is told of credentials that are neither.
	}
}

// read finds the route by the path. It returns the problem of the path or the method, or nil. If
// nothing looks at paths, they are left to the upstream server.
func (id *identified) read() *httplimit.Problem {
	u := id.r.URL
	id.route, id.name = id.g.whole, routes.Unmatched
	whole := u.Path == "*" && id.r.Method == http.MethodOptions
	switch {
	case u.Opaque != "", u.Path != "" && u.Path[0] != '/' && !whole:
		// No rule could match it, but some server might take it for a path.
		return ambiguous((&spelling.Error{Reason: spelling.NoPath, At: 1}).Error())
	case strings.IndexByte(id.r.RequestURI, ' ') >= 0: // HTTP/2 has room for it
		return ambiguousSpace
	case !id.plan.readsMethods:
		return nil
	case !spelling.Method(id.r.Method):
		return ambiguousMethod
	case id.plan.overridable:
		if why := identity.Overridden(id.r.Header, u.RawQuery); why != "" {
			return ambiguous(why)
		}
	}
	if !id.plan.readsPaths {
		return nil
	}
	if strings.IndexByte(id.r.RequestURI, '#') >= 0 {
		return fragment
	}
	p, err := spelling.Path{Text: u.Path}, (*spelling.Error)(nil)
	if !whole {
		p, err = spelling.Read(u.EscapedPath(), id.plan.names.Forms())
	}
	if err != nil {
		return ambiguous(err.Error())
	}
	id.path = p.Text
	if p.Kept != nil && id.plan.needsPath {
		return ambiguous((&spelling.Error{Reason: spelling.Parameters, At: p.At}).Error())
	}
	f, err := id.g.find(id.r, &p, id.plan)
	id.route, id.name = f.route, f.name
	if err != nil {
		return ambiguous(err.Error())
	}
	return nil
}

// noLength reports whether a request of HTTP/1.0 may have a body that was not read as one: its
// method has a body, but there is no length.
func noLength(r *http.Request) bool {
	if r.ProtoAtLeast(1, 1) || r.Header["Content-Length"] != nil {
		return false
	}
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		return true
	}
	return false
}

// refuse makes the request be refused after it was charged. Only the first reason counts.
func (id *identified) refuse(p *httplimit.Problem) {
	if id.refusal == nil {
		id.refusal = p
	}
}

// fact says how to find an entry of a request. An empty value means that the request does not have
// the entry.
type fact struct {
	name string
	find func(id *identified) string
}

// facts returns the entries that the gateway can find, and how.
func facts(o *gatewayfile.Identity) []fact {
	all := []fact{
		{"ip", (*identified).clientIP},
		{"route", func(id *identified) string { return id.name }},
		{"method", func(id *identified) string { return id.r.Method }},
		{"host", func(id *identified) string { return id.host }},
		{"path", func(id *identified) string { return id.path }},
		{"api_key", (*identified).apiKey},
	}
	for name, header := range o.Headers {
		all = append(all, fact{name, func(id *identified) string { return firstValue(id.r.Header, header) }})
	}
	for name, header := range o.Trusted {
		all = append(all, fact{name, func(id *identified) string {
			if !id.trusted {
				return ""
			}
			return firstValue(id.r.Header, header)
		}})
	}
	for name, field := range o.Certificate {
		all = append(all, fact{name, func(id *identified) string { return certified(id.r, field) }})
	}
	if o.JWT != nil {
		for i, name := range claimNames(o.JWT) {
			all = append(all, fact{name, func(id *identified) string {
				if id.token == nil {
					return ""
				}
				return id.token.values[i]
			}})
		}
	}
	return all
}

// claimNames returns the entries that come from tokens, in the order in which their values are
// kept.
func claimNames(j *gatewayfile.JWT) []string {
	names := make([]string, 0, len(j.Claims))
	for name := range j.Claims {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// firstValue returns the first value of a header, whose name is in canonical form. Further lines of
// the header are ignored, because a proxy that sets the header leaves only one.
func firstValue(h http.Header, name string) string {
	if v := h[name]; len(v) > 0 {
		return strings.TrimSpace(v[0])
	}
	return ""
}

// apiKey returns the API key, or "" if there is none.
func (id *identified) apiKey() string {
	key := id.g.names.keys.Of(id.r.Header)
	if key == "" && id.token == nil {
		id.g.unread.Look(id.r.Context(), id.g.options.Logger, id.r.Header)
	}
	return key
}

// clientIP returns the client's address, or "" if it has none.
func (id *identified) clientIP() string {
	if !id.ipKnown {
		id.ip, id.ipKnown = "", true
		if a, ok := id.g.options.Identity.Resolver.Client(id.r); ok {
			var buf [64]byte
			text := a.AppendTo(buf[:0])
			// Usually the text is a part of the request, and is used from there.
			if s := id.r.RemoteAddr; len(s) >= len(text) && s[:len(text)] == string(text) {
				id.ip = s[:len(text)]
			} else {
				id.ip = string(text)
			}
		}
	}
	return id.ip
}

// certified returns a field of the certificate that the client has proved to hold, or "".
func certified(r *http.Request, field gatewayfile.CertificateField) string {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.PeerCertificates) == 0 {
		return ""
	}
	c := r.TLS.PeerCertificates[0]
	switch field {
	case gatewayfile.CommonName:
		return c.Subject.CommonName
	case gatewayfile.DNSName:
		return first(c.DNSNames)
	case gatewayfile.Email:
		return first(c.EmailAddresses)
	case gatewayfile.URI:
		if len(c.URIs) > 0 {
			return c.URIs[0].String()
		}
	case gatewayfile.Fingerprint:
		return fingerprint(c)
	}
	return ""
}

func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

func first(texts []string) string {
	if len(texts) == 0 {
		return ""
	}
	return texts[0]
}

// describe fills in the descriptor, with the entries that the plan's policy, other counts and
// headers need.
func (id *identified) describe() {
	id.facts = id.facts[:0]
	for i := range id.plan.facts {
		f := &id.plan.facts[i]
		v := f.find(id)
		if v == "" {
			continue
		}
		if len(v) > policy.MaxValue {
			id.refuse(tooLong(f.name))
			continue
		}
		id.facts = append(id.facts, policy.Entry{Name: f.name, Value: v})
	}
}

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
	changes := []*gatewayfile.Headers{&o.Request}
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
