// Package load sends requests to a service at given times, and measures how the service copes.
//
// # Basics
//
//	target, err := load.NewTarget(load.Request{URL: "http://127.0.0.1:8080/"})
//	if err != nil {
//		return err
//	}
//	client, err := load.New(ctx, load.Options{Targets: []*load.Target{target}})
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	m, err := client.Run(ctx, load.Shape{Rate: 200, For: 30 * time.Second}, nil)
//	fmt.Println(m.Latency.P99, m.Valid)
//
// [Client.Search] looks for the highest rate that a service sustains.
//
// # How it works
//
// The loop is open: when a request is sent does not depend on when others are answered. One
// goroutine, the pacer, waits until a request is due and hands it to a free worker. Each worker has
// one request in flight. A latency is measured from the instant at which the request was due to the
// end of its answer. So if a service stalls, the wait of all later requests counts as their
// latency.
//
// The lag of the sender itself is measured separately. It lasts from the instant at which the
// request was due and a worker was free to the instant at which the request is sent. If the sender
// lags too much, the measurement is invalid, because its latencies would be blamed on the service.
//
// # Caveats
//
// Requests that find all workers busy wait for one, and this wait is part of their latency.
// [Measurement.Waited] counts such requests. A request that has waited for the timeout is given up
// without being sent.
//
// If the target is on the same machine, it competes with the sender for cores. The sender's lag
// shows that.
package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/sleep"
)

// Options say what to send, and how.
type Options struct {
	// Targets are the requests to send, all to one host. If there are several, each request is
	// chosen at random by their weights.
	Targets []*Target
	// Connections is how many requests may be in flight. With HTTP/1.1, each has a connection of
	// its own. Zero means DefaultConnections.
	Connections int
	// Timeout is how long a request may take, from the instant at which it is due. Zero
	// means DefaultTimeout.
	Timeout time.Duration
	// MaxLag is the 99th percentile of the sender's lag above which a measurement is invalid. Zero
	// means DefaultMaxLag.
	MaxLag time.Duration
	// HTTP2 makes the client use HTTP/2, even without TLS. Requests of gRPC always use it.
	HTTP2 bool
	// Fresh makes each request open a connection of its own.
	Fresh bool
	// Remote allows targets that are not loopback addresses.
	Remote bool
	// Insecure accepts any certificate of the target.
	Insecure bool
	// PID is a process on this machine whose processor time is measured; zero means none.
	PID int
	// Progress is called regularly with what was measured so far, at intervals of Every, by one
	// goroutine at a time. It may be nil.
	Progress func(*Measurement)
	Every    time.Duration

	pipe func(context.Context) (net.Conn, error) // used instead of the network, if not nil
	nap  func(time.Duration)                     // sleeps exactly
}

// The defaults of [Options], and the maximum number of requests in flight.
const (
	DefaultConnections = 256
	MaxConnections     = 20_000
	DefaultTimeout     = 10 * time.Second
	DefaultMaxLag      = 10 * time.Millisecond
)

// Client sends requests to one host. Its methods are not safe for concurrent use.
type Client struct {
	options   Options
	mix       mix
	groups    groups
	dialer    *dialer
	transport *http.Transport // nil for HTTP/1.1
	random    *rand.Rand
	idle      []sender // senders with open connections
}

// New checks the options, and whether the target accepts connections. The error is [ErrRemote],
// [ErrUnreachable], or about the options.
func New(ctx context.Context, o Options) (*Client, error) {
	o.Connections, o.Timeout, o.MaxLag = cmp.Or(o.Connections, DefaultConnections), cmp.Or(o.Timeout, DefaultTimeout), cmp.Or(o.MaxLag, DefaultMaxLag)
	if o.nap == nil {
		o.nap = nap
	}
	if len(o.Targets) == 0 {
		return nil, errors.New("headgate: there is no target")
	}
	if o.Connections < 1 || o.Connections > MaxConnections {
		return nil, fmt.Errorf("headgate: %d requests may be in flight, must be 1 to %d", o.Connections, MaxConnections)
	}
	if o.Timeout <= 0 || o.MaxLag < 0 {
		return nil, fmt.Errorf("headgate: the timeout is %v and the greatest lag %v, must be more than 0s", o.Timeout, o.MaxLag)
	}
	first := o.Targets[0]
	for _, t := range o.Targets {
		if t.url.Scheme != first.url.Scheme || t.url.Host != first.url.Host {
			return nil, fmt.Errorf("headgate: the targets are on %s and %s, must be on one host", first.url.Host, t.url.Host)
		}
		o.HTTP2 = o.HTTP2 || t.grpc
	}
	if o.HTTP2 && redis(first.url.Scheme) {
		return nil, fmt.Errorf("headgate: the target is %s, which does not speak HTTP/2", first.url)
	}
	protocol := "http/1.1"
	if o.HTTP2 {
		protocol = "h2"
	}
	d, err := newDialer(ctx, first.url, &o, protocol)
	if err != nil {
		return nil, err
	}
	if err := d.reach(ctx, o.Timeout); err != nil {
		return nil, err
	}
	if o.PID > 0 {
		if _, err := cpuOf(o.PID); err != nil {
			return nil, fmt.Errorf("headgate: the time of process %d on processors cannot be read: %w", o.PID, err)
		}
	}
	// The same requests are chosen in each run, so that runs can be compared.
	c := &Client{options: o, dialer: d, mix: newMix(o.Targets), groups: newGroups(o.Targets), random: rand.New(rand.NewPCG(1, 2))} //nolint:gosec // G404: nothing is secret here.
	if o.HTTP2 {
		c.transport = newTransport(d)
	}
	return c, nil
}

// Close closes the connections.
func (c *Client) Close() {
	for _, s := range c.idle {
		s.close()
	}
	c.idle = nil
	if c.transport != nil {
		c.transport.CloseIdleConnections()
	}
}

// sender returns a sender that is not in use.
func (c *Client) sender() sender {
	if n := len(c.idle); n > 0 {
		s := c.idle[n-1]
		c.idle = c.idle[:n-1]
		return s
	}
	if c.transport != nil {
		return &http2{c.transport, c.options.Fresh}
	}
	return &http1{dialer: c.dialer, fresh: c.options.Fresh}
}

// choose chooses the target of request i.
func (c *Client) choose(shape *Shape, i int64) int32 {
	switch {
	case len(shape.Recorded) > 0:
		return shape.Recorded[i].Target
	case len(c.mix) == 1:
		return 0
	}
	return c.mix.at(c.random.Float64())
}

// run is a measurement in progress.
type run struct {
	client *Client
	shape  *Shape
	tally  *tally
	began  time.Time
	jobs   chan job
	done   chan sender // those whose workers have ended
}

// job is a request that is due.
type job struct {
	due    time.Duration
	target int32
	// waits says that no worker was free for it, and held until when none was free for
	// any before it.
	waits bool
	held  time.Duration
}

// Run sends requests in a shape and waits for their answers. When the context ends, it returns at
// once, with what was measured so far. The measurement ends early when an expectation can certainly
// not hold any more. The error is that of [Shape.Check].
func (c *Client) Run(ctx context.Context, shape Shape, expect []Expectation) (*Measurement, error) {
	if err := shape.Check(); err != nil {
		return nil, err
	}
	r := &run{
		client: c, shape: &shape, tally: newTally(&shape, c.groups, expect),
		jobs: make(chan job), done: make(chan sender, c.options.Connections), began: time.Now(),
	}
	before := c.usage()
	stop := r.tell()
	var workers sync.WaitGroup
	scheduled, paced := r.pace(ctx, &workers)
	close(r.jobs)
	workers.Wait()
	stop()
	close(r.done)
	for s := range r.done {
		c.idle = append(c.idle, s)
	}
	passed := time.Since(r.began)
	m := r.tally.measured(scheduled, paced)
	m.Rate, m.To = shape.Rate, shape.to()
	if len(shape.Recorded) > 0 {
		m.Rate, m.To = 0, 0
	}
	m.Interrupted = ctx.Err() != nil
	m.Stopped = !m.Interrupted && scheduled < shape.count()
	m.Sender, m.Service = c.usage().since(before, passed)
	m.judge(c.options.MaxLag)
	return m, nil
}

// pace hands requests to workers when they are due. It returns how many were due, and how long it
// took.
func (r *run) pace(ctx context.Context, workers *sync.WaitGroup) (scheduled int64, passed time.Duration) {
	o := &r.client.options
	started, held := 0, time.Duration(0)
	for i := range r.shape.count() {
		due := r.shape.due(i)
		if !r.sleep(ctx, due) || r.tally.lost() {
			return i, time.Since(r.began)
		}
		j := job{due: due, target: r.client.choose(r.shape, i), held: held}
		select {
		case r.jobs <- j:
			continue
		default:
		}
		if started < o.Connections {
			started++
			s := r.client.sender()
			workers.Go(func() { r.work(ctx, s, j) })
			continue
		}
		// Those in flight were due before, and so end before this one would time out.
		j.waits = true
		select {
		case r.jobs <- j:
			held = time.Since(r.began)
		case <-ctx.Done():
			return i, time.Since(r.began)
		}
	}
	// The last request is due somewhat before the time is over.
	r.sleep(ctx, r.shape.length())
	return r.shape.count(), min(time.Since(r.began), r.shape.length())
}

// sleep waits until something is due. It returns false if the context is done.
func (r *run) sleep(ctx context.Context, due time.Duration) bool {
	for {
		left := due - time.Since(r.began)
		if left <= 0 {
			return ctx.Err() == nil
		}
		// Timers may be late by a millisecond or two, so that the rest is slept exactly.
		const rest = 3 * time.Millisecond
		if left <= rest {
			r.client.options.nap(left)
			continue
		}
		if !sleep.For(ctx, left-rest) {
			return false
		}
	}
}

// work sends requests, beginning with one, until there are no more.
func (r *run) work(ctx context.Context, s sender, first job) {
	r.do(ctx, s, first, 0)
	free := time.Since(r.began)
	for j := range r.jobs {
		r.do(ctx, s, j, free)
		free = time.Since(r.began)
	}
	r.done <- s
}

// do sends a request over a connection that is free since then.
func (r *run) do(ctx context.Context, s sender, j job, free time.Duration) {
	sent := time.Since(r.began)
	if j.waits {
		j.held = free
	}
	o := one{due: j.due, target: j.target, waited: max(j.held-j.due, 0), lag: sent - max(j.due, j.held)}
	timeout := r.client.options.Timeout
	if sent-j.due < timeout {
		o.answer = s.send(ctx, r.client.options.Targets[j.target], r.began.Add(j.due+timeout))
	} else {
		o.unsent, o.answer = true, answer{kind: timedOut, code: noTime, class: noTime}
	}
	if o.latency = time.Since(r.began) - j.due; o.kind == timedOut {
		o.latency = max(o.latency, timeout)
	}
	r.tally.add(&o)
}

// tell calls Progress regularly with what was measured so far, until stop is called.
func (r *run) tell() (stop func()) {
	o := &r.client.options
	if o.Progress == nil || o.Every <= 0 {
		return func() {}
	}
	end := make(chan struct{})
	var ended sync.WaitGroup
	ended.Go(func() {
		ticker := time.NewTicker(o.Every)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				passed := time.Since(r.began)
				m := r.tally.measured(0, passed)
				m.Rate, m.To = r.shape.Rate, r.shape.to()
				o.Progress(m)
			case <-end:
				return
			}
		}
	})
	return func() {
		close(end)
		ended.Wait()
	}
}

// usage is the processor time of the sender, and of the service.
type usage struct{ sender, service time.Duration }

// usage reads the processor times. A time that the system does not tell is zero.
func (c *Client) usage() (u usage) {
	u.sender = ownCPU()
	if c.options.PID > 0 {
		u.service, _ = cpuOf(c.options.PID) // It has ended: the answers show that.
	}
	return u
}

// since returns how many cores were busy on average, for the sender and for the service.
func (u usage) since(before usage, passed time.Duration) (sender, service float64) {
	if passed <= 0 {
		return 0, 0
	}
	return float64(u.sender-before.sender) / float64(passed), max(0, float64(u.service-before.service)/float64(passed))
}
