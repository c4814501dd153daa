package limiterbench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/workload"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/redis"
)

// sizesPlan is how large the work is made. The numbers are the conditions of the rows.
type sizesPlan struct {
	// keys are how many are live in memory, limits how many of them a request is charged to, and
	// instances how many stores, each with a connection of its own, share a Redis.
	keys, limits, instances []int
	// memory and redis are what else is measured with.
	memory measure.Plan
	redis  redisPlan
}

// longestSequence is the most places that a sequence of keys gets: ten million keys would need half a
// gibibyte. No contender has so much of its memory in a processor's cache.
const longestSequence = 1 << 22

// Sizes measures what a decision costs as the work grows. A run for the record takes six minutes and
// three gibibytes, and sets GOMAXPROCS.
func Sizes(ctx context.Context, w *measure.Work) (*report.Text, error) {
	p := measure.Choose(w, sizesPlan{
		keys: []int{1000, 10_000, 100_000, 1_000_000, 10_000_000}, limits: []int{1, 2, 4, 8}, instances: []int{1, 2, 4, 8},
		memory: measure.Plan{Rounds: 5, Slice: 400 * time.Millisecond, Keys: 100_000},
		redis:  redisPlan{Plan: measure.Plan{Rounds: 9, Slice: 250 * time.Millisecond, Keys: 100_000}, callers: []int{256}},
	}, sizesPlan{
		keys: []int{1000, 10_000}, limits: []int{1, 2}, instances: []int{1, 2},
		memory: measure.Plan{Rounds: 1, Slice: 40 * time.Millisecond, Keys: 1000},
		redis:  redisPlan{Plan: measure.Plan{Rounds: 1, Slice: 50 * time.Millisecond, Keys: 3000}, callers: []int{256}},
	})
	byKeys, err := p.byKeys(ctx, w)
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	local, remote, err := p.byLimits(ctx, w)
	if err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	byInstances, err := p.byInstances(ctx, w)
	if err != nil {
		return nil, fmt.Errorf("instances: %w", err)
	}
	return p.text(w.Redis.Version, byKeys, local, remote, byInstances), nil
}

// byKeys measures Headgate and its two nearest peers with more and more keys.
func (p *sizesPlan) byKeys(ctx context.Context, w *measure.Work) (measure.Rows, error) {
	contenders := append([]contender{inMemory}, memoryPeers[:2]...)
	all := rows(contenders)
	for _, keys := range p.keys {
		if err := p.measureMemory(ctx, w, contenders, keys, all, []int{keys}); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// measureMemory measures contenders with so many keys, asked about evenly on all cores; see gather.
func (p *sizesPlan) measureMemory(ctx context.Context, w *measure.Work, contenders []contender, keys int, into measure.Rows, sizes []int) error {
	cores := min(2, runtime.NumCPU())
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	r := &memoryRun{
		Plan: p.memory, cores: []int{cores}, contenders: contenders, rows: rows(contenders),
		sequences: []*workload.Sequence{uniform: workload.Uniform(keys, min(sequenceLength(2*keys), longestSequence), 1)},
	}
	for round := range r.Rounds {
		for i := range r.rows {
			i = (i + round) % len(r.rows)
			w.Say("%d keys, round %d of %d: %s", keys, round+1, r.Rounds, r.rows[i].Name)
			if _, err := r.filled(ctx, i, manyLimits, keys, uniform); err != nil {
				return fmt.Errorf("%s, %d keys: %w", r.rows[i].Name, keys, err)
			}
		}
	}
	gather(into, sizes, r.rows, cell(uniform, cores))
	return nil
}

// measureRedis measures contenders with the plan's callers; see gather.
func (p *sizesPlan) measureRedis(ctx context.Context, w *measure.Work, contenders []contender, into measure.Rows, sizes []int) error {
	keys := workload.Uniform(p.redis.Keys, sequenceLength(4*p.redis.Keys), 1)
	measured, err := compare(ctx, w, p.redis, contenders, keys, deniesNarrow)
	gather(into, sizes, measured, p.redis.callers[0])
	return err
}

// gather gives each row the samples of as many measured rows as there are sizes. The sizes are their
// conditions then.
func gather(into measure.Rows, sizes []int, measured measure.Rows, condition int) {
	for i, m := range measured {
		for _, s := range m.Samples[condition] {
			into[i/len(sizes)].Add(sizes[i%len(sizes)], s)
		}
	}
}

// byLimits measures requests for more and more limits, all of which are charged or none: of one rule, and
// of as many rules; in memory, and in Redis.
func (p *sizesPlan) byLimits(ctx context.Context, w *measure.Work) (local, remote measure.Rows, err error) {
	for instances, all := range []*measure.Rows{&local, &remote} {
		var contenders []contender
		*all = measure.Rows{{Name: "limits of one rule"}, {Name: "rules of one limit"}}
		for i, row := range *all {
			for _, n := range p.limits {
				contenders = append(contenders, contender{name: fmt.Sprint(n, " ", row.Name), open: request{n, i == 1, instances, 0}.open})
			}
		}
		if instances == 0 {
			err = p.measureMemory(ctx, w, contenders, p.memory.Keys, *all, p.limits)
		} else {
			err = p.measureRedis(ctx, w, contenders, *all, p.limits)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return local, remote, nil
}

// request is one for several token buckets at once. The first denies as its class does, the others never.
type request struct {
	// limits is how many there are, and apart says that each is a rule's of its own.
	limits int
	apart  bool
	// instances is how many stores over a Redis decide in turn. With 0 one in memory does.
	instances int
	// combineFrom is that of the stores.
	combineFrom int
}

// rules are that of each class, and those that both have besides. No other request has keys of theirs.
func (r request) rules(q workload.Limits) (of [len(workload.Limits{})]*headgate.Rule, further []*headgate.Rule, err error) {
	rule := func(name string, limits ...headgate.Limit) *headgate.Rule {
		made, problem := headgate.NewRule(fmt.Sprintf("%s-%d-%t-%d-%d", name, r.limits, r.apart, r.instances, r.combineFrom), limits...)
		err = errors.Join(err, problem)
		return made
	}
	var wide []headgate.Limit
	for i := range int64(r.limits - 1) {
		wide = append(wide, headgate.Per(q[workload.Wide].Count+i+1, q[workload.Wide].Period))
	}
	for i := 0; r.apart && i < len(wide); i++ {
		further = append(further, rule(fmt.Sprint("further-", i), wide[i]))
	}
	for c, first := range q {
		limits := []headgate.Limit{headgate.Per(first.Count, first.Period)}
		if !r.apart {
			limits = append(limits, wide...)
		}
		of[c] = rule(workload.Class(c).String(), limits...)
	}
	return of, further, err
}

func (r request) open(ctx context.Context, addr string, q workload.Limits) (*limiter, error) {
	of, further, err := r.rules(q)
	if err != nil {
		return nil, err
	}
	if r.instances == 0 {
		return &limiter{take: byRules(ctx, memory.New(), of[:], further...)}, nil
	}
	var takes []take
	var ends []func() error
	end := func() (err error) {
		for _, end := range ends {
			err = errors.Join(err, end())
		}
		return err
	}
	for range r.instances {
		store, hangUp, err := connect(ctx, addr, r.combineFrom)
		if err != nil {
			return nil, errors.Join(err, end())
		}
		takes, ends = append(takes, byRules(ctx, store, of[:], further...)), append(ends, hangUp)
	}
	var next atomic.Uint64
	return &limiter{end: end, take: func(c workload.Class, key string) (bool, error) {
		return takes[next.Add(1)%uint64(len(takes))](c, key)
	}}, nil
}

// byInstances measures more and more stores before one Redis.
func (p *sizesPlan) byInstances(ctx context.Context, w *measure.Work) (measure.Rows, error) {
	all := measure.Rows{{Name: combinedName}, {Name: eachName}}
	var contenders []contender
	for i, from := range []int{redis.DefaultCombineFrom, 0} {
		for _, n := range p.instances {
			contenders = append(contenders, contender{name: fmt.Sprintf("%s, %d instances", all[i].Name, n), open: request{1, false, n, from}.open})
		}
	}
	return all, p.measureRedis(ctx, w, contenders, all, p.instances)
}

func (p *sizesPlan) text(version string, byKeys, local, remote, byInstances measure.Rows) *report.Text {
	t := new(report.Text)
	columns := func(figure measure.Figure, sizes []int) []measure.Column {
		var all []measure.Column
		for _, n := range sizes {
			name := fmt.Sprint(n)
			if n >= 1000 {
				name = report.Number(float64(n))
			}
			all = append(all, measure.Median(name, n, figure))
		}
		return all
	}
	cores := min(2, runtime.NumCPU())
	t.Say("Medians of %d rounds of %v in memory on %d cores, and of %d rounds of %v in Redis (%s) with %d callers in all.\n",
		p.memory.Rounds, p.memory.Slice, cores, p.redis.Rounds, p.redis.Slice, version, p.redis.callers[0])
	t.Say("\n**Live keys** in memory, asked about evenly: ns a decision.\n\n%s", byKeys.Table(columns(measure.Sample.Nanos, p.keys)...))
	t.Say("\n**Limits in a request**, all charged or none, in memory: ns.\n\n%s", local.Table(columns(measure.Sample.Nanos, p.limits)...))
	t.Say("\nIn Redis: µs of its main thread.\n\n%s", remote.Table(columns(measure.Sample.ServerCPU, p.limits)...))
	t.Say("\n**Instances** before one Redis: µs of its main thread for a decision.\n\n%s", byInstances.Table(columns(measure.Sample.ServerCPU, p.instances)...))
	return t
}
