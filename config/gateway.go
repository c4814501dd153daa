package config

import (
	"fmt"
	"net/http"
	"time"

	"github.com/headgate/headgate/internal/spelling"
	"github.com/headgate/headgate/policy"
)

// Gateway is what a gateway file says. What it leaves out has its zero value.
type Gateway struct {
	Upstreams []GatewayUpstream
	Routes    []GatewayRoute
	// Paths are forms of paths that the upstream servers read as they say:
	// encoded_slashes, double_encoding, leading_slashes, and cut_parameters or
	// kept_parameters.
	Paths             []string
	Identity          GatewayIdentity
	Concurrency       []GatewayConcurrency
	Settle            []GatewaySettle
	Request, Response GatewayHeaders
	// MaxBody and MaxHeader are in bytes.
	MaxBody, MaxHeader int64
	MaxDelay           time.Duration
	// Upgrades is nil if the file does not say anything of them.
	Upgrades    []string
	Clients     GatewayClients
	Connections GatewayConnections
}

// GatewayUpstream is a pool of servers.
type GatewayUpstream struct {
	Name             string
	Targets          []string
	LeastConnections bool
	TargetHost       bool
	// HealthPath is empty if nobody looks.
	HealthPath                                                 string
	HealthEvery, HealthTimeout                                 time.Duration
	UpAfter, DownAfter                                         int64
	EjectAfter                                                 int64
	EjectFor                                                   time.Duration
	DialTimeout, ResponseHeaderTimeout, IdleTimeout, KeepAlive time.Duration
	// CA, Cert and Key are the names of files.
	CA, Cert, Key, ServerName string
}

// GatewayRoute is some of the requests.
type GatewayRoute struct {
	Pattern, Name, Upstream string
	// MaxBody is in bytes; -1 is no bound.
	MaxBody           int64
	Request, Response GatewayHeaders
}

// GatewayHeaders is a change of headers.
type GatewayHeaders struct {
	Remove []string
	Set    []GatewayHeader
}

// GatewayHeader is a header to set: to a value, or to that of an entry.
type GatewayHeader struct{ Name, Value, Entry string }

// GatewayIdentity is how the entries of a request are found.
type GatewayIdentity struct {
	// AddressHeader is believed from the proxies in Trust.
	AddressHeader string
	Trust         []string
	// APIKey is nil if the file does not say anything of it.
	APIKey []string
	// The others have, by the name of an entry, where it is taken from.
	Headers, TrustedHeaders, Certificate map[string]string
	JWT                                  *GatewayJWT
}

// GatewayJWT is how tokens are verified.
type GatewayJWT struct {
	Keys                     string
	Algorithms               []string
	Issuer, Audience, Header string
	Leeway, Refresh          time.Duration
	Claims                   map[string]string
	Required                 bool
}

// GatewayConcurrency bounds how many requests are in progress.
type GatewayConcurrency struct {
	Name  string
	Match []policy.Condition
	Per   []policy.Part
	Limit int64
}

// GatewaySettle has what requests cost under a rule settled when they have ended.
type GatewaySettle struct {
	Rule string
	// Header is empty if it is the bytes of the answer that count.
	Header        string
	Keep          bool
	Per, Estimate int64
}

// GatewayClients is how long clients may take.
type GatewayClients struct {
	Header, Body time.Duration
	// MinRate is in bytes a second; -1 is none.
	MinRate                  int64
	Response, Idle, Upgraded time.Duration
}

// GatewayConnections bounds how many connections there are to clients.
type GatewayConnections struct{ Total, PerAddress int64 }

// The parts of a certificate that an entry can be taken from, as a gateway file
// names them.
const (
	CertCommonName  = "common_name"
	CertDNSName     = "dns_name"
	CertURI         = "uri"
	CertEmail       = "email"
	CertFingerprint = "fingerprint"
)

// ReadGateway reads the gateway file at path. If it is wrong, the error is an
// [*Error] with every mistake; if it cannot be read, it wraps that of package os.
// Names of files in it stay as they are written.
func ReadGateway(path string) (*Gateway, error) {
	data, err := readFile(path, MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("headgate: %w", err)
	}
	return ParseGateway(path, data)
}

// ParseGateway reads a gateway file from memory. The name stands for the file in
// mistakes.
func ParseGateway(name string, data []byte) (*Gateway, error) {
	m := &mistakes{file: name}
	root := parse(m, data, maxDepth)
	if root == nil {
		return nil, m.err()
	}
	if root.kind == empty {
		root = &node{kind: mapping, at: place{1, 1}}
	}
	g, _ := gatewayFile().read(&reader{m}, "the file", root)
	checkGateway(m, root, &g)
	if err := m.err(); err != nil {
		return nil, err
	}
	return &g, nil
}

// checkGateway finds what is wrong between fields.
func checkGateway(m *mistakes, root *node, g *Gateway) {
	upstreams := make(map[string]bool)
	for i := range g.Upstreams {
		u := &g.Upstreams[i]
		at := itemAt(root, "upstreams", i)
		if upstreams[u.Name] {
			m.add(at, "the upstream %q is there twice; give each its own name", u.Name)
		}
		upstreams[u.Name] = true
		if (u.Cert == "") != (u.Key == "") {
			m.add(at, "the upstream %q has a certificate without its key, or a key without its certificate; give both", u.Name)
		}
	}
	mux := http.NewServeMux()
	for i := range g.Routes {
		r := &g.Routes[i]
		at := itemAt(root, "routes", i)
		if problem := register(mux, r.Pattern); r.Pattern != "" && problem != "" {
			m.add(at, "the route %q %s", r.Pattern, problem)
		}
		if r.Upstream != "" && !upstreams[r.Upstream] {
			m.add(at, "the route %q goes to the upstream %q, which is not there", r.Pattern, r.Upstream)
		}
	}
	names := make(map[string]bool)
	for i := range g.Concurrency {
		if names[g.Concurrency[i].Name] {
			m.add(itemAt(root, "concurrency", i), "the bound %q is there twice; give each its own name", g.Concurrency[i].Name)
		}
		names[g.Concurrency[i].Name] = true
	}
	rules := make(map[string]bool)
	for i := range g.Settle {
		if rules[g.Settle[i].Rule] {
			m.add(itemAt(root, "settle", i), "the rule %q is there twice; keep one", g.Settle[i].Rule)
		}
		rules[g.Settle[i].Rule] = true
	}
	if _, problem := spelling.ParseForms(g.Paths); problem != "" {
		if n, ok := root.field("paths"); ok {
			m.add(n.at, "paths: %s", problem)
		}
	}
	if id := &g.Identity; len(id.TrustedHeaders) > 0 && len(id.Trust) == 0 {
		if n, ok := root.field("identity"); ok {
			m.add(n.at, "there are trusted_headers, but no proxy is trusted; say which ones under address")
		}
	}
}

// itemAt is where an entry of one of the file's lists stands.
func itemAt(root *node, name string, i int) place {
	if n, ok := root.field(name); ok && i < len(n.items) {
		return n.items[i].at
	}
	return root.at
}

// register says why a pattern cannot stand beside those that the mux has, or "".
func register(mux *http.ServeMux, pattern string) (problem string) {
	switch {
	case !registered(http.NewServeMux(), pattern):
		return "is no pattern such as GET /items/{id}"
	case !registered(mux, pattern):
		return "conflicts with another one: some requests match both, and neither of them is the more specific one"
	}
	return ""
}

// registered registers a pattern, unless ServeMux takes it for a defect.
func registered(mux *http.ServeMux, pattern string) (ok bool) {
	defer func() { ok = recover() == nil }()
	mux.Handle(pattern, http.NotFoundHandler())
	return true
}
