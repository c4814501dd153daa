package gateway

import (
	"log/slog"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy/inprogress"
)

// Options are what a gateway is told. Upstreams are required; the zero value of
// everything else is its default.
type Options struct {
	// Settings are what a gateway file says.
	Settings
	// Keeper has the permits of what the policy lets be in progress. Nil means one that
	// nobody else uses. That of [New] stays, whatever later options say.
	Keeper *inprogress.Keeper
	// Dialect is how clients are told their limits.
	Dialect httplimit.Dialect
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
func (o Options) Mistakes() headgate.Problems {
	_, problems := o.withDefaults()
	return problems
}

// withDefaults returns the options with their defaults, and everything that is wrong with
// them. What it changes it has copied.
func (o Options) withDefaults() (_ Options, problems headgate.Problems) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Settings, problems = o.Settings.WithDefaults()
	return o, problems
}

// The settings that a gateway file has too. Package gatewayfile describes their fields.
type (
	// Settings are what a gateway file says.
	Settings = gatewayfile.Settings
	// Upstream is a pool of servers that answer alike.
	Upstream = gatewayfile.Upstream
	// Balance is how a pool chooses among its targets.
	Balance = gatewayfile.Balance
	// Health is how a pool asks its targets whether they are well.
	Health = gatewayfile.Health
	// Eject is when a target that fails in use is passed over.
	Eject = gatewayfile.Eject
	// Load is how an upstream finds out how many requests may be with it.
	Load = gatewayfile.Load
	// RouteLoad is what that is told of the requests of a route.
	RouteLoad = gatewayfile.RouteLoad
	// Pressure is a signal of how short the gateway's process is of something.
	Pressure = gatewayfile.Pressure
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
)

// The fields of a client's certificate.
const (
	CommonName  = gatewayfile.CommonName
	DNSName     = gatewayfile.DNSName
	URI         = gatewayfile.URI
	Email       = gatewayfile.Email
	Fingerprint = gatewayfile.Fingerprint
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
