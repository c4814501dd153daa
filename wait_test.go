package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/store/memory"
)

// The clock of a synctest bubble moves when everyone in it waits, so these tests
// are exact. Times are in whole microseconds, as the store's are.

// elapsed is how long f takes.
func elapsed(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// bubble makes a limiter whose store decides by the bubble's clock.
func bubble(rules ...*headgate.Rule) *headgate.Limiter {
	return headgate.New(memory.New(memory.Clock(func() int64 { return time.Now().UnixMicro() })), rules...)
}

// left is how many units of the limiter's first deciding limit remain.
func left(t *testing.T, l *headgate.Limiter, key string) int64 {
	t.Helper()
	d, err := l.Peek(context.Background(), key, 1)
	if err != nil {
		t.Fatal(err)
	}
	return d.Remaining
}

func TestWait(t *testing.T) {
	for name, c := range map[string]struct {
		limits []headgate.Limit
		want   []time.Duration // between one return of Wait and the next
	}{
		"a bucket":       {[]headgate.Limit{headgate.PerSecond(10).WithBurst(2)}, []time.Duration{0, 0, 100 * time.Millisecond, 100 * time.Millisecond}},
		"thirds":         {[]headgate.Limit{headgate.PerSecond(3).WithBurst(2)}, []time.Duration{0, 0, 333_334 * time.Microsecond, 333_333 * time.Microsecond, 333_333 * time.Microsecond, 333_334 * time.Microsecond}},
		"a leaky bucket": {[]headgate.Limit{{Algorithm: headgate.LeakyBucket, Count: 4, Period: time.Second}}, []time.Duration{0, 250 * time.Millisecond, 250 * time.Millisecond, 250 * time.Millisecond}},
		"a queue of one": {[]headgate.Limit{{Algorithm: headgate.LeakyBucket, Count: 4, Period: time.Second, Burst: 1}}, []time.Duration{0, 250 * time.Millisecond, 250 * time.Millisecond}},
		"two windows":    {[]headgate.Limit{headgate.Sliding(2, time.Second), headgate.Sliding(3, 10*time.Second)}, []time.Duration{0, 0, time.Second, 9 * time.Second, 0, time.Second}},
		"two algorithms": {[]headgate.Limit{headgate.PerMinute(2), {Algorithm: headgate.LeakyBucket, Count: 1, Period: time.Second, Burst: 5}}, []time.Duration{0, time.Second, 29 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			bubbletest.Test(t, func(t *testing.T) {
				l := bubble(headgate.MustRule("r", c.limits...))
				for i, want := range c.want {
					if got := elapsed(func() {
						if err := l.Wait(t.Context(), "k"); err != nil {
							t.Error(err)
						}
					}); got != want {
						t.Errorf("wait %d took %v, want %v", i, got, want)
					}
				}
			})
		})
	}
}

func TestWaitNever(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		l := bubble(headgate.MustRule("r", headgate.PerSecond(10)))
		took := elapsed(func() {
			err := l.WaitN(t.Context(), "k", 11)
			var denied *headgate.DeniedError
			if !errors.As(err, &denied) || !errors.Is(err, headgate.ErrDenied) || denied.Decision.RetryAfter != headgate.Never || denied.Reason != "" {
				t.Errorf("error %v, want a denial for ever", err)
			}
		})
		if took != 0 || left(t, l, "k") != 10 {
			t.Errorf("took %v, %d units remain; want an answer at once, and nothing charged", took, left(t, l, "k"))
		}
	})
}

// TestWaitDeadline: what cannot be done in time is not begun, and what can be is.
func TestWaitDeadline(t *testing.T) {
	leaky := headgate.Limit{Algorithm: headgate.LeakyBucket, Count: 10, Period: time.Second}
	for _, c := range []struct {
		limit    headgate.Limit
		deadline time.Duration
		ok       bool
	}{
		{headgate.PerSecond(10).WithBurst(1), 100*time.Millisecond - 1, false},
		{headgate.PerSecond(10).WithBurst(1), 101 * time.Millisecond, true},
		{leaky, 100*time.Millisecond - 1, false},
		{leaky, 101 * time.Millisecond, true},
	} {
		bubbletest.Test(t, func(t *testing.T) {
			l := bubble(headgate.MustRule("r", c.limit))
			if err := l.Wait(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			before := left(t, l, "k")
			ctx, cancel := context.WithTimeout(t.Context(), c.deadline)
			defer cancel()
			var err error
			took := elapsed(func() { err = l.Wait(ctx, "k") })
			if c.ok {
				if err != nil || took != 100*time.Millisecond {
					t.Errorf("%v, deadline %v: took %v, error %v", &c.limit, c.deadline, took, err)
				}
				return
			}
			var denied *headgate.DeniedError
			if !errors.As(err, &denied) || denied.Reason != "the context's deadline comes first" || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v, deadline %v: error %v, want a denial for the deadline's sake", &c.limit, c.deadline, err)
			}
			if took != 0 || left(t, l, "k") != before {
				t.Errorf("%v, deadline %v: took %v, %d units remain; want an answer at once, and %d", &c.limit, c.deadline, took, left(t, l, "k"), before)
			}
		})
	}
}

// TestWaitCancelled: whoever gives up gives back what was taken, so that others
// need not wait for nobody.
func TestWaitCancelled(t *testing.T) {
	for name, limits := range map[string][]headgate.Limit{
		"denied":  {headgate.PerMinute(1)},
		"delayed": {{Algorithm: headgate.LeakyBucket, Count: 1, Period: time.Minute, Burst: 3}},
		"both":    {{Algorithm: headgate.LeakyBucket, Count: 1, Period: time.Minute, Burst: 3}, headgate.Sliding(5, time.Hour), headgate.PerHour(6)},
	} {
		t.Run(name, func(t *testing.T) {
			bubbletest.Test(t, func(t *testing.T) {
				r := headgate.MustRule("r", limits...)
				l := bubble(r)
				if err := l.Wait(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					time.Sleep(10 * time.Second)
					cancel()
				}()
				var err error
				if took := elapsed(func() { err = l.Wait(ctx, "k") }); took != 10*time.Second || !errors.Is(err, context.Canceled) {
					t.Errorf("took %v, error %v; want 10s, %v", took, err, context.Canceled)
				}
				v, err := l.Take(t.Context(), headgate.Check{Rule: r, Key: "k", Cost: 100})
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range v.Decisions {
					if used := d.Limit.Capacity() - d.Remaining; used != 1 {
						t.Errorf("%v: %d units are in use, want the first one alone", d.Limit, used)
					}
				}
				if err := l.Wait(ctx, "other"); !errors.Is(err, context.Canceled) || left(t, l, "other") != min(limits[0].Capacity(), 3) {
					t.Errorf("a context that has ended: error %v, %d units remain", err, left(t, l, "other"))
				}
			})
		})
	}
}

// TestWaitTogether: callers that wait for one key get their units at the limit's
// rate, whoever comes first.
func TestWaitTogether(t *testing.T) {
	for name, l := range map[string]headgate.Limit{
		"bucket": headgate.PerSecond(10).WithBurst(1),
		"leaky":  {Algorithm: headgate.LeakyBucket, Count: 10, Period: time.Second, Burst: 100},
		"window": headgate.Sliding(1, 100*time.Millisecond),
	} {
		t.Run(name, func(t *testing.T) {
			bubbletest.Test(t, func(t *testing.T) {
				limiter := bubble(headgate.MustRule("r", l))
				const callers = 20
				start := time.Now()
				var mu sync.Mutex // guards done
				done := map[time.Duration]int{}
				var all sync.WaitGroup
				for range callers {
					all.Go(func() {
						if err := limiter.Wait(t.Context(), "k"); err != nil {
							t.Error(err)
						}
						mu.Lock()
						defer mu.Unlock()
						done[time.Since(start)]++
					})
				}
				all.Wait()
				for i := range callers {
					if at := time.Duration(i) * 100 * time.Millisecond; done[at] != 1 {
						t.Errorf("%d callers went on after %v, want 1", done[at], at)
					}
				}
			})
		})
	}
}

// giver is a store that admits with a delay, and does not take refunds.
type giver struct {
	failing
	delay time.Duration
}

func (g giver) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if op == headgate.OpRefund {
		if err := ctx.Err(); err != nil {
			return dst, fmt.Errorf("a refund must outlive the context: %w", err)
		}
		if _, ok := ctx.Deadline(); !ok {
			return dst, errors.New("a refund must have a deadline of its own")
		}
		return dst, g.err
	}
	l := &checks[0].Rule.Limits()[0]
	return append(dst, headgate.Decision{Rule: checks[0].Rule, Limit: l, Allowed: true, Delay: g.delay, At: 7}), nil
}

// TestWaitRefundFails: that something stays charged is not kept from the caller.
func TestWaitRefundFails(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		l := headgate.New(giver{failing{headgate.ErrUnavailable}, time.Minute}, headgate.MustRule("r", headgate.PerSecond(1)))
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Wait(short, "k"); !errors.Is(err, headgate.ErrUnavailable) {
			t.Errorf("deadline: error %v, want %v", err, headgate.ErrUnavailable)
		}
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		if err := l.Wait(ctx, "k"); !errors.Is(err, headgate.ErrUnavailable) {
			t.Errorf("cancelled: error %v, want %v", err, headgate.ErrUnavailable)
		}
	})
}
