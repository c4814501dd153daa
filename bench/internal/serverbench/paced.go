package serverbench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/bench/internal/measure"
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
func (p *pace) run(ctx context.Context, d time.Duration) (measure.Sample, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	total := int64(p.perSecond * d.Seconds())
	interval := float64(time.Second) / p.perSecond
	began := time.Now().Add(50 * time.Millisecond)
	var next atomic.Int64
	took := make([]time.Duration, total)
	var all sync.WaitGroup
	for n := range p.connections {
		addr := p.addrs[n%len(p.addrs)]
		all.Go(func() {
			err := talk(ctx, addr, func(c net.Conn, r *bufio.Reader) error {
				for {
					if err := ctx.Err(); err != nil {
						return err
					}
					i := next.Add(1) - 1
					if i >= total {
						return nil
					}
					due := began.Add(time.Duration(float64(i) * interval))
					time.Sleep(time.Until(due))
					if _, err := c.Write(p.request(int(i))); err != nil {
						return err
					}
					if err := p.read(int(i), r); err != nil {
						return err
					}
					took[i] = time.Since(due)
				}
			})
			if err != nil {
				cancel(fmt.Errorf("%s: %w", addr, err)) // later causes are ignored
			}
		})
	}
	all.Wait()
	s := measure.Sample{Done: int(total), Elapsed: time.Since(began), Took: measure.Histogram()}
	if err := context.Cause(ctx); err != nil {
		return s, err
	}
	for _, d := range took {
		if err := s.Took.RecordValue(d.Nanoseconds()); err != nil {
			return s, fmt.Errorf("a request took %v: %w", d, err)
		}
	}
	return s, nil
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
