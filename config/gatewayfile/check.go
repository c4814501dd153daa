package gatewayfile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/adaptive"
	"github.com/headgate/headgate/flow/shed"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/identity"
	"github.com/headgate/headgate/internal/routes"
	"github.com/headgate/headgate/internal/spelling"
)

// checker collects what is wrong with options.
type checker struct{ problems headgate.Problems }

func (c *checker) bad(field, format string, args ...any) { c.problems.Add(field, format, args...) }

// within sets a duration to its default, and says if it is out of bounds.
func (c *checker) within(field, what string, d *time.Duration, otherwise time.Duration) {
	*d = cmp.Or(*d, otherwise)
	if *d < time.Millisecond || *d > Longest {
		c.bad(field, "%s is %v, must be 1ms to %v", what, *d, Longest)
	}
}

// WithDefaults returns the settings with their defaults, and everything that is wrong with
// them. What it changes it has copied. The fields of the problems are those of a gateway file,
// such as "upstreams[0].timeouts.dial".
func (o Settings) WithDefaults() (Settings, headgate.Problems) {
	var c checker
	o.MaxDelay = cmp.Or(o.MaxDelay, httplimit.DefaultMaxDelay)
	o.MaxHeader = cmp.Or(o.MaxHeader, DefaultMaxHeader)
	if o.MaxHeader < 1<<10 || o.MaxHeader > 1<<20 {
		c.bad("max_header", "the bound on headers is %d bytes, must be %d to %d", o.MaxHeader, 1<<10, 1<<20)
	}
	if o.MaxBody < 0 {
		c.bad("max_body", "the bound on bodies is %d bytes, must not be negative", o.MaxBody)
	}
	c.within("clients.header", "clients: the time for headers", &o.Clients.Header, DefaultClientHeader)
	c.within("clients.body", "clients: the time for a body", &o.Clients.Body, DefaultClientBody)
	c.within("clients.response", "clients: the time for a response", &o.Clients.Response, DefaultClientResponse)
	c.within("clients.idle", "clients: the time between requests", &o.Clients.Idle, DefaultClientIdle)
	c.within("clients.upgraded", "clients: the time of silence after an upgrade", &o.Clients.Upgraded, DefaultUpgraded)
	o.Clients.MinRate = cmp.Or(o.Clients.MinRate, DefaultMinRate)
	o.Connections.Total = cmp.Or(o.Connections.Total, DefaultConnections)
	if o.Connections.Total < 0 || o.Connections.PerAddress < 0 {
		c.bad("connections", "connections: there may be %d, and %d for each address; neither may be negative", o.Connections.Total, o.Connections.PerAddress)
	}
	o.Upgrades = slices.Clone(o.Upgrades)
	if o.Upgrades == nil {
		o.Upgrades = []string{"websocket"}
	}
	for i, name := range o.Upgrades {
		o.Upgrades[i] = strings.ToLower(name)
		if !isHeaderName(name) || o.Upgrades[i] == "h2c" {
			c.bad(fmt.Sprintf("upgrades[%d]", i), "connections cannot be upgraded to %q: it is not the name of a protocol, or the gateway would not see its requests", name)
		}
	}
	if problem := spelling.Forms(o.Paths).Problem(); problem != "" {
		c.bad("paths", "paths: %s", problem)
	}
	c.headers("request_headers", "", &o.Request)
	c.headers("response_headers", "", &o.Response)
	o.Upstreams = slices.Clone(o.Upstreams)
	c.upstreams(o.Upstreams)
	c.routes(&o)
	c.identity(&o.Identity)
	c.concurrency(&o)
	c.loads(&o)
	o.Settle = slices.Clone(o.Settle)
	c.settle(o.Settle)
	return o, c.problems
}

func (c *checker) upstreams(all []Upstream) {
	if len(all) == 0 || len(all) > MaxUpstreams {
		c.bad("upstreams", "there are %d upstreams, must be 1 to %d", len(all), MaxUpstreams)
	}
	seen := make(map[string]bool)
	for i := range all {
		u := &all[i]
		u.Name = cmp.Or(u.Name, "default")
		field, what := fmt.Sprintf("upstreams[%d]", i), fmt.Sprintf("the upstream %q", u.Name)
		if seen[u.Name] {
			c.bad(field, "%s is there twice; give each its own name", what)
		}
		seen[u.Name] = true
		if len(u.Targets) == 0 || len(u.Targets) > MaxTargets {
			c.bad(field+".targets", "%s has %d targets, must have 1 to %d", what, len(u.Targets), MaxTargets)
		}
		targets := make(map[string]bool)
		for j, text := range u.Targets {
			at := fmt.Sprintf("%s.targets[%d]", field, j)
			if _, _, problem := ParseTarget(text); problem != "" {
				c.bad(at, "%s: %s", what, problem)
			} else if targets[text] {
				c.bad(at, "%s has the target %s twice", what, text)
			}
			targets[text] = true
		}
		if u.Balance > LeastConnections {
			c.bad(field+".balance", "%s: balance %d is unknown", what, u.Balance)
		}
		if u.LLM != nil {
			u.TargetHost = true
			u.Timeouts.ResponseHeader = cmp.Or(u.Timeouts.ResponseHeader, DefaultResponseLLM)
			if !IsHeaderValue(u.LLM.Key) {
				c.bad(field+".llm", "%s: its key has characters that no header may have", what)
			}
		}
		c.within(field+".timeouts.dial", what+": the time to dial", &u.Timeouts.Dial, DefaultDial)
		c.within(field+".timeouts.response_header", what+": the time for an answer to begin", &u.Timeouts.ResponseHeader, DefaultResponseHeader)
		c.within(field+".timeouts.idle", what+": the time for which an answer may pause", &u.Timeouts.Idle, DefaultIdle)
		c.within(field+".timeouts.keep_alive", what+": the time for which a connection is kept", &u.Timeouts.KeepAlive, DefaultKeepAlive)
		u.Eject.After = cmp.Or(u.Eject.After, DefaultEjectAfter)
		c.within(field+".eject.for", what+": how long a target is ejected", &u.Eject.For, DefaultEjectFor)
		if u.Eject.After < 1 {
			c.bad(field+".eject.after", "%s: a target is ejected after %d failures, must be at least 1", what, u.Eject.After)
		}
		if (u.Files.Cert == "") != (u.Files.Key == "") {
			c.bad(field+".tls", "%s has a certificate without its key, or a key without its certificate; give both", what)
		}
		if u.Health != nil {
			h := *u.Health
			u.Health = &h
			c.health(field+".health", what, &h)
		}
	}
}

func (c *checker) health(field, what string, h *Health) {
	c.within(field+".every", what+": the time between looks", &h.Every, DefaultHealthEvery)
	c.within(field+".timeout", what+": the time for a look", &h.Timeout, DefaultHealthTimeout)
	h.UpAfter, h.DownAfter = cmp.Or(h.UpAfter, 2), cmp.Or(h.DownAfter, 3)
	if h.UpAfter < 1 || h.DownAfter < 1 {
		c.bad(field, "%s: a target is up after %d checks and down after %d, both must be at least 1", what, h.UpAfter, h.DownAfter)
	}
	if u, err := url.Parse(h.Path); err != nil || !strings.HasPrefix(h.Path, "/") || u.Host != "" {
		c.bad(field+".path", "%s: what is looked at is %q, must be a path such as /healthz", what, h.Path)
	}
}

// ParseTarget reads the URL of a target. plain says that it speaks HTTP/2 without
// TLS.
func ParseTarget(text string) (target *url.URL, plain bool, problem string) {
	u, err := url.Parse(text)
	// What stands before an @ may hold a password, which is not repeated.
	text = text[strings.LastIndexByte(text, '@')+1:]
	switch {
	case err != nil || u.Hostname() == "" || u.Opaque != "":
		return nil, false, fmt.Sprintf("the target %q is not http://host:port, https://host:port or h2c://host:port", text)
	case u.Scheme == "h2c":
		plain, u.Scheme = true, "http"
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, false, fmt.Sprintf("the target %q begins with neither http://, https:// nor h2c://", text)
	}
	if port, err := strconv.ParseUint(cmp.Or(u.Port(), "1"), 10, 16); err != nil || port == 0 {
		return nil, false, fmt.Sprintf("the target at %s has the port %s, must be 1 to 65535", u.Hostname(), u.Port())
	}
	if u.User != nil {
		return nil, false, fmt.Sprintf("the target at %s has a user in it; set the header Authorization instead", u.Host)
	}
	if u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" {
		return nil, false, fmt.Sprintf("the target %q has more than a host; paths are passed on as they come", u.String())
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, plain, ""
}

func (c *checker) routes(o *Settings) {
	if len(o.Routes) > MaxRoutes {
		c.bad("routes", "there are %d routes, must be at most %d", len(o.Routes), MaxRoutes)
	}
	o.Routes = slices.Clone(o.Routes)
	var table routes.Table
	for i := range o.Routes {
		r := &o.Routes[i]
		field, what := fmt.Sprintf("routes[%d]", i), fmt.Sprintf("the route %q", r.Pattern)
		if problem := table.Add(r.Pattern); problem != "" {
			c.bad(field+".match", "the route %s", problem)
		}
		c.headers(field+".request_headers", what+": ", &r.Request)
		c.headers(field+".response_headers", what+": ", &r.Response)
		if r.Upstream != "" && !slices.ContainsFunc(o.Upstreams, func(u Upstream) bool { return u.Name == r.Upstream }) {
			c.bad(field+".upstream", "%s goes to the upstream %q, which is not there", what, r.Upstream)
		}
	}
}

// HopByHop are the headers that belong to one connection, or say how long a
// message is: not for anybody to set or to remove.
var HopByHop = []string{
	"Connection", "Content-Length", "Host", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// headers checks a change of headers, and brings their names to one form.
func (c *checker) headers(field, what string, h *Headers) {
	if len(h.Remove) > MaxChanges || len(h.Set) > MaxChanges {
		c.bad(field, "%s%d headers are removed and %d set, each must be at most %d", what, len(h.Remove), len(h.Set), MaxChanges)
	}
	name := func(at, text string) string {
		canonical := http.CanonicalHeaderKey(text)
		switch {
		case !isHeaderName(text):
			c.bad(at, "%s%q is not the name of a header", what, text)
		case slices.Contains(HopByHop, canonical):
			c.bad(at, "%sthe header %s is the connection's own; it cannot be set or removed", what, canonical)
		}
		return canonical
	}
	h.Remove, h.Set = slices.Clone(h.Remove), slices.Clone(h.Set)
	for i := range h.Remove {
		h.Remove[i] = name(fmt.Sprintf("%s.remove[%d]", field, i), h.Remove[i])
	}
	for i := range h.Set {
		s := &h.Set[i]
		at := field + ".set." + s.Name
		s.Name = name(at, s.Name)
		if (s.Entry == "") == (s.Value == "") {
			c.bad(at, "%sthe header %s has both a value and an entry, or neither", what, s.Name)
		}
		if !IsHeaderValue(s.Value) {
			c.bad(at, "%sthe value of the header %s has a control character", what, s.Name)
		}
	}
}

func (c *checker) concurrency(o *Settings) {
	seen := make(map[string]bool)
	for i := range o.Concurrency {
		l := &o.Concurrency[i]
		if l.Limit < 1 || l.Limit > MaxConcurrency {
			c.bad(fmt.Sprintf("concurrency[%d].limit", i), "concurrency %q: the limit is %d, must be 1 to %d", l.Name, l.Limit, MaxConcurrency)
		}
		if seen[l.Name] {
			c.bad(fmt.Sprintf("concurrency[%d]", i), "concurrency %q is there twice; give each its own name", l.Name)
		}
		seen[l.Name] = true
	}
}

const authorization = "Authorization"

// isHeaderName reports whether a text can be the name of a header.
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

// IsHeaderValue reports whether a text can be the value of a header.
func IsHeaderValue(s string) bool {
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

func (c *checker) settle(all []Settle) {
	if len(all) > MaxSettle {
		c.bad("settle", "costs are settled under %d rules, must be at most %d", len(all), MaxSettle)
	}
	seen, keep := make(map[string]bool), make(map[string]bool)
	for i := range all {
		s := &all[i]
		field, what := fmt.Sprintf("settle[%d]", i), fmt.Sprintf("settle %q", s.Rule)
		if s.Rule == "" {
			c.bad(field+".rule", "settle: a cost is settled under a rule without a name")
		} else if seen[s.Rule] {
			c.bad(field, "%s is there twice; keep one", what)
		}
		seen[s.Rule] = true
		for _, n := range []struct {
			name, what string
			value      *int64
		}{{".per", "one unit is per", &s.Per}, {".estimate", "the estimate is", &s.Estimate}} {
			if *n.value == 0 {
				*n.value = 1
			}
			if *n.value < 1 || *n.value > headgate.MaxCount {
				c.bad(field+n.name, "%s: %s %d, must be 1 to %d", what, n.what, *n.value, headgate.MaxCount)
			}
		}
		if s.Header == "" {
			continue
		}
		name := http.CanonicalHeaderKey(s.Header)
		s.Header = name
		before, twice := keep[name]
		switch {
		case !isHeaderName(name):
			c.bad(field+".header", "%s: %q is not the name of a header", what, name)
		case slices.Contains(HopByHop, name):
			c.bad(field+".header", "%s: the header %s is the connection's own; it cannot say a cost", what, name)
		case twice && before != s.Keep:
			c.bad(field+".header", "%s: the header %s is kept, and it is removed; choose one", what, name)
		}
		keep[name] = s.Keep
	}
}

func (c *checker) identity(id *Identity) {
	if id.Resolver == nil {
		c.resolver(id)
	}
	if id.JWT != nil {
		j := *id.JWT
		id.JWT = &j
		c.jwt(&j)
	}
	if id.APIKey == nil {
		id.APIKey = []string{authorization, "X-Api-Key"}
		if id.JWT != nil {
			if header, _, _ := strings.Cut(id.JWT.Header, ":"); strings.EqualFold(header, authorization) {
				id.APIKey = []string{"X-Api-Key"}
			}
		}
	}
	for i, name := range id.APIKey {
		if problem := new(identity.Keys).Add(name, http.CanonicalHeaderKey); problem != "" {
			c.bad(fmt.Sprintf("identity.api_key[%d]", i), "identity: %s", problem)
		}
	}
	taken := map[string]string{"ip": "", "route": "", "method": "", "host": "", "path": "", "api_key": ""}
	entry := func(field, name, from string) {
		field = "identity." + field + "." + name
		if !isEntryName(name) {
			c.bad(field, "identity: %q is not the name of an entry: 1 to 64 letters, digits and _ - . :", name)
		} else if first, twice := taken[name]; twice && first == "" {
			c.bad(field, "identity: the entry %q is found by the gateway itself; take another name", name)
		} else if twice {
			c.bad(field, "identity: the entry %q is taken from %s and from %s; keep one", name, first, from)
		}
		taken[name] = from
	}
	for _, source := range []struct {
		field, from string
		headers     *map[string]string
	}{{"headers", "a header", &id.Headers}, {"trusted_headers", "a trusted header", &id.Trusted}} {
		*source.headers = maps.Clone(*source.headers)
		for _, name := range slices.Sorted(maps.Keys(*source.headers)) {
			header := (*source.headers)[name]
			entry(source.field, name, source.from)
			if !isHeaderName(header) {
				c.bad("identity."+source.field+"."+name, "identity: the entry %q is taken from %q, which is not the name of a header", name, header)
			}
			(*source.headers)[name] = http.CanonicalHeaderKey(header)
		}
	}
	if len(id.Trusted) > 0 && id.Resolver.Source() == "" && len(id.Address.Trust) == 0 {
		c.bad("identity", "identity: there are entries from trusted headers, but no proxy is trusted; say which ones under address")
	}
	for _, name := range slices.Sorted(maps.Keys(id.Certificate)) {
		entry("certificate", name, "the certificate")
		if id.Certificate[name] > Fingerprint {
			c.bad("identity.certificate."+name, "identity: field %d of a certificate is unknown", id.Certificate[name])
		}
	}
	if id.JWT != nil {
		for _, name := range slices.Sorted(maps.Keys(id.JWT.Claims)) {
			entry("jwt.claims", name, "the token")
			if id.JWT.Claims[name] == "" {
				c.bad("identity.jwt.claims."+name, "identity: the entry %q is taken from a claim without a name", name)
			}
		}
	}
}

// resolver makes the resolver of addresses.
func (c *checker) resolver(id *Identity) {
	if id.Resolver = new(httplimit.Resolver); len(id.Address.Trust) == 0 {
		return
	}
	source := httplimit.Source(cmp.Or(id.Address.Header, string(httplimit.XForwardedFor)))
	made, err := httplimit.NewResolver(source, id.Address.Trust...)
	var invalid *headgate.InvalidError
	switch {
	case errors.As(err, &invalid):
		for _, p := range invalid.Problems {
			c.bad("identity.address", "identity: %s", p.Text)
		}
	case err == nil:
		id.Resolver = made
	}
}

func (c *checker) jwt(j *JWT) {
	if j.Keys == "" {
		c.bad("identity.jwt.keys", "identity: tokens need keys to be verified with: a URL or a file")
	}
	if j.Algorithms == nil {
		j.Algorithms = []string{"RS256", "ES256", "EdDSA"}
	}
	if len(j.Algorithms) == 0 {
		c.bad("identity.jwt.algorithms", "identity: no algorithm of tokens is accepted")
	}
	for i, name := range j.Algorithms {
		if !slices.Contains(Algorithms(), name) {
			c.bad(fmt.Sprintf("identity.jwt.algorithms[%d]", i), "identity: the algorithm %q of tokens is not one of %s", name, strings.Join(Algorithms(), ", "))
		}
	}
	j.Header = cmp.Or(j.Header, authorization)
	if problem := new(identity.Keys).Add(j.Header, http.CanonicalHeaderKey); problem != "" {
		c.bad("identity.jwt.header", "identity: tokens come in %s", problem)
	}
	j.Leeway = cmp.Or(j.Leeway, DefaultLeeway)
	if j.Leeway < 0 || j.Leeway > MaxLeeway {
		c.bad("identity.jwt.leeway", "identity: the clocks of tokens may differ by %v, must be at most %v", j.Leeway, MaxLeeway)
	}
	j.Refresh = cmp.Or(j.Refresh, DefaultRefresh)
	if j.Refresh < time.Second || j.Refresh > Longest {
		c.bad("identity.jwt.refresh", "identity: keys are fetched every %v, must be 1s to %v", j.Refresh, Longest)
	}
	j.Claims = maps.Clone(j.Claims)
}

// Algorithms are those that tokens may be signed by: the asymmetric ones, so that
// who verifies a token cannot make one.
func Algorithms() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
}

// Knee is the limit that the load finds. The seed decides on what is random in it.
func (l *Load) Knee(seed uint64) adaptive.KneeConfig {
	return adaptive.KneeConfig{Initial: l.Initial, Min: l.Min, Max: l.Max, Ceiling: l.Ceiling, Seed: seed}
}

// Queued is the queue in front of that limit.
func (l *Load) Queued(name string) shed.Config {
	return shed.Config{Name: name, Queue: l.Queue, Interval: l.Wait}
}

// loads checks what bounds the requests that are with upstreams.
func (c *checker) loads(o *Settings) {
	has := make(map[string]bool)
	some := false
	for i := range o.Upstreams {
		u := &o.Upstreams[i]
		has[u.Name] = u.Load != nil
		if u.Load != nil {
			some = true
			c.load(fmt.Sprintf("upstreams[%d].load", i), u, o.Identity.Headers)
		}
	}
	if len(o.Pressure) > 0 && !some {
		c.bad("pressure", "there is pressure, but no upstream has a load that could shed requests by it")
	}
	for i := range o.Routes {
		r := &o.Routes[i]
		name := r.Upstream
		if name == "" && len(o.Upstreams) > 0 {
			name = o.Upstreams[0].Name
		}
		if with, known := has[name]; known && !with && (r.Load.Class != nil || r.Load.Exempt) {
			c.bad(fmt.Sprintf("routes[%d].load", i), "the route %q has a load, but its upstream %q has none that would be told", r.Pattern, name)
		}
	}
}

func (c *checker) load(field string, u *Upstream, headers map[string]string) {
	what := fmt.Sprintf("the load of the upstream %q", u.Name)
	_, wrongLimit := adaptive.NewKnee(u.Load.Knee(0))
	_, wrongQueue := shed.New(flow.Chain(), u.Load.Queued(u.Name))
	for _, err := range []error{wrongLimit, wrongQueue} {
		if wrong, ok := errors.AsType[*headgate.InvalidError](err); ok {
			for _, text := range wrong.Problems.Texts() {
				c.bad(field, "%s: %s", what, text)
			}
		}
	}
	for _, entry := range []string{u.Load.Class, u.Load.Tenant} {
		if _, theirs := headers[entry]; theirs {
			c.bad(field, "%s looks at the entry %q, which any client can write, as it is one of identity.headers; take it from trusted_headers, a token or a certificate", what, entry)
		}
	}
}
