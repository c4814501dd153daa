package cli

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/app"
)

// serve is the command that serves.
type serve struct {
	Config          string        `help:"Policy file. Without one, a sample policy is served." placeholder:"FILE" env:"HEADGATE_CONFIG"`
	Candidate       string        `help:"Policy file that is tried beside the one in force: every decision is compared with what it would be by this one, and headgate candidate shows where they differ." placeholder:"FILE" env:"HEADGATE_CANDIDATE"`
	EnvoyConfig     string        `name:"envoy-config" help:"Directory with a configuration of envoyproxy/ratelimit, which is then the policy: all of its files that end in .yaml, one domain in each." placeholder:"DIR" env:"HEADGATE_ENVOY_CONFIG"`
	EnvoyEach       bool          `name:"envoy-independent" help:"Charge each descriptor of a request from Envoy by itself, as envoyproxy/ratelimit does, rather than all or none." env:"HEADGATE_ENVOY_INDEPENDENT"`
	Listen          string        `help:"Address to serve on; port 0 takes a free one. Default: ${default}" placeholder:"HOST:PORT" default:"127.0.0.1:8080" env:"HEADGATE_LISTEN"`
	GRPCListen      string        `name:"grpc-listen" help:"Address to serve gRPC on. Without one, gRPC is not served." placeholder:"HOST:PORT" env:"HEADGATE_GRPC_LISTEN"`
	RESPListen      string        `name:"resp-listen" help:"Address to serve Redis's protocol on. Without one, it is not served." placeholder:"HOST:PORT" env:"HEADGATE_RESP_LISTEN"`
	RESPTokenFile   string        `name:"resp-token-file" help:"File with the token that Redis clients must show as their password; the token itself may be in HEADGATE_RESP_TOKEN instead. Without one, anybody may ask." placeholder:"FILE" env:"HEADGATE_RESP_TOKEN_FILE"`
	TLSCert         string        `name:"tls-cert" help:"File with the certificate, in PEM form, that all addresses are served with. It is read again when it changes." placeholder:"FILE" env:"HEADGATE_TLS_CERT"`
	TLSKey          string        `name:"tls-key" help:"File with the certificate's key." placeholder:"FILE" env:"HEADGATE_TLS_KEY"`
	TLSClientCA     string        `name:"tls-client-ca" help:"File with the authorities, one of which must have signed the certificate of each client." placeholder:"FILE" env:"HEADGATE_TLS_CLIENT_CA"`
	Store           string        `help:"Where counters are kept: memory, redis://user:password@host:6379/0, or rediss:// for TLS. A password is safer in the environment than here. Default: ${default}" placeholder:"URL" default:"memory" env:"HEADGATE_STORE"`
	StoreTimeout    time.Duration `help:"Deadline of each call to a store across a network." default:"15ms" env:"HEADGATE_STORE_TIMEOUT"`
	Memory          int64         `help:"Bound on the counters of the memory store, in MiB. Default: ${default}" placeholder:"MIB" default:"512" env:"HEADGATE_MEMORY"`
	Keys            hashKeys      `embed:""`
	AdminTokenFile  string        `help:"File with the token that callers of POST /v1/reload must show; the token itself may be in HEADGATE_ADMIN_TOKEN instead. Without one, nobody may call it." placeholder:"FILE" env:"HEADGATE_ADMIN_TOKEN_FILE"`
	Headers         string        `help:"Headers of denials with ?status=true: x-ratelimit, ratelimit-triple, draft-11 or none. Default: ${default}" placeholder:"DIALECT" default:"x-ratelimit" env:"HEADGATE_HEADERS"`
	AccessLog       bool          `help:"Log every request." env:"HEADGATE_ACCESS_LOG"`
	LogFormat       string        `help:"Format of the log: text or json." enum:"text,json" default:"text" env:"HEADGATE_LOG_FORMAT"`
	DrainDelay      time.Duration `help:"How long /readyz says no before the listener closes at shutdown, so that balancers look elsewhere." default:"0s" env:"HEADGATE_DRAIN_DELAY"`
	ShutdownTimeout time.Duration `help:"How long requests in flight may take to end at shutdown." default:"10s" env:"HEADGATE_SHUTDOWN_TIMEOUT"`
}

// Help is the detailed help.
func (serve) Help() string {
	return "Serves until SIGINT or SIGTERM, then ends what is in flight; a second signal ends it at once. A change of the policy file takes effect within about a second; SIGHUP has it read at once. A file with mistakes changes nothing.\n\n" +
		"Exit codes: 0 after a shutdown; 1 if requests had to be cut off; 2 if a flag or the policy file has mistakes; 3 if the store does not answer or the address is taken.\n\n" +
		"Examples:\n" +
		"  headgate serve\n" +
		"  headgate serve --config headgate.yaml --listen :8080 --store redis://127.0.0.1:6379/0"
}

// Run serves until the call's context ends.
func (s *serve) Run(c *call) error {
	var handler slog.Handler = slog.NewTextHandler(c.stderr, nil)
	if s.LogFormat == "json" {
		handler = slog.NewJSONHandler(c.stderr, nil)
	}
	logger := slog.New(handler)
	token, err := readToken("admin token", "HEADGATE_ADMIN_TOKEN", s.AdminTokenFile)
	if err != nil {
		return err
	}
	respToken, err := readToken("RESP token", "HEADGATE_RESP_TOKEN", s.RESPTokenFile)
	if err != nil {
		return err
	}
	key, old, err := s.Keys.read()
	if err != nil {
		return err
	}
	// From here on SIGHUP does not end the process, whatever it is doing.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	service, err := app.New(c.ctx, app.Settings{
		Listen: s.Listen, GRPCListen: s.GRPCListen, RESPListen: s.RESPListen, RESPToken: respToken, TLSCert: s.TLSCert, TLSKey: s.TLSKey, TLSClientCA: s.TLSClientCA,
		PolicyFile: s.Config, EnvoyConfig: s.EnvoyConfig, EnvoyIndependent: s.EnvoyEach, Store: s.Store, StoreTimeout: s.StoreTimeout, MemoryMiB: s.Memory,
		HashKey: key, OldHashKey: old, Candidate: s.Candidate, AdminToken: token, Dialect: s.Headers, AccessLog: s.AccessLog,
		DrainDelay: s.DrainDelay, ShutdownTimeout: s.ShutdownTimeout,
		Version: buildOf(c.version).Version, Logger: logger,
	})
	if err != nil {
		return err
	}
	name := cmp.Or(s.Config, s.EnvoyConfig, "sample")
	base := baseURL(service.Addr("http"), s.TLSCert != "")
	rules := service.Policy()
	logger.Info("serving", slog.String("address", base), slog.String("policy", name), slog.Int64("version", rules.Version), slog.String("hash", rules.Hash), slog.Int("rules", len(rules.Rules())), slog.String("store", service.StoreName()))
	if addr := service.Addr("grpc"); addr != nil {
		logger.Info("serving gRPC", slog.String("address", addr.String()))
	}
	if addr := service.Addr("resp"); addr != nil {
		logger.Info("serving RESP", slog.String("address", addr.String()))
	}
	if s.LogFormat == "text" {
		suggest(c.stderr, base, rules.Set)
	}
	defer reloadOn(hangups, service)()
	if err := service.Serve(c.ctx); err != nil {
		return &failure{code: CodeNo, text: err.Error(), hint: "a longer --shutdown-timeout lets them end"}
	}
	logger.Info("ended")
	return nil
}

// baseURL is where a person on this machine reaches the address.
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
	if rules := set.Rules(); len(rules) > 0 {
		rule := &rules[0]
		for i := range rules {
			if rules[i].Direct {
				rule = &rules[i]
				break
			}
		}
		check := fmt.Sprintf(`{"checks":[{"rule":%s,"key":%s}]}`, quoteJSON(rule.Name), quoteJSON(sampleKey(rule)))
		fmt.Fprintf(w, "  curl --json %s %s/v1/check\n", quoteShell(check), base)
		fmt.Fprintf(w, "  curl -i --json %s '%s/v1/check?status=true'\n", quoteShell(check), base)
	}
	fmt.Fprintf(w, "  curl --json %s %s/v1/check\n", quoteShell(`{"descriptor":{"api_key":"k1","ip":"203.0.113.10","route":"POST /v1/token"}}`), base)
	fmt.Fprintf(w, "  curl %s/v1/rules\n\n", base)
}

// sampleKey is a key that the rule takes.
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
