package denycachebench

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/closedloop"
	"github.com/headgate/headgate/bench/internal/redisbench"
	"github.com/headgate/headgate/bench/internal/workload"
	"github.com/headgate/headgate/store/layered/denycache"
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

// Outcome is what was measured: the samples of each way, round by round.
type Outcome struct {
	Version     string
	Plan        Plan
	Flood, Cold [ways][]closedloop.Sample
}

// unhurried is a deadline that no call on a saturated machine exceeds.
const unhurried = 3 * time.Second

var (
	tight = headgate.MustRule("tight", headgate.Per(1, 24*time.Hour))
	loose = headgate.MustRule("loose", headgate.PerSecond(1000))
)

func check(rule *headgate.Rule, key string) headgate.Check {
	return headgate.Check{Rule: rule, Key: key, Hints: headgate.Hints{DenyCache: headgate.DenyCacheOn}}
}

// Run measures both ways on the server.
func Run(ctx context.Context, s *redisbench.Server, plan Plan) (_ *Outcome, err error) {
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
	denials, err := denycache.New(store, denycache.Options{Bus: store, Trust: time.Hour})
	if err != nil {
		return nil, fmt.Errorf("denycachebench: %w", err)
	}
	defer func() { err = errors.Join(err, denials.Close(ctx)) }()
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
func (b *bench) prepare(denials *denycache.Layer) error {
	for start := time.Now(); !denials.Stats().Listening; time.Sleep(time.Millisecond) {
		if time.Since(start) > unhurried {
			return fmt.Errorf("denycachebench: no connection to the bus: %w", denials.Stats().Error)
		}
	}
	for i := range b.plan.Denied {
		key := "flood"
		if i > 0 {
			key = fmt.Sprintf("denied %d", i)
		}
		for _, admitted := range []bool{true, false} {
			got, err := b.stores[cached].Take(b.ctx, headgate.OpTake, []headgate.Check{check(tight, key)}, nil)
			if err != nil {
				return fmt.Errorf("denycachebench: %w", err)
			}
			if got[0].Allowed != admitted {
				return errWrong
			}
		}
	}
	if n := denials.Stats().Keys; n != int64(b.plan.Denied) {
		return fmt.Errorf("denycachebench: %d keys are remembered, not %d", n, b.plan.Denied)
	}
	return nil
}

// measure asks in one way, under keys that are all admitted or all denied.
func (b *bench) measure(way int, rule *headgate.Rule, key func() string, admitted bool) (closedloop.Sample, error) {
	sample, err := closedloop.Measure(b.ctx, b.server, b.stores[way], closedloop.Load{
		Callers: b.plan.Callers, Slice: b.plan.Slice, Check: check(rule, ""), Key: key, Admitted: admitted,
	})
	if err != nil {
		return sample, fmt.Errorf("denycachebench: %s: %w", wayNames[way], err)
	}
	return sample, nil
}
