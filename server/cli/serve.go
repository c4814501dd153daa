package cli

import (
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
	Listen          string        `help:"Address to serve on; port 0 takes a free one. Default: ${default}" placeholder:"HOST:PORT" default:"127.0.0.1:8080" env:"HEADGATE_LISTEN"`
	Store           string        `help:"Where counters are kept: memory, redis://user:password@host:6379/0, or rediss:// for TLS. A password is safer in the environment than here. Default: ${default}" placeholder:"URL" default:"memory" env:"HEADGATE_STORE"`
	StoreTimeout    time.Duration `help:"Deadline of each call to a store across a network." default:"100ms" env:"HEADGATE_STORE_TIMEOUT"`
	Memory          int64         `help:"Bound on the counters of the memory store, in MiB. Default: ${default}" placeholder:"MIB" default:"512" env:"HEADGATE_MEMORY"`
	HashKey         string        `help:"Key under which API keys and tokens are hashed before they are counted: 16 bytes or more, the same on all servers that share a store. Safer in the environment than here." placeholder:"KEY" env:"HEADGATE_HASH_KEY"`
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
	token, err := adminToken(s.AdminTokenFile)
	if err != nil {
		return err
	}
	// From here on SIGHUP does not end the process, whatever it is doing.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	service, err := app.New(c.ctx, app.Settings{
		Listen: s.Listen, PolicyFile: s.Config, Store: s.Store, StoreTimeout: s.StoreTimeout, MemoryMiB: s.Memory,
		HashKey: s.HashKey, AdminToken: token, Dialect: s.Headers, AccessLog: s.AccessLog,
		DrainDelay: s.DrainDelay, ShutdownTimeout: s.ShutdownTimeout,
		Version: buildOf(c.version).Version, Logger: logger,
	})
	if err != nil {
		return err
	}
	name := s.Config
	if name == "" {
		name = "sample"
	}
	base := baseURL(service.Addr("http"))
	rules := service.Policy()
	logger.Info("serving", slog.String("address", base), slog.String("policy", name), slog.Int64("version", rules.Version), slog.String("hash", rules.Hash), slog.Int("rules", len(rules.Rules())), slog.String("store", service.StoreName()))
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
func baseURL(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return "http://" + addr.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port)
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
