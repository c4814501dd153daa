package gateway

import (
	"log/slog"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config/gatewayfile"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/policy/inprogress"
)

// Options are the options of a gateway. Upstreams are required; all other fields have useful zero
// values.
type Options struct {
	// Settings are the settings of a gateway file.
	Settings
	// Keeper has the permits of the policy's bounds on requests in progress. Nil means a Keeper of
	// the gateway's own. The Keeper of [New] stays in use, whatever later options say.
	Keeper *inprogress.Keeper
	// Dialect is the dialect of headers in which clients are told their limits.
	Dialect httplimit.Dialect
	// OnStoreError says what happens to a request if the store does not answer and its rules leave
	// that to the caller.
	OnStoreError httplimit.Failure
	// Logger receives what the operator should know, and with AccessLog a line for each request.
	// Nil means no logging.
	Logger *slog.Logger
	// AccessLog logs every request, without its query and its headers, which may contain secrets.
	AccessLog bool
}

// Mistakes returns what is wrong with the options by themselves. [New] returns that, and what else
// it finds.
func (o Options) Mistakes() headgate.Problems {
	_, problems := o.withDefaults()
	return problems
}

// withDefaults returns the options with their defaults, and everything that is wrong with them. It
// copies what it changes.
func (o Options) withDefaults() (_ Options, problems headgate.Problems) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Settings, problems = o.Settings.WithDefaults()
	return o, problems
}

// Settings that a gateway file has too. Package gatewayfile describes their fields.
type (
	// Settings are the settings of a gateway file.
	Settings = gatewayfile.Settings
	// Upstream is a pool of equivalent servers.
	Upstream = gatewayfile.Upstream
	// Balance is how a pool chooses among its targets.
	Balance = gatewayfile.Balance
	// Health is how a pool checks the health of its targets.
	Health = gatewayfile.Health
	// Eject says when requests avoid a target that fails.
	Eject = gatewayfile.Eject
	// Load is how an upstream determines how many requests it may have in progress.
	Load = gatewayfile.Load
	// RouteLoad is what a Load is told about the requests of a route.
	RouteLoad = gatewayfile.RouteLoad
	// Pressure is a signal of how short the gateway's process is of a resource.
	Pressure = gatewayfile.Pressure
	// Timeouts bound how long a pool's servers may take.
	Timeouts = gatewayfile.Timeouts
	// Route matches some of the requests.
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
	// Settle makes the cost under one rule an estimate that is settled later.
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
