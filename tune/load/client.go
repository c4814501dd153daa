package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"time"
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
	if o.Connections == 0 {
		o.Connections = DefaultConnections
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MaxLag == 0 {
		o.MaxLag = DefaultMaxLag
	}
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
		return &http2{c.transport}
	}
	return &http1{dialer: c.dialer}
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
