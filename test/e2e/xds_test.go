package e2e

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	xds "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	rls "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate/headgate/test/servers"
)

// xdsNode is the id that the management server knows the node by.
const xdsNode = "edge-1"

// management is a management server that is made of go-control-plane's own parts.
type management struct {
	snapshots cache.SnapshotCache
	grpc      *grpc.Server

	mu      sync.Mutex // guards refused and node
	refused string     // what was said against the last answer
	node    *core.Node
}

// startManagement serves at the address.
func startManagement(t *testing.T, at string, snapshots cache.SnapshotCache) *management {
	t.Helper()
	m := &management{snapshots: snapshots, grpc: grpc.NewServer()}
	callbacks := xds.CallbackFuncs{StreamRequestFunc: func(_ int64, r *discovery.DiscoveryRequest) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.refused = r.GetErrorDetail().GetMessage()
		if r.GetNode() != nil {
			m.node = r.GetNode()
		}
		return nil
	}}
	discovery.RegisterAggregatedDiscoveryServiceServer(m.grpc, xds.NewServer(t.Context(), snapshots, callbacks))
	var l net.Listener
	until(t, "the management server's address is free", func() (free bool) {
		var err error
		l, err = net.Listen("tcp", at)
		return err == nil
	})
	ended := make(chan error, 1)
	go func() { ended <- m.grpc.Serve(l) }()
	t.Cleanup(func() {
		m.grpc.Stop()
		if err := <-ended; err != nil {
			t.Errorf("the management server: %v", err)
		}
	})
	return m
}

func (m *management) refusal() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.refused
}

// send has the node get these resources.
func (m *management) send(t *testing.T, version string, configs ...types.Resource) {
	t.Helper()
	snapshot, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{resource.RateLimitConfigType: configs})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.snapshots.SetSnapshot(t.Context(), xdsNode, snapshot); err != nil {
		t.Fatal(err)
	}
}

func perDay(n uint32) *rls.RateLimitPolicy {
	return &rls.RateLimitPolicy{Unit: rls.RateLimitUnit_DAY, RequestsPerUnit: n}
}

func config(name string, descriptors ...*rls.RateLimitDescriptor) *rls.RateLimitConfig {
	return &rls.RateLimitConfig{Name: name, Domain: name, Descriptors: descriptors}
}

// quota has the descriptor in quota mode, by a field that the generated code does not have yet.
func quota(d *rls.RateLimitDescriptor) *rls.RateLimitDescriptor {
	d.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 7, protowire.VarintType), 1))
	return d
}

// TestXDS: the policy comes from a management server, as Envoy Gateway's, changes when that says so,
// stays when it sends mistakes, and when it is away.
func TestXDS(t *testing.T) {
	t.Parallel()
	awayFromMidnight(t)
	at := net.JoinHostPort("127.0.0.1", fmt.Sprint(servers.Port(t)))
	m := startManagement(t, at, cache.NewSnapshotCache(true, cache.IDHash{}, nil))
	m.send(t, "1",
		config("edge",
			&rls.RateLimitDescriptor{Key: "user", RateLimit: perDay(2), Descriptors: []*rls.RateLimitDescriptor{{Key: "path", Value: "/a*z", RateLimit: perDay(1)}}},
			&rls.RateLimitDescriptor{Key: "free", RateLimit: &rls.RateLimitPolicy{Unlimited: true}},
			&rls.RateLimitDescriptor{Key: "seen", ShadowMode: true, RateLimit: perDay(1)},
			quota(&rls.RateLimitDescriptor{Key: "quota", RateLimit: perDay(1)}),
		),
		config("mongo", &rls.RateLimitDescriptor{Key: "database", Value: "users", RateLimit: perDay(5)}))
	s := serve(t, "--grpc-listen", "127.0.0.1:0", "--xds-server", at, "--xds-node", xdsNode, "--xds-metadata", "cluster=one,zone=a")
	client := rateLimiter(t, grpcAddress(t, s))
	ask := func(domain string, entries ...string) string {
		d := new(ratelimit.RateLimitDescriptor)
		for _, e := range entries {
			key, value, _ := strings.Cut(e, "=")
			d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		return strings.Split(told(t, client, &pb.RateLimitRequest{Domain: domain, Descriptors: []*ratelimit.RateLimitDescriptor{d}}), " of")[0]
	}
	for _, tt := range []struct{ got, want string }{
		{ask("edge", "user=a"), "OK | OK 1"},
		{ask("edge", "user=a"), "OK | OK 0"},
		{ask("edge", "user=a"), "OVER_LIMIT | OVER_LIMIT 0"},
		{ask("edge", "user=a", "path=/abcz"), "OK | OK 0"},
		{ask("edge", "user=a", "path=/abcz"), "OVER_LIMIT | OVER_LIMIT 0"},
		{ask("edge", "free=a"), "OK | OK 4294967295"},
		{ask("edge", "seen=a") + ", " + ask("edge", "seen=a"), "OK | OK 0, OK | OK 0"},
		{ask("edge", "quota=a") + ", " + ask("edge", "quota=a"), "OK | OK 0, OVER_LIMIT | OVER_LIMIT 0"},
		{ask("mongo", "database=users"), "OK | OK 4"},
		{ask("other", "user=a"), "OK | OK 0"},
	} {
		if tt.got != tt.want {
			t.Errorf("got %s, want %s", tt.got, tt.want)
		}
	}
	m.mu.Lock()
	if got := m.node.GetMetadata().AsMap(); m.node.GetId() != xdsNode || got["cluster"] != "one" || got["zone"] != "a" {
		t.Errorf("the node is %v", m.node)
	}
	m.mu.Unlock()

	// What was used stays used.
	m.send(t, "2", config("edge", &rls.RateLimitDescriptor{Key: "user", RateLimit: perDay(4)}))
	until(t, "the new limit is in force", func() bool { return strings.HasPrefix(ask("edge", "user=a"), "OK") })
	if got := ask("edge", "user=a"); got != "OK | OK 0" {
		t.Errorf("after the change: %s", got)
	}
	if got := ask("mongo", "database=users"); got != "OK | OK 0" {
		t.Errorf("a domain that is gone: %s", got)
	}

	// Mistakes change nothing, and the server is told of them.
	m.send(t, "3", config("edge", &rls.RateLimitDescriptor{Key: "user", RateLimit: &rls.RateLimitPolicy{RequestsPerUnit: 9}}))
	until(t, "the mistake is told", func() bool { return strings.Contains(m.refusal(), "edge.user: the unit is 0") })
	if got := ask("edge", "user=a"); got != "OVER_LIMIT | OVER_LIMIT 0" {
		t.Errorf("after a mistake: %s", got)
	}
	if a, err := s.ask(&http.Client{Timeout: within}, "/v1/rules", ""); err != nil || !strings.Contains(a.text, `"edge.user"`) {
		t.Errorf("the rules are %s, %v", a.text, err)
	}

	// Without the server all stays as it is, and another one in its place is found.
	m.grpc.Stop()
	until(t, "the server is missed", func() bool { return strings.Contains(s.logged(), "the management server cannot be reached") })
	if got := ask("edge", "user=a"); got != "OVER_LIMIT | OVER_LIMIT 0" {
		t.Errorf("without the server: %s", got)
	}
	m = startManagement(t, at, cache.NewSnapshotCache(true, cache.IDHash{}, nil))
	m.send(t, "1", config("edge", &rls.RateLimitDescriptor{Key: "user", RateLimit: perDay(6)}))
	until(t, "the other server's limit is in force", func() bool { return strings.HasPrefix(ask("edge", "user=a"), "OK") })
	if code := s.stop(t); code != 0 {
		t.Errorf("the server ended with %d", code)
	}
}

// TestXDSBeforeItsPolicy: a server without a policy serves nobody, and ends as it is told to.
func TestXDSBeforeItsPolicy(t *testing.T) {
	t.Parallel()
	cmd := program(t, "serve", "--listen", "127.0.0.1:0", "--xds-server", net.JoinHostPort("127.0.0.1", fmt.Sprint(servers.Port(t))))
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(within, func() { _ = cmd.Process.Kill() })
	defer kill.Stop()
	var log strings.Builder
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		log.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "waiting for the policy") {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	if code := exitCode(t, cmd.Wait()); code != 3 || strings.Contains(log.String(), "msg=serving") || !strings.Contains(log.String(), "has sent no policy") {
		t.Errorf("it ended with %d:\n%s", code, log.String())
	}
}

// TestInPlaceOfRatelimit: with the environment that Envoy Gateway gives to envoyproxy/ratelimit, and
// by the name of its program, Headgate is in its place.
func TestInPlaceOfRatelimit(t *testing.T) {
	t.Parallel()
	awayFromMidnight(t)
	at := net.JoinHostPort("127.0.0.1", fmt.Sprint(servers.Port(t)))
	redis := servers.Start(t, servers.Redis)
	named := filepath.Join(t.TempDir(), "ratelimit")
	program, err := filepath.Abs(binary)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, named); err != nil {
		t.Fatal(err)
	}
	ports := freePorts(t, 2)
	cmd := command(t, named)
	cmd.Env = append(os.Environ(), "HOST=127.0.0.1", "PORT="+ports[0], "GRPC_HOST=127.0.0.1", "GRPC_PORT="+ports[1],
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis.Addr(), "REDIS_TIMEOUT=20s", "USE_STATSD=false", "LOG_LEVEL=info", "RUNTIME_WATCH_ROOT=false",
		"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+at, "CONFIG_GRPC_XDS_NODE_ID="+xdsNode, "FORCE_START_WITHOUT_INITIAL_CONFIG=true")
	runBeside(t, cmd)
	client := rateLimiter(t, net.JoinHostPort("127.0.0.1", ports[1]))
	asked := requestOf("edge", "user", "a")
	// Envoy Gateway sends a configuration when there is one. Until then the service is healthy, or
	// Kubernetes would restart it.
	if got := told(t, client, asked); got != "OK | OK 0" {
		t.Errorf("before a configuration: %s", got)
	}
	s := &server{base: "http://127.0.0.1:" + ports[0]}
	if a, err := s.ask(&http.Client{Timeout: within}, "/healthcheck", ""); err != nil || a.status != http.StatusOK {
		t.Errorf("/healthcheck: %d, %v", a.status, err)
	}
	m := startManagement(t, at, cache.NewSnapshotCache(true, cache.IDHash{}, nil))
	m.send(t, "1", config("edge", &rls.RateLimitDescriptor{Key: "user", RateLimit: perDay(2)}))
	until(t, "the configuration is in force", func() bool { return told(t, client, asked) != "OK | OK 0" })
	for _, want := range []string{"OK | OK 0", "OVER_LIMIT | OVER_LIMIT 0"} {
		if got := strings.Split(told(t, client, asked), " of")[0]; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	const asJSON = `{"domain":"edge","descriptors":[{"entries":[{"key":"user","value":"a"}]}]}`
	if a, err := s.ask(&http.Client{Timeout: within}, "/json", asJSON); err != nil || a.status != http.StatusTooManyRequests || !strings.Contains(a.text, `"OVER_LIMIT"`) {
		t.Errorf("/json: %d %s, %v", a.status, a.text, err)
	}
}
