package stores

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/fallback"
	"github.com/headgate/headgate/store/memory"
)

// pauseEvery is the time between two calls while a server is paused.
const pauseEvery = 2 * time.Millisecond

// Pauses has a server answer nothing for 30, 80 and 300 ms while calls come that do not wait for
// one another, and fails the test if one of them gets no decision. The store has its default
// deadline, and a fallback around it its default options. spare is how long the store may be away
// in all before calls may fail.
func Pauses(t *testing.T, store headgate.Store, keys []string, spare time.Duration, pause, resume func()) {
	t.Helper()
	f, err := fallback.New(store, fallback.Options{Local: memory.New()})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close(context.WithoutCancel(t.Context()))
	l := &paused{t: t, store: f.Store(), keys: keys}
	Until(t, "the store answers", func() bool { return l.take(0) == nil })
	for _, lasts := range []time.Duration{30 * time.Millisecond, 80 * time.Millisecond, 300 * time.Millisecond} {
		// A busy machine makes a pause longer than it was meant to be, or stops this process, too.
		Until(t, "a pause that is no longer than it was to be", func() bool {
			p := l.during(lasts, pause, resume)
			if p.lasted+p.late > spare {
				t.Logf("a pause of %v lasted for %v, and calls came up to %v late: %d of %d failed", lasts, p.lasted, p.late, len(p.failed), p.calls)
				Until(t, "a closed breaker", func() bool { return f.Stats().State == fallback.Closed })
				return false
			}
			if len(p.failed) > 0 || f.Stats().State != fallback.Closed {
				t.Errorf("in a pause of %v, %d of %d calls failed, the first with: %v; the breaker is %v", p.lasted, len(p.failed), p.calls, p.failed[0], f.Stats().State)
			}
			return true
		})
	}
}

type paused struct {
	t     *testing.T
	store headgate.Store
	keys  []string
}

// trial is what came of one pause.
type trial struct {
	calls  int
	failed []error
	lasted time.Duration // how long the pause was
	late   time.Duration // how much later than it was to be a call came, at most
}

var pauseRule = headgate.MustRule("pause", headgate.PerSecond(1_000_000))

func (l *paused) take(n int) error {
	_, err := l.store.Take(l.t.Context(), headgate.OpTake, []headgate.Check{{Rule: pauseRule, Key: l.keys[n%len(l.keys)]}}, nil)
	return err
}

func (l *paused) during(lasts time.Duration, pause, resume func()) (r trial) {
	var calls sync.WaitGroup
	var mu sync.Mutex // guards r.failed
	began := time.Now()
	var from, to time.Time
	var pausing sync.WaitGroup
	pausing.Go(func() {
		time.Sleep(20 * pauseEvery)
		from = time.Now()
		pause()
		time.Sleep(lasts)
		resume()
		to = time.Now()
	})
	length := 100*pauseEvery + lasts
	for next := time.Duration(0); next < length; next += pauseEvery {
		time.Sleep(next - time.Since(began))
		r.late = max(r.late, time.Since(began)-next)
		r.calls++
		n := r.calls
		calls.Go(func() {
			if err := l.take(n); err != nil {
				if !errors.Is(err, headgate.ErrUnavailable) {
					l.t.Errorf("got %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				r.failed = append(r.failed, err)
			}
		})
	}
	pausing.Wait()
	Ended(l.t, "all calls have ended", Waited(&calls))
	r.lasted = to.Sub(from)
	return r
}
