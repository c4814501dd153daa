package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/app"
)

// serve is the command that serves.
type serve struct {
	service `embed:"" group:"Service"`

	Listen         string          `help:"Address to listen on; port 0 picks a free port. Default: ${default}" placeholder:"HOST:PORT" default:"127.0.0.1:8080" env:"HEADGATE_LISTEN"`
	Clock          string          `help:"Clock of the server: system, or manual for tests, which stands still until POST /v1/clock moves it. manual needs the memory store and an admin token. Default: ${default}" type:"choice" of:"system manual" default:"system" env:"HEADGATE_CLOCK"`
	GRPCStoreToken string          `name:"grpc-store-token-file" help:"File with the token that callers of --grpc-store must send. The token itself may be in HEADGATE_GRPC_STORE_TOKEN instead. Without a token, anyone may call." placeholder:"FILE" env:"HEADGATE_GRPC_STORE_TOKEN_FILE" group:"gRPC"`
	RESPTokenFile  string          `name:"resp-token-file" help:"File with the password that Redis clients must give. The password itself may be in HEADGATE_RESP_TOKEN instead. Without one, anyone may call." placeholder:"FILE" env:"HEADGATE_RESP_TOKEN_FILE" group:"RESP"`
	XDS            app.XDSSettings `embed:"" prefix:"xds-" group:"Envoy"`
	Like           likeFlags       `embed:"" prefix:"like-ratelimit-"`
}

// Help is the detailed help.
func (serve) Help() string {
	return "Serves until SIGINT or SIGTERM, then finishes the requests in flight; a second signal stops it at once. A change to the policy file takes effect within about a second; SIGHUP reloads it at once. A file with mistakes is rejected, and the current policy stays.\n\n" +
		"Exit codes: 0 after a shutdown; 1 if requests had to be cut off; 2 if a flag or the policy file has mistakes; 3 if the store rejects the credentials or other settings, or the address is taken. While the store does not answer, the server starts and is not ready.\n\n" +
		"Examples:\n" +
		"  headgate serve\n" +
		"  headgate serve --config headgate.yaml --listen :8080 --store redis://127.0.0.1:6379/0"
}

// Run serves until the call's context ends.
func (s *serve) Run(c *call) error {
	settings := s.settings(c)
	settings.Listen, settings.ManualClock = s.Listen, s.Clock == "manual"
	if s.XDS.Server != "" {
		settings.XDS = &s.XDS
	}
	if s.Like.Serve {
		settings.Ratelimit = &s.Like.RatelimitSettings
	}
	settings.RESPToken = c.token("RESP token", "HEADGATE_RESP_TOKEN", s.RESPTokenFile)
	settings.GRPCStoreToken = c.token("gRPC store's token", "HEADGATE_GRPC_STORE_TOKEN", s.GRPCStoreToken)
	err := s.serve(c, settings, func(made *app.App) {
		if addr := made.Addr("grpc"); addr != nil {
			settings.Logger.Info("serving gRPC", slog.String("address", addr.String()))
		}
		if addr := made.Addr("resp"); addr != nil {
			settings.Logger.Info("serving RESP", slog.String("address", addr.String()))
		}
		if addr := made.Addr("metrics"); addr != nil {
			settings.Logger.Info("serving metrics", slog.String("address", "http://"+addr.String()+s.Like.MetricsPath))
		}
		if s.LogFormat == "text" && settings.Ratelimit == nil {
			suggest(c.stderr, baseURL(made.Addr("http"), s.TLSCert != ""), made.Policy().Set)
		}
	})
	if err != nil && s.EnvoyConfig != "" {
		return envoyFailure(err)
	}
	return err
}

// baseURL returns the URL by which a person on this machine reaches the address.
func baseURL(addr net.Addr, secure bool) string {
	scheme := "http://"
	if secure {
		scheme = "https://"
	}
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return scheme + addr.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + net.JoinHostPort(host, port)
}

// suggest prints a few lines to try.
func suggest(w io.Writer, base string, set *policy.Set) {
	fmt.Fprintf(w, "\nTry, in another terminal:\n\n")
	if rule := sampleRule(set.Rules()); rule != nil {
		check, _ := json.Marshal(checkBody{Checks: [1]checkOf{{Rule: rule.Name, Key: sampleKey(rule)}}}) // it has only texts
		fmt.Fprintf(w, "  curl --json %s %s/v1/check\n", quoteShell(string(check)), base)
		fmt.Fprintf(w, "  curl -i --json %s '%s/v1/check?status=true'\n", quoteShell(string(check)), base)
	}
	login := policy.Descriptor{{Name: "ip", Value: "203.0.113.10"}, {Name: "route", Value: "POST /login"}, {Name: "user", Value: "ada"}}
	const entries = `{"descriptor":{"user":"ada","ip":"203.0.113.10","route":"POST /login"}`
	if found, err := set.Decide(login, 1, nil); err == nil && set.Awaits(found.Checks) {
		// A rule charges by the outcome, which a plain check cannot report.
		fmt.Fprintf(w, "  curl --json %s %s/v1/reserve\n", quoteShell(entries+`,"id":"login-1"}`), base)
		fmt.Fprintf(w, "  curl --json %s %s/v1/settle\n", quoteShell(`{"reservation":"login-1","status":401}`), base)
	} else {
		fmt.Fprintf(w, "  curl --json %s %s/v1/check\n", quoteShell(entries+"}"), base)
	}
	fmt.Fprintf(w, "  curl %s/v1/rules\n\n", base)
}

// sampleRule returns a rule for a sample check: the first one that applies to checks and accepts
// any key, or else the first that applies to checks. It returns nil if there is none.
func sampleRule(rules []policy.Rule) *policy.Rule {
	var sample *policy.Rule
	for i := range rules {
		switch r := &rules[i]; {
		case r.Limits == nil: // such a rule has only in_progress, to which checks do not apply
		case r.Direct:
			return r
		case sample == nil:
			sample = r
		}
	}
	return sample
}

// sampleKey returns a key that the rule accepts.
func sampleKey(r *policy.Rule) string {
	if r.Direct {
		return "user42"
	}
	values := make([]string, len(r.Per))
	for i, p := range r.Per {
		values[i] = "user42"
		if p.Entry == "ip" {
			values[i] = "203.0.113.10"
		}
	}
	return strings.Join(values, "|")
}

// quoteShell quotes s as one word for a shell.
func quoteShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
