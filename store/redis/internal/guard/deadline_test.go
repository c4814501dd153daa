package guard

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/bubbletest"
)

func TestDeadlines(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		d := Deadlines{Timeout: 160 * time.Millisecond}
		defer d.Close()
		limit := func(parent context.Context) context.Context {
			t.Helper()
			ctx, cancel, err := d.Limit(parent)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(cancel)
			return ctx
		}
		left := func(ctx context.Context) time.Duration {
			end, _ := ctx.Deadline()
			return time.Until(end)
		}
		first := limit(t.Context())
		if got := left(first); got != 170*time.Millisecond {
			t.Errorf("the first call has %v, want the timeout and a sixteenth", got)
		}
		time.Sleep(9 * time.Millisecond)
		if second := limit(t.Context()); second != first {
			t.Error("a call 9 ms later has a context of its own")
		}
		time.Sleep(time.Millisecond)
		third := limit(t.Context())
		if third == first || left(third) != 170*time.Millisecond {
			t.Errorf("a call 10 ms later shares a deadline that is %v away", left(third))
		}
		parent, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if limit(parent) != parent {
			t.Error("a parent that ends in 50 ms has not its own deadline")
		}
		cancel()
		if _, _, err := d.Limit(parent); !errors.Is(err, context.Canceled) {
			t.Errorf("a parent that has ended: got %v", err)
		}
		<-third.Done()
		if !errors.Is(third.Err(), context.DeadlineExceeded) {
			t.Errorf("the call ended with %v", third.Err())
		}
	})
}

func TestClosedDeadlines(t *testing.T) {
	d := Deadlines{Timeout: time.Hour}
	ctx, _, err := d.Limit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	if ctx.Err() == nil {
		t.Error("a call outlives the store")
	}
}
