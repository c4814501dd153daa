// Package gatewayfile has the settings of Headgate's gateway: the types that a gateway file is
// read into, and that the gateway works by.
//
// There is one description of each setting. Package config reads a [Settings] from a gateway
// file, with bounds on each field, and makes the schema of the file from the same table.
// Package server/gateway has a [Settings] in its options. Both call [Settings.WithDefaults],
// which fills in what was left out and checks the rest, so that a mistake has the same words
// wherever it is made. A setting that is left out has its zero value.
package gatewayfile

import (
	"crypto/tls"
	"fmt"
	"time"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/llm"
	"github.com/headgate/headgate/policy"
)

// Settings are what a gateway file says.
type Settings struct {
	// Upstreams are where requests can go. Requests that no route sends elsewhere go to the
	// first one.
	Upstreams []Upstream
	// Routes says which requests there are. Without any, all requests go to the first
	// upstream; with them, a request that matches none is answered with 404.
	Routes []Route
	// Paths are the forms of paths that the upstream servers read as these say, combined
	// by |. Other paths that servers read in different ways are answered with 400 if
	// anything looks at paths: Routes, or the entry "route" or "path".
	Paths httplimit.PathForm
	// Identity says how the entries of a request are found.
	Identity Identity
	// Concurrency bounds how many requests are in progress.
	Concurrency []Concurrency
	// Pressure are the signals by which upstreams with a Load shed requests before their
	// queues fill.
	Pressure []Pressure
	// Settle names the rules whose costs are settled when a request has ended.
	Settle []Settle
	// Request and Response are changes of headers: of those that the upstream gets, and of
	// those that the client gets from it.
	Request, Response Headers
	// MaxBody is the largest body of a request, in bytes. Zero means no bound.
	MaxBody int64
	// MaxHeader bounds the headers of a request, in bytes. Zero means DefaultMaxHeader.
	MaxHeader int
	// MaxDelay is the longest time that a request is held for a leaky bucket. Zero means
	// httplimit.DefaultMaxDelay.
	MaxDelay time.Duration
	// Upgrades are the protocols that a connection may be upgraded to; nil means
	// "websocket". A request to upgrade to another one is passed on without that.
	Upgrades []string
	// Clients says how long clients may take for everything.
	Clients Clients
	// Connections bounds how many clients are connected.
	Connections Connections
}

// Upstream is a pool of servers that answer alike.
type Upstream struct {
	// Name is what routes, logs and metrics call it. Empty means "default".
	Name string
	// Targets are the servers: http://host:port, https://host:port, or
	// h2c://host:port for HTTP/2 without TLS.
	Targets []string
	// Balance is how the target of a request is chosen.
	Balance Balance
	// TargetHost sends the target's own host as the Host of each request, instead of the
	// host that the client has asked for.
	TargetHost bool
	// Health is how the pool asks targets whether they are well. Nil means that it does not.
	Health *Health
	// Eject is when a target that fails is ejected.
	Eject Eject
	// Load finds out how many requests may be with the pool at the same time. Nil means
	// that nothing bounds them.
	Load *Load
	// LLM makes the pool one of servers of language models, whose calls are counted by what they
	// use. Nil means that it is none.
	LLM *LLM
	// Timeouts bound how long the pool's servers may take.
	Timeouts Timeouts
	// Files are the files that TLS is made of.
	Files TLSFiles
	// TLS is how https targets are spoken to. Nil means the system's authorities. A gateway
	// file gives Files instead.
	TLS *tls.Config
}

// LLM is how the calls to a provider of language models are counted. The gateway asks it under the
// provider's own host.
type LLM = llm.Provider

// TLSFiles are what the TLS of an upstream is made of. All are names of files but
// ServerName; empty ones are left out.
type TLSFiles struct {
	// CA has the authorities that the targets' certificates are from.
	CA string
	// Cert is the certificate that the gateway shows, and Key its key.
	Cert, Key string
	// ServerName is the name in the targets' certificates, if it is not that of the target.
	ServerName string
}

// Balance is how a pool chooses among its targets.
type Balance uint8

const (
	// RoundRobin takes one target after the other.
	RoundRobin Balance = iota
	// LeastConnections takes the target with the fewest requests in progress.
	LeastConnections
)

// String returns the choice as it is written in gateway files.
func (b Balance) String() string {
	return nameOf("balance", b, "round_robin", "least_connections")
}

// nameOf returns which of the names the value stands for.
func nameOf[T ~uint8](what string, v T, names ...string) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("%s(%d)", what, v)
}

// Health is how a pool asks its targets whether they are well: an answer of 200
// to 399 in time is well.
type Health struct {
	// Path is what is asked for, such as "/healthz". Required.
	Path string
	// Every is how often, DefaultHealthEvery if zero; Timeout how long an answer may
	// take, DefaultHealthTimeout if zero.
	Every, Timeout time.Duration
	// UpAfter is how many good answers in a row bring a target back; zero means two.
	// DownAfter is how many bad ones take it out; zero means three. The first answer of
	// all counts at once.
	UpAfter, DownAfter int
}

// Eject is when a target that fails in use gets no requests, as long as there are others.
// A failure is a request without an answer: there is no connection, the connection breaks,
// or nothing comes in time. A status of any kind is an answer.
type Eject struct {
	// After is how many failures in a row it takes. Zero means DefaultEjectAfter.
	After int
	// For is how long it lasts the first time; twice as long each further time in a
	// row, up to MaxEject. Zero means DefaultEjectFor.
	For time.Duration
}

// Timeouts bound how long a pool's servers may take. Each is 1ms to 24h; zero means its
// default.
type Timeouts struct {
	// Dial is for a connection, with its TLS handshake.
	Dial time.Duration
	// ResponseHeader is for the answer to begin, once the request has been sent.
	ResponseHeader time.Duration
	// Idle is how long an answer may pause within its body, and how long a server may
	// take nothing of a request.
	Idle time.Duration
	// KeepAlive is how long a connection is kept that nobody uses.
	KeepAlive time.Duration
}

// Route is some of the requests.
type Route struct {
	// Pattern is which: [METHOD ][HOST]/[PATH], as http.ServeMux has it. Required.
	Pattern string
	// Name is the entry "route" of its requests. Empty means the pattern or, where
	// the policy names patterns of its own, the one of all that matches best.
	Name string
	// Upstream is the name of where its requests go. Empty means the first one.
	Upstream string
	// MaxBody replaces the one in [Settings] for these requests; a negative one is no bound.
	MaxBody int64
	// Load is for upstreams that have one.
	Load RouteLoad
	// Request and Response are changes that are made after those in [Settings].
	Request, Response Headers
}

// Headers is a change of headers. Headers are removed before others are set.
type Headers struct {
	Remove []string
	Set    []Header
}

// Header is one header to set. A header that is set replaces what was there.
type Header struct {
	Name, Value string
	// Entry names, instead of Value, an entry of the request whose value is taken.
	// A request that lacks it lacks the header too.
	Entry string
}

// Identity is how the entries of a request are found, beside ip, route, method,
// host and path, which every request has.
type Identity struct {
	// Address is what the Resolver is made of.
	Address Address
	// Resolver finds the client's address. Nil means one made of Address: without trusted
	// proxies, the peer of the connection.
	Resolver *httplimit.Resolver
	// APIKey are the headers that api_key is taken from, such as X-API-Key or, with the
	// scheme before the key, Authorization:Token; Authorization:* is any scheme or none. The
	// first header that has a key counts. Authorization alone is Authorization:Bearer. Nil means
	// Authorization and X-API-Key or, if tokens come in Authorization, X-API-Key alone.
	APIKey []string
	// Headers has entries that are taken from a header, whoever sent it: by the
	// entry's name the header's.
	Headers map[string]string
	// Trusted has entries that are taken from a header if the connection comes from
	// a proxy that the Resolver trusts. From everybody else, the header is
	// removed.
	Trusted map[string]string
	// Certificate has entries that are taken from the client's certificate.
	Certificate map[string]CertificateField
	// JWT has entries that are taken from a token. Nil means none.
	JWT *JWT
}

// Address says which proxies are believed about the client's address.
type Address struct {
	// Header is the header that they hand it on in. Empty means X-Forwarded-For.
	Header string
	// Trust are the proxies: prefixes, addresses, or "unix".
	Trust []string
}

// CertificateField is a part of a client's certificate.
type CertificateField uint8

const (
	// CommonName is that of the subject.
	CommonName CertificateField = iota
	// DNSName is the first DNS name among the subject's alternatives.
	DNSName
	// URI is the first URI among them, such as a SPIFFE ID.
	URI
	// Email is the first address of mail among them.
	Email
	// Fingerprint is the SHA-256 of the certificate, in hexadecimal digits.
	Fingerprint
)

// String returns the field as it is written in gateway files.
func (f CertificateField) String() string {
	return nameOf("certificate_field", f, "common_name", "dns_name", "uri", "email", "fingerprint")
}

// JWT is how tokens are verified and what is taken from them. A token without an
// end is not accepted.
type JWT struct {
	// Keys is a JSON Web Key Set: an https:// or http:// URL, or the name of a file.
	// Required.
	Keys string
	// Algorithms are those that are accepted; nil means RS256, ES256 and EdDSA.
	// HMAC is not among what can be accepted.
	Algorithms []string
	// Issuer and Audience are what the token must have. Empty means anything.
	Issuer, Audience string
	// Leeway is by how much clocks may differ, up to MaxLeeway. Zero means
	// DefaultLeeway.
	Leeway time.Duration
	// Header is where the token is, in the words of Identity.APIKey. Empty means
	// Authorization, where the token follows the word Bearer.
	Header string
	// Claims are the entries and the claim that each is taken from: a text, a number
	// or true and false.
	Claims map[string]string
	// Required has requests without a token answered with 401. One with a token that
	// is not valid always is.
	Required bool
	// Refresh is how often the keys of a URL are fetched. Zero means DefaultRefresh.
	Refresh time.Duration
}

// Settle makes what requests cost under one rule an estimate, which is reserved, and
// settles it when they have ended: what was estimated too much is given back, and what
// is missing is charged whether it fits or not.
type Settle struct {
	// Rule is the name of the rule. Required. Its own cost multiplies what stands here.
	Rule string
	// Header is the header, or the trailer, of the upstream server's answer that says
	// the cost: one whole number. If it does not, the estimate stays. Empty means that
	// the bytes count which the client is sent: of the answer's body, and all after an
	// upgrade.
	Header string
	// Keep leaves the header in the answer. Without it clients do not see it.
	Keep bool
	// Per is how many bytes, or how much of what the header says, cost one unit, as a
	// part of that does: 1 to headgate.MaxCount. Zero means 1.
	Per int64
	// Estimate is how many units are reserved: 1 to headgate.MaxCount. Zero means 1.
	Estimate int64
}

// Clients is how long clients may take. Each is 1ms to 24h.
type Clients struct {
	// Header is for the headers of a request.
	Header time.Duration
	// Body is how long a request's body may pause, and how long one of known length
	// may take before MinRate holds.
	Body time.Duration
	// MinRate is how many bytes a second, on average, a body of known length must
	// come with. Negative means none.
	MinRate int64
	// Response is for a client to take a part of the response.
	Response time.Duration
	// Idle is how long a connection may be silent between requests.
	Idle time.Duration
	// Upgraded is how long an upgraded connection may be silent.
	Upgraded time.Duration
}

// Connections bounds how many connections there are to clients. One too many is
// closed at once.
type Connections struct {
	// Total is for all; zero means DefaultConnections.
	Total int
	// PerAddress is for each address, IPv6 by its /64. Proxies that the Resolver
	// trusts are not bound by it. Zero means no bound.
	PerAddress int
}

// The defaults of [Settings], and their bounds.
const (
	DefaultMaxHeader      = 32 << 10
	DefaultConnections    = 10_000
	DefaultDial           = 2 * time.Second
	DefaultResponseHeader = 30 * time.Second
	DefaultResponseLLM    = 10 * time.Minute // of language models
	DefaultMaxCall        = 32 << 20         // bytes of a call to one
	DefaultIdle           = 5 * time.Minute
	DefaultKeepAlive      = 90 * time.Second
	DefaultHealthEvery    = 5 * time.Second
	DefaultHealthTimeout  = time.Second
	DefaultEjectAfter     = 5
	DefaultEjectFor       = 10 * time.Second
	DefaultClientHeader   = 10 * time.Second
	DefaultClientBody     = 30 * time.Second
	DefaultClientResponse = 30 * time.Second
	DefaultClientIdle     = 2 * time.Minute
	DefaultUpgraded       = 10 * time.Minute
	DefaultMinRate        = 128
	DefaultLeeway         = 30 * time.Second
	DefaultRefresh        = 10 * time.Minute

	MaxUpstreams   = 1000
	MaxTargets     = 256
	MaxRoutes      = 10_000
	MaxConcurrency = 1_000_000
	MaxSettle      = 64
	// MaxBounds is how many bounds of concurrency there may be.
	MaxBounds = 64
	MaxLeeway = 5 * time.Minute
	MaxEject  = 5 * time.Minute
	// MaxChanges is how many headers one change may set, and how many it may remove.
	MaxChanges = 64
	// Longest is the longest of the times.
	Longest = 24 * time.Hour
)

// Load is how an upstream finds out how many requests may be with it at the same time, and
// what happens to those that are too many: they wait for a moment, in the order of their
// classes and in turn for tenants, or are refused.
type Load struct {
	// Initial is the limit before anything is known, Min and Max are its bounds. Zero means
	// 20, 1 and 1000.
	Initial, Min, Max int64
	// Ceiling is how long an answer may take. One that takes longer counts as overload.
	// Zero means that there is none.
	Ceiling time.Duration
	// Queue is how many requests may wait. Zero means 1000.
	Queue int
	// Wait is how long a request of a sheddable class may wait; one of a critical class may
	// wait two and a half times as long. Zero means 100ms.
	Wait time.Duration
	// Class is the entry with the class of a request, unless its route says it, and Tenant
	// the one with whom it is for. They must not be entries of [Identity.Headers], which any
	// client can write. Empty means that all requests are critical, and of one tenant.
	Class, Tenant string
	// Shadow has the limit only measure.
	Shadow bool
}

// RouteLoad is what the [Load] of the upstream is told of the requests of a route.
type RouteLoad struct {
	// Class is how much they matter. Nil means what the upstream's entry says.
	Class *flow.Class
	// Exempt has them pass without being asked about: health checks, long polls.
	Exempt bool
}

// Pressure is a signal of how short the gateway's process is of something.
type Pressure uint8

const (
	// Scheduler is how long goroutines wait for a processor.
	Scheduler Pressure = iota
	// CPU is how often the cgroup's quota of processor time stops the process.
	CPU
	// Memory is how long processes of the cgroup, or of the machine, wait for memory.
	Memory
)

// String returns the signal as it is written in gateway files.
func (p Pressure) String() string {
	return nameOf("pressure", p, "scheduler", "cpu", "memory")
}

// Concurrency bounds how many requests are in progress at the same time, an
// upgraded connection such as a WebSocket being one as long as it lasts.
type Concurrency struct {
	// Name is what answers and logs call it. Required.
	Name string
	// Match and Per are those of a [policy.Rule]: which requests, and by what they
	// are counted. Without Per there is one count for all.
	Match []policy.Condition
	Per   []policy.Part
	// Limit is how many: 1 to MaxConcurrency.
	Limit int
}
