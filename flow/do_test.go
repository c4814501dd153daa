package flow_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/permits"
)

func TestDo(t *testing.T) {
	t.Parallel()
	gate, err := permits.New(permits.Config{Name: "one", Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	var outcomes []flow.Outcome
	watched := flow.Observe(gate, flow.Hooks{Done: func(_ flow.Request, o flow.Outcome, _ time.Duration) { outcomes = append(outcomes, o) }})
	ctx, failure := t.Context(), errors.New("failed")
	for _, c := range []struct {
		err  error
		want flow.Outcome
	}{
		{nil, flow.Success},
		{failure, flow.Ignore},
		{context.Canceled, flow.Canceled},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), flow.Overload},
		{fmt.Errorf("x: %w", os.ErrDeadlineExceeded), flow.Overload}, // as a connection's own deadline
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, flow.Ignore},
		{headgate.ErrUnavailable, flow.Overload},
		{&flow.Rejection{Reason: flow.ReasonBusy}, flow.Overload},
	} {
		outcomes = nil
		got, err := flow.Get(ctx, watched, flow.Request{}, func(ctx context.Context) (int, error) {
			// The gate knows what it has admitted, and nothing else.
			nested := flow.Do(ctx, gate, flow.Request{}, func(context.Context) error { return nil })
			refused := flow.Do(t.Context(), gate, flow.Request{}, func(context.Context) error { return nil })
			if nested != nil || !errors.Is(refused, flow.ErrShed) {
				t.Errorf("inside: %v; outside: %v", nested, refused)
			}
			return 7, c.err
		})
		if got != 7 || !errors.Is(err, c.err) || len(outcomes) != 1 || outcomes[0] != c.want {
			t.Errorf("%v: %d, %v, outcomes %v, want %v", c.err, got, err, outcomes, c.want)
		}
	}
	outcomes = nil
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is lost")
			}
		}()
		_ = flow.Do(ctx, watched, flow.Request{}, func(context.Context) error { panic("broken") })
	}()
	if len(outcomes) != 1 || outcomes[0] != flow.Ignore || gate.Stats().InUse != 0 {
		t.Errorf("after a panic: outcomes %v, %+v", outcomes, gate.Stats())
	}
	if got, err := flow.Get(ctx, gate, flow.Request{Cost: 2}, func(context.Context) (int, error) {
		t.Error("refused work was done")
		return 7, nil
	}); got != 0 || !errors.Is(err, flow.ErrShed) {
		t.Errorf("refused: %d, %v", got, err)
	}
}
