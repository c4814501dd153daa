package gateway

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/spelling"
)

// checker collects what is wrong with options.
type checker struct{ problems []string }

func (c *checker) bad(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// within sets a duration to its default, and says if it is out of bounds.
func (c *checker) within(what string, d *time.Duration, otherwise time.Duration) {
	*d = cmp.Or(*d, otherwise)
	if *d < time.Millisecond || *d > gatewayfile.Longest {
		c.bad("%s is %v, must be 1ms to %v", what, *d, gatewayfile.Longest)
	}
}

// withDefaults returns the options with their defaults, and everything that is
// wrong with them. What it changes it has copied.
func (o Options) withDefaults() (Options, []string) {
	var c checker
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.MaxDelay = cmp.Or(o.MaxDelay, httplimit.DefaultMaxDelay)
	o.MaxHeader = cmp.Or(o.MaxHeader, gatewayfile.DefaultMaxHeader)
	if o.MaxHeader < 1<<10 || o.MaxHeader > 1<<20 {
		c.bad("the bound on headers is %d bytes, must be %d to %d", o.MaxHeader, 1<<10, 1<<20)
	}
	if o.MaxBody < 0 {
		c.bad("the bound on bodies is %d bytes, must not be negative", o.MaxBody)
	}
	c.within("clients: the time for headers", &o.Clients.Header, gatewayfile.DefaultClientHeader)
	c.within("clients: the time for a body", &o.Clients.Body, gatewayfile.DefaultClientBody)
	c.within("clients: the time for a response", &o.Clients.Response, gatewayfile.DefaultClientResponse)
	c.within("clients: the time between requests", &o.Clients.Idle, gatewayfile.DefaultClientIdle)
	c.within("clients: the time of silence after an upgrade", &o.Clients.Upgraded, gatewayfile.DefaultUpgraded)
	o.Clients.MinRate = cmp.Or(o.Clients.MinRate, gatewayfile.DefaultMinRate)
	o.Connections.Total = cmp.Or(o.Connections.Total, gatewayfile.DefaultConnections)
	if o.Connections.Total < 0 || o.Connections.PerAddress < 0 {
		c.bad("connections: there may be %d, and %d for each address; neither may be negative", o.Connections.Total, o.Connections.PerAddress)
	}
	o.Upgrades = slices.Clone(o.Upgrades)
	if o.Upgrades == nil {
		o.Upgrades = []string{"websocket"}
	}
	for i, name := range o.Upgrades {
		o.Upgrades[i] = strings.ToLower(name)
		if !isHeaderName(name) || o.Upgrades[i] == "h2c" {
			c.bad("connections cannot be upgraded to %q: it is not the name of a protocol, or the gateway would not see its requests", name)
		}
	}
	if problem := spelling.Forms(o.Paths).Problem(); problem != "" {
		c.bad("paths: %s", problem)
	}
	c.headers("", &o.Request)
	c.headers("", &o.Response)
	o.Upstreams = slices.Clone(o.Upstreams)
	c.upstreams(o.Upstreams)
	c.routes(&o)
	c.identity(&o.Identity)
	c.concurrency(&o)
	o.Settle = slices.Clone(o.Settle)
	c.settle(o.Settle)
	return o, c.problems
}

func (c *checker) upstreams(all []Upstream) {
	if len(all) == 0 || len(all) > MaxUpstreams {
		c.bad("there are %d upstreams, must be 1 to %d", len(all), MaxUpstreams)
	}
	seen := make(map[string]bool)
	for i := range all {
		u := &all[i]
		u.Name = cmp.Or(u.Name, "default")
		what := fmt.Sprintf("upstream %q", u.Name)
		if seen[u.Name] {
			c.bad("%s is there twice; give each its own name", what)
		}
		seen[u.Name] = true
		if len(u.Targets) == 0 || len(u.Targets) > MaxTargets {
			c.bad("%s has %d targets, must have 1 to %d", what, len(u.Targets), MaxTargets)
		}
		targets := make(map[string]bool)
		for _, text := range u.Targets {
			if _, _, problem := parseTarget(text); problem != "" {
				c.bad("%s: %s", what, problem)
			} else if targets[text] {
				c.bad("%s has the target %s twice", what, text)
			}
			targets[text] = true
		}
		if u.Balance >= balances {
			c.bad("%s: balance %d is unknown", what, u.Balance)
		}
		c.within(what+": the time to dial", &u.Timeouts.Dial, gatewayfile.DefaultDial)
		c.within(what+": the time for an answer to begin", &u.Timeouts.ResponseHeader, gatewayfile.DefaultResponseHeader)
		c.within(what+": the time for which an answer may pause", &u.Timeouts.Idle, gatewayfile.DefaultIdle)
		c.within(what+": the time for which a connection is kept", &u.Timeouts.KeepAlive, gatewayfile.DefaultKeepAlive)
		u.Eject.After = cmp.Or(u.Eject.After, gatewayfile.DefaultEjectAfter)
		c.within(what+": the time for which a target is passed over", &u.Eject.For, gatewayfile.DefaultEjectFor)
		if u.Eject.After < 1 {
			c.bad("%s: a target is passed over after %d failures, must be at least 1", what, u.Eject.After)
		}
		if u.Health != nil {
			h := *u.Health
			u.Health = &h
			c.health(what, &h)
		}
	}
}

func (c *checker) health(what string, h *Health) {
	c.within(what+": the time between looks", &h.Every, gatewayfile.DefaultHealthEvery)
	c.within(what+": the time for a look", &h.Timeout, gatewayfile.DefaultHealthTimeout)
	h.UpAfter, h.DownAfter = cmp.Or(h.UpAfter, 2), cmp.Or(h.DownAfter, 3)
	if h.UpAfter < 1 || h.DownAfter < 1 {
		c.bad("%s: a target is up after %d looks and down after %d, both must be at least 1", what, h.UpAfter, h.DownAfter)
	}
	if u, err := url.Parse(h.Path); err != nil || !strings.HasPrefix(h.Path, "/") || u.Host != "" {
		c.bad("%s: what is looked at is %q, must be a path such as /healthz", what, h.Path)
	}
}

// parseTarget reads the URL of a target. plain says that it speaks HTTP/2 without
// TLS.
func parseTarget(text string) (target *url.URL, plain bool, problem string) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return nil, false, fmt.Sprintf("the target %q is not http://host:port, https://host:port or h2c://host:port", text)
	case u.Scheme == "h2c":
		plain, u.Scheme = true, "http"
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, false, fmt.Sprintf("the target %q begins with neither http://, https:// nor h2c://", text)
	}
	if u.User != nil {
		// It may hold a password, which is not repeated.
		return nil, false, fmt.Sprintf("the target at %s has a user in it; set the header Authorization instead", u.Host)
	}
	if u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return nil, false, fmt.Sprintf("the target %q has more than a host; paths are passed on as they come", text)
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, plain, ""
}

func (c *checker) routes(o *Options) {
	if len(o.Routes) > MaxRoutes {
		c.bad("there are %d routes, must be at most %d", len(o.Routes), MaxRoutes)
	}
	o.Routes = slices.Clone(o.Routes)
	for i := range o.Routes {
		r := &o.Routes[i]
		what := fmt.Sprintf("route %q", r.Pattern)
		c.headers(what+": ", &r.Request)
		c.headers(what+": ", &r.Response)
		if r.Upstream != "" && !slices.ContainsFunc(o.Upstreams, func(u Upstream) bool { return u.Name == r.Upstream }) {
			c.bad("%s goes to the upstream %q, which is not there", what, r.Upstream)
		}
	}
}

// hopByHop are the headers that belong to one connection, or say how long a
// message is: not for anybody to set or to remove.
var hopByHop = []string{
	"Connection", "Content-Length", "Host", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// headers checks a change of headers, and brings their names to one form.
func (c *checker) headers(what string, h *Headers) {
	if len(h.Remove) > MaxChanges || len(h.Set) > MaxChanges {
		c.bad("%s%d headers are removed and %d set, each must be at most %d", what, len(h.Remove), len(h.Set), MaxChanges)
	}
	name := func(text string) string {
		canonical := http.CanonicalHeaderKey(text)
		switch {
		case !isHeaderName(text):
			c.bad("%s%q is not the name of a header", what, text)
		case slices.Contains(hopByHop, canonical):
			c.bad("%sthe header %s is the connection's own; it cannot be set or removed", what, canonical)
		}
		return canonical
	}
	h.Remove, h.Set = slices.Clone(h.Remove), slices.Clone(h.Set)
	for i := range h.Remove {
		h.Remove[i] = name(h.Remove[i])
	}
	for i := range h.Set {
		s := &h.Set[i]
		s.Name = name(s.Name)
		if (s.Entry == "") == (s.Value == "") {
			c.bad("%sthe header %s has both a value and an entry, or neither", what, s.Name)
		}
		if !isHeaderValue(s.Value) {
			c.bad("%sthe value of the header %s has a control character", what, s.Name)
		}
	}
}

func (c *checker) identity(id *Identity) {
	if id.Resolver == nil {
		id.Resolver = new(httplimit.Resolver)
	}
	if id.JWT != nil {
		j := *id.JWT
		id.JWT = &j
		c.jwt(&j)
	}
	if id.APIKey == nil {
		id.APIKey = []string{"X-Api-Key"}
		if id.JWT == nil || id.JWT.Header != authorization {
			id.APIKey = []string{authorization, "X-Api-Key"}
		}
	}
	id.APIKey = slices.Clone(id.APIKey)
	for i, name := range id.APIKey {
		if !isHeaderName(name) {
			c.bad("identity: %q is not the name of a header", name)
		}
		id.APIKey[i] = http.CanonicalHeaderKey(name)
	}
	taken := map[string]string{"ip": "", "route": "", "method": "", "host": "", "path": "", "api_key": ""}
	entry := func(name, from string) {
		if !isEntryName(name) {
			c.bad("identity: %q is not the name of an entry: 1 to 64 letters, digits and _ - . :", name)
		} else if first, twice := taken[name]; twice && first == "" {
			c.bad("identity: the entry %q is found by the gateway itself; take another name", name)
		} else if twice {
			c.bad("identity: the entry %q is taken from %s and from %s; keep one", name, first, from)
		}
		taken[name] = from
	}
	for _, source := range []struct {
		from    string
		headers *map[string]string
	}{{"a header", &id.Headers}, {"a trusted header", &id.Trusted}} {
		*source.headers = maps.Clone(*source.headers)
		for _, name := range slices.Sorted(maps.Keys(*source.headers)) {
			header := (*source.headers)[name]
			entry(name, source.from)
			if !isHeaderName(header) {
				c.bad("identity: the entry %q is taken from %q, which is not the name of a header", name, header)
			}
			(*source.headers)[name] = http.CanonicalHeaderKey(header)
		}
	}
	if len(id.Trusted) > 0 && id.Resolver.Source() == "" {
		c.bad("identity: there are entries from trusted headers, but no proxy is trusted")
	}
	for _, name := range slices.Sorted(maps.Keys(id.Certificate)) {
		entry(name, "the certificate")
		if id.Certificate[name] >= certificateFields {
			c.bad("identity: field %d of a certificate is unknown", id.Certificate[name])
		}
	}
	if id.JWT != nil {
		for _, name := range slices.Sorted(maps.Keys(id.JWT.Claims)) {
			entry(name, "the token")
			if id.JWT.Claims[name] == "" {
				c.bad("identity: the entry %q is taken from a claim without a name", name)
			}
		}
	}
}

func (c *checker) jwt(j *JWT) {
	if j.Keys == "" {
		c.bad("identity: tokens need keys to be verified with: a URL or a file")
	}
	if j.Algorithms == nil {
		j.Algorithms = []string{"RS256", "ES256", "EdDSA"}
	}
	if len(j.Algorithms) == 0 {
		c.bad("identity: no algorithm of tokens is accepted")
	}
	for _, name := range j.Algorithms {
		if !slices.Contains(Algorithms(), name) {
			c.bad("identity: the algorithm %q of tokens is not one of %s", name, strings.Join(Algorithms(), ", "))
		}
	}
	j.Header = http.CanonicalHeaderKey(cmp.Or(j.Header, authorization))
	if !isHeaderName(j.Header) {
		c.bad("identity: tokens come in %q, which is not the name of a header", j.Header)
	}
	j.Leeway = cmp.Or(j.Leeway, gatewayfile.DefaultLeeway)
	if j.Leeway < 0 || j.Leeway > MaxLeeway {
		c.bad("identity: the clocks of tokens may differ by %v, must be at most %v", j.Leeway, MaxLeeway)
	}
	j.Refresh = cmp.Or(j.Refresh, gatewayfile.DefaultRefresh)
	if j.Refresh < time.Second || j.Refresh > gatewayfile.Longest {
		c.bad("identity: keys are fetched every %v, must be 1s to %v", j.Refresh, gatewayfile.Longest)
	}
	j.Claims = maps.Clone(j.Claims)
}

func (c *checker) concurrency(o *Options) {
	seen := make(map[string]bool)
	for i := range o.Concurrency {
		l := &o.Concurrency[i]
		if l.Limit < 1 || l.Limit > MaxConcurrency {
			c.bad("concurrency %q: the limit is %d, must be 1 to %d", l.Name, l.Limit, MaxConcurrency)
		}
		if seen[l.Name] {
			c.bad("concurrency %q is there twice; give each its own name", l.Name)
		}
		seen[l.Name] = true
	}
}

const authorization = "Authorization"

func isHeaderName(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

func isHeaderValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

func isEntryName(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("_-.:", c) >= 0:
		default:
			return false
		}
	}
	return s != "" && len(s) <= 64
}
