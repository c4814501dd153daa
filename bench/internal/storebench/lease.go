package storebench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
	"github.com/headgate/headgate/store/layered/lease"
	"github.com/headgate/headgate/store/redis"
)

// leaseNodes is how many leases share the server where the limit is what holds them
// back. One of them is dropped in the middle, with what it holds.
const leaseNodes = 4

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

// over is how many units a sample has admitted beyond burst + rate × time.
func (b bucket) over(s measure.Sample) float64 {
	return float64(max(0, int64(s.Admitted)-b.allows(s.Elapsed)))
}

// Leases measures what leases save on keys that are asked for often, and what they cost on keys
// that are not, and counts whether they ever admit too much. A run for the record takes about
// three minutes.
func Leases(ctx context.Context, w *measure.Work) (*report.Text, error) {
	plan := measure.Choose(w,
		measure.Plan{Rounds: 9, Slice: 2 * time.Second, Callers: 64, Keys: 200_000},
		measure.Plan{Rounds: 2, Slice: 300 * time.Millisecond, Callers: 64, Keys: 20_000})
	rows, competed, err := leases(ctx, w, plan)
	if err != nil {
		return nil, err
	}
	return leaseText(w.Redis.Version, plan, rows, competed), nil
}

func leaseText(version string, plan measure.Plan, rows measure.Rows, competed []measure.Sample) *report.Text {
	t, strict, leased := new(report.Text), &rows[0], &rows[1]
	t.Say("%s. One token bucket, %d callers in one process, closed loop; median of %d rounds of %v.\n\n",
		version, plan.Callers, plan.Rounds, plan.Slice)
	worst := func(r *measure.Row, condition int) (most float64) {
		for _, s := range r.Samples[condition] {
			most = max(most, wide.over(s))
		}
		return most
	}
	all := new(report.Table)
	for c, name := range []string{"one hot key", fmt.Sprintf("%s keys, none hot", report.Number(float64(plan.Keys)))} {
		all.Append(rows.Under(name).Table(
			measure.Median("decisions/s", c, measure.Sample.PerSecond), measure.Over("÷ strict", strict, c, measure.Sample.PerSecond),
			measure.Median("calls a decision", c, measure.Sample.CallsEach),
			measure.Column{Name: "over-admitted", Cell: func(r *measure.Row) string { return fmt.Sprint(worst(r, c)) }},
		))
	}
	t.Say("%s\n**A limit that is in the way**: %s units a second, bursts of %s; %d nodes of %d callers with connections of their own, one of which is dropped in the middle of each run with what it holds.\n\n",
		all, report.Number(float64(tight.rate)), report.Number(float64(tight.burst)), leaseNodes, max(1, plan.Callers/leaseNodes))
	over := worst(leased, hot)
	var asked, shares []float64
	for _, s := range competed {
		over = max(over, tight.over(s))
		asked, shares = append(asked, float64(s.Done)), append(shares, float64(s.Admitted)/float64(tight.allows(s.Elapsed)))
	}
	if len(competed) > 0 {
		t.Say("In %d runs, %s to %s units were asked for. Of what the limit admits (burst + rate × time), %s to %s were admitted, and %v beyond it.\n", len(competed),
			report.Number(slices.Min(asked)), report.Number(slices.Max(asked)), report.Percent(slices.Min(shares)), report.Percent(slices.Max(shares)), over)
	}
	t.AtLeast(10, leased.Over(strict, hot, measure.Sample.PerSecond), "leased hot key, %d callers: throughput ÷ strict", plan.Callers)
	t.AtMost(0, over, "leased: units over-admitted in the worst of all runs")
	t.AtMost(1.05, 1/leased.Over(strict, cold, measure.Sample.PerSecond), "cold keys: time of a decision ÷ strict")
	return t
}

// counted is a store whose calls are counted.
type counted struct {
	headgate.Store
	calls atomic.Int64
}

func (c *counted) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	c.calls.Add(1)
	return c.Store.Take(ctx, op, checks, dst)
}

// leases measures the store alone and a lease around it, and has nodes compete, once for each
// round.
func leases(ctx context.Context, w *measure.Work, plan measure.Plan) (_ measure.Rows, competed []measure.Sample, err error) {
	rows := measure.Rows{{Name: "strict"}, {Name: "leased"}}
	store, err := redis.Open(ctx, w.Redis.URL(), redis.Timeout(unhurried))
	if err != nil {
		return nil, nil, err
	}
	defer store.Close()
	keys := make([]string, plan.Keys)
	for i := range keys {
		keys[i] = "key " + strconv.Itoa(i)
	}
	err = plan.Turns(ctx, w, rows, []int{hot, cold}, func(round, condition, i int) (_ measure.Sample, err error) {
		name, key := "cold."+rows[i].Name, func() string { return keys[rand.IntN(len(keys))] }
		if condition == hot {
			name, key = fmt.Sprintf("hot%d.%s", round, rows[i].Name), func() string { return "hot" }
		}
		rule, err := wide.rule(name)
		if err != nil {
			return measure.Sample{}, err
		}
		calls := &counted{Store: store}
		l := load{plan.Callers, plan.Slice, headgate.Check{Rule: rule}, key}
		asked := headgate.Store(calls)
		if rows[i].Name == "leased" {
			layer, err := lease.New(calls, lease.Options{})
			if err != nil {
				return measure.Sample{}, err
			}
			defer func() { err = errors.Join(err, layer.Close(ctx)) }()
			asked, l.check.Hints.Consistency = layer.Store(), headgate.Leased
		}
		s, err := l.insist(ctx, asked, true)
		s.Calls = calls.calls.Load()
		return s, err
	})
	for round := 0; err == nil && round < plan.Rounds; round++ {
		w.Say("a limit that is in the way, run %d of %d", round+1, plan.Rounds)
		var s measure.Sample
		s, err = compete(ctx, w.Redis.URL(), plan, round)
		competed = append(competed, s)
	}
	return rows, competed, err
}

// compete has several nodes ask for one key whose limit is in the way, each over
// connections of its own. One is dropped in the middle, and nobody gives back what it
// holds.
func compete(ctx context.Context, url string, plan measure.Plan, round int) (measure.Sample, error) {
	rule, err := tight.rule(fmt.Sprint("tight", round))
	if err != nil {
		return measure.Sample{}, err
	}
	began := time.Now()
	var asked, passed atomic.Int64
	err = measure.Each(ctx, leaseNodes, func(ctx context.Context, n int) error {
		s, err := leaseNode(ctx, url, plan, rule, n == 0, began)
		asked.Add(int64(s.Done))
		passed.Add(int64(s.Admitted))
		return err
	})
	return measure.Sample{Elapsed: time.Since(began), Done: int(asked.Load()), Admitted: int(passed.Load())}, err
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

// leaseNode is one of those that compete.
func leaseNode(ctx context.Context, url string, plan measure.Plan, rule *headgate.Rule, dies bool, began time.Time) (_ measure.Sample, err error) {
	store, err := redis.Open(ctx, url, redis.Timeout(unhurried))
	if err != nil {
		return measure.Sample{}, err
	}
	defer store.Close()
	way := &cutOff{Store: store}
	layer, err := lease.New(way, lease.Options{Nodes: func() int64 { return leaseNodes }})
	if err != nil {
		return measure.Sample{}, err
	}
	span := plan.Slice
	if dies {
		span /= 2
	}
	l := load{
		max(1, plan.Callers/leaseNodes), time.Until(began.Add(span)),
		headgate.Check{Rule: rule, Hints: headgate.Hints{Consistency: headgate.Leased}},
		func() string { return "hot" },
	}
	s, err := l.ask(ctx, layer.Store())
	way.cut.Store(dies)
	if gone := layer.Close(ctx); !dies {
		err = errors.Join(err, gone)
	}
	return s, err
}
