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
	"github.com/headgate/headgate/server/insightapi"
)

// Settings configure the service. The zero Settings serve the sample policy with the memory store.
type Settings struct {
	// Listen is the address to serve on, host:port; port 0 takes a free one.
	// Empty means DefaultListen.
	Listen string
	// GRPCListen is the address to serve gRPC on. Empty means that it is not
	// served.
	GRPCListen string
	// GRPCConnectionAge is how long a gRPC connection may last, 1s or more. Then its client is told
	// to open another one, and calls over it have GRPCConnectionGrace to end. If they are zero,
	// connections last until the server ends, and calls may take as long as they like.
	GRPCConnectionAge, GRPCConnectionGrace time.Duration
	// GRPCStore lets gRPC callers bring their own rules, as they would to a Redis server; see
	// [grpcapi.Store].
	GRPCStore bool
	// GRPCStoreToken is the token that those callers must send: 16 to 1024 bytes of visible ASCII.
	// Empty means that anybody may bring rules.
	GRPCStoreToken string
	// RESPListen is the address to serve Redis's protocol on. Empty means that it
	// is not served.
	RESPListen string
	// RESPAnnounce is the address (host:port) at which Redis clients in cluster mode are told to find
	// the server. Empty means the one that they have reached.
	RESPAnnounce string
	// RESPToken is the token that callers there must give as their password: 16 to 1024 bytes of
	// visible ASCII. Empty means that anybody may send commands.
	RESPToken string
	// Gateway makes the service a gateway, which passes on the requests that its rules admit. Nil
	// means that it is none.
	Gateway *GatewaySettings
	// TLSCert and TLSKey are files, in PEM form, with the server's certificate and its key, for all
	// addresses. Empty means no TLS. They are read again when they change.
	TLSCert, TLSKey string
	// TLSClientCA is a file with certificate authorities. Each client must have a certificate that
	// one of them has signed. Empty means that clients need none.
	TLSClientCA string
	// TLSClientName is a DNS name, an address or a URI. The certificate of each client must be for
	// it. Empty means any. It needs TLSClientCA.
	TLSClientName string
	// PolicyFile is the YAML file with the rules. Empty means the sample policy.
	PolicyFile string
	// EnvoyConfig is a directory with a configuration of envoyproxy/ratelimit, which then is the
	// policy, in place of PolicyFile.
	EnvoyConfig string
	// XDS makes the service receive its policy from a management server, such as Envoy Gateway's.
	// Nil means that it is read from files.
	XDS *XDSSettings
	// Ratelimit makes the service a replacement for an installed envoyproxy/ratelimit. Nil means that
	// it is none.
	Ratelimit *RatelimitSettings
	// EnvoyIndependent charges each descriptor of a request from Envoy independently, as
	// envoyproxy/ratelimit does, and not all or none.
	EnvoyIndependent bool
	// Candidate is a policy file that is tried beside the one in force: every decision is compared
	// with what the candidate would decide. With EnvoyConfig, it is such a directory, too. Empty
	// means none.
	Candidate string
	// Store is "memory", or the URL of a store: redis://, redis-sentinel:// or redis-cluster://
	// (with rediss for TLS) for Redis or Valkey, postgres:// for PostgreSQL, or memcached://. See
	// docs/redis.md, docs/postgres.md and docs/memcached.md. Empty means memory.
	Store string
	// StoreTimeout is the deadline of each call to a store across a network, 1ms to 1m. If zero,
	// the store's URL gives it, or the default of 500ms applies.
	StoreTimeout time.Duration
	// OnStoreError is for rules without on_store_error. It says what happens to requests while such
	// a store does not answer: "allow", "deny" or "local". Empty means deny.
	OnStoreError string
	// DenyCache is for rules without deny_cache: denials by such a store are remembered, and
	// repeated without asking it.
	DenyCache bool
	// Learn is how long, after the store has lost its data, this server also enforces its share of
	// each limit, up to 1h. Zero means never.
	Learn time.Duration
	// MemoryMiB bounds the counters of the memory store or, with another store, those for rules
	// that are counted locally. Zero means the memory store's own bound.
	MemoryMiB int64
	// HashKey is the key with which secrets in counters' keys are hashed, of 16 bytes or more. It
	// must be the same for all servers that share counters. Empty means that secrets are hashed
	// without a key.
	HashKey string
	// OldHashKey is the previous hash key, or NoHashKey, while the key is being changed on one
	// server after the other; see [policy.OldHashKey]. Empty otherwise.
	OldHashKey string
	// Dialect names the headers of denials with ?status=true. Empty means
	// x-ratelimit.
	Dialect string
	// AccessLog logs every request.
	AccessLog bool
	// DenialLog logs denials, at most one a second for each key and rule.
	DenialLog bool
	// DrainDelay is how long /readyz fails before the listener closes, so that load balancers can
	// notice. Zero closes it at once.
	DrainDelay time.Duration
	// ShutdownTimeout is how long requests in flight may take to end after the
	// listener has closed. Zero means DefaultShutdownTimeout.
	ShutdownTimeout time.Duration
	// HeapReserve is how many bytes a small heap may grow in addition before it is collected, up to
	// MaxHeapReserve. It allows garbage to save CPU time. Zero leaves the decision to the Go
	// runtime, as is right if GOGC or GOMEMLIMIT is set.
	HeapReserve int
	// AdminToken is the token that callers of POST /v1/reload must send: 16 to 1024 bytes of
	// visible ASCII. Empty means that nobody may call it.
	AdminToken string
	// NoInsight turns off the record of which keys use the rules most and which are denied; see
	// [insight.Recorder].
	NoInsight bool
	// Peers are the URLs of the HTTP APIs of the other instances, whose insight is merged with this
	// instance's. If a host name has several addresses, there is an instance at each of them. All
	// instances must have the same AdminToken.
	Peers []string
	// Consumers are the URLs of the metrics of programs that consume queues, which the page
	// Flow of the dashboard shows. A host name that has several addresses stands for a
	// program at each of them. The AdminToken is not sent to them.
	Consumers []string
	// PeerCA is a file, in PEM form, with the authorities that have signed the certificates of
	// Peers and Consumers. Empty means the system's authorities. It is read once.
	PeerCA string
	// DashboardListen is the address of the dashboard, where people sign in with the AdminToken.
	// Without an AdminToken, it must be a loopback address. Empty means that there is no dashboard.
	DashboardListen string
	// DashboardHosts are further host names by which browsers may ask for the dashboard, in
	// addition to localhost.
	DashboardHosts []string
	// OTLP is the HTTP URL of an OpenTelemetry collector to which traces are sent. Empty means that
	// there are no traces.
	OTLP string
	// Instance is the name of this instance, for people. Empty means the name of the host.
	Instance string
	// Version is the version of this build, for the metrics.
	Version string
	// Logger is told what operators should know. Nil means no log.
	Logger *slog.Logger
	// Mistakes are mistakes that were found where the settings come from. They are reported
	// together with all others.
	Mistakes []string

	// readTimeout stands in for readTimeout in tests.
	readTimeout time.Duration
	// madeUpKey says that the HashKey was made up by the service.
	madeUpKey bool
	// lookEvery stands in for lookEvery in tests.
	lookEvery time.Duration
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
	if s.GRPCConnectionGrace < 0 {
		bad("--grpc-connection-grace: is %v, must be 0s or more", s.GRPCConnectionGrace)
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
	if s.PeerCA != "" && !slices.ContainsFunc(slices.Concat(s.Peers, s.Consumers), func(url string) bool { return strings.HasPrefix(url, "https:") }) {
		bad("--peer-ca: no peer or consumer has an https:// URL; give one, or leave the authorities out")
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
	var invalid *headgate.InvalidError
	if errors.As(b.check(name), &invalid) {
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
