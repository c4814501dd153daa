package cli

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/headgate/headgate/server/app"
)

// gatewayCommand is the command that runs the reverse proxy.
type gatewayCommand struct {
	Proxy       app.GatewaySettings `embed:""`
	AdminListen string              `name:"admin-listen" help:"Address of the admin API with health, metrics and reload; keep it private. Default: ${default}" placeholder:"HOST:PORT" default:"127.0.0.1:8080" env:"HEADGATE_ADMIN_LISTEN"`

	service `embed:"" group:"Service"`

	// The gateway has none of the flags with these names in the settings.
	EnvoyConfig         struct{} `kong:"-"`
	EnvoyIndependent    struct{} `kong:"-"`
	GRPCListen          struct{} `kong:"-"`
	GRPCConnectionAge   struct{} `kong:"-"`
	GRPCConnectionGrace struct{} `kong:"-"`
	GRPCStore           struct{} `kong:"-"`
	RESPListen          struct{} `kong:"-"`
	RESPAnnounce        struct{} `kong:"-"`
}

// Help is the detailed help.
func (gatewayCommand) Help() string {
	return "Forwards the requests that the rules admit to the upstream servers, and answers the others itself, until SIGINT or SIGTERM. Rules may name routes such as \"GET /items/{id}\"; routes need not be declared anywhere else. A change to the policy file or the gateway file takes effect within about a second; SIGHUP reloads both at once. A file with mistakes is rejected, and the current one stays.\n\n" +
		"Exit codes: 0 after a shutdown; 1 if requests had to be cut off; 2 if a flag or a file has mistakes; 3 if the keys for verifying tokens cannot be fetched, the store rejects the credentials or other settings, or an address is taken. While the store does not answer, the gateway starts and is not ready.\n\n" +
		"Examples:\n" +
		"  headgate gateway --upstream http://127.0.0.1:9000 --config headgate.yaml\n" +
		"  headgate gateway --gateway gateway.yaml --config headgate.yaml --listen :443 --tls-cert cert.pem --tls-key key.pem"
}

// Run serves until the call's context ends.
func (g *gatewayCommand) Run(c *call) error {
	settings := g.settings(c)
	settings.Listen, settings.Gateway = g.AdminListen, &g.Proxy
	err := g.serve(c, settings, func(made *app.App) {
		base := baseURL(made.Addr("gateway"), g.TLSCert != "")
		settings.Logger.Info("passing requests on", slog.String("address", base))
		if g.LogFormat == "text" {
			fmt.Fprintf(c.stderr, "\nTry, in another terminal:\n\n  curl -i %s/\n  curl %s/metrics\n\n", base, baseURL(made.Addr("http"), g.TLSCert != ""))
		}
	})
	if file, ok := errors.AsType[*app.GatewayFileError](err); ok {
		return &failure{code: CodeUsage, places: file.Error(), text: "the gateway file has " + count(len(file.Err.Mistakes), "mistake"), hint: "docs/gateway.md describes the file"}
	}
	return err
}
