package grpclimit

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/policy/inprogress"
)

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waiting until %s", what)
		}
	}
}

// A stream is in progress until its handler returns, and unary calls are refused meanwhile:
// as the client's own fault, or for want of room.
func TestInProgress(t *testing.T) {
	for _, c := range []struct {
		per  []policy.Part
		code codes.Code
	}{{[]policy.Part{{Entry: "ip"}}, codes.ResourceExhausted}, {[]policy.Part{{Entry: "service"}}, codes.Unavailable}, {nil, codes.Unavailable}} {
		set, err := policy.New([]policy.Rule{{Name: "all", Per: c.per, InProgress: &policy.InProgress{Limit: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		keeper, busy := inprogress.New(inprogress.Options{}), 0
		api := limited(t, stopped(), new(service), Policy(set), InProgress(keeper), Observe(Hooks{Busy: func(_ *Call, r *inprogress.Refusal) {
			if busy++; r.Bound.Rule.Name != "all" {
				t.Errorf("refused by %v", r)
			}
		}}))
		stream := exchange(t, api, 1)
		code, reason, delay := said(call(t, api))
		if code != c.code || reason != ReasonBusy || delay <= 0 || busy != 1 {
			t.Errorf("by %v: refused with %v, %s, retry in %v; the hook was told %d times", c.per, code, reason, delay, busy)
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the stream has ended", func() bool { return keeper.Stats()[0].InUse == 0 })
		if err := call(t, api); err != nil {
			t.Error(err)
		}
		eventually(t, "the call has ended", func() bool { return keeper.Stats()[0].InUse == 0 })
	}
}

// A handler that panics gives its permit back, as one that has left its context in the
// queue does.
func TestInProgressPanics(t *testing.T) {
	set, err := policy.New([]policy.Rule{{Name: "all", InProgress: &policy.InProgress{Limit: 1, Wait: time.Minute}}})
	if err != nil {
		t.Fatal(err)
	}
	keeper := inprogress.New(inprogress.Options{})
	s, err := NewServer(stopped(), Policy(set), InProgress(keeper))
	if err != nil {
		t.Fatal(err)
	}
	info := &grpc.UnaryServerInfo{FullMethod: unaryMethod}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is gone")
			}
		}()
		_, _ = s.Unary(t.Context(), nil, info, func(ctx context.Context, _ any) (any, error) {
			// The call meets its own bound within itself.
			if _, err := s.Unary(ctx, nil, info, func(context.Context, any) (any, error) { return nil, nil }); err != nil {
				t.Errorf("within itself: %v", err)
			}
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := s.Unary(gone, nil, info, nil); err == nil {
				t.Error("a caller that is gone is served")
			}
			panic("handler")
		})
	}()
	if s := keeper.Stats()[0]; s.InUse != 0 || s.Waiting != 0 {
		t.Errorf("left: %+v", s)
	}
}
