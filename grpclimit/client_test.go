package grpclimit

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

func calling(t testing.TB, store headgate.Store, s *service, options ...ClientOption) testpb.TestServiceClient {
	t.Helper()
	limit, err := NewClient(store, options...)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, s, nil, limit.Options()...)
}

// refusing ends calls with a code and a RetryInfo.
func refusing(code codes.Code, d time.Duration) func(context.Context) error {
	return func(context.Context) error {
		s, err := status.New(code, "not now").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
		return errors.Join(err, s.Err())
	}
}

// TestClientLimit: a call waits until it fits, and is not made if that takes too
// long.
func TestClientLimit(t *testing.T) {
	s := new(service)
	waited := 0
	api := calling(t, memory.New(), s, ClientLimit(ByTarget(), headgate.MustRule("r", headgate.Per(1, time.Second))),
		ObserveClient(ClientHooks{Waited: func(*Call, time.Duration) { waited++ }}))
	for range 2 { // a busy machine needs less than a second between them
		if err := call(t, api); err != nil {
			t.Fatal(err)
		}
	}
	if waited != 1 || s.calls.Load() != 2 {
		t.Errorf("%d of %d calls waited", waited, s.calls.Load())
	}
	var denied []error
	s = new(service)
	api = calling(t, stopped(), s, ClientLimit(Combine(ByTarget(), ByMethod()), one("r")),
		ObserveClient(ClientHooks{Denied: func(_ *Call, err error) { denied = append(denied, err) }}))
	if err := call(t, api); err != nil {
		t.Fatal(err)
	}
	err := call(t, api)
	if code, _, delay := said(err); code != codes.ResourceExhausted || delay != time.Hour || !errors.Is(err, headgate.ErrDenied) {
		t.Errorf("got %v, retry in %v", err, delay)
	}
	if len(denied) != 1 || s.calls.Load() != 1 {
		t.Errorf("the hook was told %v, and the server called %d times", denied, s.calls.Load())
	}
	if _, err := api.EmptyCall(t.Context(), new(testpb.Empty)); err != nil {
		t.Errorf("another method: %v", err)
	}
}

// TestClientsDeadline: a call is not held beyond its context's deadline.
func TestClientsDeadline(t *testing.T) {
	api := calling(t, stopped(), new(service), ClientLimit(Everyone(), headgate.MustRule("r", headgate.Per(1, 10*time.Second))))
	if err := call(t, api); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := api.UnaryCall(ctx, new(testpb.SimpleRequest)); !errors.Is(err, headgate.ErrDenied) {
		t.Errorf("got %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, cancel)
	if _, err := api.UnaryCall(gone, new(testpb.SimpleRequest)); status.Code(err) != codes.Canceled {
		t.Errorf("got %v", err)
	}
}

// TestRetryInfo: what a server says keeps calls of that method away until then.
func TestRetryInfo(t *testing.T) {
	for _, code := range []codes.Code{codes.ResourceExhausted, codes.Unavailable} {
		s := &service{answer: refusing(code, time.Hour)}
		paused := 0
		api := calling(t, nil, s, MaxWait(0), ObserveClient(ClientHooks{Paused: func(*Call, time.Duration) { paused++ }}))
		if err := call(t, api); status.Code(err) != code || errors.Is(err, headgate.ErrDenied) {
			t.Fatal(err)
		}
		err := call(t, api)
		if got, reason, delay := said(err); got != codes.ResourceExhausted || reason != ReasonPaused || delay > DefaultMaxPause || delay < DefaultMaxPause/2 || !errors.Is(err, headgate.ErrDenied) {
			t.Errorf("got %v, retry in %v", err, delay)
		}
		if s.calls.Load() != 1 || paused != 1 {
			t.Errorf("the server was called %d times", s.calls.Load())
		}
		if _, err := api.EmptyCall(t.Context(), new(testpb.Empty)); err != nil {
			t.Errorf("another method: %v", err)
		}
	}
	s := &service{answer: refusing(codes.ResourceExhausted, time.Hour)}
	api := calling(t, nil, s, MaxWait(0), PauseBy(ByTarget()))
	if err := call(t, api); errors.Is(err, headgate.ErrDenied) {
		t.Fatal(err)
	}
	if _, err := api.EmptyCall(t.Context(), new(testpb.Empty)); !errors.Is(err, headgate.ErrDenied) {
		t.Errorf("another method at a target that pauses: %v", err)
	}
	s = &service{answer: refusing(codes.ResourceExhausted, time.Hour)}
	api = calling(t, nil, s, MaxPause(0))
	for range 2 {
		if err := call(t, api); errors.Is(err, headgate.ErrDenied) {
			t.Errorf("a pause that is not heeded: %v", err)
		}
	}
	s = &service{answer: refusing(codes.NotFound, time.Hour)}
	api = calling(t, nil, s)
	for range 2 {
		if err := call(t, api); status.Code(err) != codes.NotFound {
			t.Errorf("an error of another kind: %v", err)
		}
	}
}

// TestPauseEnds: calls wait for the end of a pause and go on.
func TestPauseEnds(t *testing.T) {
	s := &service{answer: refusing(codes.ResourceExhausted, 20*time.Millisecond)}
	api := calling(t, nil, s)
	if err := call(t, api); err == nil {
		t.Fatal("it was not refused")
	}
	s.answer = nil
	if err := call(t, api); err != nil {
		t.Errorf("after the pause: %v", err)
	}
}

// TestRetries: only what a server has refused with a RetryInfo is repeated.
func TestRetries(t *testing.T) {
	s := new(service)
	left := 2
	s.answer = func(ctx context.Context) error {
		if left--; left >= 0 {
			return refusing(codes.ResourceExhausted, 5*time.Millisecond)(ctx)
		}
		return nil
	}
	if err := call(t, calling(t, nil, s, Retries(2))); err != nil || s.calls.Load() != 3 {
		t.Errorf("%v after %d calls", err, s.calls.Load())
	}
	for name, answer := range map[string]func(context.Context) error{
		"unavailable":       refusing(codes.Unavailable, time.Millisecond),
		"without RetryInfo": func(context.Context) error { return status.Error(codes.ResourceExhausted, "no") },
	} {
		s := &service{answer: answer}
		if err := call(t, calling(t, nil, s, Retries(3))); err == nil || s.calls.Load() != 1 {
			t.Errorf("%s: %v after %d calls", name, err, s.calls.Load())
		}
	}
	s = &service{answer: refusing(codes.ResourceExhausted, time.Hour)}
	err := call(t, calling(t, nil, s, Retries(3), MaxWait(time.Second)))
	if s.calls.Load() != 1 || status.Code(err) != codes.ResourceExhausted || errors.Is(err, headgate.ErrDenied) {
		t.Errorf("a wait that is too long: %v after %d calls", err, s.calls.Load())
	}
}

func TestClientStreams(t *testing.T) {
	s := &service{answer: refusing(codes.ResourceExhausted, time.Hour)}
	api := calling(t, stopped(), s, MaxWait(0), ClientMessageLimit(Everyone(), headgate.MustRule("messages", headgate.Per(2, time.Hour))))
	stream := exchange(t, api, 2)
	if err := stream.Send(new(testpb.StreamingOutputCallRequest)); !errors.Is(err, headgate.ErrDenied) {
		t.Errorf("a third message: %v", err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Fatal(err)
	}
	if _, err := api.FullDuplexCall(t.Context()); !errors.Is(err, headgate.ErrDenied) {
		t.Errorf("a stream while the server wants none: %v", err)
	}
}

func TestClientStoreError(t *testing.T) {
	failed := 0
	hooks := ObserveClient(ClientHooks{Failed: func(*Call, error) { failed++ }})
	down := failing{headgate.ErrUnavailable}
	if err := call(t, calling(t, down, new(service), ClientLimit(Everyone(), one("r")), hooks)); err != nil {
		t.Errorf("open: %v", err)
	}
	err := call(t, calling(t, down, new(service), ClientLimit(Everyone(), one("r")), OnClientStoreError(FailClosed), hooks))
	if code, reason, _ := said(err); code != codes.Unavailable || reason != ReasonUnavailable {
		t.Errorf("closed: %v", err)
	}
	err = call(t, calling(t, stopped(), new(service), ClientLimit(Everyone(), one("r")), ClientCost(func(*Call) int64 { return -1 }), hooks))
	if status.Code(err) != codes.Internal || failed != 3 {
		t.Errorf("a cost that cannot be: %v, and the hook was told %d times", err, failed)
	}
}

func TestClientDelay(t *testing.T) {
	paced := headgate.MustRule("paced", headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 100, Period: time.Second, Burst: 100})
	api := calling(t, stopped(), new(service), ClientLimit(Everyone(), paced), MaxWait(4*time.Millisecond))
	if err := call(t, api); err != nil {
		t.Fatal(err)
	}
	for range 2 { // what it took is given back each time
		if _, _, delay := said(call(t, api)); delay != 6*time.Millisecond {
			t.Errorf("retry in %v", delay)
		}
	}
}

func TestClientMistakes(t *testing.T) {
	_, err := NewClient(nil, ClientLimit(ByIP(), one("a")), ClientLimit(Everyone(), one("a")), MaxWait(-1), MaxPause(-1), Retries(-1), RetryBudget(0, -1), RetryIdempotent(nil), PauseBy(Key{}), ClientCost(nil),
		OnClientStoreError(9), PauseBy(ByFunc("x", nil)))
	var invalid *headgate.InvalidError
	if !errors.As(err, &invalid) {
		t.Fatalf("got %v", err)
	}
	all := strings.Join(invalid.Problems.Texts(), "\n")
	for _, want := range []string{"MaxWait", "MaxPause", "Retries", "a share of 0", "a floor of -1", "RetryIdempotent", "PauseBy has an empty", "ClientCost", "OnStoreError", `"x" needs`, "the store is nil", `"a" is there already`, "no ip"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not said:\n%s", want, all)
		}
	}
	if len(invalid.Problems) != 13 {
		t.Errorf("%d problems:\n%s", len(invalid.Problems), all)
	}
}

// TestManyPauses: what is remembered of servers is bounded.
func TestManyPauses(t *testing.T) {
	var p pauses
	for i := range 2 * maxPauses {
		d := time.Hour
		if i < 10 {
			d = -time.Second
		}
		p.add(strings.Repeat("k", i%100)+string(rune(i)), d)
	}
	if n := len(p.until); n > maxPauses {
		t.Errorf("%d are remembered", n)
	}
	if p.left("nobody's") != 0 {
		t.Error("a pause that nobody made")
	}
}
