package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/store/memory"
)

// spy is a gate that lets everything in until it has an error, and notes what it is told.
type spy struct {
	mu       sync.Mutex
	err      error
	asked    []flow.Request
	outcomes []flow.Outcome
}

type spied struct {
	flow.Slot
	of *spy
}

func (s *spy) Acquire(ctx context.Context, r flow.Request) (flow.Permit, error) {
	return s.TryAcquire(ctx, r)
}

func (s *spy) TryAcquire(_ context.Context, r flow.Request) (flow.Permit, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r)
	if s.err != nil {
		return flow.Permit{}, s.err
	}
	h := &spied{of: s}
	return h.Issue(h), nil
}

func (h *spied) GiveBack(o flow.Outcome) {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	h.of.outcomes = append(h.of.outcomes, o)
}

func (h *spied) Bind(ctx context.Context, _ flow.Permit) context.Context { return ctx }

// told waits until the gate was told of that many ends, and returns them.
func (s *spy) told(t *testing.T, n int) []flow.Outcome {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		all := slices.Clone(s.outcomes)
		s.mu.Unlock()
		if len(all) >= n || time.Now().After(end) {
			return all
		}
	}
}

// throughOptions are those of a server whose calls pass the gate.
func throughOptions(t *testing.T, gate flow.Gate, load Load, options ...Option) []grpc.ServerOption {
	t.Helper()
	s, err := NewServer(memory.New(), append(options, Through(gate, load))...)
	if err != nil {
		t.Fatal(err)
	}
	return s.Options()
}

// What the gate learns of how calls end.
func TestThroughLearns(t *testing.T) {
	var leave context.CancelFunc
	for _, c := range []struct {
		name   string
		answer func(ctx context.Context) error
		want   flow.Outcome
	}{
		{"client leaves", func(ctx context.Context) error {
			leave()
			<-ctx.Done()
			return ctx.Err()
		}, flow.Canceled},
		{"ok", func(context.Context) error { return nil }, flow.Success},
		{"unavailable", func(context.Context) error { return status.Error(codes.Unavailable, "") }, flow.Overload},
		{"exhausted", func(context.Context) error { return status.Error(codes.ResourceExhausted, "") }, flow.Overload},
		{"late", func(context.Context) error { return context.DeadlineExceeded }, flow.Overload},
		{"another gate refused", func(context.Context) error { return fmt.Errorf("asking: %w", &flow.Rejection{Gate: "db"}) }, flow.Overload},
		{"not found", func(context.Context) error { return status.Error(codes.NotFound, "") }, flow.Ignore},
		{"internal", func(context.Context) error { return errors.New("a bug") }, flow.Ignore},
		{"cancelled", func(context.Context) error { return context.Canceled }, flow.Ignore},
		{"handler knows", func(ctx context.Context) error {
			if !Done(ctx, flow.Overload) {
				return errors.New("there is no permit")
			}
			return nil
		}, flow.Overload},
	} {
		gate := &spy{}
		api := start(t, &service{answer: c.answer}, throughOptions(t, gate, Load{}))
		var ctx context.Context
		ctx, leave = context.WithCancel(t.Context())
		_, _ = api.UnaryCall(ctx, new(testpb.SimpleRequest))
		leave()
		if got := gate.told(t, 1); len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: the gate was told %v, want %v", c.name, got, c.want)
		}
	}
}

// A stream is asked about and not held; a panic gives the permit back.
func TestThroughStreamsAndPanics(t *testing.T) {
	gate := &spy{}
	api := start(t, new(service), throughOptions(t, gate, Load{}))
	stream := exchange(t, api, 1)
	if got := gate.told(t, 1); len(got) != 1 || got[0] != flow.Ignore {
		t.Errorf("the gate was told %v of a stream that goes on", got)
	}
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
	s, err := NewServer(nil, Through(gate, Load{}))
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = s.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a/b"}, func(context.Context, any) (any, error) { panic("a bug") })
	}()
	if got := gate.told(t, 2); len(got) != 2 || got[1] != flow.Ignore {
		t.Errorf("the gate was told %v of a panic", got)
	}
}

// A stream that is work holds its permit until it ends, and the gate learns how it has ended.
func TestThroughHoldsStreams(t *testing.T) {
	for _, c := range []struct {
		name string
		end  error
		want flow.Outcome
	}{
		{"done", nil, flow.Success},
		{"late", status.Error(codes.DeadlineExceeded, ""), flow.Overload},
		{"failed", errors.New("a bug"), flow.Ignore},
	} {
		gate := &spy{}
		load := Load{Streams: func(c *Call) bool { return c.Method == "/grpc.testing.TestService/FullDuplexCall" }}
		api := start(t, &service{answer: func(context.Context) error { return c.end }}, throughOptions(t, gate, load))
		stream := exchange(t, api, 1)
		gate.mu.Lock()
		if len(gate.outcomes) != 0 {
			t.Errorf("%s: the gate was told %v of a stream that goes on", c.name, gate.outcomes)
		}
		gate.mu.Unlock()
		if err := stream.CloseSend(); err != nil {
			t.Error(err)
		}
		if got := gate.told(t, 1); len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: the gate was told %v, want %v", c.name, got, c.want)
		}
	}
}

// What a call ends with that is refused, and who is asked at all.
func TestThroughRefuses(t *testing.T) {
	gate := &spy{err: &flow.Rejection{Gate: "db", RetryAfter: 3 * time.Second}}
	var shed []*flow.Rejection
	rule := headgate.MustRule("r", headgate.Sliding(1, time.Hour))
	s := new(service)
	api := start(t, s, throughOptions(t, gate, Load{
		Describe: func(c *Call) flow.Request { return flow.Request{Tenant: c.first("tenant"), Class: flow.Sheddable} },
		Exempt:   func(c *Call) bool { return c.Method == "/grpc.testing.TestService/EmptyCall" },
	}, Limit(Everyone(), rule), Observe(Hooks{Shed: func(_ *Call, r *flow.Rejection) { shed = append(shed, r) }})))
	var trailer metadata.MD
	ctx := metadata.AppendToOutgoingContext(t.Context(), "tenant", "a", ClassKey, "critical_plus")
	_, err := api.UnaryCall(ctx, new(testpb.SimpleRequest), grpc.Trailer(&trailer))
	code, reason, delay := said(err)
	if code != codes.Unavailable || reason != ReasonShed || delay < 3*time.Second || delay > 6*time.Second {
		t.Errorf("got %v, %s, retry in %v", err, reason, delay)
	}
	if got := trailer.Get(pushback); len(got) != 1 || got[0] != "-1" || len(shed) != 1 {
		t.Errorf("the trailer is %v, and the hook was told %v", trailer, shed)
	}
	if want := (flow.Request{Tenant: "a", Class: flow.Sheddable}); gate.asked[0] != want {
		t.Errorf("the gate was asked %+v, want %+v", gate.asked[0], want)
	}
	// It was not charged, and this is not asked about.
	if _, err := api.EmptyCall(t.Context(), new(testpb.Empty)); err != nil || s.calls.Load() != 1 {
		t.Errorf("a call that is exempt: %v", err)
	}
	gate.err = nil
	if _, err := api.UnaryCall(t.Context(), new(testpb.SimpleRequest)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("beyond the limit: %v", err)
	}
	if got := gate.told(t, 1); got[0] != flow.Unused {
		t.Errorf("the gate was told %v of a call that was denied", got)
	}
	limit := rule.Limits()[0]
	gate.err = &flow.Rejection{Gate: "rate", Reason: flow.ReasonRate, Retry: true, Cause: &headgate.DeniedError{Decision: headgate.Decision{Rule: rule, Limit: &limit, RetryAfter: time.Minute}}}
	_, err = api.UnaryCall(t.Context(), new(testpb.SimpleRequest))
	if code, reason, delay := said(err); code != codes.ResourceExhausted || reason != ReasonExhausted || delay != time.Minute {
		t.Errorf("denied by a rate: %v", err)
	}
}

// gRPC's own retries heed the mark: with it, a call is one attempt.
func TestThroughStopsRetries(t *testing.T) {
	config := `{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":5,"initialBackoff":"0.001s","maxBackoff":"0.001s","backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}}]}`
	for _, c := range []struct {
		retry bool
		want  int
	}{{false, 1}, {true, 5}} {
		gate := &spy{err: &flow.Rejection{Gate: "db", RetryAfter: time.Millisecond, Retry: c.retry}}
		api := start(t, new(service), throughOptions(t, gate, Load{}), grpc.WithDefaultServiceConfig(config))
		if _, err := api.UnaryCall(t.Context(), new(testpb.SimpleRequest)); status.Code(err) != codes.Unavailable {
			t.Error(err)
		}
		if len(gate.asked) != c.want {
			t.Errorf("retry %v: %d attempts, want %d", c.retry, len(gate.asked), c.want)
		}
	}
}

// Class and tenant from metadata count from trusted peers only.
func TestThroughBelievesPeersOnly(t *testing.T) {
	claimed := flow.Request{Tenant: "b", Class: flow.CriticalPlus}
	for proxy, want := range map[string]flow.Request{"127.0.0.1": claimed, "192.0.2.1": {}} {
		gate := &spy{}
		api := start(t, new(service), throughOptions(t, gate, Load{Peers: true}, TrustProxies(XForwardedFor, proxy)))
		ctx := metadata.AppendToOutgoingContext(t.Context(), ClassKey, "critical_plus", TenantKey, "b")
		if _, err := api.UnaryCall(ctx, new(testpb.SimpleRequest)); err != nil {
			t.Fatal(err)
		}
		if gate.asked[0] != want {
			t.Errorf("trusting %s, the gate was asked %+v, want %+v", proxy, gate.asked[0], want)
		}
	}
	for name, options := range map[string][]Option{
		"no gate": {Through(nil, Load{})}, "two gates": {Through(&spy{}, Load{}), Through(&spy{}, Load{})},
		"no proxy": {Through(&spy{}, Load{Peers: true})},
	} {
		if _, err := NewServer(memory.New(), options...); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
