package guard

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/bubbletest"
)

var errAway = errors.New("connection refused")

// TestPatient: a refusal that is over within half a second is waited for, and meanwhile one call at a
// time asks.
func TestPatient(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		s := New(Options{Timeout: time.Minute, Most: 1 << 10})
		const callers = 100
		back := time.Now().Add(300 * time.Millisecond)
		var mu sync.Mutex
		early, late := 0, 0
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				got, err := Patient(t.Context(), s.Any, true, func() (string, error) {
					mu.Lock()
					defer mu.Unlock()
					if time.Now().Before(back) {
						early++
						return "", Unreached(errAway)
					}
					late++
					return "an answer", nil
				})
				if got != "an answer" || err != nil {
					t.Errorf("got %q, %v", got, err)
				}
			})
		}
		all.Wait()
		if after := time.Since(back); after < 0 || after > mostPause {
			t.Errorf("answered %v after the server is back", after)
		}
		if asked := early - callers; asked < 5 || asked > 16 || late != callers {
			t.Errorf("the server was asked %d times while it was away, and %d times after that", asked, late)
		}
		if s.Any().refusing.waited.Load() {
			t.Error("it still counts as one that refuses")
		}
	})
}

// TestPatienceEnds: after half a second, or with the caller's context, a refusal is what a call ends
// with, and later calls do not wait until one has been answered that the server could have refused.
func TestPatienceEnds(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		s := New(Options{Timeout: time.Minute, Most: 1 << 10})
		away := true
		call := func() (string, error) {
			if away {
				return "", Unreached(errAway)
			}
			return "an answer", nil
		}
		began := time.Now()
		took := func(within time.Duration) time.Duration {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			began := time.Now()
			if _, err := Patient(ctx, s.Any, true, call); !errors.Is(err, errAway) {
				t.Errorf("got %v", err)
			}
			return time.Since(began)
		}
		if d := took(7 * time.Millisecond); d != 7*time.Millisecond {
			t.Errorf("a call of 7 ms takes %v", d)
		}
		took(time.Minute)
		if d := time.Since(began); d != 500*time.Millisecond {
			t.Errorf("a refusal is waited for until %v, want half a second", d)
		}
		if d := took(time.Minute); d != 0 {
			t.Errorf("a later call takes %v", d)
		}
		if _, err := Patient(t.Context(), s.Any, false, func() (string, error) { return "read", nil }); err != nil {
			t.Error(err)
		}
		if d := took(time.Minute); d != 0 {
			t.Errorf("after what a replica answers, too, a call takes %v", d)
		}
		away = false
		if _, err := Patient(t.Context(), s.Any, true, call); err != nil {
			t.Error(err)
		}
		away = true
		if d := took(time.Minute); d != 500*time.Millisecond {
			t.Errorf("the next refusal is waited for for %v", d)
		}
	})
}

// TestNotPatient: a call that may have counted is made once.
func TestNotPatient(t *testing.T) {
	s := New(Options{Timeout: time.Minute, Most: 1 << 10})
	for _, broken := range []error{errAway, context.DeadlineExceeded, errors.New("EOF")} {
		calls := 0
		if _, err := Patient(t.Context(), s.Any, true, func() (int, error) { calls++; return 0, broken }); calls != 1 || !errors.Is(err, broken) {
			t.Errorf("%v: %d calls, and %v", broken, calls, err)
		}
	}
}

// TestPatienceOfPanic: a call that panics while it asks leaves the others to ask.
func TestPatienceOfPanic(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		s := New(Options{Timeout: time.Minute, Most: 1 << 10})
		calls := 0
		func() {
			defer func() {
				if recover() == nil {
					t.Error("it did not panic")
				}
			}()
			_, _ = Patient(t.Context(), s.Any, true, func() (int, error) {
				if calls++; calls > 1 {
					panic("a bug")
				}
				return 0, Unreached(errAway)
			})
		}()
		back := time.Now().Add(100 * time.Millisecond)
		got, err := Patient(t.Context(), s.Any, true, func() (int, error) {
			if time.Now().Before(back) {
				return 0, Unreached(errAway)
			}
			return 1, nil
		})
		if got != 1 || err != nil || time.Since(back) > mostPause {
			t.Errorf("got %d, %v, %v after the server is back", got, err, time.Since(back))
		}
	})
}

// TestPatienceBesideReads: what a replica answers after a pause does not have the calls wait anew that it refuses.
func TestPatienceBesideReads(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		s := New(Options{Timeout: time.Minute, Most: 1 << 10})
		began := time.Now()
		var reads sync.WaitGroup
		reads.Go(func() {
			for range 20 {
				refused := false
				if _, err := Patient(t.Context(), s.Any, false, func() (int, error) {
					if refused = !refused; refused {
						return 0, Unreached(errAway)
					}
					return 0, nil
				}); err != nil && time.Since(began) < hangsFor {
					t.Error(err)
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
		if _, err := Patient(t.Context(), s.Any, true, func() (int, error) { return 0, Unreached(errAway) }); err == nil {
			t.Error("a replica has taken a write")
		}
		if d := time.Since(began); d != hangsFor {
			t.Errorf("a write waited for %v, want %v", d, hangsFor)
		}
		reads.Wait()
	})
}
