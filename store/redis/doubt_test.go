package redis

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/bubbletest"
)

// TestDoubt: a call is made as it comes only while others are answered.
func TestDoubt(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		var d doubt
		ask := func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Millisecond)
			t.Cleanup(cancel)
			return ctx
		}
		for i, step := range []struct {
			pause time.Duration
			err   error
			want  bool // before the call
		}{
			{0, nil, true}, // nobody has asked yet
			{0, nil, false},
			{200 * time.Millisecond, nil, false},
			{300 * time.Millisecond, nil, true},
			{time.Millisecond, context.DeadlineExceeded, false},
			{time.Millisecond, context.DeadlineExceeded, true},
			{time.Millisecond, nil, true},
			{time.Millisecond, nil, false},
		} {
			time.Sleep(step.pause)
			ctx := ask()
			if got := d.now(ctx); got != step.want {
				t.Errorf("step %d: doubt is %t", i+1, got)
			}
			d.note(ctx, step.err)
		}
	})
}

// TestBounded: a call that does not heed its context does not hold its caller.
func TestBounded(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Millisecond)
		defer cancel()
		_, err := bounded(ctx, func() (string, error) {
			time.Sleep(time.Second)
			return "late", nil
		})
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != 15*time.Millisecond {
			t.Errorf("got %v after %v", err, took)
		}
		ctx, cancel = context.WithTimeout(t.Context(), 15*time.Millisecond)
		defer cancel()
		if got, err := bounded(ctx, func() (string, error) { return "in time", nil }); got != "in time" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		time.Sleep(2 * time.Second) // until the late one has ended
	})
}
