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
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/server/app"
)

// service has the flags of every command that serves.
type service struct {
	Config          string        `help:"Policy file. Without one, a sample policy is served." placeholder:"FILE" env:"HEADGATE_CONFIG"`
	Candidate       string        `help:"Policy file to compare with the current one. Each request is also decided by this file, without effect; headgate candidate shows the differences." placeholder:"FILE" env:"HEADGATE_CANDIDATE"`
	TLSCert         string        `name:"tls-cert" help:"PEM file with the server's certificate, for all addresses. It is reloaded when it changes." placeholder:"FILE" env:"HEADGATE_TLS_CERT"`
	TLSKey          string        `name:"tls-key" help:"PEM file with the certificate's private key." placeholder:"FILE" env:"HEADGATE_TLS_KEY"`
	TLSClientCA     string        `name:"tls-client-ca" help:"PEM file with certificate authorities. Each client must present a certificate signed by one of them." placeholder:"FILE" env:"HEADGATE_TLS_CLIENT_CA"`
	TLSClientName   string        `name:"tls-client-name" help:"DNS name, IP address or URI that each client certificate must contain. By default, any." placeholder:"NAME" env:"HEADGATE_TLS_CLIENT_NAME"`
	Store           string        `help:"Where to keep counters: memory, redis://user:password@host:6379/0, redis-sentinel://host1,host2/0?master=NAME or redis-cluster://host1,host2, with rediss for TLS; postgres://user@host/database; or memcached://host. Passwords on the command line are visible to other users of the machine: use the environment or the URL's password_file. Default: ${default}" placeholder:"URL" default:"memory" env:"HEADGATE_STORE"`
	StoreTimeout    time.Duration `help:"Deadline of each call to a store across a network; 0s means what its URL says, or 500ms. A caller with an earlier deadline does not wait longer than that." default:"0s" env:"HEADGATE_STORE_TIMEOUT"`
	DenyCache       string        `help:"Default of deny_cache for rules that do not set it: on answers a denied key from memory until its retry time, without asking the store. Default: ${default}" type:"choice" of:"on off" default:"off" env:"HEADGATE_DENY_CACHE"`
	Learn           time.Duration `help:"After the store has lost its data, also enforce this server's share of each limit for this long. 0s turns it off." default:"0s" env:"HEADGATE_LEARN"`
	Memory          int64         `help:"Memory limit for counters in this process, in MiB: those of the memory store, or of local shares. Default: ${default}" placeholder:"MIB" default:"512" env:"HEADGATE_MEMORY"`
	Keys            hashKeys      `embed:"" group:"Hash keys"`
	AdminTokenFile  string        `help:"File with the admin token. Callers need it to reload the policy, to see keys and permit holders, and to revoke permits. The token itself may be in HEADGATE_ADMIN_TOKEN instead. Without a token, these calls are refused." placeholder:"FILE" env:"HEADGATE_ADMIN_TOKEN_FILE"`
	Insight         bool          `help:"Track the heaviest keys of each rule and recent denials, in bounded memory. On by default." default:"true" negatable:"" env:"HEADGATE_INSIGHT"`
	Peer            []string      `help:"URL of the HTTP API of another instance, to be included in the dashboard and in headgate top. All instances must have the same admin token. A host name with several addresses means an instance at each. May be repeated." placeholder:"URL" sep:"none" env:"HEADGATE_PEER"`
	Consumer        []string      `help:"URL of the Prometheus metrics of a Kafka or RabbitMQ consumer that uses Headgate, to be shown on the dashboard's Flow page. A host name with several addresses means a consumer at each. May be repeated." placeholder:"URL" sep:"none" env:"HEADGATE_CONSUMER"`
	PeerCA          string        `name:"peer-ca" help:"PEM file with the certificate authorities for peers and consumers with https:// URLs. Default: the system's." placeholder:"FILE" env:"HEADGATE_PEER_CA"`
	DashboardListen string        `help:"Address of the dashboard. People sign in with the admin token; without a token, the address must be a loopback address. Empty means no dashboard." placeholder:"HOST:PORT" env:"HEADGATE_DASHBOARD_LISTEN"`
	DashboardHost   []string      `help:"Host name under which browsers may open the dashboard, in addition to localhost and IP addresses. May be repeated." placeholder:"NAME" env:"HEADGATE_DASHBOARD_HOST"`
	OTLP            string        `name:"otlp" help:"URL of an OpenTelemetry collector to send traces to, such as http://127.0.0.1:4318/v1/traces. The environment variable OTEL_TRACES_SAMPLER selects which requests are traced." placeholder:"URL" env:"HEADGATE_OTLP"`
	Instance        string        `help:"Name of this instance where several are shown. Default: the host name." placeholder:"NAME" env:"HEADGATE_INSTANCE"`
	AccessLog       bool          `help:"Log every request." env:"HEADGATE_ACCESS_LOG"`
	DenialLog       bool          `help:"Log denials, at most one line a second for each key and rule, with a count." env:"HEADGATE_DENIAL_LOG"`
	LogFormat       string        `help:"Format of the log: text or json." type:"choice" of:"text json" default:"text" env:"HEADGATE_LOG_FORMAT"`
	DrainDelay      time.Duration `help:"At shutdown, how long /readyz fails before the listener closes, so that load balancers notice." default:"0s" env:"HEADGATE_DRAIN_DELAY"`
	ShutdownTimeout time.Duration `help:"At shutdown, how long requests in flight may take to finish." default:"10s" env:"HEADGATE_SHUTDOWN_TIMEOUT"`
}

// logger returns the logger of the service.
func (s *service) logger(c *call) *slog.Logger {
	if s.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(c.stderr, nil))
	}
	return slog.New(slog.NewTextHandler(c.stderr, nil))
}

// fill sets the settings that the flags give, and adds their mistakes.
func (s *service) fill(c *call, to *app.Settings) {
	to.AdminToken = c.token("admin token", "HEADGATE_ADMIN_TOKEN", s.AdminTokenFile)
	var err error
	to.HashKey, to.OldHashKey, err = s.Keys.read()
	c.mistake(err)
	to.PolicyFile, to.Candidate = s.Config, s.Candidate
	to.TLSCert, to.TLSKey, to.TLSClientCA, to.TLSClientName = s.TLSCert, s.TLSKey, s.TLSClientCA, s.TLSClientName
	to.Store, to.StoreTimeout, to.Learn, to.MemoryMiB = s.Store, s.StoreTimeout, s.Learn, s.Memory
	to.DenyCache = s.DenyCache == headgate.DenyCacheOn.String()
	to.AccessLog, to.DrainDelay, to.ShutdownTimeout = s.AccessLog, s.DrainDelay, s.ShutdownTimeout
	to.DashboardListen, to.DashboardHosts = s.DashboardListen, s.DashboardHost
	to.NoInsight, to.Peers, to.Consumers, to.PeerCA, to.Instance = !s.Insight, s.Peer, s.Consumer, s.PeerCA, s.Instance
	to.OTLP, to.DenialLog = s.OTLP, s.DenialLog
	to.HeapReserve = heapReserve()
	to.Version, to.Logger = buildOf(c.version).Version, s.logger(c)
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
	name := cmp.Or(s.Config, settings.EnvoyConfig, "sample")
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
