package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate/test/servers"
)

// TestStartWithoutStore: a server whose store is away at the start says that it is not ready,
// decides as its rules say for that case, and comes up by itself when the store does.
func TestStartWithoutStore(t *testing.T) {
	t.Parallel()
	type away struct {
		url     string
		restart func()
	}
	type server interface {
		Kill()
		Restart()
	}
	one := func(d server, url string) away {
		d.Kill()
		return away{url, d.Restart}
	}
	for name, start := range map[string]func(t *testing.T) away{
		"Redis": func(t *testing.T) away {
			s := servers.Start(t, servers.Redis, servers.Password("geheim"))
			return one(s, patiently(s.URL()))
		},
		"Sentinels": func(t *testing.T) away {
			s := servers.StartSentinel(t, servers.Redis)
			for _, sentinel := range s.Sentinels {
				sentinel.Kill()
			}
			return away{s.URL() + "&connect_timeout=30s", func() {
				for _, sentinel := range s.Sentinels {
					sentinel.Restart()
				}
			}}
		},
		"a Cluster": func(t *testing.T) away {
			c := servers.StartCluster(t, servers.Redis)
			for _, node := range c.Nodes {
				node.Kill()
			}
			return away{patiently(c.URL()), func() {
				for _, node := range c.Nodes {
					node.Restart()
				}
			}}
		},
		"PostgreSQL": func(t *testing.T) away {
			p := servers.StartPostgres(t)
			return one(p, p.URL())
		},
		"memcached": func(t *testing.T) away {
			m := servers.StartMemcached(t, 8)
			return one(m, m.URL())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := start(t)
			file := policyFile(t, `
rules:
  - { name: open, match: { kind: open }, per: all, limits: [1 per 1h], on_store_error: allow }
  - { name: closed, match: { kind: closed }, per: all, limits: [1 per 1h] }
`)
			s := serve(t, "--config", file, "--candidate", file, "--store", store.url, "--store-timeout", patience)
			for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
				if a := s.get(t, path); a.status != want {
					t.Errorf("%s: %d, want %d", path, a.status, want)
				}
			}
			for range 2 {
				if v := s.check(t, ofKind("open", "a")); !v.Allowed {
					t.Error("the rule that is to allow without a store denies")
				}
			}
			if a := s.post(t, "/v1/check", ofKind("closed", "a")); a.status != http.StatusServiceUnavailable {
				t.Errorf("the rule that is to deny without a store: %d", a.status)
			}
			store.restart()
			until(t, "the server is ready", func() bool { return s.get(t, "/readyz").status == http.StatusOK })
			until(t, "the store decides all requests", func() bool { return s.metric(t, isClosed) == 1 })
			if first, second := s.check(t, ofKind("closed", "a")), s.check(t, ofKind("closed", "a")); !first.Allowed || second.Allowed {
				t.Errorf("of one unit, the first request gets %t and the second %t", first.Allowed, second.Allowed)
			}
			if code := s.stop(t); code != 0 || strings.Contains(s.logged(), "geheim") {
				t.Errorf("it ended with %d, and logged\n%s", code, s.logged())
			}
		})
	}
}

// TestGatewayStartsWithoutStore: a gateway waits for its store, too.
func TestGatewayStartsWithoutStore(t *testing.T) {
	t.Parallel()
	store := servers.Start(t, servers.Redis)
	store.Kill()
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	defer up.Close()
	g := gate(t, "--upstream", up.URL, "--store", patiently(store.URL()), "--store-timeout", patience, "--config",
		policyFile(t, "rules:\n  - { name: all, per: all, limits: [1 per 1h], on_store_error: deny }\n"))
	client := &http.Client{Transport: new(http.Transport), Timeout: within}
	defer client.CloseIdleConnections()
	if a, ready := g.send(t, client, "GET", "/", nil), g.get(t, "/readyz"); a.status != http.StatusServiceUnavailable || ready.status != http.StatusServiceUnavailable {
		t.Errorf("without a store: %d, and /readyz %d", a.status, ready.status)
	}
	store.Restart()
	until(t, "the gateway passes a request on", func() bool { return g.send(t, client, "GET", "/", nil).status == http.StatusOK })
	until(t, "the limit binds", func() bool { return g.send(t, client, "GET", "/", nil).status == http.StatusTooManyRequests })
}

// TestStoreThatRefuses: a store that answers and does not take the settings ends the server at
// once: waiting would not help.
func TestStoreThatRefuses(t *testing.T) {
	t.Parallel()
	redis, postgres := servers.Start(t, servers.Redis, servers.Password("geheim")), servers.StartPostgres(t)
	at := func(scheme, password, addr, rest string) string { return scheme + "://" + password + addr + rest }
	for name, url := range map[string]string{
		"another password": at("redis", ":falsch@", redis.Addr(), ""),
		"no password":      at("redis", "", redis.Addr(), ""),
		"no such database": at("redis", ":geheim@", redis.Addr(), "/99"),
		"no cluster":       at("redis-cluster", ":geheim@", redis.Addr(), ""),
		"no Sentinel":      at("redis-sentinel", ":geheim@", redis.Addr(), "?master=main"),
		"another user":     at("postgres", "nobody@", postgres.Addr(), "/postgres"),
		"another database": at("postgres", "headgate@", postgres.Addr(), "/nothing"),
	} {
		r := runProgram(t, "serve", "--listen", "127.0.0.1:0", "--store", url)
		if r.code != 3 && r.code != 2 || strings.Contains(r.stderr, "geheim") || strings.Contains(r.stderr, "falsch") {
			t.Errorf("%s: exit code %d, and said\n%s", name, r.code, r.stderr)
		}
	}
}

// gatewaysEnvironment is what Envoy Gateway gives to the container of envoyproxy/ratelimit, less what
// names its hosts and certificates, by the test data of Envoy Gateway.
func gatewaysEnvironment(http, grpc, xds, redis, metrics string) []string {
	return append(os.Environ(), "RUNTIME_ROOT=/data", "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_IGNOREDOTFILES=true", "RUNTIME_WATCH_ROOT=false",
		"LOG_LEVEL=info", "USE_STATSD=false", "CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+xds, "CONFIG_GRPC_XDS_NODE_ID="+xdsNode,
		"FORCE_START_WITHOUT_INITIAL_CONFIG=true", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis,
		"USE_PROMETHEUS=true", "PROMETHEUS_ADDR=127.0.0.1:"+metrics, "PROMETHEUS_MAPPER_YAML=/etc/statsd-exporter/conf.yaml",
		"HOST=127.0.0.1", "PORT="+http, "GRPC_HOST=127.0.0.1", "GRPC_PORT="+grpc)
}

// statusAt is what a GET is answered with, or 0.
func statusAt(t *testing.T, url string) int {
	t.Helper()
	a, err := (&server{base: url}).ask(&http.Client{Timeout: within}, "", "")
	if err != nil {
		return 0
	}
	return a.status
}

// TestProbesOfEnvoyGateway: Envoy Gateway's Deployment probes GET /healthcheck for being alive. It says
// yes while Redis is away, at the start and later, unless REDIS_HEALTH_CHECK_ACTIVE_CONNECTION
// says otherwise.
func TestProbesOfEnvoyGateway(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		setting string
		away    int
	}{
		{"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=false", http.StatusOK},
		{"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION=true", http.StatusInternalServerError},
	} {
		t.Run(tt.setting, func(t *testing.T) {
			t.Parallel()
			redis := servers.Start(t, servers.Redis)
			redis.Kill()
			ports := freePorts(t, 3)
			cmd := command(t, binary, "ratelimit")
			cmd.Env = append(gatewaysEnvironment(ports[0], ports[1], net.JoinHostPort("127.0.0.1", fmt.Sprint(servers.Port(t))), redis.Addr(), ports[2]), tt.setting, "REDIS_TIMEOUT=5s")
			runBeside(t, cmd)
			base := "http://127.0.0.1:" + ports[0]
			until(t, "it listens", func() bool { return statusAt(t, base+"/healthz") == http.StatusOK })
			if got := statusAt(t, base+"/healthcheck"); got != tt.away {
				t.Errorf("started without Redis: %d, want %d", got, tt.away)
			}
			if got := statusAt(t, base+"/readyz"); got != http.StatusServiceUnavailable {
				t.Errorf("/readyz, started without Redis: %d", got)
			}
			redis.Restart()
			until(t, "Redis is there", func() bool {
				return statusAt(t, base+"/readyz") == http.StatusOK && statusAt(t, base+"/healthcheck") == http.StatusOK
			})
			redis.Kill()
			s := &server{base: base}
			until(t, "the store is known to be away", func() bool { s.get(t, "/readyz"); return s.metric(t, isOpen) == 1 })
			if got := statusAt(t, base+"/healthcheck"); got != tt.away {
				t.Errorf("after Redis has gone: %d, want %d", got, tt.away)
			}
			if got := statusAt(t, "http://127.0.0.1:"+ports[2]+"/metrics"); got != http.StatusOK {
				t.Errorf("the metrics: %d", got)
			}
		})
	}
}
