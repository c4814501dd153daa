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

// Paced sends the requests at so many a second for about d, each when its time has
// come, over as many connections as there are, and returns how long each took from
// when it was due, in order.
func Paced(ctx context.Context, addr string, connections int, requests [][]byte, perSecond float64, d time.Duration) ([]time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	total := int64(perSecond * d.Seconds())
	interval := float64(time.Second) / perSecond
	began := time.Now().Add(50 * time.Millisecond)
	var next atomic.Int64
	took := make([]time.Duration, total)
	var all sync.WaitGroup
	for range connections {
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
					if _, err := c.Write(requests[int(i)%len(requests)]); err != nil {
						return err
					}
					if err := skipAnswer(r); err != nil {
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
	if err := context.Cause(ctx); err != nil {
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
