package cli

import (
	"cmp"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/server/app"
)

// service has the flags of every command that serves.
type service struct {
	app.Settings   `embed:""`
	DenyCache      string   `help:"Default of deny_cache for rules that do not set it: on answers a denied key from memory until its retry time, without asking the store. Default: ${default}" type:"choice" of:"on off" default:"off" env:"HEADGATE_DENY_CACHE"`
	Keys           hashKeys `embed:"" group:"Hash keys"`
	AdminTokenFile string   `help:"File with the admin token. Callers need it to reload the policy, to see keys and permit holders, and to revoke permits. The token itself may be in HEADGATE_ADMIN_TOKEN instead. Without a token, these calls are refused." placeholder:"FILE" env:"HEADGATE_ADMIN_TOKEN_FILE"`
	Insight        bool     `help:"Track the heaviest keys of each rule and recent denials, in bounded memory. On by default." default:"true" negatable:"" env:"HEADGATE_INSIGHT"`
	LogFormat      string   `help:"Format of the log: text or json." type:"choice" of:"text json" default:"text" env:"HEADGATE_LOG_FORMAT"`
}

// logger returns the logger of the service.
func (s *service) logger(c *call) *slog.Logger {
	if s.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(c.stderr, nil))
	}
	return slog.New(slog.NewTextHandler(c.stderr, nil))
}

// settings returns the settings that the flags of all services give, and adds their mistakes.
func (s *service) settings(c *call) app.Settings {
	to := s.Settings
	to.AdminToken = c.token("admin token", "HEADGATE_ADMIN_TOKEN", s.AdminTokenFile)
	var err error
	to.HashKey, to.OldHashKey, err = s.Keys.read()
	c.mistake(err)
	to.DenyCache = s.DenyCache == headgate.DenyCacheOn.String()
	to.NoInsight, to.HeapReserve = !s.Insight, heapReserve()
	to.Version, to.Logger = buildOf(c.version).Version, s.logger(c)
	return to
}

// heapReserve returns by how much a small heap may grow before it is collected. With it, a gateway
// with 10,000 counters in memory stays below 64 MiB. Settings of the Go runtime take precedence.
func heapReserve() int {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if os.Getenv(name) != "" {
			return 0
		}
	}
	return 16 << 20
}

// taken adds to an error about an address the flags from which the address may come: those with its
// port.
func taken(err error, s *app.Settings) error {
	var bound *net.OpError
	if !errors.As(err, &bound) || bound.Op != "listen" || bound.Addr == nil {
		return err
	}
	flags := [][2]string{{s.Listen, "--listen"}, {s.GRPCListen, "--grpc-listen"}, {s.RESPListen, "--resp-listen"}, {s.DashboardListen, "--dashboard-listen"}}
	if s.Gateway != nil {
		flags = [][2]string{{s.Gateway.Listen, "--listen"}, {s.Listen, "--admin-listen"}, {s.DashboardListen, "--dashboard-listen"}}
	}
	var from []string
	for _, flag := range flags {
		if _, port, err := net.SplitHostPort(flag[0]); err == nil && strings.HasSuffix(bound.Addr.String(), ":"+port) {
			from = append(from, flag[1])
		}
	}
	if from == nil {
		return err
	}
	return &failure{code: CodeUnavailable, text: errtext.Text(err), hint: "see which process has it, or give another one to " + strings.Join(from, " or ")}
}

// serve makes the service, and serves until the call's context ends. It calls serving just before
// it begins.
func (s *service) serve(c *call, settings app.Settings, serving func(*app.App)) error {
	// From here on, SIGHUP does not end the process.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	// The process that reads the log may end. Lines of the log are then lost, but no requests. (The
	// Go runtime ends a process for SIGPIPE only if it comes from the process's own standard output
	// or error.)
	signal.Ignore(syscall.SIGPIPE)
	defer signal.Reset(syscall.SIGPIPE)
	settings.Mistakes = c.mistakes
	made, err := app.New(c.ctx, settings)
	if err != nil {
		return taken(err, &settings)
	}
	name := cmp.Or(s.PolicyFile, settings.EnvoyConfig, "sample")
	if settings.XDS != nil {
		name = settings.XDS.Server
	}
	rules := made.Policy()
	settings.Logger.Info("serving", slog.String("address", baseURL(made.Addr("http"), s.TLSCert != "" && settings.Ratelimit == nil)), slog.String("policy", name), slog.Int64("version", rules.Version), slog.String("hash", rules.Hash), slog.Int("rules", len(rules.Rules())), slog.String("store", made.StoreName()))
	if addr := made.Addr("dashboard"); addr != nil {
		settings.Logger.Info("serving the dashboard", slog.String("address", baseURL(addr, s.TLSCert != "")))
	}
	serving(made)
	defer reloadOn(hangups, made)()
	if err := made.Serve(c.ctx); err != nil {
		return &failure{code: CodeNo, text: err.Error(), hint: "a longer --shutdown-timeout lets them end"}
	}
	settings.Logger.Info("ended")
	return nil
}
