package gateway

import (
	"log/slog"
	"time"

	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/httplimit"
)

// Options are what a gateway is told. Upstreams are required; the zero value of
// everything else is its default.
type Options struct {
	// Upstreams are where requests can go. The first one is where they go that no
	// route sends elsewhere.
	Upstreams []Upstream
	// Routes are which requests there are. Without any, all requests go to the
	// first upstream; with them, a request of no route is answered with 404.
	Routes []Route
	// Paths are the forms of paths that the upstream servers read as these say,
	// combined by |. Others that servers read in different ways are answered with 400
	// if anything looks at paths: Routes, or the entry "route" or "path".
	Paths httplimit.PathForm
	// Identity is how a request's entries are found.
	Identity Identity
	// Concurrency bounds how many requests are in progress.
	Concurrency []Concurrency
	// Settle has what requests cost under some rules settled when they have ended. The
	// Decider must be able to reserve.
	Settle []Settle
	// Request and Response are changes of headers: of what the upstream gets, and
	// of what the client gets from it.
	Request, Response Headers
	// MaxBody is the largest body of a request, in bytes. Zero means no bound.
	MaxBody int64
	// Clients is how long clients may take for everything.
	Clients Clients
	// Upgrades are the protocols that a connection may be upgraded to, such as
	// "websocket", which is what nil means. A request to upgrade to another one is
	// passed on without that.
	Upgrades []string
	// Connections bounds how many clients are connected.
	Connections Connections
	// MaxHeader bounds the headers of a request, in bytes. Zero means
	// gatewayfile.DefaultMaxHeader.
	MaxHeader int
	// Dialect is how clients are told their limits.
	Dialect httplimit.Dialect
	// MaxDelay is how long at most a request is held for a leaky bucket. Zero means
	// httplimit.DefaultMaxDelay.
	MaxDelay time.Duration
	// OnStoreError is what happens to a request that the store has no answer for
	// and whose rules leave it to the caller.
	OnStoreError httplimit.Failure
	// Logger takes what the operator should know, and with AccessLog a line for
	// each request. Nil means none.
	Logger *slog.Logger
	// AccessLog has every request logged: never its query or its headers, which may
	// hold secrets.
	AccessLog bool
}

// Mistakes are what is wrong with the options by themselves. [New] tells them, and what
// else it finds.
func (o Options) Mistakes() []string {
	_, problems := o.withDefaults()
	return problems
}

// The settings that a gateway file has too. Package gatewayfile describes their fields.
type (
	// Upstream is a pool of servers that answer alike.
	Upstream = gatewayfile.Upstream
	// Balance is how a pool chooses among its targets.
	Balance = gatewayfile.Balance
	// Health is how a pool asks its targets whether they are well.
	Health = gatewayfile.Health
	// Eject is when a target that fails in use is passed over.
	Eject = gatewayfile.Eject
	// Timeouts bound how long a pool's servers may take.
	Timeouts = gatewayfile.Timeouts
	// Route is some of the requests.
	Route = gatewayfile.Route
	// Headers is a change of headers.
	Headers = gatewayfile.Headers
	// Header is one header to set.
	Header = gatewayfile.Header
	// Identity is how the entries of a request are found.
	Identity = gatewayfile.Identity
	// CertificateField is a part of a client's certificate.
	CertificateField = gatewayfile.CertificateField
	// JWT is how tokens are verified and what is taken from them.
	JWT = gatewayfile.JWT
	// Concurrency bounds how many requests are in progress.
	Concurrency = gatewayfile.Concurrency
	// Settle makes what requests cost under one rule an estimate that is settled later.
	Settle = gatewayfile.Settle
	// Clients is how long clients may take.
	Clients = gatewayfile.Clients
	// Connections bounds how many connections there are to clients.
	Connections = gatewayfile.Connections
)

// The choices of a [Balance].
const (
	RoundRobin       = gatewayfile.RoundRobin
	LeastConnections = gatewayfile.LeastConnections

	balances = LeastConnections + 1
)

// The fields of a client's certificate.
const (
	CommonName  = gatewayfile.CommonName
	DNSName     = gatewayfile.DNSName
	URI         = gatewayfile.URI
	Email       = gatewayfile.Email
	Fingerprint = gatewayfile.Fingerprint

	certificateFields = Fingerprint + 1
)

// The bounds of the options.
const (
	MaxUpstreams   = gatewayfile.MaxUpstreams
	MaxTargets     = gatewayfile.MaxTargets
	MaxRoutes      = gatewayfile.MaxRoutes
	MaxConcurrency = gatewayfile.MaxConcurrency
	MaxSettle      = gatewayfile.MaxSettle
	MaxLeeway      = gatewayfile.MaxLeeway
	MaxEject       = gatewayfile.MaxEject
	MaxChanges     = gatewayfile.MaxChanges
)
