package serverbench

import (
	"context"
	"path/filepath"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/servers"
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
	askRLS = asking(pb.RateLimitService_ShouldRateLimit_FullMethodName, false,
		func(keys []string) proto.Message { return rlsRequest(keys[0]) },
		func(m *pb.RateLimitResponse, _ []string) bool {
			return m.GetOverallCode() == pb.RateLimitResponse_OK && len(m.GetStatuses()) == 1 && m.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit() == 1_000_000
		})
	askRLSEcho = asking("/"+rlsEchoService+"/ShouldRateLimit", false, askRLS.message,
		func(m *pb.RateLimitRequest, keys []string) bool { return proto.Equal(m, rlsRequest(keys[0])) })
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

// RLS measures what one check costs the server over Envoy's protocol, beside envoyproxy/ratelimit
// and an echo.
func RLS(ctx context.Context, w *measure.Work) (*report.Text, error) {
	contenders, err := rlsField(ctx, w)
	if err != nil {
		return nil, err
	}
	plan := serverPlan(w)
	for i := range contenders {
		contenders[i].load = askRLS.over(plan.Keys)
		if contenders[i].role == measure.Floor {
			contenders[i].load = askRLSEcho.over(plan.Keys)
		}
	}
	t := new(report.Text)
	t.Say("`ShouldRateLimit` with a descriptor of two entries. Closed loop, saturated: %d calls on their way over %d connections; %s keys, every request admitted; median of %d rounds of %v.\n\n",
		inFlight, connections, report.Number(float64(plan.Keys)), plan.Rounds, plan.Slice)
	_, err = unaryEcho.measure(ctx, w, plan, t, contenders)
	return t, err
}

func rlsField(ctx context.Context, w *measure.Work) ([]contender, error) {
	ours, err := w.Server(ctx)
	if err != nil {
		return nil, err
	}
	theirs, err := servers.RateLimit(ctx, w.Dir, rlsConfig)
	if err != nil {
		return nil, err
	}
	rules, err := w.Write("rls.yaml", rlsRules)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(w.Dir, "ratelimit", "config")
	serve := func(args ...string) []string {
		return append([]string{ours, "serve", "--listen", "127.0.0.1:0", "--grpc-listen", "ADDR"}, args...)
	}
	serving := func(name, note string, role measure.Role, command []string) contender {
		return contender{name: name, note: note, role: role, command: command}
	}
	return []contender{
		serving("Headgate, envoyproxy/ratelimit's configuration", "",
			measure.Ours, serve("--envoy-config", config, "--store", "memory")),
		serving("Headgate, own rules", "",
			measure.Ours, serve("--config", rules, "--store", "memory")),
		serving("grpc-go echo", "",
			measure.Floor, echoing(w, "grpc", "")),
		serving("Headgate, Redis", "",
			measure.Other, serve("--envoy-config", config, "--store", w.Redis.URL(), "--store-timeout", "10s")),
		serving("envoyproxy/ratelimit, Redis", "the same configuration and Redis, whose own time is not counted; "+servers.RateLimitVersion+", without headers, metadata and statistics",
			measure.Other, theirs(w.Redis.Addr)),
	}, nil
}
