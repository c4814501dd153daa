package leasebench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/redisbench"
	"github.com/headgate/headgate/store/layered/lease"
	"github.com/headgate/headgate/store/redis"
)

// Plan is how much is measured.
type Plan struct {
	Rounds  int
	Slice   time.Duration // of one way in one round
	Callers int
	// Nodes is how many leases share the server where the limit is what holds them
	// back. One of them is dropped in the middle, with what it holds.
	Nodes int
	// Keys is how many there are where none is asked for often.
	Keys int
	// Progress is told what is being measured.
	Progress func(format string, args ...any)
}

// Full is a run for the record.
func Full() Plan {
	return Plan{Rounds: 9, Slice: 2 * time.Second, Callers: 64, Nodes: 4, Keys: 200_000}
}

// Short shows that everything works.
func Short() Plan {
	return Plan{Rounds: 2, Slice: 300 * time.Millisecond, Callers: 64, Nodes: 4, Keys: 20_000}
}

// Outcome is what was measured.
type Outcome struct {
	Plan    Plan
	Version string
	// Hot and Cold have the ratio to be judged in each round; Tight has the counts.
	Hot, Cold []Pair
	Tight     []Count
}

// Pair is one round of both ways.
type Pair struct{ Strict, Leased Sample }

// Sample is one slice of one way.
type Sample struct {
	Decisions, Calls int64
	Elapsed          time.Duration
	// Over is how many units were admitted beyond burst + rate × time.
	Over int64
}

// PerSecond is the throughput.
func (s Sample) PerSecond() float64 { return float64(s.Decisions) / s.Elapsed.Seconds() }

// Count is a run against a limit that is in the way.
type Count struct {
	Asked, Admitted, Allowed, Over, Calls int64
	Elapsed                               time.Duration
}

// patience is the deadline of a call; the store's own is meant for services.
const patience = 3 * time.Second

// bucket is a limit, and what it admits within a time.
type bucket struct{ rate, burst int64 }

func (b bucket) rule(name string) (*headgate.Rule, error) {
	return headgate.NewRule(name, headgate.PerSecond(b.rate).WithBurst(b.burst))
}

// allows is what passes in a time at most.
func (b bucket) allows(d time.Duration) int64 {
	return b.burst + int64(float64(b.rate)*d.Seconds())
}

var (
	// wide is never used up, so that the way of asking is what counts.
	wide = bucket{rate: 100_000_000, burst: 100_000_000}
	// tight is used up at once, and all the time.
	tight = bucket{rate: 20_000, burst: 20_000}
)

// counted is a store whose calls are counted.
type counted struct {
	headgate.Store
	calls atomic.Int64
}

func (c *counted) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	c.calls.Add(1)
	return c.Store.Take(ctx, op, checks, dst)
}

// Run measures everything on one server.
func Run(ctx context.Context, server *redisbench.Server, plan Plan) (_ *Outcome, err error) {
	if plan.Progress == nil {
		plan.Progress = func(string, ...any) {}
	}
	o := &Outcome{Plan: plan, Version: server.Version}
	store, err := redis.Open(ctx, "redis://"+server.Addr, redis.WithTimeout(patience))
	if err != nil {
		return nil, err
	}
	defer store.Close()
	keys := make([]string, plan.Keys)
	for i := range keys {
		keys[i] = "key " + strconv.Itoa(i)
	}
	for round := range plan.Rounds {
		plan.Progress("lease: round %d of %d", round+1, plan.Rounds)
		hot, err := pair(ctx, store, plan, round, fmt.Sprint("hot", round), []string{"hot"})
		if err != nil {
			return nil, err
		}
		cold, err := pair(ctx, store, plan, round, "cold", keys)
		if err != nil {
			return nil, err
		}
		count, err := compete(ctx, server.Addr, plan, round)
		if err != nil {
			return nil, err
		}
		o.Hot, o.Cold, o.Tight = append(o.Hot, hot), append(o.Cold, cold), append(o.Tight, count)
	}
	return o, nil
}

// pair measures both ways, each round beginning with the other one.
func pair(ctx context.Context, store headgate.Store, plan Plan, round int, name string, keys []string) (p Pair, err error) {
	for i := range 2 {
		if (i+round)%2 == 0 {
			p.Strict, err = strictly(ctx, store, plan, name+".strict", keys)
		} else {
			p.Leased, err = leased(ctx, store, plan, name+".leased", keys)
		}
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

func strictly(ctx context.Context, store headgate.Store, plan Plan, name string, keys []string) (Sample, error) {
	rule, err := wide.rule(name)
	if err != nil {
		return Sample{}, err
	}
	c := &counted{Store: store}
	return slice(ctx, c, c, plan, headgate.Check{Rule: rule}, keys)
}

func leased(ctx context.Context, store headgate.Store, plan Plan, name string, keys []string) (_ Sample, err error) {
	rule, err := wide.rule(name)
	if err != nil {
		return Sample{}, err
	}
	c := &counted{Store: store}
	layer, err := lease.New(c, lease.Options{})
	if err != nil {
		return Sample{}, err
	}
	defer func() { err = errors.Join(err, layer.Close(ctx)) }()
	return slice(ctx, layer.Store(), c, plan, headgate.Check{Rule: rule, Hints: headgate.Hints{Consistency: headgate.Leased}}, keys)
}

// slice has callers ask for as long as a slice lasts.
func slice(ctx context.Context, store headgate.Store, calls *counted, plan Plan, check headgate.Check, keys []string) (Sample, error) {
	began := time.Now()
	asked, admitted, err := load(ctx, store, plan.Callers, check, keys, began.Add(plan.Slice))
	s := Sample{Decisions: asked, Calls: calls.calls.Load(), Elapsed: time.Since(began)}
	if len(keys) == 1 {
		s.Over = max(0, admitted-wide.allows(s.Elapsed))
	}
	if err == nil && admitted != asked {
		err = fmt.Errorf("%d of %d requests were denied by a limit that is not used up", asked-admitted, asked)
	}
	return s, err
}

// load has callers ask for single units until a time, and counts what each of them
// was told.
func load(ctx context.Context, store headgate.Store, callers int, check headgate.Check, keys []string, until time.Time) (asked, admitted int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	var sumAsked, sumAdmitted atomic.Int64
	for n := range callers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), uint64(until.UnixNano())))
			checks := []headgate.Check{check}
			var dst []headgate.Decision
			var asked, admitted int64
			for ; asked == 0 || asked%16 != 0 || ctx.Err() == nil && time.Now().Before(until); asked++ {
				checks[0].Key = keys[r.IntN(len(keys))]
				out, err := store.Take(ctx, headgate.OpTake, checks, dst[:0])
				if err != nil {
					cancel(err)
					break
				}
				if headgate.NewVerdict(out).Allowed {
					admitted++
				}
				dst = out
			}
			sumAsked.Add(asked)
			sumAdmitted.Add(admitted)
		})
	}
	all.Wait()
	return sumAsked.Load(), sumAdmitted.Load(), context.Cause(ctx)
}

// compete has several nodes ask for one key whose limit is in the way, each over
// connections of its own. One is dropped in the middle, and nobody gives back what it
// holds.
func compete(ctx context.Context, addr string, plan Plan, round int) (c Count, err error) {
	rule, err := tight.rule(fmt.Sprint("tight", round))
	if err != nil {
		return c, err
	}
	began := time.Now()
	var all sync.WaitGroup
	var mu sync.Mutex // guards c and err
	for n := range plan.Nodes {
		all.Go(func() {
			part, e := node(ctx, addr, plan, rule, n == 0, began)
			mu.Lock()
			defer mu.Unlock()
			c.Asked, c.Admitted, c.Calls = c.Asked+part.Asked, c.Admitted+part.Admitted, c.Calls+part.Calls
			err = errors.Join(err, e)
		})
	}
	all.Wait()
	c.Elapsed = time.Since(began)
	c.Allowed = tight.allows(c.Elapsed)
	c.Over = max(0, c.Admitted-c.Allowed)
	return c, err
}

// cutOff is a store that nothing reaches any more once it is.
type cutOff struct {
	headgate.Store
	cut atomic.Bool
}

func (c *cutOff) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if c.cut.Load() {
		return dst, headgate.ErrUnavailable
	}
	return c.Store.Take(ctx, op, checks, dst)
}

// node is one of those that compete.
func node(ctx context.Context, addr string, plan Plan, rule *headgate.Rule, dies bool, began time.Time) (c Count, err error) {
	store, err := redis.Open(ctx, "redis://"+addr, redis.WithTimeout(patience))
	if err != nil {
		return c, err
	}
	defer store.Close()
	way := &cutOff{Store: store}
	calls := &counted{Store: way}
	layer, err := lease.New(calls, lease.Options{Nodes: func() int64 { return int64(plan.Nodes) }})
	if err != nil {
		return c, err
	}
	span := plan.Slice
	if dies {
		span /= 2
	}
	check := headgate.Check{Rule: rule, Hints: headgate.Hints{Consistency: headgate.Leased}}
	c.Asked, c.Admitted, err = load(ctx, layer.Store(), max(1, plan.Callers/plan.Nodes), check, []string{"hot"}, began.Add(span))
	c.Calls = calls.calls.Load()
	way.cut.Store(dies)
	if gone := layer.Close(ctx); !dies {
		err = errors.Join(err, gone)
	}
	return c, err
}
