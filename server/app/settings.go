package app

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/server/history"
	"github.com/headgate/headgate/server/insightapi"
	"github.com/headgate/headgate/store/memory"
)

// Settings configure the service. The zero Settings serve the sample policy with the memory store.
// A field that has a flag of the command line is described by the flag's help. For all such fields,
// the empty value is allowed, and means the default.
type Settings struct {
	// Listen is the address to serve the HTTP API on, host:port; port 0 takes a free one. Empty means
	// DefaultListen.
	Listen string `kong:"-"`
	// Gateway makes the service a gateway, which passes on the requests that its rules admit. Nil
	// means that it is none.
	Gateway *GatewaySettings `kong:"-"`
	// XDS makes the service receive its policy from a management server, such as Envoy Gateway's.
	// Nil means that it is read from files.
	XDS *XDSSettings `kong:"-"`
	// Ratelimit makes the service a replacement for an installed envoyproxy/ratelimit. Nil means that
	// it is none.
	Ratelimit *RatelimitSettings `kong:"-"`

	EnvoyConfig         string        `help:"Directory with an envoyproxy/ratelimit configuration to use as the policy: all files ending in .yaml." placeholder:"DIR" env:"HEADGATE_ENVOY_CONFIG" group:"Envoy"`
	EnvoyIndependent    bool          `help:"Charge each descriptor of an Envoy request on its own, as envoyproxy/ratelimit does, instead of all or none." env:"HEADGATE_ENVOY_INDEPENDENT" group:"Envoy"`
	GRPCListen          string        `name:"grpc-listen" help:"Address to serve gRPC on. Empty means no gRPC." placeholder:"HOST:PORT" env:"HEADGATE_GRPC_LISTEN" group:"gRPC"`
	GRPCConnectionAge   time.Duration `name:"grpc-connection-age" help:"Maximum age of a gRPC connection, 1s or more. Then its client is told to reconnect, so that load balancers spread callers again. 0s means no maximum." default:"0s" env:"HEADGATE_GRPC_CONNECTION_AGE" group:"gRPC"`
	GRPCConnectionGrace time.Duration `name:"grpc-connection-grace" help:"How long calls on a connection that has reached that age may take to finish, 1s or more. Then they fail, also those that only a pause has delayed. 0s means no limit." default:"0s" env:"HEADGATE_GRPC_CONNECTION_GRACE" group:"gRPC"`
	GRPCStore           bool          `name:"grpc-store" help:"Let gRPC callers send their own rules and use this server as their store: for the Go client library." env:"HEADGATE_GRPC_STORE" group:"gRPC"`
	// GRPCStoreToken is the token that those callers must send: 16 to 1024 bytes of visible ASCII.
	// Empty means that anybody may bring rules.
	GRPCStoreToken string `kong:"-"`
	RESPListen     string `name:"resp-listen" help:"Address to serve the Redis protocol on. Empty means that it is not served." placeholder:"HOST:PORT" env:"HEADGATE_RESP_LISTEN" group:"RESP"`
	RESPAnnounce   string `name:"resp-announce" help:"Address that Redis clients in cluster mode are told to connect to. Default: the one they connected to. Needed behind a mapped port, or for a name that load balances." placeholder:"HOST:PORT" env:"HEADGATE_RESP_ANNOUNCE" group:"RESP"`
	// RESPToken is the token that callers there must give as their password: 16 to 1024 bytes of
	// visible ASCII. Empty means that anybody may send commands.
	RESPToken string `kong:"-"`

	PolicyFile    string `name:"config" help:"Policy file. Without one, a sample policy is served." placeholder:"FILE" env:"HEADGATE_CONFIG"`
	Candidate     string `help:"Policy file, or directory like that of --envoy-config, to compare with the current policy. Each request is also decided by it, without effect; headgate candidate shows the differences." placeholder:"FILE" env:"HEADGATE_CANDIDATE"`
	TLSCert       string `name:"tls-cert" help:"PEM file with the server's certificate, for all addresses. It is reloaded when it changes." placeholder:"FILE" env:"HEADGATE_TLS_CERT"`
	TLSKey        string `name:"tls-key" help:"PEM file with the certificate's private key." placeholder:"FILE" env:"HEADGATE_TLS_KEY"`
	TLSClientCA   string `name:"tls-client-ca" help:"PEM file with certificate authorities. Each client must present a certificate signed by one of them." placeholder:"FILE" env:"HEADGATE_TLS_CLIENT_CA"`
	TLSClientName string `name:"tls-client-name" help:"DNS name, IP address or URI that each client certificate must contain. By default, any." placeholder:"NAME" env:"HEADGATE_TLS_CLIENT_NAME"`

	Store        string        `help:"Where to keep counters: memory, redis://user:password@host:6379/0, redis-sentinel://host1,host2/0?master=NAME or redis-cluster://host1,host2, with rediss for TLS; postgres://user@host/database; or memcached://host. Passwords on the command line are visible to other users of the machine: use the environment or the URL's password_file. Default: ${default}" placeholder:"URL" default:"memory" env:"HEADGATE_STORE"`
	StoreTimeout time.Duration `help:"Deadline of each call to a store across a network, 1ms to 1m; 0s means what its URL says, or 500ms. A caller with an earlier deadline does not wait longer than that." default:"0s" env:"HEADGATE_STORE_TIMEOUT"`
	OnStoreError string        `help:"Default of on_store_error for rules that do not set it. While the store does not answer: allow requests, deny them, or enforce this server's share of the limits (local). Default: deny, and local for the gateway." placeholder:"MODE" env:"HEADGATE_ON_STORE_ERROR"`
	// ManualClock has all that depends on time follow a clock that stands still, at ClockStart, until
	// POST /v1/clock moves it. It is for tests of programs that use the service. It needs the memory
	// store and an AdminToken.
	ManualClock bool `kong:"-"`
	// DenyCache is for rules without deny_cache: denials by such a store are remembered, and
	// repeated without asking it.
	DenyCache bool          `kong:"-"`
	Learn     time.Duration `help:"After the store has lost its data, also enforce this server's share of each limit for this long, up to 1h. 0s turns it off." default:"0s" env:"HEADGATE_LEARN"`
	MemoryMiB int64         `name:"memory" help:"Memory limit for counters in this process, in MiB: those of the memory store, or of local shares. Default: ${default}" placeholder:"MIB" default:"512" env:"HEADGATE_MEMORY"`
	NoStandby bool          `help:"Give each connection a goroutine of its own. By default, a plaintext connection to the HTTP API or the Redis protocol has none while it waits for its next request, if counters are in memory and the system is Linux." env:"HEADGATE_NO_STANDBY"`

	Region      string        `help:"This server's region. Rules with scope: global are then divided among all regions. --store is the region's own." placeholder:"NAME" env:"HEADGATE_REGION" group:"Regions"`
	Regions     []string      `help:"All regions, including this one: the same in each of them." placeholder:"NAME,NAME" env:"HEADGATE_REGIONS" group:"Regions"`
	RegionHome  string        `help:"Store in which the regions share global limits: a URL like that of --store. No request waits for it." placeholder:"URL" env:"HEADGATE_REGION_HOME" group:"Regions"`
	RegionLease time.Duration `help:"How long a region that is cut off from the home uses its last share, 1s to 10m: the same in each region. 0s means 10s." default:"0s" env:"HEADGATE_REGION_LEASE" group:"Regions"`
	RegionFloor int           `help:"Percentage of each global limit that is always a region's own, and is never lent: the same in each region. Default: ${default}" placeholder:"PERCENT" default:"2" env:"HEADGATE_REGION_FLOOR" group:"Regions"`

	// HashKey is the key with which secrets in counters' keys are hashed, of 16 bytes or more. It
	// must be the same for all servers that share counters. Empty means that secrets are hashed
	// without a key.
	HashKey string `kong:"-"`
	// OldHashKey is the previous hash key, or NoHashKey, while the key is being changed on one
	// server after the other; see [policy.OldHashKey]. Empty otherwise.
	OldHashKey string `kong:"-"`
	// AdminToken is the token that callers of POST /v1/reload must send: 16 to 1024 bytes of
	// visible ASCII. Empty means that nobody may call it.
	AdminToken string `kong:"-"`

	Dialect string `name:"headers" help:"Rate limit headers: x-ratelimit, ratelimit-triple, draft-11 or none. They are in all answers to Envoy and of the gateway, and in denials with ?status=true. Default: ${default}" placeholder:"DIALECT" default:"x-ratelimit" env:"HEADGATE_HEADERS"`
	// NoInsight turns off the record of which keys use the rules most and which are denied; see
	// [insight.Recorder].
	NoInsight       bool     `kong:"-"`
	Peers           []string `name:"peer" help:"URL of the HTTP API of another instance, to be included in the dashboard and in headgate top. All instances must have the same admin token. A host name with several addresses means an instance at each. May be repeated." placeholder:"URL" sep:"none" env:"HEADGATE_PEER"`
	Consumers       []string `name:"consumer" help:"URL of the Prometheus metrics of a Kafka or RabbitMQ consumer that uses Headgate, to be shown on the dashboard's Flow page. A host name with several addresses means a consumer at each. May be repeated." placeholder:"URL" sep:"none" env:"HEADGATE_CONSUMER"`
	PeerCA          string   `name:"peer-ca" help:"PEM file with the certificate authorities for peers and consumers with https:// URLs. Default: the system's." placeholder:"FILE" env:"HEADGATE_PEER_CA"`
	History         string   `name:"history" help:"Where the dashboard gets figures that are older than two hours, or from before the last start: a Prometheus that scrapes the instances, such as http://prometheus.internal:9090?job=headgate, whose query has the labels to select metrics by; or a file in which this instance keeps a week of requests and rules." placeholder:"URL|FILE" env:"HEADGATE_HISTORY"`
	DashboardListen string   `help:"Address of the dashboard. People sign in with the admin token; without a token, the address must be a loopback address. Empty means no dashboard." placeholder:"HOST:PORT" env:"HEADGATE_DASHBOARD_LISTEN"`
	DashboardHosts  []string `name:"dashboard-host" help:"Host name under which browsers may open the dashboard, in addition to localhost and IP addresses. May be repeated." placeholder:"NAME" env:"HEADGATE_DASHBOARD_HOST"`
	OTLP            string   `name:"otlp" help:"URL of an OpenTelemetry collector to send traces to, such as http://127.0.0.1:4318/v1/traces. The environment variable OTEL_TRACES_SAMPLER selects which requests are traced." placeholder:"URL" env:"HEADGATE_OTLP"`
	Instance        string   `help:"Name of this instance where several are shown. Default: the host name." placeholder:"NAME" env:"HEADGATE_INSTANCE"`
	AccessLog       bool     `help:"Log every request." env:"HEADGATE_ACCESS_LOG"`
	DenialLog       bool     `help:"Log denials, at most one line a second for each key and rule, with a count." env:"HEADGATE_DENIAL_LOG"`

	DrainDelay      time.Duration `help:"At shutdown, how long /readyz fails before the listener closes, so that load balancers notice. At most 1h." default:"0s" env:"HEADGATE_DRAIN_DELAY"`
	ShutdownTimeout time.Duration `help:"At shutdown, how long requests in flight may take to finish, up to 1h." default:"10s" env:"HEADGATE_SHUTDOWN_TIMEOUT"`

	// HeapReserve is how many bytes a small heap may grow in addition before it is collected, up to
	// MaxHeapReserve. It allows garbage to save CPU time. Zero leaves the decision to the Go
	// runtime, as is right if GOGC or GOMEMLIMIT is set.
	HeapReserve int `kong:"-"`
	// Version is the version of this build, for the metrics.
	Version string `kong:"-"`
	// Logger is told what operators should know. Nil means no log.
	Logger *slog.Logger `kong:"-"`
	// Mistakes are mistakes that were found where the settings come from. They are reported
	// together with all others.
	Mistakes []string `kong:"-"`

	// readTimeout stands in for readTimeout in tests.
	readTimeout time.Duration
	// madeUpKey says that the HashKey was made up by the service.
	madeUpKey bool
	// lookEvery stands in for lookEvery in tests.
	lookEvery time.Duration
	// clock is made for a ManualClock.
	clock *memory.ManualClock
	// sleep stands in for time.Sleep in tests, for the drain delay.
	sleep func(time.Duration)
}

// The defaults of [Settings].
const (
	DefaultListen          = "127.0.0.1:8080"
	DefaultStore           = memoryStore
	DefaultShutdownTimeout = 10 * time.Second
)

// MaxHeapReserve is the largest [Settings.HeapReserve].
const MaxHeapReserve = 1 << 30

// The bounds of every connection. They are generous: a caller that waits for a decision before it
// does anything else never reaches them, unless something is wrong.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 20 * time.Second
	idleTimeout       = 2 * time.Minute
	grpcIdle          = 15 * time.Minute // proxies keep one connection for long
	// Proxies send the headers of their clients along, cookies and all. net/http adds
	// 4 KiB of its own.
	maxHeaderBytes = 64<<10 - 4<<10
)

const memoryStore = "memory"

// SettingsError lists every mistake in [Settings]. It never contains the store's URL, which may
// have a password in it.
type SettingsError struct{ Problems []string }

// Error writes one mistake per line.
func (e *SettingsError) Error() string { return strings.Join(e.Problems, "\n") }

// withDefaults returns the settings with their defaults, or a [*SettingsError].
func (s Settings) withDefaults() (Settings, error) {
	def := func(d *time.Duration, otherwise time.Duration) {
		if *d == 0 {
			*d = otherwise
		}
	}
	if s.Listen == "" {
		s.Listen = DefaultListen
	}
	if s.Store == "" {
		s.Store = DefaultStore
	}
	if s.Dialect == "" {
		s.Dialect = httplimit.XRateLimit.String()
	}
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	if s.OnStoreError == "" {
		s.OnStoreError = headgate.OnErrorDeny.String()
		if s.Gateway != nil {
			s.OnStoreError = headgate.OnErrorLocal.String()
		}
	}
	def(&s.ShutdownTimeout, DefaultShutdownTimeout)
	def(&s.readTimeout, readTimeout)
	def(&s.lookEvery, lookEvery)
	if s.sleep == nil {
		s.sleep = time.Sleep
	}

	problems := slices.Clone(s.Mistakes)
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if p := checkListen(s.Listen); p != "" {
		bad("listen: %s", p)
	}
	if p := checkListen(s.GRPCListen); s.GRPCListen != "" && p != "" {
		bad("--grpc-listen: %s", p)
	}
	if s.GRPCConnectionAge != 0 && s.GRPCConnectionAge < time.Second {
		bad("--grpc-connection-age: is %v, must be 1s or more, or 0s", s.GRPCConnectionAge)
	}
	// grpc-go counts the time that either process was paused, and fails what is then in progress.
	if s.GRPCConnectionGrace != 0 && s.GRPCConnectionGrace < time.Second {
		bad("--grpc-connection-grace: is %v, must be 1s or more, or 0s", s.GRPCConnectionGrace)
	}
	if s.GRPCListen == "" && (s.GRPCStore || s.GRPCStoreToken != "") {
		bad("--grpc-store: gRPC is not served; give it an address")
	}
	if !s.GRPCStore && s.GRPCStoreToken != "" {
		bad("grpc store token: the store is not served over gRPC; turn it on, or leave the token out")
	}
	if p := checkToken("grpc store token", s.GRPCStoreToken); p != "" {
		bad("%s", p)
	}
	if s.Gateway != nil {
		problems = append(problems, s.Gateway.mistakes()...)
	}
	if p := checkListen(s.RESPListen); s.RESPListen != "" && p != "" {
		bad("--resp-listen: %s", p)
	}
	if p := s.announceMistake(); p != "" {
		bad("--resp-announce: %s", p)
	}
	if p := checkToken("resp token", s.RESPToken); p != "" {
		bad("%s", p)
	}
	if s.Ratelimit != nil && s.Ratelimit.MetricsListen != "" {
		if p := checkListen(s.Ratelimit.MetricsListen); p != "" {
			bad("PROMETHEUS_ADDR: %s", p)
		}
	}
	if s.EnvoyConfig != "" && s.PolicyFile != "" {
		bad("--envoy-config: there is a policy file as well; give one of them")
	}
	if s.XDS != nil {
		problems = append(problems, s.XDS.mistakes(&s)...)
	}
	problems = append(problems, s.dashboardMistakes()...)
	if s.DenialLog && s.NoInsight {
		bad("--denial-log: it logs what insight knows, which is turned off")
	}
	if p := otlpMistake(s.OTLP); p != "" {
		bad("--otlp: %s", p)
	}
	for _, peer := range s.Peers {
		if p := insightapi.CheckPeer(peer); p != "" {
			bad("--peer: %s", p)
		}
	}
	for _, consumer := range s.Consumers {
		if p := insightapi.CheckConsumer(consumer); p != "" {
			bad("--consumer: %s", p)
		}
	}
	if len(s.Consumers) > 0 && s.NoInsight {
		bad("--consumer: insight, which shows consumers, is turned off")
	}
	if len(s.Peers) > 0 && s.AdminToken == "" {
		bad("--peer: there is no admin token, without which instances do not tell each other anything")
	}
	if strings.Contains(s.History, "://") {
		if p := history.CheckAddress(s.History); p != "" {
			bad("--history: %s", p)
		}
	}
	if s.History != "" && s.NoInsight {
		bad("--history: insight, which it goes on from, is turned off")
	}
	problems = append(problems, s.regionMistakes()...)
	if s.PeerCA != "" && !slices.ContainsFunc(slices.Concat(s.Peers, s.Consumers, []string{s.History}), func(url string) bool { return strings.HasPrefix(url, "https:") }) {
		bad("--peer-ca: no peer, consumer or history has an https:// URL; give one, or leave the authorities out")
	}
	if p := checkTLS(&s); p != "" {
		bad("tls: %s", p)
	}
	for _, p := range checkStore(s.Store) {
		bad("--store: %s", p)
	}
	problems = append(problems, checkHashKeys(s.HashKey, s.OldHashKey)...)
	if p := checkToken("admin token", s.AdminToken); p != "" {
		bad("%s", p)
	}
	if _, err := parseOnError(s.OnStoreError); err != nil {
		bad("--on-store-error: %v", err)
	}
	if s.Learn < 0 || s.Learn > time.Hour {
		bad("--learn: is %v, must be 0s to 1h", s.Learn)
	}
	problems = append(problems, s.clockMistakes()...)
	if s.StoreTimeout != 0 && (s.StoreTimeout < time.Millisecond || s.StoreTimeout > time.Minute) {
		bad("--store-timeout: is %v, must be 1ms to 1m", s.StoreTimeout)
	}
	const mostMiB = 1 << 20
	if s.MemoryMiB < 0 || s.MemoryMiB > mostMiB {
		bad("--memory: is %d MiB, must be 1 to %d", s.MemoryMiB, mostMiB)
	}
	if _, err := httplimit.ParseDialect(s.Dialect); err != nil {
		bad("--headers: %s", errtext.Text(err))
	}
	if s.DrainDelay < 0 || s.DrainDelay > time.Hour {
		bad("--drain-delay: is %v, must be 0s to 1h", s.DrainDelay)
	}
	if s.HeapReserve < 0 || s.HeapReserve > MaxHeapReserve {
		bad("heap reserve: is %d bytes, must be 0 to %d", s.HeapReserve, MaxHeapReserve)
	}
	if s.ShutdownTimeout < 0 || s.ShutdownTimeout > time.Hour {
		bad("--shutdown-timeout: is %v, must be up to 1h", s.ShutdownTimeout)
	}
	if problems != nil {
		return s, &SettingsError{problems}
	}
	if s.ManualClock {
		s.clock = memory.NewManualClock(ClockStart)
	}
	return s, nil
}

// checkToken returns what is wrong with a token, or "". It does not repeat the
// token.
func checkToken(name, token string) string {
	const least, most = 16, 1024
	if n := len(token); n != 0 && (n < least || n > most) {
		return fmt.Sprintf("%s: has %d bytes, must have %d to %d", name, n, least, most)
	}
	for i := range len(token) {
		if token[i] <= ' ' || token[i] > '~' {
			return fmt.Sprintf("%s: byte %d is not a visible ASCII character, which is all that a header can hold", name, i+1)
		}
	}
	return ""
}

// announceMistake returns what is wrong with RESPAnnounce, or "".
func (s *Settings) announceMistake() string {
	host, port, err := net.SplitHostPort(s.RESPAnnounce)
	n, _ := strconv.ParseUint(port, 10, 16)
	switch {
	case s.RESPAnnounce == "":
		return ""
	case s.RESPListen == "":
		return "Redis's protocol is not served; give --resp-listen, or leave it out"
	case err != nil || host == "" || n == 0 || strings.ContainsFunc(host, func(r rune) bool { return r <= ' ' || r > '~' }):
		return fmt.Sprintf("%q is not host:port, such as headgate.internal:6380", s.RESPAnnounce)
	}
	return ""
}

// checkListen returns what is wrong with an address, or "".
func checkListen(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Sprintf("%q is not host:port, such as 127.0.0.1:8080 or :8080", address)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Sprintf("the port of %q is not a number from 0 to 65535", address)
	}
	return ""
}

// checkStore returns what is wrong with a store's URL, one text for each mistake. It does not
// repeat the URL, which may have a password in it even if it cannot be parsed.
func checkStore(name string) []string {
	if name == memoryStore {
		return nil
	}
	b := backendOf(name)
	if b == nil {
		return []string{"it is neither memory, nor does it begin with redis://, redis-sentinel:// or redis-cluster:// (rediss in the place of redis is for TLS), postgres:// or memcached://"}
	}
	if invalid, ok := errors.AsType[*headgate.InvalidError](b.check(name)); ok {
		return invalid.Problems.Texts()
	}
	return nil
}

// describeStore returns the store's URL without its secrets.
func describeStore(name string) string {
	if b := backendOf(name); b != nil {
		return b.describe(name)
	}
	return memoryStore
}
