package measure

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/headgate/headgate/bench/internal/servers"
)

// Each runs do n times at once. The first error ends the context of the others, and is returned.
func Each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if err := do(ctx, i); err != nil {
				cancel(err) // later causes are ignored
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// Sum is [Each], and adds up what all have counted.
func Sum(ctx context.Context, n int, do func(ctx context.Context, i int) (int, error)) (int, error) {
	var sum atomic.Int64
	err := Each(ctx, n, func(ctx context.Context, i int) error {
		count, err := do(ctx, i)
		sum.Add(int64(count))
		return err
	})
	return int(sum.Load()), err
}

// Closed has callers ask, each again as soon as it is answered, until enough reports that the
// question with the given number is not to be asked any more. The first error ends it.
func Closed(ctx context.Context, callers int, enough func(i int) bool, ask func(ctx context.Context, i int) error) (Sample, error) {
	var next atomic.Int64
	times := make([][]time.Duration, callers)
	cpu, start := CPU(), time.Now()
	err := Each(ctx, callers, func(ctx context.Context, w int) error {
		at := time.Now()
		for ctx.Err() == nil {
			i := int(next.Add(1)) - 1
			if enough(i) {
				return nil
			}
			if err := ask(ctx, i); err != nil {
				return fmt.Errorf("decision %d: %w", i, err)
			}
			now := time.Now()
			times[w] = append(times[w], now.Sub(at))
			at = now
		}
		return nil
	})
	s := Sample{Elapsed: time.Since(start), Client: CPU() - cpu}
	if err != nil {
		return s, err
	}
	return s, s.Record(times...)
}

// Until is enough when d has passed, and something was asked.
func Until(d time.Duration) func(i int) bool {
	end := time.Now().Add(d)
	return func(i int) bool { return i > 0 && !time.Now().Before(end) }
}

// Times is enough after n questions.
func Times(n int) func(i int) bool { return func(i int) bool { return i >= n } }

// Batch is how many decisions [Tight] makes between two looks at the clock, so that
// looking costs nothing that could be seen.
const Batch = 512

// Tight has n goroutines decide for about d and counts allocations. Each calls batch, which must
// make Batch decisions in a loop of its own; done is how many that goroutine has made so far.
func Tight(n int, d time.Duration, batch func(w, done int) error) (Sample, error) {
	runtime.GC()
	var (
		before, after runtime.MemStats
		all           sync.WaitGroup
		counts        = make([]int, n)
		errs          = make([]error, n)
	)
	runtime.ReadMemStats(&before)
	start := time.Now()
	for w := range n {
		all.Go(func() {
			done := 0
			for errs[w] == nil && (done == 0 || time.Since(start) < d) {
				errs[w] = batch(w, done)
				done += Batch
			}
			counts[w] = done
		})
	}
	all.Wait()
	s := Sample{Elapsed: time.Since(start)}
	runtime.ReadMemStats(&after)
	s.Allocs = after.Mallocs - before.Mallocs
	for _, c := range counts {
		s.Done += c
	}
	return s, errors.Join(errs...)
}

// Spending is a measurement with what the Redis has spent meanwhile. It is an error if nothing was
// decided.
func Spending(ctx context.Context, redis *servers.Redis, measure func() (Sample, error)) (Sample, error) {
	before, err := redis.Usage(ctx)
	if err != nil {
		return Sample{}, err
	}
	s, err := measure()
	if err != nil {
		return s, err
	}
	if s.Done == 0 {
		return s, errors.New("measure: nothing was decided within the time of a slice")
	}
	after, err := redis.Usage(ctx)
	spent := after.Sub(before)
	s.Server, s.Scripts, s.Calls = spent.CPU, spent.Scripts, spent.Calls
	return s, err
}

// CPU is the CPU time that this process has used so far.
func CPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic("measure: getrusage of one's own process cannot fail: " + err.Error())
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
