package limiterbench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/bench/internal/workload"
	"github.com/headgate/headgate/store/redis"
)

// The names of the contenders that the bars are about.
const (
	combinedName = "Headgate, combined"
	eachName     = "Headgate, one call each"
)

// Combined compares decisions that share script calls with a call for each, and both with the bare
// EVALSHA. A run for the record takes about three minutes. Its rounds are many and short, because
// bars of 5 % are held and the machine's speed changes from one second to the next.
func Combined(ctx context.Context, w *measure.Work) (*report.Text, error) {
	plan := measure.Choose(w, redisPlan{
		Plan: measure.Plan{Rounds: 31, Slice: 200 * time.Millisecond, Keys: 100_000}, callers: []int{1, 4, 16, 32, 64, 256},
	}, redisPlan{
		Plan: measure.Plan{Rounds: 1, Slice: 50 * time.Millisecond, Keys: 3000}, callers: []int{1, 16, 64, 256},
	})
	buckets, others, err := combined(ctx, w, plan)
	if err != nil {
		return nil, err
	}
	return plan.combinedText(w.Redis.Version, buckets, others), nil
}

// combined measures one token bucket a request, and other rules that share calls.
func combined(ctx context.Context, w *measure.Work, plan redisPlan) (buckets, others measure.Rows, err error) {
	keys := workload.Uniform(plan.Keys, sequenceLength(4*plan.Keys), 1)
	from := redis.DefaultCombineFrom
	buckets, err = compare(ctx, w, plan, []contender{
		inRedis(combinedName, fmt.Sprintf("decisions share script calls from %d in flight on", from), from),
		inRedis(eachName, "the same store, each decision by its own EVALSHA", 0),
		bareEVALSHA,
	}, keys, deniesNarrow)
	if err != nil {
		return nil, nil, fmt.Errorf("one bucket: %w", err)
	}
	var contenders []contender
	for _, each := range []struct {
		name      string
		algorithm headgate.Algorithm
		limits    int
	}{
		{"three token buckets", headgate.TokenBucket, 3},
		{"one sliding window", headgate.SlidingWindow, 1},
		{"three sliding windows", headgate.SlidingWindow, 3},
	} {
		contenders = append(contenders,
			several(each.name+", combined", each.algorithm, each.limits, from),
			several(each.name+", one call each", each.algorithm, each.limits, 0))
	}
	plan.Rounds, plan.callers = (plan.Rounds+2)/3, []int{64, 256}
	if others, err = compare(ctx, w, plan, contenders, keys, deniesNone); err != nil {
		return nil, nil, fmt.Errorf("other rules: %w", err)
	}
	return buckets, others, nil
}

// byCallers are columns of one figure, one for each number of callers.
func byCallers(name string, figure measure.Figure, callers ...int) []measure.Column {
	var all []measure.Column
	for _, n := range callers {
		all = append(all, measure.Median(fmt.Sprint(name, n), n, figure))
	}
	return all
}

func (p *redisPlan) combinedText(version string, buckets, others measure.Rows) *report.Text {
	t := new(report.Text)
	t.Say("%s; median of %d rounds of %v, %s keys. Times are microseconds for each decision; "+
		"\"server CPU\" is its main thread. The bars are medians of the ratios within a round.\n",
		version, p.Rounds, p.Slice, report.Number(float64(p.Keys)))
	for _, f := range []struct {
		name   string
		figure measure.Figure
	}{{"decisions/s", measure.Sample.PerSecond}, {"p99, µs", measure.Sample.P99}, {"server CPU, µs", measure.Sample.ServerCPU}} {
		t.Say("\n**One token bucket**, %s by the number of callers:\n\n%s", f.name, buckets.Table(byCallers("", f.figure, p.callers...)...))
	}
	t.Say("\n**Other rules**, all admitted, by the number of callers:\n\n%s", others.Table(slices.Concat(
		byCallers("decisions/s, ", measure.Sample.PerSecond, 64, 256), byCallers("p99, µs, ", measure.Sample.P99, 64, 256), byCallers("server CPU, µs, ", measure.Sample.ServerCPU, 64, 256))...))
	combined := buckets.Named(combinedName)
	for _, name := range []string{bareEVALSHA.name, eachName} {
		base := buckets.Named(name)
		for _, callers := range p.callers {
			if name == eachName && callers <= 16 {
				t.AtLeast(0.95, combined.Over(base, callers, measure.Sample.PerSecond), "%d callers: throughput ÷ %s", callers, name)
			}
		}
		t.AtLeast(1.5, combined.Over(base, 64, measure.Sample.PerSecond), "64 callers: throughput ÷ %s", name)
		t.AtLeast(2, combined.Over(base, 256, measure.Sample.PerSecond), "256 callers: throughput ÷ %s", name)
		t.AtMost(1, combined.Over(base, 64, measure.Sample.P99), "64 callers: p99 ÷ %s", name)
		t.AtMost(1, combined.Over(base, 256, measure.Sample.P99), "256 callers: p99 ÷ %s", name)
		t.AtMost(0.6, combined.Over(base, 256, measure.Sample.ServerCPU), "256 callers: server CPU of a decision ÷ %s", name)
	}
	return t
}
