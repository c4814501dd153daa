package backendbench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/workload"
	"github.com/headgate/headgate/store/memcached"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/redis"
)

// Plan is how much is measured.
type Plan struct {
	// Rounds is how often everything is measured, and Slice how long each measurement
	// lasts.
	Rounds int
	Slice  time.Duration
	// Callers is how many ask at the same time, as soon as they are answered, and Keys
	// how many keys they ask for.
	Callers, Keys int
	// Progress is told what is being measured; nil if nobody wants to know.
	Progress func(format string, args ...any)
}

// Full is the plan of a run for the record: about a minute.
func Full() Plan {
	return Plan{Rounds: 7, Slice: 500 * time.Millisecond, Callers: 64, Keys: 10_000}
}

// Short is the plan of a run that shows whether everything works.
func Short() Plan { return Plan{Rounds: 1, Slice: 100 * time.Millisecond, Callers: 8, Keys: 100} }

// The names of the contenders.
const (
	Redis     = "Redis"
	Postgres  = "PostgreSQL"
	Durable   = "PostgreSQL, durable=true"
	Unlogged  = "PostgreSQL, unlogged=true"
	Memcached = "memcached"
)

// Load is one way to ask.
type Load int

// The loads: one caller and many keys, many callers and many keys, many callers and
// one key.
const (
	One Load = iota
	Spread
	Hot
	loads
)

// Sample is one measurement.
type Sample struct {
	PerSecond float64
	P50, P99  time.Duration
}

// Result has the samples of one contender, by load.
type Result struct {
	Name    string
	Samples [loads][]Sample
}

// Outcome is what was measured.
type Outcome struct {
	Plan     Plan
	Versions []string
	Results  []Result
}

// unhurried is a deadline that no call on a saturated machine exceeds.
const unhurried = 10 * time.Second

// rule has a token bucket that never runs dry, and never fills up between two
// questions.
var rule = headgate.MustRule("bench", headgate.Per(headgate.MaxCount, 365*24*time.Hour))

type contender struct {
	name  string
	store headgate.Store
	close func()
}

// Run measures all stores.
func Run(ctx context.Context, redisAddr, redisVersion string, s *Servers, plan Plan) (*Outcome, error) {
	field, err := open(ctx, redisAddr, s)
	defer func() {
		for _, c := range field {
			c.close()
		}
	}()
	if err != nil {
		return nil, err
	}
	o := &Outcome{Plan: plan, Versions: append([]string{redisVersion}, s.Versions...), Results: make([]Result, len(field))}
	for i, c := range field {
		o.Results[i].Name = c.name
		if _, err := plan.measure(ctx, c.store, Spread); err != nil { // every key is there, and every statement prepared
			return nil, fmt.Errorf("backendbench: %s: %w", c.name, err)
		}
	}
	for round := range plan.Rounds {
		if plan.Progress != nil {
			plan.Progress("backends: round %d of %d", round+1, plan.Rounds)
		}
		for i := range field {
			at := (i + round) % len(field)
			for load := range loads {
				sample, err := plan.measure(ctx, field[at].store, load)
				if err != nil {
					return nil, fmt.Errorf("backendbench: %s: %w", field[at].name, err)
				}
				o.Results[at].Samples[load] = append(o.Results[at].Samples[load], sample)
			}
		}
	}
	return o, nil
}

// open returns the contenders that it has opened, also after an error.
func open(ctx context.Context, redisAddr string, s *Servers) (field []contender, err error) {
	r, err := redis.Open(ctx, "redis://"+redisAddr, redis.WithTimeout(unhurried))
	if err != nil {
		return field, err
	}
	field = append(field, contender{Redis, r, r.Close})
	for _, p := range []struct{ name, query string }{
		{Postgres, "?table=usual"}, {Durable, "?table=durable&durable=true"}, {Unlogged, "?table=unlogged&unlogged=true"},
	} {
		store, err := postgres.Open(ctx, s.Postgres+p.query, postgres.WithTimeout(unhurried))
		if err != nil {
			return field, err
		}
		field = append(field, contender{p.name, store, store.Close})
	}
	m, err := memcached.Open(ctx, s.Memcached, memcached.WithTimeout(unhurried))
	if err != nil {
		return field, err
	}
	return append(field, contender{Memcached, m, m.Close}), nil
}

var errWrong = errors.New("a request was denied that the limit has room for")

// measure asks a store for a slice of time.
func (p *Plan) measure(ctx context.Context, store headgate.Store, load Load) (Sample, error) {
	callers, keys := p.Callers, p.Keys
	switch load {
	case One:
		callers = 1
	case Hot:
		keys = 1
	}
	limiter := headgate.New(store, rule)
	times := make([][]time.Duration, callers)
	errs := make([]error, callers)
	var all sync.WaitGroup
	begin := time.Now()
	for c := range callers {
		all.Go(func() {
			for i := c * 7919; ; i++ {
				before := time.Now()
				if before.Sub(begin) >= p.Slice {
					return
				}
				d, err := limiter.Allow(ctx, workload.Key(i%keys))
				if err == nil && !d.Allowed {
					err = errWrong
				}
				if err != nil {
					errs[c] = err
					return
				}
				times[c] = append(times[c], time.Since(before))
			}
		})
	}
	all.Wait()
	took := time.Since(begin)
	if err := errors.Join(errs...); err != nil {
		return Sample{}, err
	}
	every := slices.Concat(times...)
	slices.Sort(every)
	return Sample{
		PerSecond: float64(len(every)) / took.Seconds(),
		P50:       every[len(every)/2], P99: every[len(every)*99/100],
	}, nil
}

func (r *Result) perSecond(load Load) float64 {
	return report.MedianOf(r.Samples[load], func(s Sample) float64 { return s.PerSecond })
}

func (r *Result) micros(load Load, of func(Sample) time.Duration) string {
	return report.Number(report.MedianOf(r.Samples[load], func(s Sample) float64 { return float64(of(s).Nanoseconds()) / 1000 }))
}

// Markdown returns the table.
func (o *Outcome) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s. Closed loop, a token bucket that admits everything; %d callers, %s keys or one; median of %d rounds of %v.\n\n",
		strings.Join(o.Versions, ", "), o.Plan.Callers, report.Number(float64(o.Plan.Keys)), o.Plan.Rounds, o.Plan.Slice)
	t := report.Table{Columns: []string{
		"", "one caller: p50, µs", "many keys: decisions/s", "÷ Redis", "p50, µs", "p99, µs", "one hot key: decisions/s", "÷ Redis", "p50, µs", "p99, µs",
	}}
	p50, p99 := func(s Sample) time.Duration { return s.P50 }, func(s Sample) time.Duration { return s.P99 }
	for i := range o.Results {
		r, first := &o.Results[i], &o.Results[0]
		t.Add(
			r.Name, r.micros(One, p50),
			report.Number(r.perSecond(Spread)), report.Times(report.Ratio(r.perSecond(Spread), first.perSecond(Spread))), r.micros(Spread, p50), r.micros(Spread, p99),
			report.Number(r.perSecond(Hot)), report.Times(report.Ratio(r.perSecond(Hot), first.perSecond(Hot))), r.micros(Hot, p50), r.micros(Hot, p99),
		)
	}
	b.WriteString(t.String())
	return b.String()
}
