package denycachebench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/redisbench"
	"github.com/headgate/headgate/bench/internal/workload"
	"github.com/headgate/headgate/store/layered"
	"github.com/headgate/headgate/store/redis"
)

// Plan is how much is measured.
type Plan struct {
	// Rounds is how often everything is measured, and Slice how long each measurement
	// lasts.
	Rounds int
	Slice  time.Duration
	// Callers is how many ask at the same time, as soon as they are answered, and
	// Denied how many keys the cache remembers while it is asked for others.
	Callers, Denied int
	// Progress is told what is being measured; nil if nobody wants to know.
	Progress func(format string, args ...any)
}

// Full is the plan of a run for the record: about half a minute.
func Full() Plan {
	return Plan{Rounds: 25, Slice: 250 * time.Millisecond, Callers: 64, Denied: 10_000}
}

// Short is the plan of a run that shows whether everything works.
func Short() Plan {
	return Plan{Rounds: 2, Slice: 200 * time.Millisecond, Callers: 64, Denied: 1000}
}

// The ways to ask, and what is asked for.
const (
	single = iota
	shared
	cached // around the same
	ways
)

var wayNames = [ways]string{"one call each", "calls combined", "calls combined, with a deny cache"}

// Sample is one measurement.
type Sample struct {
	Decisions, Calls int64 // and those of the server
	Elapsed          time.Duration
	CPU              time.Duration // of the client
}

// PerSecond is the throughput in decisions per second.
func (s Sample) PerSecond() float64 { return float64(s.Decisions) / s.Elapsed.Seconds() }

// Each is the CPU time of the client for each decision, in microseconds.
func (s Sample) Each() float64 { return float64(s.CPU.Nanoseconds()) / 1000 / float64(s.Decisions) }

// Asked is how many calls the server answered for each decision. One call may carry
// many.
func (s Sample) Asked() float64 { return float64(s.Calls) / float64(s.Decisions) }

// Outcome is what was measured: the samples of each way, round by round.
type Outcome struct {
	Version     string
	Plan        Plan
	Flood, Cold [ways][]Sample
}

// clockEvery is after how many decisions a caller looks whether the time is over.
const clockEvery = 16

// unhurried is a deadline that no call on a saturated machine exceeds.
const unhurried = 3 * time.Second

var (
	tight = headgate.MustRule("tight", headgate.Per(1, 24*time.Hour))
	loose = headgate.MustRule("loose", headgate.PerSecond(1000))
)

func check(rule *headgate.Rule, key string) []headgate.Check {
	return []headgate.Check{{Rule: rule, Key: key, DenyCache: headgate.DenyCacheOn}}
}

// Run measures both ways on the server.
func Run(ctx context.Context, s *redisbench.Server, plan Plan) (*Outcome, error) {
	o := &Outcome{Version: s.Version, Plan: plan}
	alone, err := redis.Open(ctx, "redis://"+s.Addr, redis.WithTimeout(unhurried), redis.WithCombining(0))
	if err != nil {
		return nil, fmt.Errorf("denycachebench: %w", err)
	}
	defer alone.Close()
	store, err := redis.Open(ctx, "redis://"+s.Addr, redis.WithTimeout(unhurried))
	if err != nil {
		return nil, fmt.Errorf("denycachebench: %w", err)
	}
	defer store.Close()
	denials := layered.NewDenials(store, layered.DenyCacheOptions{Bus: store, Trust: time.Hour})
	defer denials.Close()
	b := &bench{ctx: ctx, server: s, plan: plan, stores: [ways]headgate.Store{alone, store, denials.Store()}}
	if err := b.prepare(denials); err != nil {
		return nil, err
	}
	for round := range plan.Rounds {
		if plan.Progress != nil {
			plan.Progress("%s: deny cache, round %d of %d", s.Version, round+1, plan.Rounds)
		}
		for i := range ways {
			way := (i + round) % ways
			flood, err := b.measure(way, tight, func() string { return "flood" }, false)
			if err != nil {
				return nil, err
			}
			cold, err := b.measure(way, loose, func() string { return workload.Key(int(b.next.Add(1))) }, true)
			if err != nil {
				return nil, err
			}
			o.Flood[way], o.Cold[way] = append(o.Flood[way], flood), append(o.Cold[way], cold)
		}
	}
	return o, nil
}

type bench struct {
	ctx    context.Context //nolint:containedctx // it lives as long as one run
	server *redisbench.Server
	plan   Plan
	stores [ways]headgate.Store
	next   atomic.Int64 // the number of the next key that nobody has seen
}

var errWrong = errors.New("denycachebench: a decision is wrong")

// prepare has the cache remember keys, that of the flood among them. It waits until
// the bus is connected, for then what was remembered is forgotten.
func (b *bench) prepare(denials *layered.Denials) error {
	for start := time.Now(); !denials.Status().Listening; time.Sleep(time.Millisecond) {
		if time.Since(start) > unhurried {
			return fmt.Errorf("denycachebench: no connection to the bus: %w", denials.Status().Error)
		}
	}
	for i := range b.plan.Denied {
		key := "flood"
		if i > 0 {
			key = fmt.Sprintf("denied %d", i)
		}
		for _, admitted := range []bool{true, false} {
			got, err := b.stores[cached].Take(b.ctx, headgate.OpTake, check(tight, key), nil)
			if err != nil {
				return fmt.Errorf("denycachebench: %w", err)
			}
			if got[0].Allowed != admitted {
				return errWrong
			}
		}
	}
	if n := denials.Status().Keys; n != int64(b.plan.Denied) {
		return fmt.Errorf("denycachebench: %d keys are remembered, not %d", n, b.plan.Denied)
	}
	return nil
}

func (b *bench) measure(way int, rule *headgate.Rule, key func() string, admitted bool) (Sample, error) {
	before, err := b.server.Usage(b.ctx)
	if err != nil {
		return Sample{}, err
	}
	var decided atomic.Int64
	var failure atomic.Pointer[error]
	var all sync.WaitGroup
	store := b.stores[way]
	cpu, start := cpuTime(), time.Now()
	for range b.plan.Callers {
		all.Go(func() {
			var dst []headgate.Decision
			checks := check(rule, "")
			done := int64(0)
			defer func() { decided.Add(done) }()
			// To look at the clock costs a part of what a decision from memory does.
			for done%clockEvery != 0 || time.Since(start) < b.plan.Slice && failure.Load() == nil {
				checks[0].Key = key()
				var err error
				if dst, err = store.Take(b.ctx, headgate.OpTake, checks, dst[:0]); err == nil && dst[0].Allowed != admitted {
					err = errWrong
				}
				if err != nil {
					failure.Store(&err)
					return
				}
				done++
			}
		})
	}
	all.Wait()
	sample := Sample{Elapsed: time.Since(start), CPU: cpuTime() - cpu, Decisions: decided.Load()}
	if err := failure.Load(); err != nil {
		return sample, fmt.Errorf("denycachebench: %s: %w", wayNames[way], *err)
	}
	after, err := b.server.Usage(b.ctx)
	if err != nil {
		return sample, err
	}
	sample.Calls = after.Sub(before).Calls
	return sample, nil
}

// cpuTime is the CPU time that this process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic("denycachebench: getrusage of one's own process cannot fail: " + err.Error())
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
