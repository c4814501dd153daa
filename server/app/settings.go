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

// Settings are what the service can be told. The zero Settings serve the sample
// policy from memory.
type Settings struct {
	// Listen is the address to serve on, host:port; port 0 takes a free one.
	// Empty means DefaultListen.
	Listen string
	// GRPCListen is the address to serve gRPC on. Empty means that it is not
	// served.
	GRPCListen string
	// GRPCConnectionAge is how long a connection may last there, 1s or more. The client is told
	// then to make another one, and its calls have GRPCConnectionGrace to end. Zero means that
	// connections last until the server ends, and that calls may take as long as they like.
	GRPCConnectionAge, GRPCConnectionGrace time.Duration
	// GRPCStore lets callers there bring their own rules, as they would to a
	// Redis server; see [grpcapi.Store].
	GRPCStore bool
	// GRPCStoreToken is what they show: 16 to 1024 bytes of visible ASCII. Empty
	// means that anybody may.
	GRPCStoreToken string
	// RESPListen is the address to serve Redis's protocol on. Empty means that it
	// is not served.
	RESPListen string
	// RESPToken is what callers show there before they may ask: 16 to 1024 bytes
	// of visible ASCII. Empty means that anybody may.
	RESPToken string
	// Gateway has the service pass on what its rules admit. Nil means that it does
	// not.
	Gateway *GatewaySettings
	// TLSCert and TLSKey are the files, in PEM form, of the certificate and the
	// key that all addresses are served with. Empty means no TLS. They are read
	// again when they change.
	TLSCert, TLSKey string
	// TLSClientCA is the file with the authorities, one of which must have
	// signed the certificate of a client. Empty means that clients need none.
	TLSClientCA string
	// TLSClientName is a name that the certificate of a client must be for: a DNS name, an
	// address or a URI. Empty means any. TLSClientCA must be given with it.
	TLSClientName string
	// PolicyFile is the YAML file with the rules. Empty means the sample policy.
	PolicyFile string
	// EnvoyConfig is a directory with a configuration of envoyproxy/ratelimit,
	// which then is the policy. There is no PolicyFile besides.
	EnvoyConfig string
	// XDS has the policy sent by a management server, such as Envoy Gateway's. Nil means
	// that it is read from files.
	XDS *XDSSettings
	// LikeRatelimit serves as envoyproxy/ratelimit does, which others have set up: only gRPC
	// is served with TLS, GET /healthcheck answers as /readyz, and /json takes requests of the
	// rate limit service as JSON.
	LikeRatelimit bool
	// EnvoyIndependent has each descriptor of a request from Envoy charged by
	// itself, as envoyproxy/ratelimit does, rather than all or none.
	EnvoyIndependent bool
	// Candidate is a policy file that is tried beside the one in force: every
	// decision is compared with what it would be by this one. Beside an
	// EnvoyConfig it is such a directory too. Empty means none.
	Candidate string
	// Store is "memory", or the URL of Redis or Valkey servers: redis://,
	// redis-sentinel:// or redis-cluster://, with rediss for TLS; see docs/redis.md. Or of
	// PostgreSQL, postgres://, or of memcached, memcached://; see docs/postgres.md and
	// docs/memcached.md.
	// Empty means memory.
	Store string
	// StoreTimeout is the deadline of each call to a store across a network, 1ms
	// to 1m. Zero means what the store's URL says, or the default of its kind: 15ms for
	// Redis.
	StoreTimeout time.Duration
	// OnStoreError is what becomes of requests while such a store does not answer,
	// for rules that do not say it: "allow", "deny" or "local". Empty means deny.
	OnStoreError string
	// DenyCache has keys that such a store has denied denied from memory until their
	// time comes, for rules that do not say it.
	DenyCache bool
	// Learn is for how long after the store has lost its data this server's share
	// of each limit is enforced as well, up to 1h. Zero means never.
	Learn time.Duration
	// MemoryMiB bounds the counters of the memory store and, beside another store,
	// those of rules that are counted locally. Zero means the memory store's own
	// bound.
	MemoryMiB int64
	// HashKey is the key under which secrets in counters' keys are hashed: the
	// same for all servers that share counters. It must have 16 bytes at least.
	// Empty means that they are hashed without a key.
	HashKey string
	// OldHashKey is the hash key before, or NoHashKey, while it is being changed
	// on one server after the other; see [policy.OldHashKey]. Empty otherwise.
	OldHashKey string
	// Dialect names the headers of denials with ?status=true. Empty means
	// x-ratelimit.
	Dialect string
	// AccessLog has every request logged.
	AccessLog bool
	// DenialLog has denials logged, one a second at most for each key and rule.
	DenialLog bool
	// DrainDelay is how long /readyz says no before the listener closes, so that
	// balancers can look elsewhere. Zero closes at once.
	DrainDelay time.Duration
	// ShutdownTimeout is how long requests in flight may take to end after the
	// listener has closed. Zero means DefaultShutdownTimeout.
	ShutdownTimeout time.Duration
	// HeapReserve is by how many bytes a small heap may grow before it is collected, up
	// to MaxHeapReserve: garbage in exchange for CPU time. Zero leaves it to
	// the Go runtime, and is right wherever somebody has told that when to collect.
	HeapReserve int
	// AdminToken is what callers of POST /v1/reload show: 16 to 1024 bytes of
	// visible ASCII. Empty means that nobody may call it.
	AdminToken string
	// NoInsight has nobody told which keys use the rules most and which are denied;
	// see [insight.Recorder].
	NoInsight bool
	// Peers are the URLs of the HTTP APIs of the other instances, whose insight is merged
	// with that of this one. A host name that has several addresses stands for an instance
	// at each of them. They have the same AdminToken.
	Peers []string
	// PeerCA is a file, in PEM form, with the authorities that have signed the certificates
	// of Peers. Empty means those that the host trusts. It is read once.
	PeerCA string
	// DashboardListen is the address to serve the dashboard on, to people who show the
	// AdminToken. Without one, it has to be a loopback address. Empty means that there is
	// no dashboard.
	DashboardListen string
	// DashboardHosts are names by which browsers ask for the dashboard, beside localhost.
	DashboardHosts []string
	// OTLP is the URL, over HTTP, of a collector of OpenTelemetry that traces are sent to.
	// Empty means that there are none.
	OTLP string
	// Instance is what people call this instance. Empty means the name of the host.
	Instance string
	// Version is what the metrics call this build.
	Version string
	// Logger takes what the operator should know. Nil means none.
	Logger *slog.Logger
	// Mistakes are those that were found where the settings come from. They are
	// reported with all others.
	Mistakes []string

	// readTimeout stands in for readTimeout in tests.
	readTimeout time.Duration
	// madeUpKey says that nobody has given the HashKey.
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

// What bounds every connection. A caller waits for a decision before it does
// anything else, so that none of these is ever reached by one that is well.
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

// SettingsError lists every mistake in [Settings]. It never holds the store's
// URL, which may have a password in it.
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
	if p := checkToken("resp token", s.RESPToken); p != "" {
		bad("%s", p)
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
	if len(s.Peers) > 0 && s.AdminToken == "" {
		bad("--peer: there is no admin token, without which instances do not tell each other anything")
	}
	if s.PeerCA != "" && !slices.ContainsFunc(s.Peers, func(peer string) bool { return strings.HasPrefix(peer, "https:") }) {
		bad("--peer-ca: no peer has an https:// URL; give one, or leave the authorities out")
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

// checkStore returns what is wrong with the name of a store, one line for each
// mistake. It does not repeat the name: a password may stand in it, even where it
// does not parse.
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

// describeStore is the store's name without what may be secret in it.
func describeStore(name string) string {
	if b := backendOf(name); b != nil {
		return b.describe(name)
	}
	return memoryStore
}
