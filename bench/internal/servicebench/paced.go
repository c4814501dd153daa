package servicebench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Pace is an open loop: requests are sent when their time has come, whether others
// have been answered or not, over as many connections as there are.
type Pace struct {
	// Addrs are the servers; the connections are spread over them.
	Addrs       []string
	Connections int
	PerSecond   float64
	For         time.Duration
	// Request is request i, as it goes over the wire, and Read reads its answer. Both
	// are called from many goroutines.
	Request func(i int) []byte
	Read    func(i int, r *bufio.Reader) error
}

// Run sends the requests and returns how long each took from when it was due.
func (p *Pace) Run(ctx context.Context) ([]time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	total := int64(p.PerSecond * p.For.Seconds())
	interval := float64(time.Second) / p.PerSecond
	began := time.Now().Add(50 * time.Millisecond)
	var next atomic.Int64
	took := make([]time.Duration, total)
	var all sync.WaitGroup
	for n := range p.Connections {
		addr := p.Addrs[n%len(p.Addrs)]
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
					if _, err := c.Write(p.Request(int(i))); err != nil {
						return err
					}
					if err := p.Read(int(i), r); err != nil {
						return err
					}
					took[i] = time.Since(due)
				}
			})
			if err != nil {
				cancel(fmt.Errorf("servicebench: %s: %w", addr, err)) // Later causes are ignored.
			}
		})
	}
	all.Wait()
	return took, context.Cause(ctx)
}

// Paced sends the requests to one server at so many a second for about d, and
// returns how long each took, in order. Anything but 200 is an error.
func Paced(ctx context.Context, addr string, connections int, requests [][]byte, perSecond float64, d time.Duration) ([]time.Duration, error) {
	p := Pace{
		Addrs: []string{addr}, Connections: connections, PerSecond: perSecond, For: d,
		Request: func(i int) []byte { return requests[i%len(requests)] },
		Read:    func(_ int, r *bufio.Reader) error { return skipAnswer(r) },
	}
	took, err := p.Run(ctx)
	if err != nil {
		return nil, err
	}
	slices.Sort(took)
	return took, nil
}

// talk has say talk over a connection.
func talk(ctx context.Context, addr string, say func(net.Conn, *bufio.Reader) error) (err error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	return say(c, bufio.NewReaderSize(c, 16<<10))
}

// Quantile is the time that a share of the requests did not exceed; they are in
// order.
func Quantile(took []time.Duration, share float64) time.Duration {
	return took[min(len(took)-1, int(share*float64(len(took))))]
}
