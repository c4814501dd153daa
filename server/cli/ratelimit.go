package cli

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/errtext"
	"github.com/headgate/headgate/server/app"
)

// ratelimit is the command that replaces the server of envoyproxy/ratelimit.
type ratelimit struct{}

// Help is the detailed help.
func (ratelimit) Help() string {
	return "Reads the environment variables of envoyproxy/ratelimit and serves as it would: the same ports, configuration from files or over xDS, Redis, each descriptor charged on its own, GET /healthcheck. The image also has it as /bin/ratelimit, so that only the image's name changes. If a setting is not supported, it exits and says what to use instead.\n\n" +
		"Exit codes: those of headgate serve."
}

// Run serves.
func (*ratelimit) Run(c *call) error {
	args, notes, err := likeRatelimit(environment())
	if err != nil {
		return usage(errtext.Text(err), "docs/envoy.md says what there is instead")
	}
	for _, note := range notes {
		fmt.Fprintln(c.stderr, "headgate ratelimit: "+note)
	}
	if code := Run(c.ctx, args, c.stdout, c.stderr, c.version); code != CodeOK {
		return &failure{code: code} // the error was printed already
	}
	return nil
}

// likeFlags are the flags of headgate serve by which headgate ratelimit asks for what others do not.
type likeFlags struct {
	Serve                 bool `hidden:""`
	app.RatelimitSettings `embed:""`
}

// environment returns the variables of the process.
func environment() map[string]string {
	env := make(map[string]string)
	for _, setting := range os.Environ() {
		name, value, _ := strings.Cut(setting, "=")
		env[name] = value
	}
	return env
}

// refusedSettings returns settings of envoyproxy/ratelimit that Headgate cannot follow without
// limiting other requests than intended, with what to do instead.
func refusedSettings() map[string]string {
	return map[string]string{
		"MEMCACHE_TLS": "connections to memcached are not secured; use Redis",
		"SHADOW_MODE":  "set shadow_mode of each limit",
		"QUOTA_MODE":   "set quota_mode of each limit",
	}
}

const statsdInstead = "metrics are for Prometheus, at /metrics of HOST:PORT, and with USE_PROMETHEUS by the names of envoyproxy/ratelimit"

// ignoredSettings returns settings that do not change which requests are limited.
func ignoredSettings() map[string]string {
	return map[string]string{
		"REDIS_PERSECOND":                      "one store has all counters",
		"USE_STATSD":                           statsdInstead,
		"USE_DOG_STATSD":                       statsdInstead,
		"REDIS_SENTINEL_AUTH":                  "give it in the URL of --store",
		"EXPIRATION_JITTER_MAX_SECONDS":        "counters expire with their windows",
		"REDIS_TLS_SKIP_HOSTNAME_VERIFICATION": "host names are always verified",
	}
}

// likeRatelimit returns the arguments of headgate serve that are closest to the settings of
// envoyproxy/ratelimit in the environment, and notes on settings that are ignored.
func likeRatelimit(env map[string]string) (args, notes []string, err error) {
	on := func(name string) bool {
		switch strings.ToLower(env[name]) {
		case "true", "1", "t":
			return true
		}
		return false
	}
	get := func(name, otherwise string) string {
		if v := env[name]; v != "" {
			return v
		}
		return otherwise
	}
	refused := refusedSettings()
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		if on(name) {
			return nil, nil, fmt.Errorf("%s is not supported; %s", name, refused[name])
		}
	}
	if env["GRPC_UDS"] != "" {
		return nil, nil, errors.New("GRPC_UDS: there are no Unix sockets; give GRPC_HOST and GRPC_PORT")
	}
	ignored := ignoredSettings()
	for _, name := range slices.Sorted(maps.Keys(ignored)) {
		if v := env[name]; v != "" && !strings.EqualFold(v, "false") {
			notes = append(notes, name+" is not followed: "+ignored[name])
		}
	}
	args = []string{
		"serve", "--like-ratelimit-serve",
		"--listen", net.JoinHostPort(get("HOST", "0.0.0.0"), get("PORT", "8080")),
		"--grpc-listen", net.JoinHostPort(get("GRPC_HOST", "0.0.0.0"), get("GRPC_PORT", "8081")),
	}
	// What that setting is there, all or nothing is here.
	if !on("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT") {
		args = append(args, "--envoy-independent")
	}
	flag := func(name, value string) {
		if value != "" {
			args = append(args, "--"+name, value)
		}
	}
	if on("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION") {
		args = append(args, "--like-ratelimit-health-needs-store")
	}
	if on("USE_PROMETHEUS") && !on("DISABLE_STATS") {
		flag("like-ratelimit-metrics-listen", get("PROMETHEUS_ADDR", ":9090"))
		flag("like-ratelimit-metrics-path", env["PROMETHEUS_PATH"])
		flag("like-ratelimit-near-limit", env["NEAR_LIMIT_RATIO"])
	}
	store, err := likeStore(env, get, on)
	if err != nil {
		return nil, nil, err
	}
	flag("store", store)
	flag("store-timeout", env["REDIS_TIMEOUT"])
	switch kind := get("CONFIG_TYPE", "FILE"); kind {
	case "FILE":
		flag("envoy-config", filepath.Join(get("RUNTIME_ROOT", "/srv/runtime_data/current"), env["RUNTIME_SUBDIRECTORY"], get("RUNTIME_APPDIRECTORY", "config")))
	case "GRPC_XDS_SOTW":
		flag("xds-server", get("CONFIG_GRPC_XDS_SERVER_URL", "localhost:18000"))
		flag("xds-node", get("CONFIG_GRPC_XDS_NODE_ID", "default"))
		flag("xds-metadata", env["CONFIG_GRPC_XDS_NODE_METADATA"])
		if on("FORCE_START_WITHOUT_INITIAL_CONFIG") && !on("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED") {
			args = append(args, "--xds-start-empty")
		}
		if env["CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS"] != "" {
			return nil, nil, errors.New("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS is not supported; secure the connection by TLS")
		}
		if on("CONFIG_GRPC_XDS_SERVER_USE_TLS") {
			args = append(args, "--xds-tls")
			flag("xds-ca", env["CONFIG_GRPC_XDS_SERVER_TLS_CACERT"])
			flag("xds-server-name", env["CONFIG_GRPC_XDS_SERVER_TLS_SAN"])
			flag("xds-cert", env["CONFIG_GRPC_XDS_CLIENT_TLS_CERT"])
			flag("xds-key", env["CONFIG_GRPC_XDS_CLIENT_TLS_KEY"])
		}
	default:
		return nil, nil, fmt.Errorf("CONFIG_TYPE is %q, must be FILE or GRPC_XDS_SOTW", kind)
	}
	if on("GRPC_SERVER_USE_TLS") {
		flag("tls-cert", env["GRPC_SERVER_TLS_CERT"])
		flag("tls-key", env["GRPC_SERVER_TLS_KEY"])
		if flag("tls-client-ca", env["GRPC_CLIENT_TLS_CACERT"]); env["GRPC_CLIENT_TLS_CACERT"] != "" {
			flag("tls-client-name", env["GRPC_CLIENT_TLS_SAN"])
		}
	}
	flag("grpc-connection-age", get("GRPC_MAX_CONNECTION_AGE", "24h"))
	flag("grpc-connection-grace", get("GRPC_MAX_CONNECTION_AGE_GRACE", "1h"))
	if on("TRACING_ENABLED") {
		collector, err := likeCollector(env, get)
		if err != nil {
			return nil, nil, err
		}
		flag("otlp", collector)
	}
	dialect := "none"
	if on("LIMIT_RESPONSE_HEADERS_ENABLED") {
		switch name := get("LIMIT_LIMIT_HEADER", "RateLimit-Limit"); {
		case strings.EqualFold(name, "RateLimit-Limit"):
			dialect = "ratelimit-triple"
		case strings.EqualFold(name, "X-RateLimit-Limit"):
			dialect = "x-ratelimit"
		default:
			return nil, nil, fmt.Errorf("LIMIT_LIMIT_HEADER is %q, must be RateLimit-Limit or X-RateLimit-Limit", name)
		}
	}
	flag("headers", dialect)
	if v := get("LOCAL_CACHE_SIZE_IN_BYTES", "0"); v != "0" {
		flag("deny-cache", "on")
	}
	if strings.EqualFold(env["LOG_FORMAT"], "json") {
		flag("log-format", "json")
	}
	return args, notes, nil
}

// likeCollector returns the URL of the collector to which traces are sent.
func likeCollector(env map[string]string, get func(name, otherwise string) string) (string, error) {
	if kind := get("TRACING_EXPORTER_PROTOCOL", "http"); kind != "http" {
		return "", fmt.Errorf("TRACING_EXPORTER_PROTOCOL is %q, must be http", kind)
	}
	if whole := env["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]; whole != "" {
		return whole, nil
	}
	return strings.TrimSuffix(get("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318"), "/") + "/v1/traces", nil
}

// likeStore returns the URL of the store that the environment names.
func likeStore(env map[string]string, get func(name, otherwise string) string, on func(name string) bool) (string, error) {
	switch kind := get("BACKEND_TYPE", "redis"); kind {
	case "redis":
	case "memcache":
		if env["MEMCACHE_HOST_PORT"] == "" {
			return "", errors.New("MEMCACHE_HOST_PORT is missing; MEMCACHE_SRV is not supported")
		}
		return "memcached://" + env["MEMCACHE_HOST_PORT"], nil
	default:
		return "", fmt.Errorf("BACKEND_TYPE is %q, must be redis or memcache", kind)
	}
	if get("REDIS_SOCKET_TYPE", "unix") != "tcp" {
		return "", fmt.Errorf("REDIS_SOCKET_TYPE is %q, must be tcp: there are no Unix sockets", get("REDIS_SOCKET_TYPE", "unix"))
	}
	u := url.URL{Scheme: "redis", Host: env["REDIS_URL"]}
	if strings.Contains(u.Host, "://") {
		given, err := url.Parse(u.Host)
		if err != nil || given.Scheme != "redis" && given.Scheme != "rediss" {
			// The URL may contain a password.
			return "", errors.New("REDIS_URL is not a URL that begins with redis:// or rediss://")
		}
		u = url.URL{Scheme: given.Scheme, User: given.User, Host: given.Host, Path: given.Path}
	}
	if on("REDIS_TLS") {
		u.Scheme = "rediss"
	}
	query := make(url.Values)
	switch kind := strings.ToUpper(get("REDIS_TYPE", "SINGLE")); kind {
	case "SINGLE":
	case "CLUSTER":
		u.Scheme += "-cluster"
	case "SENTINEL":
		u.Scheme += "-sentinel"
		master, hosts, _ := strings.Cut(env["REDIS_URL"], ",")
		u.Host = hosts
		query.Set("master", master)
	default:
		return "", fmt.Errorf("REDIS_TYPE is %q, must be SINGLE, SENTINEL or CLUSTER", kind)
	}
	if u.Host == "" {
		return "", errors.New("REDIS_URL is missing")
	}
	if auth := env["REDIS_AUTH"]; auth != "" {
		user, password, both := strings.Cut(auth, ":")
		if !both {
			user, password = "", auth
		}
		u.User = url.UserPassword(user, password)
	}
	for name, variable := range map[string]string{"ca_file": "REDIS_TLS_CACERT", "cert_file": "REDIS_TLS_CLIENT_CERT", "key_file": "REDIS_TLS_CLIENT_KEY"} {
		if v := env[variable]; v != "" {
			query.Set(name, v)
		}
	}
	if prefix := env["CACHE_KEY_PREFIX"]; prefix != "" {
		query.Set("prefix", prefix+"hg:")
	}
	u.RawQuery = query.Encode()
	return u.String(), nil
}
