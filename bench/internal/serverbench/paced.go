package serverbench

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
	"github.com/headgate/headgate/bench/internal/report"
)

// pace is an open loop: requests are sent when their time has come, whether others
// have been answered or not, over as many connections as there are.
type pace struct {
	// addrs are the servers; the connections are spread over them.
	addrs       []string
	connections int
	perSecond   float64
	// request is request i, as it goes over the wire, and read reads its answer. Both
	// are called from many goroutines.
	request func(i int) []byte
	read    func(i int, r *bufio.Reader) error
}

// run sends requests for some time. Their times count from when they were due.
func (p *pace) run(ctx context.Context, d time.Duration) (s measure.Sample, err error) {
	total := int64(p.perSecond * d.Seconds())
	interval := float64(time.Second) / p.perSecond
	began := time.Now().Add(50 * time.Millisecond)
	var next atomic.Int64
	took := make([]time.Duration, total)
	err = measure.Each(ctx, p.connections, func(ctx context.Context, n int) error {
		return talk(ctx, p.addrs[n%len(p.addrs)], func(c net.Conn, r *bufio.Reader) error {
			for i := next.Add(1) - 1; i < total; i = next.Add(1) - 1 {
				due := began.Add(time.Duration(float64(i) * interval))
				time.Sleep(time.Until(due))
				if err := ctx.Err(); err != nil {
					return err
				}
				if _, err := c.Write(p.request(int(i))); err != nil {
					return err
				}
				if err := p.read(int(i), r); err != nil {
					return err
				}
				took[i] = time.Since(due)
			}
			return nil
		})
	})
	if err != nil {
		return s, err
	}
	s.Elapsed = time.Since(began)
	return s, s.Record(took)
}

// paced starts all contenders and sends the requests to one after the other, at the same rate.
// Anything but 200 is an error.
func paced(ctx context.Context, w *measure.Work, plan measure.Plan, contenders []contender, requests [][]byte, perSecond float64) (_ measure.Rows, err error) {
	rows, processes, stop, err := start(ctx, contenders)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return rows, plan.Turns(ctx, w, rows, nil, func(_, _, i int) (measure.Sample, error) {
		p := pace{
			addrs: []string{processes[i].Addr}, connections: plan.Callers, perSecond: perSecond,
			request: func(i int) []byte { return requests[i%len(requests)] },
			read:    func(_ int, r *bufio.Reader) error { return skipHTTP(r) },
		}
		// The first tenth warms up what is new.
		if s, err := p.run(ctx, plan.Slice/10); err != nil {
			return s, err
		}
		return p.run(ctx, plan.Slice)
	})
}

// The times of requests in milliseconds.
var (
	medianMS = measure.Millis(measure.Sample.P50)
	p99MS    = measure.Millis(measure.Sample.P99)
	p999MS   = measure.Millis(measure.Sample.P999)
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
