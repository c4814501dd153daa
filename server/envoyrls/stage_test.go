package envoyrls

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/config"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/wire"
	"github.com/headgate/headgate/store/memory"
)

// stage is a service on a gRPC server of its own, over a memory store whose clock
// stands until it is moved.
type stage struct {
	pb.RateLimitServiceClient
	conn   *grpc.ClientConn
	policy atomic.Pointer[decide.Policy]
	micros atomic.Int64
	broken atomic.Bool
	calls  atomic.Int64 // of the store
	store  headgate.Store

	service *Service
}

// atFullHour is when the clock begins to stand.
const atFullHour = 1_763_712_000_000_000

func newStage(t testing.TB, policy decide.Policy, options Options) *stage {
	t.Helper()
	s := &stage{}
	s.micros.Store(atFullHour)
	s.store = memory.New(memory.Clock(s.micros.Load))
	s.policy.Store(&policy)
	decider := &decide.Over{Rules: func() decide.Policy { return *s.policy.Load() }, Store: s}

	server := grpc.NewServer(grpc.ForceServerCodecV2(wire.Codec()), grpc.WaitForHandlers(true))
	s.service = New(decider, options)
	s.service.Register(server)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	s.conn, err = grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	s.RateLimitServiceClient = pb.NewRateLimitServiceClient(s.conn)
	t.Cleanup(func() {
		_ = s.conn.Close()
		server.Stop()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return s
}

// Take implements headgate.Store.
func (s *stage) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	s.calls.Add(1)
	if s.broken.Load() {
		return dst, fmt.Errorf("%w: redis.internal:6379 is away", headgate.ErrUnavailable)
	}
	return s.store.Take(ctx, op, checks, dst)
}

func (s *stage) pass(d time.Duration) { s.micros.Add(d.Microseconds()) }

// envoyPolicy is the policy of configuration files of envoyproxy/ratelimit.
func envoyPolicy(t testing.TB, files ...string) decide.Policy {
	t.Helper()
	dir := t.TempDir()
	for i, text := range files {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.yaml", i)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	loaded, err := config.ReadEnvoy(dir)
	if err != nil {
		t.Fatal(err)
	}
	return decide.Policy{Set: loaded.Set, Nested: loaded.Nested, Version: 1}
}

// ownPolicy is that of a policy file.
func ownPolicy(t testing.TB, text string) decide.Policy {
	t.Helper()
	set, err := config.Parse("policy.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return decide.Policy{Set: set, Version: 1}
}

// d is a descriptor with entries such as "key=value".
func d(entries ...string) *ratelimit.RateLimitDescriptor {
	made := new(ratelimit.RateLimitDescriptor)
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		made.Entries = append(made.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return made
}

func hits(n uint64, d *ratelimit.RateLimitDescriptor) *ratelimit.RateLimitDescriptor {
	d.HitsAddend = wrapperspb.UInt64(n)
	return d
}

func back(n uint64, d *ratelimit.RateLimitDescriptor) *ratelimit.RateLimitDescriptor {
	d.IsNegativeHits = true
	return hits(n, d)
}

// ask asks and writes the answer as one line, such as "OVER OK:3 OVER:0": the
// overall code, then code and remaining of each descriptor.
func (s *stage) ask(t testing.TB, domain string, descriptors ...*ratelimit.RateLimitDescriptor) string {
	t.Helper()
	return line(s.must(t, &pb.RateLimitRequest{Domain: domain, Descriptors: descriptors}))
}

func (s *stage) must(t testing.TB, r *pb.RateLimitRequest) *pb.RateLimitResponse {
	t.Helper()
	answer, err := s.ShouldRateLimit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func line(answer *pb.RateLimitResponse) string {
	word := func(c pb.RateLimitResponse_Code) string { return strings.TrimSuffix(c.String(), "_LIMIT") }
	parts := []string{word(answer.GetOverallCode())}
	for _, status := range answer.GetStatuses() {
		part := word(status.GetCode())
		switch {
		case status.GetCurrentLimit() != nil:
			part += fmt.Sprintf(":%d", status.GetLimitRemaining())
		case status.GetLimitRemaining() != 0:
			part += ":all"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " ")
}

// headers are the headers to add to the response, in one line.
func headers(answer *pb.RateLimitResponse) string {
	var all []string
	for _, h := range answer.GetResponseHeadersToAdd() {
		all = append(all, h.GetKey()+": "+h.GetValue())
	}
	return strings.Join(all, ", ")
}

// metadata is the dynamic metadata in one line, its names in their order.
func metadata(answer *pb.RateLimitResponse) string {
	fields := answer.GetDynamicMetadata().AsMap()
	var all []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		all = append(all, fmt.Sprintf("%s=%v", name, fields[name]))
	}
	return strings.Join(all, " ")
}

// step asks once and wants one line.
type step struct {
	ask  []*ratelimit.RateLimitDescriptor
	want string
}

func (s *stage) run(t *testing.T, domain string, steps ...step) {
	t.Helper()
	for i, step := range steps {
		if got := s.ask(t, domain, step.ask...); got != step.want {
			t.Errorf("step %d: got %q, want %q", i+1, got, step.want)
		}
	}
}

func ds(all ...*ratelimit.RateLimitDescriptor) []*ratelimit.RateLimitDescriptor { return all }
