package grpclimit

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func anyCall(*Call) bool { return true }

// pushing ends calls with a code and a trailer that says when to come back.
func pushing(code codes.Code, after string) func(context.Context) error {
	return func(ctx context.Context) error {
		return errors.Join(grpc.SetTrailer(ctx, metadata.Pairs(pushback, after)), status.Error(code, "not now"))
	}
}

// first answers the first calls so, and all others well.
func first(calls int, answer func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if calls--; calls >= 0 {
			return answer(ctx)
		}
		return nil
	}
}

// TestRetriesDoNotAmplify: however much fails, retries are a tenth of the calls, and some.
func TestRetriesDoNotAmplify(t *testing.T) {
	t.Parallel()
	s := &service{answer: func(context.Context) error { return status.Error(codes.Unavailable, "down") }}
	api := calling(t, nil, s, Retries(2), RetryIdempotent(anyCall), RetryBudget(0.1, 5))
	const calls = 100
	for range calls {
		if err := call(t, api); status.Code(err) != codes.Unavailable || !NoRetry(err) {
			t.Fatalf("got %v", err)
		}
	}
	if n := s.calls.Load(); n != calls+calls/10+5 {
		t.Errorf("%d attempts of %d calls, want %d", n, calls, calls+calls/10+5)
	}
}

// TestRetryIdempotent: what may be carried out twice is repeated, when the server says or at a
// random time, and nothing that may not.
func TestRetryIdempotent(t *testing.T) {
	t.Parallel()
	down := func(context.Context) error { return status.Error(codes.Unavailable, "down") }
	exhausted := func(context.Context) error { return status.Error(codes.ResourceExhausted, "full") }
	notFound := func(context.Context) error { return status.Error(codes.NotFound, "no") }
	for _, c := range []struct {
		name    string
		answer  func(context.Context) error
		options []ClientOption
		calls   int64
		code    codes.Code
		final   bool
	}{
		{"unavailable", first(2, down), []ClientOption{Retries(2), RetryIdempotent(anyCall)}, 3, codes.OK, false},
		{"full", first(1, exhausted), []ClientOption{Retries(2), RetryIdempotent(anyCall)}, 2, codes.OK, false},
		{"more than the tries", first(9, down), []ClientOption{Retries(2), RetryIdempotent(anyCall)}, 3, codes.Unavailable, true},
		{"not idempotent", first(1, down), []ClientOption{Retries(2), RetryIdempotent(func(*Call) bool { return false })}, 1, codes.Unavailable, true},
		{"no retries", first(1, down), []ClientOption{RetryIdempotent(anyCall)}, 1, codes.Unavailable, false},
		{"another error", first(1, notFound), []ClientOption{Retries(2), RetryIdempotent(anyCall)}, 1, codes.NotFound, false},
		{"the server says when", first(1, pushing(codes.Unavailable, "20")), []ClientOption{Retries(2), RetryIdempotent(anyCall)}, 2, codes.OK, false},
		{"the server says at once", first(1, pushing(codes.Unavailable, "0")), []ClientOption{Retries(2), RetryIdempotent(anyCall)}, 2, codes.OK, false},
		{"the server says never", first(1, pushing(codes.Unavailable, "-1")), []ClientOption{Retries(2), RetryIdempotent(anyCall)}, 1, codes.Unavailable, true},
		{"the server says what is no number", first(1, pushing(codes.ResourceExhausted, "later")), []ClientOption{Retries(2), RetryIdempotent(anyCall)}, 1, codes.ResourceExhausted, true},
		{"never, without retries", first(1, pushing(codes.Unavailable, "-1")), nil, 1, codes.Unavailable, true},
		{"the server says too late", first(1, pushing(codes.Unavailable, "60000")), []ClientOption{Retries(2), RetryIdempotent(anyCall), MaxWait(time.Second)}, 1, codes.Unavailable, true},
		{"nothing in the budget", first(1, down), []ClientOption{Retries(2), RetryIdempotent(anyCall), RetryBudget(0.1, 0)}, 1, codes.Unavailable, true},
	} {
		s := &service{answer: c.answer}
		err := call(t, calling(t, nil, s, c.options...))
		if status.Code(err) != c.code || s.calls.Load() != c.calls || NoRetry(err) != c.final {
			t.Errorf("%s: %v after %d calls, final: %v", c.name, err, s.calls.Load(), NoRetry(err))
		}
	}
}

// TestPassOn: what nobody is to retry is told through the layers, by calls and by streams.
func TestPassOn(t *testing.T) {
	t.Parallel()
	far := &service{answer: pushing(codes.Unavailable, "-1")}
	between := calling(t, nil, far)
	near := &service{answer: func(ctx context.Context) error {
		_, err := between.UnaryCall(ctx, new(testpb.SimpleRequest))
		return PassOn(ctx, err)
	}}
	api := calling(t, nil, near, Retries(3), RetryIdempotent(anyCall))
	if err := call(t, api); status.Code(err) != codes.Unavailable || !NoRetry(err) || near.calls.Load() != 1 || far.calls.Load() != 1 {
		t.Errorf("%v after %d and %d calls", err, near.calls.Load(), far.calls.Load())
	}
	if err := errors.New("another"); PassOn(t.Context(), err) != err || NoRetry(err) { //nolint:errorlint // it is the very error
		t.Error("another error is changed")
	}
	stream, err := between.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable || !NoRetry(err) {
		t.Errorf("a stream: %v", err)
	}
}
