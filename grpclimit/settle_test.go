package grpclimit

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/memory"
)

func TestSettle(t *testing.T) {
	store := stopped()
	rule := headgate.MustRule("tokens", headgate.Per(100, time.Hour))
	left := func() int64 {
		d, err := headgate.New(store, rule).Peek(t.Context(), "", 1)
		if err != nil {
			t.Fatal(err)
		}
		return d.Remaining
	}
	s := new(service)
	var ends []End
	api := limited(t, store, s, Limit(Everyone(), rule), Cost(func(*Call) int64 { return 50 }), Settle(func(_ *Call, end End) int64 {
		ends = append(ends, end)
		if end.Cost >= 0 {
			return end.Cost
		}
		return 10 * end.Received
	}))
	s.answer = func(ctx context.Context) error {
		if !SetCost(ctx, 7) {
			t.Error("there is nobody to tell the cost")
		}
		return nil
	}
	if err := call(t, api); err != nil {
		t.Fatal(err)
	}
	if n := left(); n != 93 {
		t.Errorf("%d remain after a cost of 7", n)
	}
	s.answer = func(context.Context) error { return status.Error(codes.Aborted, "no") }
	if err := call(t, api); status.Code(err) != codes.Aborted {
		t.Fatal(err)
	}
	if n := left(); n != 83 {
		t.Errorf("%d remain after a cost of 10", n)
	}
	s.answer = nil
	stream := exchange(t, api, 3)
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err == nil {
		t.Fatal("the stream goes on")
	}
	if n := left(); n != 53 {
		t.Errorf("%d remain after a stream of 3 messages", n)
	}
	if ends[0].Code != codes.OK || ends[0].Reply == nil || ends[0].Sent != 1 || ends[1].Code != codes.Aborted || ends[1].Reply != nil || ends[2].Received != 3 || ends[2].Sent != 3 {
		t.Errorf("calls ended with %+v", ends)
	}
	if SetCost(t.Context(), 1) {
		t.Error("a context without a call has somebody to tell")
	}
}

// TestSettleLate: of a call that takes longer than the reservation holds, what is
// missing is charged.
func TestSettleLate(t *testing.T) {
	var clock atomic.Int64
	clock.Store(1_763_712_000_000_000)
	store := memory.New(memory.Clock(clock.Load))
	rule := headgate.MustRule("tokens", headgate.Sliding(100, 24*time.Hour))
	s := new(service)
	api := limited(t, store, s, Limit(Everyone(), rule), Cost(func(*Call) int64 { return 10 }), Settle(func(*Call, End) int64 { return 30 }))
	s.answer = func(context.Context) error {
		clock.Add(time.Hour.Microseconds())
		return nil
	}
	if err := call(t, api); err != nil {
		t.Fatal(err)
	}
	if d, err := headgate.New(store, rule).Peek(t.Context(), "", 1); err != nil || d.Remaining != 70 {
		t.Errorf("%d remain after a cost of 30, %v", d.Remaining, err)
	}
}

// TestSettleAfterPanic: a handler that panics is settled all the same.
func TestSettleAfterPanic(t *testing.T) {
	store := stopped()
	rule := headgate.MustRule("tokens", headgate.Per(100, time.Hour))
	code := codes.OK
	limit, err := NewServer(store, Limit(Everyone(), rule), Settle(func(_ *Call, end End) int64 { code = end.Code; return 3 }))
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is gone")
			}
		}()
		_, _ = limit.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: unaryMethod}, func(context.Context, any) (any, error) { panic("a defect") })
	}()
	if d, err := headgate.New(store, rule).Peek(t.Context(), "", 1); err != nil || d.Remaining != 97 || code != codes.Internal {
		t.Errorf("%+v, %v, %v", d, err, code)
	}
}

// TestOutcome: rules that charge by the outcome go by the code.
func TestOutcome(t *testing.T) {
	set, err := policy.New([]policy.Rule{
		{Limits: headgate.MustRule("guesses", headgate.Per(10, time.Hour)), ChargeOn: policy.Statuses{{First: 401, Last: 401}}},
		{Limits: headgate.MustRule("work", headgate.Per(10, time.Hour)), GiveBackOn: policy.Statuses{{First: 500, Last: 599}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for code, want := range map[codes.Code]string{codes.OK: "10 9", codes.Unauthenticated: "9 9", codes.Unavailable: "10 10", codes.Unknown: "10 10"} {
		store, s := stopped(), new(service)
		s.answer = func(context.Context) error { return status.Error(code, "") }
		if err := call(t, limited(t, store, s, Policy(set))); status.Code(err) != code {
			t.Fatal(err)
		}
		var left []string
		for _, r := range set.Rules() {
			d, err := headgate.New(store, r.Limits).Peek(t.Context(), "", 1)
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, fmt.Sprint(d.Remaining))
		}
		if got := strings.Join(left, " "); got != want {
			t.Errorf("%v leaves %s, want %s", code, got, want)
		}
	}
}
