package grpcbench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/servicebench"
)

// RLSOutcome is what a run of checks by Envoy's protocol has measured.
type RLSOutcome struct{ *servicebench.Outcome }

// Peer is the module of envoyproxy/ratelimit that is measured, its program and its
// version. It is built as its own go.mod says.
const (
	Peer        = "github.com/envoyproxy/ratelimit/src/service_cmd"
	PeerVersion = "v1.4.1-0.20260122083618-3fb702589d36"
)

// rlsConfig is what both services are configured with: a nested limit that is
// never reached.
const rlsConfig = `domain: bench
descriptors:
  - key: path
    descriptors:
      - key: user
        rate_limit:
          unit: hour
          requests_per_unit: 1000000
`

// rlsRules says the same in Headgate's own rules.
const rlsRules = `rules:
  - name: bench
    match: { domain: bench, path: present, user: present }
    per: [path, user]
    algorithm: fixed_window
    limits: [1000000 per 1h]
`

// rlsRequest is what Envoy sends for a request of a user.
func rlsRequest(user string) *pb.RateLimitRequest {
	return &pb.RateLimitRequest{Domain: "bench", Descriptors: []*ratelimit.RateLimitDescriptor{{
		Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "path", Value: "/api/v1/things"}, {Key: "user", Value: user}},
	}}}
}

var (
	askRLS = question{
		method: pb.RateLimitService_ShouldRateLimit_FullMethodName, together: 1,
		message: func(keys []string) proto.Message { return rlsRequest(keys[0]) },
		right: func(answer []byte, _ []string) error {
			m := new(pb.RateLimitResponse)
			return decoded(answer, m, func() bool {
				return m.GetOverallCode() == pb.RateLimitResponse_OK && len(m.GetStatuses()) == 1 && m.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit() == 1_000_000
			})
		},
	}
	askRLSEcho = question{
		method: "/" + rlsEchoService + "/ShouldRateLimit", together: 1, message: askRLS.message,
		right: func(answer []byte, keys []string) error {
			m := new(pb.RateLimitRequest)
			return decoded(answer, m, func() bool { return proto.Equal(m, rlsRequest(keys[0])) })
		},
	}
)

// rlsEchoService is an echo of the protocol's requests.
const rlsEchoService = "bench.RLSEcho"

var rlsEchoes = grpc.ServiceDesc{
	ServiceName: rlsEchoService,
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "ShouldRateLimit",
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			m := new(pb.RateLimitRequest)
			return m, decode(m)
		},
	}},
}

// RunRLS measures Headgate's server, built from the module at source into dir, and
// envoyproxy/ratelimit, which is built into dir too, both over the Redis at an
// address, and the echo of program.
func RunRLS(ctx context.Context, plan servicebench.Plan, program, source, dir, redis string) (*RLSOutcome, error) {
	contenders, err := rlsField(ctx, program, source, dir, redis)
	if err != nil {
		return nil, err
	}
	for i := range contenders {
		ask := askRLS
		if contenders[i].Role == servicebench.Floor {
			ask = askRLSEcho
		}
		contenders[i].Load = func(ctx context.Context, addr string, d time.Duration) (int, error) {
			return ask.load(ctx, addr, InFlight, plan.Keys, d)
		}
	}
	o, err := servicebench.Run(ctx, plan, contenders)
	return &RLSOutcome{o}, err
}

func rlsField(ctx context.Context, program, source, dir, redis string) ([]servicebench.Contender, error) {
	ours, err := servicebench.Build(ctx, source, dir)
	if err != nil {
		return nil, err
	}
	theirs := filepath.Join(dir, filepath.Base(Peer))
	build := exec.CommandContext(ctx, "go", "install", Peer+"@"+PeerVersion)
	build.Env = append(os.Environ(), "GOBIN="+dir, "GOWORK=off")
	if text, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("grpcbench: %s: %w: %s", build, err, text)
	}
	config, rules := filepath.Join(dir, "ratelimit", "config"), filepath.Join(dir, "rls.yaml")
	err = errors.Join(os.MkdirAll(config, 0o700),
		os.WriteFile(filepath.Join(config, "bench.yaml"), []byte(rlsConfig), 0o600),
		os.WriteFile(rules, []byte(rlsRules), 0o600))
	if err != nil {
		return nil, fmt.Errorf("grpcbench: %w", err)
	}
	serve := func(args ...string) []string {
		return append([]string{ours, "serve", "--listen", "127.0.0.1:0", "--grpc-listen", "ADDR"}, args...)
	}
	// Theirs is told by the environment, and asks for a port without a host.
	peer := fmt.Sprintf("GRPC_HOST=127.0.0.1 GRPC_PORT=${0##*:} HOST=127.0.0.1 PORT=0 DEBUG_HOST=127.0.0.1 DEBUG_PORT=0 LOG_LEVEL=warn DISABLE_STATS=true USE_STATSD=false "+
		"REDIS_SOCKET_TYPE=tcp REDIS_URL=%s RUNTIME_ROOT=%s RUNTIME_SUBDIRECTORY=ratelimit RUNTIME_APPDIRECTORY=config RUNTIME_WATCH_ROOT=false exec %s", redis, dir, theirs)
	return []servicebench.Contender{
		{
			Name: "Headgate, envoyproxy/ratelimit's configuration", Role: servicebench.Ours,
			Command: serve("--envoy-config", config, "--store", "memory"),
			Note:    "`--envoy-config`, memory store; the answer has the status, three headers and the metadata",
		},
		{
			Name: "Headgate, own rules", Role: servicebench.Ours,
			Command: serve("--config", rules, "--store", "memory"),
			Note:    "`--config` with a rule that matches the same, memory store",
		},
		{
			Name: "grpc-go echo", Role: servicebench.Floor,
			Command: []string{program, "echo", "-listen", "ADDR", "-handler", "grpc"},
			Note:    "decodes the same request and encodes it again",
		},
		{
			Name:    "Headgate, Redis",
			Command: serve("--envoy-config", config, "--store", "redis://"+redis, "--store-timeout", "10s"),
			Note:    "the same configuration, counters in Redis, whose own time is not counted here",
		},
		{
			Name:    "envoyproxy/ratelimit, Redis",
			Command: []string{"/bin/sh", "-c", peer, "ADDR"},
			Note:    "the same configuration and Redis; " + PeerVersion + ", without headers, metadata and statistics",
		},
	}, nil
}

func (o *RLSOutcome) cpu(i int) float64 {
	return report.MedianOf(o.Results[i].Samples, servicebench.Sample.CPUEach)
}

// floor is the CPU time of the echo.
func (o *RLSOutcome) floor() float64 {
	for i := range o.Results {
		if o.Results[i].Contender.Role == servicebench.Floor {
			return o.cpu(i)
		}
	}
	return 0
}

// Markdown returns the table.
func (o *RLSOutcome) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "`ShouldRateLimit` with a descriptor of two entries. Closed loop, saturated: %d calls on their way over %d connections; %s keys, every request admitted; median of %d rounds of %v.\n\n",
		InFlight, connections, report.Number(float64(o.Plan.Keys)), o.Plan.Rounds, o.Plan.Slice)
	t := report.Table{Columns: []string{"", "server CPU a check, µs", "÷ echo", "checks/s, load generator on the same cores"}}
	for i := range o.Results {
		t.Add(o.Results[i].Contender.Name, report.Number(o.cpu(i)), report.Times(report.Ratio(o.cpu(i), o.floor())),
			report.Number(report.MedianOf(o.Results[i].Samples, servicebench.Sample.PerSecond)))
	}
	b.WriteString(t.String())
	b.WriteByte('\n')
	for i := range o.Results {
		fmt.Fprintf(&b, "- **%s**: %s.\n", o.Results[i].Contender.Name, o.Results[i].Contender.Note)
	}
	b.WriteString("\n" + report.Bars(o.Bars()))
	return b.String()
}

// Bars holds Headgate's figures against the bound that the project has set itself.
func (o *RLSOutcome) Bars() []report.Bar {
	var bars []report.Bar
	for i := range o.Results {
		if c := &o.Results[i].Contender; c.Role == servicebench.Ours {
			bars = append(bars, report.Bar{
				What: c.Name + ": server CPU a check ÷ a bare unary echo", Bound: 1.5, AtMost: true,
				Got: report.Ratio(o.cpu(i), o.floor()),
			})
		}
	}
	return bars
}
