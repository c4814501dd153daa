package envoyrlqs_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typepb "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/server/decide"
	"github.com/headgate/headgate/server/envoyrlqs"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/share"
)

// rules are a rule by tenant, one that cannot be divided, some that cost much, and a deny list.
func rules(t *testing.T) *policy.Set {
	t.Helper()
	set, err := policy.New([]policy.Rule{
		{Match: []policy.Condition{policy.Present("tenant")}, Per: []policy.Part{{Entry: "tenant"}}, Limits: headgate.MustRule("tenant", headgate.PerSecond(100))},
		{Match: []policy.Condition{policy.Present("login")}, Limits: headgate.MustRule("login", headgate.PerSecond(3), headgate.Blocking(3, time.Minute, time.Minute, time.Hour))},
		{Match: []policy.Condition{policy.Present("report")}, Limits: headgate.MustRule("report", headgate.PerSecond(100)), Cost: 10},
		{Match: []policy.Condition{policy.Present("bytes")}, Limits: headgate.MustRule("bytes", headgate.Per(1_000_000_000_000, 24*time.Hour)), Cost: 100_000},
		{Match: []policy.Condition{policy.Present("pipe")}, Limits: headgate.MustRule("pipe", headgate.PerSecond(4_000_000_000)), Cost: 1_000_000},
		{Match: []policy.Condition{policy.Present("both")}, Limits: headgate.MustRule("both", headgate.PerSecond(100), headgate.PerMinute(1200))},
		{Match: []policy.Condition{policy.Present("trial")}, Limits: headgate.MustRule("trial", headgate.PerSecond(1)), Mode: policy.ModeShadow},
	}, policy.Denied(policy.ListEntry{Name: "banned", Match: []policy.Condition{policy.Equal("tenant", "bad")}}))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// serve starts a service on a clock, and returns what opens streams to it.
func serve(t *testing.T, now func() int64, current func() decide.Policy) func(t *testing.T) *envoy {
	t.Helper()
	return serveFrom(t, memory.New(memory.Clock(now)), current)
}

// serveFrom is serve with the documents of a store.
func serveFrom(t *testing.T, documents store.Documents, current func() decide.Policy) func(t *testing.T) *envoy {
	t.Helper()
	ending := make(chan struct{})
	service := envoyrlqs.New(envoyrlqs.Options{Rules: current, Documents: documents, Ending: ending})
	server := grpc.NewServer()
	service.Register(server)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(ending)
		_ = conn.Close()
		server.GracefulStop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n := service.Streams(); n != 0 {
			t.Errorf("%d streams are open at the end", n)
		}
	})
	return func(t *testing.T) *envoy {
		t.Helper()
		wire, err := pb.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return &envoy{wire}
	}
}

// envoy is one stream.
type envoy struct {
	wire grpc.BidiStreamingClient[pb.RateLimitQuotaUsageReports, pb.RateLimitQuotaResponse]
}

// usage is what a report says of one bucket: allowed and denied in so many seconds.
func usage(allowed, denied uint64, seconds int, entries ...string) *pb.RateLimitQuotaUsageReports_BucketQuotaUsage {
	bucket := make(map[string]string)
	for _, e := range entries {
		name, value, _ := strings.Cut(e, "=")
		bucket[name] = value
	}
	return &pb.RateLimitQuotaUsageReports_BucketQuotaUsage{
		BucketId: &pb.BucketId{Bucket: bucket}, TimeElapsed: durationpb.New(time.Duration(seconds) * time.Second),
		NumRequestsAllowed: allowed, NumRequestsDenied: denied,
	}
}

func (e *envoy) report(t *testing.T, all ...*pb.RateLimitQuotaUsageReports_BucketQuotaUsage) {
	t.Helper()
	if err := e.wire.Send(&pb.RateLimitQuotaUsageReports{Domain: "d", BucketQuotaUsages: all}); err != nil {
		t.Fatal(err)
	}
}

// told returns what the next answer says, sorted by nothing: one line for each bucket.
func (e *envoy) told(t *testing.T) string {
	t.Helper()
	answer, err := e.wire.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, a := range answer.GetBucketAction() {
		q := a.GetQuotaAssignmentAction()
		line := fmt.Sprint(a.GetBucketId().GetBucket(), " ", q.GetAssignmentTimeToLive().AsDuration(), " ")
		switch s := q.GetRateLimitStrategy().GetStrategy().(type) {
		case *typepb.RateLimitStrategy_TokenBucket:
			b := s.TokenBucket
			line += fmt.Sprintf("%d + %.1f/s", b.GetMaxTokens(), float64(b.GetTokensPerFill().GetValue())/b.GetFillInterval().AsDuration().Seconds())
		case *typepb.RateLimitStrategy_BlanketRule_:
			line += s.BlanketRule.String()
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func fixed(set *policy.Set) func() decide.Policy {
	return func() decide.Policy { return decide.Policy{Set: set} }
}

func TestAnswers(t *testing.T) {
	now := int64(1_700_000_000_000_000)
	open := serve(t, func() int64 { return now }, fixed(rules(t)))
	e := open(t)
	e.report(t, usage(1, 0, 0, "tenant=a"), usage(1, 0, 0, "tenant=bad"), usage(1, 0, 0, "other=x"), usage(1, 0, 0, "login=x"), usage(50, 0, 5, "report=x"), usage(500, 0, 5, "bytes=x"), usage(20_000, 0, 5, "pipe=x"), usage(1, 0, 0, "trial=x"))
	want := `map[tenant:a] 10s 50 + 50.0/s
map[tenant:bad] 10s DENY_ALL
map[other:x] 10s ALLOW_ALL
map[report:x] 10s 8 + 9.8/s
map[bytes:x] 10s 8750000 + 110.1/s
map[pipe:x] 10s 3500 + 3937.5/s
map[trial:x] 10s ALLOW_ALL`
	if got := e.told(t); got != want {
		t.Errorf("told\n%s\nwant\n%s", got, want)
	}
	// The same tenant is somebody else's as well.
	other := open(t)
	other.report(t, usage(1, 0, 0, "tenant=a"))
	if got, want := other.told(t), "map[tenant:a] 10s 33 + 33.3/s"; got != want {
		t.Errorf("the second Envoy was told %s, want %s", got, want)
	}
}

func TestHostile(t *testing.T) {
	open := serve(t, func() int64 { return 1_700_000_000_000_000 }, fixed(rules(t)))
	many := make([]string, policy.MaxEntries+1)
	for i := range many {
		many[i] = fmt.Sprint(i, "=x")
	}
	for _, c := range []struct {
		name    string
		reports []*pb.RateLimitQuotaUsageReports
	}{
		{"no domain", []*pb.RateLimitQuotaUsageReports{{BucketQuotaUsages: []*pb.RateLimitQuotaUsageReports_BucketQuotaUsage{usage(1, 0, 0, "tenant=a")}}}},
		{"another domain", []*pb.RateLimitQuotaUsageReports{{Domain: "d"}, {Domain: "e"}}},
		{"a long domain", []*pb.RateLimitQuotaUsageReports{{Domain: strings.Repeat("d", 300)}}},
		{"a bucket of nothing", []*pb.RateLimitQuotaUsageReports{{Domain: "d", BucketQuotaUsages: []*pb.RateLimitQuotaUsageReports_BucketQuotaUsage{usage(1, 0, 0)}}}},
		{"many entries", []*pb.RateLimitQuotaUsageReports{{Domain: "d", BucketQuotaUsages: []*pb.RateLimitQuotaUsageReports_BucketQuotaUsage{usage(1, 0, 0, many...)}}}},
		{"a long value", []*pb.RateLimitQuotaUsageReports{{Domain: "d", BucketQuotaUsages: []*pb.RateLimitQuotaUsageReports_BucketQuotaUsage{usage(1, 0, 0, "tenant="+strings.Repeat("x", policy.MaxValue+1))}}}},
	} {
		e := open(t)
		for _, r := range c.reports {
			_ = e.wire.Send(r)
		}
		if _, err := e.wire.Recv(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v, want InvalidArgument", c.name, err)
		}
	}
	// Numbers that overflow are a large demand, and nothing else.
	e := open(t)
	e.report(t, usage(1<<63, 1<<63, 1, "tenant=b"))
	if got, want := e.told(t), "map[tenant:b] 10s 87 + 98.4/s"; got != want {
		t.Errorf("told %s, want %s", got, want)
	}
}

// TestNewPolicy: a change of the policy reaches an Envoy without a report.
func TestNewPolicy(t *testing.T) {
	sets := make(chan *policy.Set, 1)
	sets <- rules(t)
	current := func() decide.Policy {
		set := <-sets
		sets <- set
		return decide.Policy{Set: set}
	}
	open := serve(t, func() int64 { return time.Now().UnixMicro() }, current)
	e := open(t)
	e.report(t, usage(1, 0, 0, "tenant=a"))
	if got, want := e.told(t), "map[tenant:a] 10s 50 + 50.0/s"; got != want {
		t.Errorf("told %s, want %s", got, want)
	}
	empty, err := policy.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	<-sets
	sets <- empty
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	done := make(chan string, 1)
	go func() { done <- e.told(t) }()
	select {
	case got := <-done:
		if want := "map[tenant:a] 10s ALLOW_ALL"; got != want {
			t.Errorf("told %s, want %s", got, want)
		}
	case <-ctx.Done():
		t.Error("the Envoy was not told of the new policy")
	}
}

// recorded is documents that remember their keys.
type recorded struct {
	store.Documents
	mu   sync.Mutex // guards keys
	keys map[string]bool
}

func (r *recorded) WriteDocument(ctx context.Context, read store.Document, value []byte, ttl time.Duration) (bool, error) {
	r.mu.Lock()
	r.keys[read.Key] = true
	r.mu.Unlock()
	return r.Documents.WriteDocument(ctx, read, value, ttl)
}

// turns is how many buckets have been paid for under each limit.
func (r *recorded) turns(t *testing.T) (all []int64) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.keys {
		d, err := r.ReadDocument(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		p, err := share.Read(d.Value)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p.Holders[0].Turn)
	}
	return all
}

// TestSeveralLimits: a token bucket that has changed begins full, so it is paid for under all limits
// of its rule, whichever of them has changed.
func TestSeveralLimits(t *testing.T) {
	var now atomic.Int64
	now.Store(1_700_000_000_000_000)
	documents := &recorded{Documents: memory.New(memory.Clock(now.Load)), keys: make(map[string]bool)}
	e := serveFrom(t, documents, fixed(rules(t)))(t)
	e.report(t, usage(1, 0, 0, "both=x"))
	e.told(t)
	var turns []int64
	for _, requests := range []uint64{100, 100, 100, 20, 20, 300, 300, 5, 5, 5, 5} {
		now.Add(5_000_000)
		e.report(t, usage(requests, 0, 5, "both=x"))
		e.told(t)
		// On a slow machine the service may be about to change both once more.
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			if turns = documents.turns(t); len(turns) == 2 && turns[0] == turns[1] {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("under the two limits %v token buckets were paid for", turns)
			}
		}
	}
	if turns[0] < 3 {
		t.Errorf("only %d token buckets were paid for", turns[0])
	}
}
