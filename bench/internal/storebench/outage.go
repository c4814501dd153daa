package storebench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/servers"
	"github.com/headgate/headgate/bench/internal/workload"
	"github.com/headgate/headgate/internal/sleep"
	"github.com/headgate/headgate/store/layered/fallback"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
)

// outagePlan adds a store that hangs.
type outagePlan struct {
	measure.Plan
	// rate is how many requests a second are made of the store that hangs.
	rate int
	// hang is how long the store hangs for the way that has most to keep, and
	// hangOthers how long it does so for the others.
	hang, hangOthers time.Duration
}

// Outage measures what the fallback costs while the store is well, and how long callers wait
// while it hangs. A run for the record takes about eleven minutes, in ten of which the
// store hangs.
func Outage(ctx context.Context, w *measure.Work) (*report.Text, error) {
	plan := measure.Choose(w, outagePlan{
		measure.Plan{Rounds: 25, Slice: 250 * time.Millisecond, Callers: 64, Keys: 10_000}, 2000, 10 * time.Minute, 20 * time.Second,
	}, outagePlan{
		measure.Plan{Rounds: 1, Slice: 200 * time.Millisecond, Callers: 64, Keys: 1000}, 2000, 3 * time.Second, time.Second,
	})
	rows, err := well(ctx, w, plan.Plan)
	if err != nil {
		return nil, fmt.Errorf("a store that is well: %w", err)
	}
	hangs, err := hangAll(ctx, w, plan)
	if err != nil {
		return nil, err
	}
	return outageText(w.Redis.Version, plan, rows, hangs), nil
}

func outageText(version string, plan outagePlan, rows measure.Rows, hangs []hang) *report.Text {
	t := new(report.Text)
	t.Say("%s. **While the store is well**: one token bucket, %d callers, %s keys, closed loop; median of %d rounds of %v.\n\n",
		version, plan.Callers, report.Number(float64(plan.Keys)), plan.Rounds, plan.Slice)
	t.Say("%s", rows.Table(
		measure.Median("decisions/s", 0, measure.Sample.PerSecond), measure.Over("÷ the store alone", &rows[0], 0, measure.Sample.PerSecond),
		measure.Median("client CPU a decision, µs", 0, measure.Sample.ClientCPU), measure.Over("÷ the store alone", &rows[0], 0, measure.Sample.ClientCPU)))
	t.Say("\n**While the store hangs** (SIGSTOP): %s requests a second by %d callers, open loop, a deadline of %v. Time of a decision in milliseconds; \"of the machine\" is the same for as many requests of the memory store, by the same process at the same time.\n\n",
		report.Number(float64(plan.rate)), plan.Callers, redis.DefaultTimeout)
	for i := 1; i < len(rows); i++ {
		t.AtLeast(0.95, rows[i].Over(&rows[0], 0, measure.Sample.PerSecond), "%s, well: throughput ÷ the store alone", rows[i].Name)
	}
	waited := report.Table{Columns: []string{"", "hangs for", "first 100 ms: p99", "of the machine", "all: p50", "p99", "of the machine", "longest", "without a decision"}}
	held := report.Table{Columns: []string{"", "heap, KiB", "at the end", "goroutines", "at the end"}}
	most := float64(redis.DefaultTimeout+2*time.Millisecond) / float64(time.Millisecond)
	for i := range hangs {
		h := &hangs[i]
		waited.Add(h.name, h.lasts.String(), h.begin.ms(99), h.beginMachine.ms(99), h.all.ms(50), h.all.ms(99), h.machine.ms(99), h.all.ms(100),
			report.Percent(float64(h.undecided)/float64(h.all.TotalCount())))
		held.Add(h.name, report.Number(h.before.heap/1024), report.Number(h.after.heap/1024), report.Number(h.before.goroutines), report.Number(h.after.goroutines))
		if i == 0 {
			continue // the store alone is held to nothing
		}
		t.AtMost(most, h.begin.quantile(99)-h.beginMachine.quantile(99), "%s, hangs: p99 of a decision in the first 100 ms, less the machine's, ms", h.name)
		t.AtMost(most, h.all.quantile(99)-h.machine.quantile(99), "%s, hangs: p99 of a decision, less the machine's, ms", h.name)
		t.AtMost(1.1, h.after.heap/h.before.heap, "%s, hangs: heap at the end ÷ heap after a third of the time", h.name)
		t.AtMost(1.1, h.after.goroutines/h.before.goroutines, "%s, hangs: goroutines at the end ÷ after a third of the time", h.name)
	}
	t.Say("%s\nWhat the process holds after a third of that time, and at the end of it:\n\n%s", &waited, &held)
	return t
}

// nodes is among how many the limits are shared.
const nodes = 4

// The ways to ask, in the order of the tables. The first one is the store alone.
var ways = []struct {
	name string
	mode headgate.OnError
}{
	{"the store alone", 0},
	{"with a fallback, rules that deny", headgate.OnErrorDeny},
	{"with a fallback, rules that count locally", headgate.OnErrorLocal},
}

// openWay opens one of the ways, and returns what closes it.
func openWay(ctx context.Context, s *servers.Redis, i int, timeout time.Duration) (_ headgate.Store, done func(), err error) {
	var store *redis.Store
	// With a short deadline the first question may come to nothing on a machine that is busy.
	for range 20 {
		if store, err = redis.Open(ctx, s.URL(), redis.Timeout(timeout), redis.Prefix(fmt.Sprintf("bench%d:", i))); err == nil {
			break
		}
	}
	if err != nil || i == 0 {
		return store, func() { store.Close() }, err
	}
	f, err := fallback.New(store, fallback.Options{Local: memory.New(), Default: ways[i].mode, Nodes: nodes})
	if err != nil {
		store.Close()
		return nil, nil, err
	}
	return f.Store(), func() {
		_ = f.Close(ctx) // never fails
		store.Close()
	}, nil
}

// roomy admits whatever is asked, also where only a share of it is.
var roomy = headgate.MustRule("outage", headgate.PerSecond(nodes*1_000_000))

// well measures all ways while the store answers.
func well(ctx context.Context, w *measure.Work, plan measure.Plan) (measure.Rows, error) {
	rows, stores := make(measure.Rows, len(ways)), make([]headgate.Store, len(ways))
	for i := range ways {
		store, done, err := openWay(ctx, w.Redis, i, unhurried)
		if err != nil {
			return nil, err
		}
		defer done()
		rows[i].Name, stores[i] = ways[i].name, store
	}
	var next atomic.Int64
	l := load{plan.Callers, plan.Slice, headgate.Check{Rule: roomy}, func() string { return workload.Key(int(next.Add(1)) % plan.Keys) }}
	return rows, plan.Turns(ctx, w, rows, nil, func(_, _, i int) (measure.Sample, error) { return l.insist(ctx, stores[i], true) })
}

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
	start := time.Now()
	stopsAt, end := start.Add(warm), start.Add(warm+h.lasts)
	var mu sync.Mutex // guards h while callers ask
	ask := func(ctx context.Context, store headgate.Store, c int, begin, all latencies) error {
		return caller(ctx, store, plan, c, start, end, func(at time.Time, took time.Duration, decided bool) error {
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
		})
	}
	without := memory.New()
	err = measure.Each(ctx, 1+2*plan.Callers, func(ctx context.Context, i int) error {
		switch c := (i - 1) / 2; {
		case i == 0:
			return h.stop(ctx, w, stopsAt, end)
		case i%2 == 0:
			return ask(ctx, without, c, h.beginMachine, h.machine)
		default:
			return ask(ctx, store, c, h.begin, h.all)
		}
	})
	return errors.Join(err, w.Redis.Resume())
}

// stop stops the server when it is time, and weighs the process.
func (h *hang) stop(ctx context.Context, w *measure.Work, at, end time.Time) error {
	sleep.For(ctx, time.Until(at))
	if err := w.Redis.Pause(); err != nil {
		return err
	}
	sleep.For(ctx, h.lasts/settled)
	h.before = weigh()
	sleep.For(ctx, time.Until(end.Add(-h.lasts/last)))
	h.after = weigh()
	return nil
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
			sleep.For(ctx, time.Until(at))
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
