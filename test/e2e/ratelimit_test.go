package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate/test/servers"
)

// original is the program whose configuration is read as it is. It is built as its
// own go.mod says. This is the newest version that the module proxy has.
const original = "github.com/envoyproxy/ratelimit/src/service_cmd@v1.4.1-0.20260122083618-3fb702589d36"

// newerOriginal names, in the environment, a program that was built of a later version: of
// f2fb157 (July 2026) or after. The comparison then has what changed since: stars inside of
// values, and quotas that deny when none has anything left.
const newerOriginal = "HEADGATE_TEST_ENVOYPROXY_RATELIMIT"

// TestLikeEnvoyproxyRatelimit makes configurations and requests at random, and
// holds what Headgate answers with --envoy-independent against what
// envoyproxy/ratelimit answers: codes, limits, names and what remains.
func TestLikeEnvoyproxyRatelimit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := buildOriginal(t)
	awayFromMidnight(t)
	g := generator{values: []string{"", "x", "xy", "xyz", "y", "*", "x*", "xy*"}, modes: []string{"shadow_mode", "detailed_metric", "value_to_metric"}}
	if os.Getenv(newerOriginal) != "" {
		g.values = append(g.values, "x*z", "*y*", "*z", "x*y*z")
		g.modes = append(g.modes, "quota_mode")
	}
	redis := servers.Start(t, servers.Redis)
	denied := 0
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 20))
		configuration := "domain: d\ndescriptors:\n" + g.nodes(r, "  ", 2)
		// A window of theirs is a key, and a key must not be used by two of the
		// configurations.
		configuration = strings.Replace(configuration, "domain: d", fmt.Sprintf("domain: d%d", seed), 1)
		root := filepath.Join(dir, fmt.Sprint(seed))
		config := filepath.Join(root, "ratelimit", "config")
		if err := os.MkdirAll(config, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(config, "d.yaml"), []byte(configuration), 0o600); err != nil {
			t.Fatal(err)
		}
		s := serve(t, "--grpc-listen", "127.0.0.1:0", "--envoy-config", config, "--envoy-independent")
		ours, theirs := rateLimiter(t, grpcAddress(t, s)), rateLimiter(t, startOriginal(t, program, root, redis.Addr()))
		for i := range 400 {
			request := randomRequest(r, fmt.Sprintf("d%d", seed))
			want, got := told(t, theirs, request), told(t, ours, request)
			if got != want {
				t.Errorf("seed %d, request %d, %v\nHeadgate says %s\nthe original  %s\n%s", seed, i+1, request, got, want, configuration)
				break
			}
			if strings.HasPrefix(got, "OVER") {
				denied++
			}
		}
	}
	if denied < 100 {
		t.Errorf("only %d requests were denied", denied)
	}
}

// originalProgram is envoyproxy/ratelimit, built beside the program under test: that which the
// environment names, if it does. What debuggers need is left out, which is half of the linker's work.
var originalProgram = sync.OnceValues(func() (string, error) {
	if program := os.Getenv(newerOriginal); program != "" {
		return program, nil
	}
	dir, err := filepath.Abs(filepath.Dir(binary))
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*within)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "install", original)
	build.Env = append(os.Environ(), "GOBIN="+dir, "GOWORK=off", "GOFLAGS=-buildvcs=false -ldflags=-w")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go install: %w\n%s", err, out)
	}
	return filepath.Join(dir, "service_cmd"), nil
})

// buildOriginal returns the program envoyproxy/ratelimit, which the first test that asks for it builds.
func buildOriginal(t *testing.T) string {
	t.Helper()
	program, err := originalProgram()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// startOriginal starts envoyproxy/ratelimit and returns where it serves gRPC.
func startOriginal(t *testing.T, program, root, redis string, settings ...string) string {
	t.Helper()
	port := freePorts(t, 1)[0]
	cmd := command(t, program)
	cmd.Env = append(os.Environ(), "GRPC_HOST=127.0.0.1", "GRPC_PORT="+port, "HOST=127.0.0.1", "PORT=0", "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=0",
		"LOG_LEVEL=error", "DISABLE_STATS=true", "USE_STATSD=false", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+redis,
		"RUNTIME_ROOT="+root, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_APPDIRECTORY=config", "RUNTIME_WATCH_ROOT=false")
	cmd.Env = append(cmd.Env, settings...)
	runBeside(t, cmd)
	return net.JoinHostPort("127.0.0.1", port)
}

func rateLimiter(t *testing.T, address string) pb.RateLimitServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return pb.NewRateLimitServiceClient(conn)
}

// told asks, and writes down what both answer.
func told(t *testing.T, client pb.RateLimitServiceClient, request *pb.RateLimitRequest) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	answer, err := client.ShouldRateLimit(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	return inWords(answer)
}

// inWords is what both have in an answer.
func inWords(answer *pb.RateLimitResponse) string {
	var b strings.Builder
	b.WriteString(answer.GetOverallCode().String())
	for _, status := range answer.GetStatuses() {
		fmt.Fprintf(&b, " | %s %d", status.GetCode(), status.GetLimitRemaining())
		if limit := status.GetCurrentLimit(); limit != nil {
			fmt.Fprintf(&b, " of %d per %s %q, reset %t", limit.GetRequestsPerUnit(), limit.GetUnit(), limit.GetName(), status.GetDurationUntilReset() != nil)
		}
	}
	return b.String()
}

// oneOf returns one of the choices.
func oneOf(r *rand.Rand, choices ...string) string { return choices[r.IntN(len(choices))] }

// generator makes configurations at random, with these values and modes.
type generator struct{ values, modes []string }

// nodes is a list of descriptors. Windows are a week or longer, so that none
// ends while the test runs but once in a long while.
func (g generator) nodes(r *rand.Rand, indent string, depth int) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, indent+format+"\n", args...) }
	taken := make(map[string]bool)
	for range 2 + r.IntN(4) {
		key, value := oneOf(r, "a", "b", "c"), oneOf(r, g.values...)
		if taken[key+value] {
			continue
		}
		taken[key+value] = true
		line("- key: %s", key)
		if value != "" {
			line("  value: %q", value)
		}
		if strings.Contains(value, "*") && r.IntN(2) == 0 {
			line("  share_threshold: true")
		}
		for _, mode := range g.modes {
			if r.IntN(6) == 0 {
				line("  %s: true", mode)
			}
		}
		if r.IntN(5) > 0 {
			line("  rate_limit:")
			if r.IntN(7) == 0 {
				line("    unlimited: true")
			} else {
				line("    unit: %s", oneOf(r, "week", "month", "year"))
				line("    requests_per_unit: %d", r.IntN(8))
			}
			name := oneOf(r, "", "", "n1", "n2")
			if name != "" {
				line("    name: %s", name)
			}
			if other := oneOf(r, "n1", "n2", "n3"); other != name && r.IntN(4) == 0 {
				line("    replaces: [{name: %s}]", other)
			}
		}
		if depth > 0 && r.IntN(2) == 0 {
			line("  descriptors:")
			b.WriteString(g.nodes(r, indent+"    ", depth-1))
		}
	}
	return b.String()
}

// randomRequest has descriptors of which no two are the same: which of them is
// charged first, the original leaves to chance. It has no peeks, since one that
// looks at a full limit is told no here and yes there.
func randomRequest(r *rand.Rand, domain string) *pb.RateLimitRequest {
	request := &pb.RateLimitRequest{Domain: domain, HitsAddend: uint32(r.IntN(3))}
	taken := make(map[string]bool)
	for range 1 + r.IntN(3) {
		d := new(ratelimit.RateLimitDescriptor)
		id := ""
		for range 1 + r.IntN(3) {
			key, value := oneOf(r, "a", "b", "c"), oneOf(r, "x", "xy", "xyz", "xyzz", "xyyz", "y", "z", "", "*")
			d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: key, Value: value})
			id += key + "=" + value + " "
		}
		if taken[id] {
			continue
		}
		taken[id] = true
		if r.IntN(5) == 0 {
			d.HitsAddend = wrapperspb.UInt64(uint64(1 + r.IntN(4)))
		}
		request.Descriptors = append(request.Descriptors, d)
	}
	return request
}
