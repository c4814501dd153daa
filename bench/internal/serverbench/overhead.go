package serverbench

import (
	"context"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
)

// Overhead measures what the middleware adds to the time of a request. The same handler is served
// by three processes: without a limit, behind the middleware with the memory store, and behind it
// with Redis. All get half as many requests a second as the last one answers when it is saturated.
func Overhead(ctx context.Context, w *measure.Work) (*report.Text, error) {
	plan := serverPlan(w)
	asked := items(plan.Keys)
	contenders := []contender{
		{name: "no limit", command: echoing(w, "limited", unlimited)},
		{name: "limited, memory store", command: echoing(w, "limited", inMemory)},
		{name: "limited, Redis", command: echoing(w, "limited", w.Redis.URL()), load: overHTTP(plan, asked)},
	}
	saturated, err := saturate(ctx, w, plan, contenders[2:])
	if err != nil {
		return nil, err
	}
	perSecond := saturated[0].Median(0, measure.Sample.PerSecond) / 2
	rows, err := paced(ctx, w, plan, contenders, asked, perSecond)
	if err != nil {
		return nil, err
	}
	return overheadText(plan, rows, perSecond), nil
}

func overheadText(plan measure.Plan, rows measure.Rows, perSecond float64) *report.Text {
	t := new(report.Text)
	t.Say("GET with an answer of %d bytes; %s keys, every request admitted, three headers. Open loop at %s requests a second over %d connections, half of what the server with Redis answers when it is saturated; median of %d rounds of %v.\n\n",
		len(documentBody), report.Number(float64(plan.Keys)), report.Number(perSecond), plan.Callers, plan.Rounds, plan.Slice)
	t.Say("%s", rows.Table(measure.Median("median, ms", 0, medianMS), measure.Median("99 %, ms", 0, p99MS), measure.Median("99.9 %, ms", 0, p999MS)))
	t.AtMost(1, rows[2].Median(0, p99MS)-rows[0].Median(0, p99MS), "a limit in Redis: added to the 99th percentile at half load, ms")
	return t
}
