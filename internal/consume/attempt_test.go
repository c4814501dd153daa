package consume

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
)

func TestBackoff(t *testing.T) {
	for tries := 1; tries < 100; tries++ {
		most := 5 * time.Second
		if tries < 7 {
			most = min(most, 100*time.Millisecond<<(tries-1))
		}
		for range 100 {
			if d := Backoff(tries, 100*time.Millisecond, 5*time.Second); d < most/2 || d > most {
				t.Fatalf("backoff %d is %v, want %v to %v", tries, d, most/2, most)
			}
		}
	}
}

// TestCall: settle hears of every end, once.
func TestCall(t *testing.T) {
	cause := errors.New("cause")
	for name, test := range map[string]struct {
		work  func() error
		panic bool
		is    error
	}{
		"nothing":          {work: func() error { return nil }},
		"error":            {work: func() error { return cause }, is: cause},
		"panic":            {work: func() error { panic("x") }, panic: true},
		"error as a panic": {work: func() error { panic(cause) }, panic: true, is: cause},
		"goexit":           {work: func() error { runtime.Goexit(); return nil }, panic: true},
	} {
		t.Run(name, func(t *testing.T) {
			settled := make(chan error, 2)
			done := make(chan struct{})
			go func() {
				defer close(done)
				call(t.Context(), flow.Permit{}, time.Minute, func(ctx context.Context) error {
					if _, ok := ctx.Deadline(); !ok {
						t.Error("the context has no deadline")
					}
					return test.work()
				}, func(err error) { settled <- err })
			}()
			<-done
			err := <-settled
			if _, ok := errors.AsType[*PanicError](err); ok != test.panic || hopeless(err) != test.panic || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("error %v", err)
			}
			if len(settled) > 0 {
				t.Error("it was settled twice")
			}
		})
	}
}

func TestComeAgain(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want time.Duration
	}{
		"none":             {nil, 0},
		"any":              {errors.New("x"), 0},
		"later":            {fmt.Errorf("x: %w", Later(errors.New("y"), time.Second)), time.Second},
		"rejected":         {&flow.Rejection{RetryAfter: time.Minute}, time.Minute},
		"never":            {&flow.Rejection{RetryAfter: headgate.Never}, 0},
		"denied":           {&headgate.DeniedError{Decision: headgate.Decision{RetryAfter: time.Hour}}, time.Hour},
		"longer than that": {Later(&flow.Rejection{RetryAfter: time.Minute}, time.Hour), time.Hour},
	} {
		if got := comeAgain(test.err); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	if Permanent(nil) != nil || Later(nil, 1) != nil {
		t.Error("no error became one")
	}
}

func TestStagger(t *testing.T) {
	for range 1000 {
		if d := stagger(time.Second); d < time.Second || d > time.Second+time.Second/8 {
			t.Fatal(d)
		}
	}
}
