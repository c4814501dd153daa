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
	gatewayfile.Settings
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
