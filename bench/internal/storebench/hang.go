package storebench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/workload"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
)

// hang is what one way does while the store hangs.
type hang struct {
	name  string
	lasts time.Duration
	// begin has the latencies of the requests of the first tenth of a second, and
	// all those of all that began while the store hung.
	begin, all latencies
	// machine has, for as many requests at the same times, what a decision takes that
	// needs no store: what the machine itself adds to all.
	beginMachine, machine latencies
	// undecided is how many of them ended in an error.
	undecided int64
	// before and after are taken when the store has hung for a while, and at the end.
	before, after weight
}

// latencies are in nanoseconds.
type latencies struct{ *hdrhistogram.Histogram }

// quantile is in milliseconds.
func (l latencies) quantile(q float64) float64 {
	return float64(l.ValueAtPercentile(q)) / float64(time.Millisecond)
}

func (l latencies) ms(q float64) string { return report.Number(l.quantile(q)) }

// weight is what the process holds: bytes in use after a garbage collection, and goroutines.
type weight struct{ heap, goroutines float64 }

func weigh() weight {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return weight{float64(m.HeapAlloc), float64(runtime.NumGoroutine())}
}

const (
	// begins is for how long the store has just begun to hang.
	begins = 100 * time.Millisecond
	// warm is for how long it is asked before it hangs.
	warm = 500 * time.Millisecond
	// settled is after which part of the time nothing new is to be expected, and last
	// which part is left when it is looked at again, before the callers leave.
	settled, last = 3, 20
)

// hangAll has the store hang for one way after the other.
func hangAll(ctx context.Context, w *measure.Work, plan outagePlan) ([]hang, error) {
	hangs := make([]hang, len(ways))
	for i := range ways {
		hangs[i] = hang{name: ways[i].name, lasts: plan.hangOthers}
		if ways[i].mode == headgate.OnErrorLocal {
			hangs[i].lasts = plan.hang
		}
		w.Say("hangs for %v: %s", hangs[i].lasts, ways[i].name)
		if err := hangs[i].measure(ctx, w, plan, i); err != nil {
			return nil, fmt.Errorf("a store that hangs, %s: %w", ways[i].name, err)
		}
	}
	return hangs, nil
}

// measure asks at a steady rate, and stops the server meanwhile.
func (h *hang) measure(ctx context.Context, w *measure.Work, plan outagePlan, i int) (err error) {
	for _, l := range []*latencies{&h.begin, &h.all, &h.beginMachine, &h.machine} {
		l.Histogram = measure.Histogram()
	}
	store, done, err := openWay(ctx, w.Redis, i, redis.DefaultTimeout)
	if err != nil {
		return err
	}
	defer done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	start := time.Now()
	stopsAt, end := start.Add(warm), start.Add(warm+h.lasts)
	var mu sync.Mutex // guards h while callers ask
	var all sync.WaitGroup
	ask := func(store headgate.Store, c int, begin, all latencies) {
		if err := caller(ctx, store, plan, c, start, end, func(at time.Time, took time.Duration, decided bool) error {
			since := at.Sub(stopsAt)
			if since < 0 {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			if !decided {
				h.undecided++
			}
			if since < begins {
				if err := begin.RecordValue(took.Nanoseconds()); err != nil {
					return err
				}
			}
			return all.RecordValue(took.Nanoseconds())
		}); err != nil {
			cancel(err) // later causes are ignored
		}
	}
	without := memory.New()
	for c := range plan.Callers {
		all.Go(func() { ask(store, c, h.begin, h.all) })
		all.Go(func() { ask(without, c, h.beginMachine, h.machine) })
	}
	time.Sleep(time.Until(stopsAt))
	if err = w.Redis.Pause(); err == nil {
		sleep(ctx, h.lasts/settled)
		h.before = weigh()
		sleep(ctx, time.Until(end.Add(-h.lasts/last)))
		h.after = weigh()
	}
	all.Wait()
	return errors.Join(err, w.Redis.Resume(), context.Cause(ctx))
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// caller asks at its part of the rate, and tells when each request was to begin and
// how long after that it ended.
func caller(ctx context.Context, store headgate.Store, plan outagePlan, c int, start, end time.Time, tell func(at time.Time, took time.Duration, decided bool) error) error {
	checks := []headgate.Check{{Rule: roomy}}
	var dst []headgate.Decision
	for n := 0; ctx.Err() == nil; n++ {
		at := start.Add(time.Duration(n*plan.Callers+c) * time.Second / time.Duration(plan.rate))
		if !at.Before(end) {
			return nil
		}
		// A timer that is late is the machine's; a caller who is, because the request
		// before took so long, is the store's.
		begun := at
		if time.Now().Before(at) {
			sleep(ctx, time.Until(at))
			begun = time.Now()
		}
		checks[0].Key = workload.Key((n*plan.Callers + c) % plan.Keys)
		var err error
		dst, err = store.Take(ctx, headgate.OpTake, checks, dst[:0])
		switch {
		case err != nil && !errors.Is(err, headgate.ErrUnavailable):
			return err
		case err == nil && !dst[0].Allowed:
			return fmt.Errorf("key %s was denied, must be admitted", checks[0].Key)
		}
		if err := tell(at, time.Since(begun), err == nil); err != nil {
			return err
		}
	}
	return nil
}
