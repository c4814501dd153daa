package cli

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/headgate/headgate/server/app"
)

// gatewayCommand is the command that runs the reverse proxy.
type gatewayCommand struct {
	Upstream    []string `help:"Upstream server: http://host:port, https://host:port, or h2c://host:port for HTTP/2 without TLS. May be repeated; requests are spread over all." placeholder:"URL" sep:"none" env:"HEADGATE_UPSTREAM"`
	Gateway     string   `help:"Gateway file: upstreams, routes, identity, concurrency limits." placeholder:"FILE" env:"HEADGATE_GATEWAY"`
	Listen      string   `help:"Address to listen on for requests; port 0 picks a free port. Default: ${default}" placeholder:"HOST:PORT" default:"127.0.0.1:8000" env:"HEADGATE_LISTEN"`
	AdminListen string   `name:"admin-listen" help:"Address of the admin API with health, metrics and reload; keep it private. Default: ${default}" placeholder:"HOST:PORT" default:"127.0.0.1:8080" env:"HEADGATE_ADMIN_LISTEN"`
	Trust       []string `help:"Proxy that is trusted to report the client's address: a prefix, an address, or unix. May be repeated." placeholder:"PREFIX" env:"HEADGATE_TRUST"`
	TrustHeader string   `name:"trust-header" help:"Header with the client's address that trusted proxies set: Forwarded, or one with a single address. Default: X-Forwarded-For." placeholder:"NAME" env:"HEADGATE_TRUST_HEADER"`

	service `embed:"" group:"Service"`

	OnStoreError string `name:"on-store-error" help:"Default of on_store_error for rules that do not set it. While the store does not answer: allow requests, deny them, or enforce this gateway's share of the limits (local). Default: ${default}" placeholder:"MODE" default:"local" env:"HEADGATE_ON_STORE_ERROR"`
	Headers      string `help:"Rate limit headers sent to clients: x-ratelimit, ratelimit-triple, draft-11 or none. Default: ${default}" placeholder:"DIALECT" default:"x-ratelimit" env:"HEADGATE_HEADERS"`
}

// Help is the detailed help.
func (gatewayCommand) Help() string {
	return "Forwards the requests that the rules admit to the upstream servers, and answers the others itself, until SIGINT or SIGTERM. Rules may name routes such as \"GET /items/{id}\"; routes need not be declared anywhere else. A change to the policy file or the gateway file takes effect within about a second; SIGHUP reloads both at once. A file with mistakes is rejected, and the current one stays.\n\n" +
		"Exit codes: 0 after a shutdown; 1 if requests had to be cut off; 2 if a flag or a file has mistakes; 3 if the keys of tokens do not answer, the store rejects the credentials or other settings, or an address is taken. While the store does not answer, the gateway starts and is not ready.\n\n" +
		"Examples:\n" +
		"  headgate gateway --upstream http://127.0.0.1:9000 --config headgate.yaml\n" +
		"  headgate gateway --gateway gateway.yaml --config headgate.yaml --listen :443 --tls-cert cert.pem --tls-key key.pem"
}

// Run serves until the call's context ends.
func (g *gatewayCommand) Run(c *call) error {
	settings := app.Settings{
		Listen: g.AdminListen, OnStoreError: g.OnStoreError, Dialect: g.Headers,
		Gateway: &app.GatewaySettings{Listen: g.Listen, Upstreams: g.Upstream, Trust: g.Trust, TrustHeader: g.TrustHeader, File: g.Gateway},
	}
	g.fill(c, &settings)
	err := g.serve(c, settings, func(made *app.App) {
		base := baseURL(made.Addr("gateway"), g.TLSCert != "")
		settings.Logger.Info("passing requests on", slog.String("address", base))
		if g.LogFormat == "text" {
			fmt.Fprintf(c.stderr, "\nTry, in another terminal:\n\n  curl -i %s/\n  curl %s/metrics\n\n", base, baseURL(made.Addr("http"), g.TLSCert != ""))
		}
	})
	var file *app.GatewayFileError
	if errors.As(err, &file) {
		return &failure{code: CodeUsage, places: file.Error(), text: "the gateway file has " + count(len(file.Err.Mistakes), "mistake"), hint: "docs/gateway.md describes the file"}
	}
	return err
}
