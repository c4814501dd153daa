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
	Candidate       string        `help:"Policy file that is tried beside the one in force: every decision is compared with what it would be by this one, and headgate candidate shows where they differ." placeholder:"FILE" env:"HEADGATE_CANDIDATE"`
	TLSCert         string        `name:"tls-cert" help:"File with the certificate, in PEM form, that all addresses are served with. It is read again when it changes." placeholder:"FILE" env:"HEADGATE_TLS_CERT"`
	TLSKey          string        `name:"tls-key" help:"File with the certificate's key." placeholder:"FILE" env:"HEADGATE_TLS_KEY"`
	TLSClientCA     string        `name:"tls-client-ca" help:"File with the authorities, one of which must have signed the certificate of each client." placeholder:"FILE" env:"HEADGATE_TLS_CLIENT_CA"`
	TLSClientName   string        `name:"tls-client-name" help:"Name that the certificate of each client must be for: a DNS name, an address or a URI. Any, if left out." placeholder:"NAME" env:"HEADGATE_TLS_CLIENT_NAME"`
	Store           string        `help:"Where counters are kept: memory, redis://user:password@host:6379/0, redis-sentinel://host1,host2/0?master=NAME or redis-cluster://host1,host2, with rediss for TLS; postgres://user@host/database; or memcached://host. A password is safer in a file or the environment than here. Default: ${default}" placeholder:"URL" default:"memory" env:"HEADGATE_STORE"`
	StoreTimeout    time.Duration `help:"Deadline of each call to a store across a network; 0s is what its URL says, or 15ms for Redis, 100ms for PostgreSQL and 50ms for memcached." default:"0s" env:"HEADGATE_STORE_TIMEOUT"`
	DenyCache       string        `help:"Whether a key that such a store has denied is denied from memory until its time comes, for rules that do not say it: on or off. Default: ${default}" type:"choice" of:"on off" default:"off" env:"HEADGATE_DENY_CACHE"`
	Learn           time.Duration `help:"For how long after the store has lost its data this server's share of each limit is enforced as well. 0s is never." default:"0s" env:"HEADGATE_LEARN"`
	Memory          int64         `help:"Bound on the counters in memory, in MiB: those of the memory store, or of rules that are counted locally. Default: ${default}" placeholder:"MIB" default:"512" env:"HEADGATE_MEMORY"`
	Keys            hashKeys      `embed:""`
	AdminTokenFile  string        `help:"File with the admin token, which callers must show to reload the policy, to see keys and holders of permits, and to revoke permits; the token itself may be in HEADGATE_ADMIN_TOKEN instead. Without one, nobody may do so." placeholder:"FILE" env:"HEADGATE_ADMIN_TOKEN_FILE"`
	Insight         bool          `help:"Know which keys use each rule most, which are denied and why, in bounded memory. On by default." default:"true" negatable:"" env:"HEADGATE_INSIGHT"`
	Peer            []string      `help:"URL of the HTTP API of another instance, whose insight is shown with that of this one; needs the admin token, which all instances share. A host name with several addresses stands for an instance at each of them. May be given several times." placeholder:"URL" sep:"none" env:"HEADGATE_PEER"`
	Consumer        []string      `help:"URL of the Prometheus metrics of a program that consumes Kafka or RabbitMQ with Headgate, to be shown on the page Flow of the dashboard. A host name with several addresses stands for a program at each of them. May be given several times." placeholder:"URL" sep:"none" env:"HEADGATE_CONSUMER"`
	PeerCA          string        `name:"peer-ca" help:"File with the authorities, in PEM form, that have signed the certificates of peers and consumers with https:// URLs. Those that the host trusts if left out." placeholder:"FILE" env:"HEADGATE_PEER_CA"`
	DashboardListen string        `help:"Address to serve the dashboard on, to people who show the admin token. Without a token it has to be a loopback address. Without an address there is no dashboard." placeholder:"HOST:PORT" env:"HEADGATE_DASHBOARD_LISTEN"`
	DashboardHost   []string      `help:"Name by which browsers ask for the dashboard, beside localhost and addresses. May be given several times." placeholder:"NAME" env:"HEADGATE_DASHBOARD_HOST"`
	OTLP            string        `name:"otlp" help:"URL of a collector of OpenTelemetry, such as http://127.0.0.1:4318/v1/traces, that traces are sent to. Which requests are traced is said by OTEL_TRACES_SAMPLER in the environment." placeholder:"URL" env:"HEADGATE_OTLP"`
	Instance        string        `help:"What to call this instance where several are shown. The host's name if left out." placeholder:"NAME" env:"HEADGATE_INSTANCE"`
	AccessLog       bool          `help:"Log every request." env:"HEADGATE_ACCESS_LOG"`
	DenialLog       bool          `help:"Log denials: one a second at most for each key and rule, with how many there were." env:"HEADGATE_DENIAL_LOG"`
	LogFormat       string        `help:"Format of the log: text or json." type:"choice" of:"text json" default:"text" env:"HEADGATE_LOG_FORMAT"`
	DrainDelay      time.Duration `help:"How long /readyz says no before the listener closes at shutdown, so that balancers look elsewhere." default:"0s" env:"HEADGATE_DRAIN_DELAY"`
	ShutdownTimeout time.Duration `help:"How long requests in flight may take to end at shutdown." default:"10s" env:"HEADGATE_SHUTDOWN_TIMEOUT"`
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
	rules := made.Policy()
	settings.Logger.Info("serving", slog.String("address", baseURL(made.Addr("http"), s.TLSCert != "")), slog.String("policy", name), slog.Int64("version", rules.Version), slog.String("hash", rules.Hash), slog.Int("rules", len(rules.Rules())), slog.String("store", made.StoreName()))
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
