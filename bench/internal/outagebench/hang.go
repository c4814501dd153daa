package outagebench

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/redisbench"
	"github.com/headgate/headgate/bench/internal/workload"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
)

// Hang is what one way does while the store hangs.
type Hang struct {
	Name string
	For  time.Duration
	// Begin has the latencies of the requests of the first tenth of a second, and
	// All those of all that began while the store hung, in nanoseconds.
	Begin, All *hdrhistogram.Histogram
	// Machine has, for as many requests at the same times, what a decision takes that
	// needs no store: what the machine itself adds to All.
	BeginMachine, Machine *hdrhistogram.Histogram
	// Undecided is how many of them ended in an error.
	Undecided int64
	// Before and After are taken when the store has hung for a while, and at the end.
	Before, After Weight
}

// Weight is what the process holds.
type Weight struct {
	Heap       uint64 // bytes in use after a garbage collection
	Goroutines int
}

func weigh() Weight {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return Weight{m.HeapAlloc, runtime.NumGoroutine()}
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

// A histogram's bounds, to three digits.
const (
	lowest, highest = int64(100), int64(time.Minute)
	digits          = 3
)

// hang asks at a steady rate, and stops the server meanwhile.
func hang(ctx context.Context, s *redisbench.Server, plan Plan, i int) (_ Hang, err error) {
	h := Hang{
		Name: ways[i].name, For: plan.Hang,
		Begin: hdrhistogram.New(lowest, highest, digits), All: hdrhistogram.New(lowest, highest, digits),
		BeginMachine: hdrhistogram.New(lowest, highest, digits), Machine: hdrhistogram.New(lowest, highest, digits),
	}
	if ways[i].mode != headgate.OnErrorLocal {
		h.For = plan.HangOthers
	}
	plan.progress("%s: hangs for %v: %s", s.Version, h.For, h.Name)
	w, err := open(ctx, s, i, redis.DefaultTimeout)
	if err != nil {
		return h, err
	}
	defer w.close()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	start := time.Now()
	stopsAt, end := start.Add(warm), start.Add(warm+h.For)
	var mu sync.Mutex // guards h while callers ask
	failure := make(chan error, 1)
	var all sync.WaitGroup
	ask := func(store headgate.Store, c int, begin, all *hdrhistogram.Histogram) {
		if err := caller(ctx, store, plan, c, start, end, func(at time.Time, took time.Duration, decided bool) error {
			since := at.Sub(stopsAt)
			if since < 0 {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			if !decided {
				h.Undecided++
			}
			if since < begins {
				if err := begin.RecordValue(took.Nanoseconds()); err != nil {
					return err
				}
			}
			return all.RecordValue(took.Nanoseconds())
		}); err != nil {
			select {
			case failure <- err:
			default:
			}
			cancel()
		}
	}
	without := memory.New()
	for c := range plan.Callers {
		all.Go(func() { ask(w.store, c, h.Begin, h.All) })
		all.Go(func() { ask(without, c, h.BeginMachine, h.Machine) })
	}
	time.Sleep(time.Until(stopsAt))
	if err = s.Pause(); err == nil {
		sleep(ctx, h.For/settled)
		h.Before = weigh()
		sleep(ctx, time.Until(end.Add(-h.For/last)))
		h.After = weigh()
	}
	all.Wait()
	err = errors.Join(err, s.Resume())
	select {
	case why := <-failure:
		err = errors.Join(err, why)
	default:
	}
	return h, err
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
func caller(ctx context.Context, store headgate.Store, plan Plan, c int, start, end time.Time, tell func(at time.Time, took time.Duration, decided bool) error) error {
	checks := []headgate.Check{{Rule: rule}}
	var dst []headgate.Decision
	for n := 0; ctx.Err() == nil; n++ {
		at := start.Add(time.Duration(n*plan.Callers+c) * time.Second / time.Duration(plan.Rate))
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
			return errWrong
		}
		if err := tell(at, time.Since(begun), err == nil); err != nil {
			return err
		}
	}
	return nil
}
