package limiterbench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/workload"
)

// redisPlan is how much is measured in Redis.
type redisPlan struct {
	measure.Plan
	// callers are the numbers of goroutines that ask at the same time.
	callers []int
	// windows are the sliding windows, the longest first, and windowKeys how many keys have a log
	// for them.
	windows    []window
	windowKeys int
	// weighed is how many keys are counted in the server's memory.
	weighed int
}

// many is the number of callers wherever their number is not what is measured:
// enough to keep the server busy.
const many = 64

// The limits of the questions with one limit. At a day for 200 units, one unit
// takes seven minutes to come back: no bucket is full again, and no key gone from
// the server, when it is asked about next. The counts keep wide keys from running
// dry, and deny narrow ones from the second question on.
const day = 24 * time.Hour

var (
	strictLimits  = workload.Limits{{Count: 200, Period: day}, {Count: 1, Period: day}}
	weighedLimits = workload.Limits{{Count: 200, Period: day}, {Count: 200, Period: day}}
)

// strict are the contenders with one limit.
func strict() []contender {
	ours := inRedis("Headgate", "token bucket in one EVALSHA through rueidis, whole numbers, the server's clock; all limits of all checks or none; remaining, retry after and reset after to the microsecond", 0)
	return append([]contender{ours, bareEVALSHA}, redisPeers...)
}

// Redis compares limiters that keep their counters in the server, which is emptied before each
// question. A run for the record takes three to four minutes on two cores.
func Redis(ctx context.Context, w *measure.Work) (*report.Text, error) {
	return compareAll(ctx, w, measure.Choose(w, redisPlan{
		measure.Plan{Rounds: 15, Slice: 250 * time.Millisecond, Keys: 100_000},
		[]int{1, many, 256},
		[]window{{600, 600 * time.Second}, {30, 20 * time.Second}},
		2000, 200_000,
	}, redisPlan{
		measure.Plan{Rounds: 1, Slice: 50 * time.Millisecond, Keys: 3000},
		[]int{1, many, 256},
		[]window{{600, 60 * time.Second}, {30, 2 * time.Second}},
		100, 3000,
	}), strict())
}

func compareAll(ctx context.Context, w *measure.Work, plan redisPlan, contenders []contender) (*report.Text, error) {
	t := new(report.Text)
	// Of other servers the page has the ratios and the bars.
	brief := !strings.HasPrefix(w.Redis.Version, "redis-server")
	t.Say("%s; median of %d rounds of %v. ", w.Redis.Version, plan.Rounds, plan.Slice)
	if !brief {
		t.Say("Times are microseconds for each decision; \"server CPU\" is its main thread, \"in scripts\" what it reports of EVAL and EVALSHA. ")
	}
	t.Say("Ratios are medians of those within a round.\n")
	keys := workload.Uniform(plan.Keys, sequenceLength(4*plan.Keys), 1)
	one, err := compare(ctx, w, plan, contenders, keys, deniesNarrow)
	if err != nil {
		return nil, fmt.Errorf("one limit: %w", err)
	}
	plan.oneLimit(t, one, keys.NarrowShare(), brief)
	manyCallers := plan
	manyCallers.callers = []int{many}
	limits, err := compare(ctx, w, manyCallers, []contender{
		several("one token bucket", headgate.TokenBucket, 1, 0), several("five token buckets", headgate.TokenBucket, 5, 0),
		several("one sliding window", headgate.SlidingWindow, 1, 0), several("five sliding windows", headgate.SlidingWindow, 5, 0),
	}, keys, deniesNone)
	if err != nil {
		return nil, fmt.Errorf("several limits: %w", err)
	}
	severalLimits(t, limits)
	windows, err := plan.measureWindows(ctx, w, windowed(plan.windows))
	if err != nil {
		return nil, fmt.Errorf("sliding windows: %w", err)
	}
	plan.writeWindows(t, windows, brief)
	if brief {
		return t, nil
	}
	if err := plan.weigh(ctx, w, t, contenders); err != nil {
		return nil, fmt.Errorf("memory: %w", err)
	}
	t.Say("\n**What a decision is here**\n")
	one.Notes(t)
	for i := range windows {
		t.Say("- **%s** (sliding window): %s.\n", windows[i].Name, windows[i].Note)
	}
	return t, nil
}

// oneLimit writes a table for each number of callers; in brief, one with the ratios of all.
func (p *redisPlan) oneLimit(t *report.Text, rows measure.Rows, denied float64, brief bool) {
	t.Say("\n**One limit**, %s keys, %s of the decisions denied:\n", report.Number(float64(p.Keys)), report.Percent(denied))
	floor := rows.Floor()
	var ratios []measure.Column
	for _, callers := range p.callers {
		over := measure.Over("÷ bare", floor, callers, measure.Sample.PerSecond)
		if !brief {
			t.Say("\n%d at a time:\n\n%s", callers, rows.Table(figures(callers, over)...))
		}
		over.Name = fmt.Sprintf("÷ bare, %d at a time", callers)
		ratios = append(ratios, over, measure.Median("decisions/s", callers, measure.Sample.PerSecond))
		for i := range rows {
			if r := &rows[i]; r.Role == measure.Ours {
				t.AtLeast(1, r.Over(floor, callers, measure.Sample.PerSecond), "%s, one limit, %d at a time: throughput ÷ bare EVALSHA", r.Name, callers)
			}
		}
	}
	if brief {
		t.Say("\n%s", rows.Table(ratios...))
	}
}

// severalLimits sets the bars of pairs of one limit and several. [Sizes] shows how the cost of buckets grows.
func severalLimits(t *report.Text, rows measure.Rows) {
	for i := 0; i+1 < len(rows); i += 2 {
		one, five := &rows[i], &rows[i+1]
		t.AtMost(1.5, five.Over(one, many, measure.Sample.ServerCPU), "%s: server CPU ÷ %s", five.Name, one.Name)
		t.AtMost(1.5, five.Over(one, many, measure.Sample.ScriptTime), "%s: time in scripts ÷ %s", five.Name, one.Name)
	}
}

// figures are the columns that all tables have, after some others.
func figures(condition int, first ...measure.Column) []measure.Column {
	return append(
		first,
		measure.Median("decisions/s", condition, measure.Sample.PerSecond),
		measure.Median("p50 µs", condition, measure.Sample.P50),
		measure.Median("p99 µs", condition, measure.Sample.P99),
		measure.Median("server CPU µs", condition, measure.Sample.ServerCPU),
		measure.Median("client CPU µs", condition, measure.Sample.ClientCPU),
		measure.Median("in scripts µs", condition, measure.Sample.ScriptTime),
	)
}

// The right answers for keys of a class that were asked about before.
func deniesNarrow(c workload.Class) bool { return c == workload.Wide }
func deniesNone(workload.Class) bool     { return true }

// openAll opens all contenders over the Redis, and fills each. It returns what ends those that it
// has opened, also after an error.
func openAll(ctx context.Context, w *measure.Work, contenders []contender, fill func(l *limiter) error) (limiters []*limiter, end func() error, err error) {
	end = func() (err error) {
		for _, l := range limiters {
			err = errors.Join(err, l.close())
		}
		return err
	}
	err = w.Redis.Flush(ctx)
	for _, c := range contenders {
		if err != nil {
			break
		}
		w.Say("filling: %s", c.name)
		var l *limiter
		if l, err = c.open(ctx, w.Redis.Addr, strictLimits); err == nil {
			limiters = append(limiters, l)
			err = fill(l)
		}
		if err != nil {
			err = fmt.Errorf("%s: filling: %w", c.name, err)
		}
	}
	return limiters, end, err
}

// compare measures contenders with the same keys. The conditions are the numbers of callers.
func compare(ctx context.Context, w *measure.Work, plan redisPlan, contenders []contender, keys *workload.Sequence, right func(workload.Class) bool) (_ measure.Rows, err error) {
	limiters, end, err := openAll(ctx, w, contenders, func(l *limiter) error { return fill(ctx, l, plan.Keys) })
	defer func() { err = errors.Join(err, end()) }()
	if err != nil {
		return nil, err
	}
	all := rows(contenders)
	return all, plan.Turns(ctx, w, all, plan.callers, func(round, callers, i int) (measure.Sample, error) {
		// Contenders of one round are asked about the same keys, those of the
		// next about others.
		turn := round*len(plan.callers) + slices.Index(plan.callers, callers)
		from := turn * keys.Len() / (plan.Rounds * len(plan.callers))
		return measure.Spending(ctx, w.Redis, func() (measure.Sample, error) {
			return measure.Closed(ctx, callers, measure.Until(plan.Slice), func(_ context.Context, at int) error {
				class, key := keys.At(from + at)
				return limiters[i].insist(class, key, right(class))
			})
		})
	})
}

// fill asks once about each of the first keys, which must all be admitted.
func fill(ctx context.Context, l *limiter, keys int) error {
	_, err := measure.Closed(ctx, many, measure.Times(keys), func(_ context.Context, i int) error {
		return l.insist(workload.ClassOf(i), workload.Key(i), true)
	})
	return err
}

// weighedOneByOne is how many keys MEMORY USAGE is asked about.
const weighedOneByOne = 200

// The conditions of a row whose keys are weighed: by the growth of the server's memory over the
// number of keys, or by the mean of MEMORY USAGE over some of them.
const allTold, oneByOne = 0, 1

// weigh fills an empty server with one contender's keys after the other.
func (p *redisPlan) weigh(ctx context.Context, w *measure.Work, t *report.Text, contenders []contender) error {
	rows := rows(contenders)
	for i, c := range contenders {
		w.Say("weighing %d keys: %s", p.weighed, c.name)
		if err := p.footprint(ctx, w, c, &rows[i]); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	t.Say("\n**Memory of a key with one limit**, %s keys of %d bytes, one unit taken of each:\n\n%s", report.Number(float64(p.weighed)), workload.KeyLen,
		rows.Table(measure.Median("bytes a key, all told", allTold, measure.Sample.BytesEach), measure.Median("of which MEMORY USAGE", oneByOne, measure.Sample.BytesEach)))
	return w.Redis.Flush(ctx)
}

func (p *redisPlan) footprint(ctx context.Context, w *measure.Work, c contender, r *measure.Row) (err error) {
	l, err := c.open(ctx, w.Redis.Addr, weighedLimits)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	// One round before the weighing opens connections and loads scripts, whose
	// memory is not the keys'.
	if err := errors.Join(w.Redis.Flush(ctx), fill(ctx, l, many), w.Redis.Flush(ctx)); err != nil {
		return err
	}
	before, err1 := w.Redis.Memory(ctx)
	err = fill(ctx, l, p.weighed)
	after, err2 := w.Redis.Memory(ctx)
	each, err3 := w.Redis.KeyMemory(ctx, weighedOneByOne, "")
	r.Add(allTold, measure.Sample{Done: p.weighed, Bytes: float64(after - before)})
	r.Add(oneByOne, measure.Sample{Done: 1, Bytes: each})
	if err == nil && (after <= before || each <= 0) {
		err = fmt.Errorf("%d keys grew the memory from %d to %d bytes", p.weighed, before, after)
	}
	return errors.Join(err, err1, err2, err3)
}
