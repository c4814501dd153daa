package rabbitmq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/headgate/headgate"
)

// Broker says how to connect.
type Broker struct {
	// URLs are addresses such as "amqp://user:password@127.0.0.1:5672/vhost", or with the
	// scheme amqps. They are tried in turn: the nodes of a cluster, for instance.
	URLs []string
	// TLS is for amqps addresses. Nil means the system's authorities.
	TLS *tls.Config
	// Name is what the broker's own tools show for the connection.
	Name string
	// Timeout bounds how long it may take to connect, and each answer of the broker to
	// what a Consumer or a Publisher asks. Zero means 10 seconds.
	Timeout time.Duration
	// Heartbeat is how often each side shows that it is there. A connection is given up
	// after three that are missing. Zero means 10 seconds; at least 1 second.
	Heartbeat time.Duration
}

func (b *Broker) complete() {
	or(&b.Timeout, 10*time.Second)
	or(&b.Heartbeat, 10*time.Second)
}

func (b *Broker) validate(p *headgate.Problems) {
	if len(b.URLs) == 0 {
		p.Add("broker.urls", "there are no addresses, must be at least one")
	}
	for i, text := range b.URLs {
		if _, err := amqp.ParseURI(text); err != nil {
			// The text holds a password, and so does the error of package url.
			if e, ok := errors.AsType[*url.Error](err); ok {
				err = e.Err
			}
			p.Add(fmt.Sprintf("broker.urls[%d]", i), "the address cannot be read: %v", err)
		}
	}
	if b.Timeout < 0 {
		p.Add("broker.timeout", "the timeout is %v, must be more than 0", b.Timeout)
	}
	if b.Heartbeat < time.Second {
		p.Add("broker.heartbeat", "the heartbeat is every %v, must be 1s or more", b.Heartbeat)
	}
}

// link is one connection. It holds the socket too, since closing that is the only way to
// have a call of the client return.
type link struct {
	*amqp.Connection
	socket  net.Conn
	timeout time.Duration
}

// dial connects to the address of that turn.
func (b *Broker) dial(ctx context.Context, turn int) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, b.Timeout)
	defer cancel()
	l := &link{timeout: b.Timeout}
	properties := amqp.NewConnectionProperties()
	if b.Name != "" {
		properties.SetClientConnectionName(b.Name)
	}
	var broken func() bool
	conn, err := amqp.DialConfig(b.URLs[turn%len(b.URLs)], amqp.Config{
		Heartbeat:       b.Heartbeat,
		TLSClientConfig: b.TLS.Clone(), // the client writes into it
		Properties:      properties,
		Dial: func(network, addr string) (net.Conn, error) {
			var dialer net.Dialer
			socket, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			l.socket = socket
			broken = context.AfterFunc(ctx, func() { _ = socket.Close() }) // which ends the greeting
			return socket, nil
		},
	})
	if broken != nil && !broken() && err == nil {
		err = context.Cause(ctx) // which has closed the socket
	}
	if err != nil {
		if l.socket != nil {
			_ = l.socket.Close() // it may be closed
		}
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
		return nil, fmt.Errorf("rabbitmq: connecting: %w", err)
	}
	l.Connection = conn
	return l, nil
}

// ask runs what waits for an answer of the broker. The connection is over if the answer does
// not come in time, or the context ends first.
func (l *link) ask(ctx context.Context, what string, question func() error) error {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	waiting := context.AfterFunc(ctx, func() { _ = l.socket.Close() })
	err := question()
	if !waiting() {
		if err = context.Cause(ctx); errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %v: %w", l.timeout, err)
		}
	}
	if err != nil {
		return fmt.Errorf("rabbitmq: %s: %w", what, err)
	}
	return nil
}

// channel opens a channel.
func (l *link) channel(ctx context.Context) (*amqp.Channel, error) {
	var ch *amqp.Channel
	err := l.ask(ctx, "opening a channel", func() (err error) {
		ch, err = l.Channel()
		return err
	})
	return ch, err
}

// over says goodbye, or closes the socket if the broker does not answer.
func (l *link) over() {
	patience := time.AfterFunc(min(l.timeout, goodbye), func() { _ = l.socket.Close() })
	defer patience.Stop()
	_ = l.Close()        // it may be over already
	_ = l.socket.Close() // the client has closed it, unless closing failed
}

// goodbye bounds how long the end of a connection may take.
const goodbye = 5 * time.Second

// The waits between two tries to connect begin at reconnectFirst and grow up to
// reconnectLongest, until a connection was good for lasting.
const (
	reconnectFirst   = 50 * time.Millisecond
	reconnectLongest = time.Second
	lasting          = 5 * time.Second
)

// sleep waits, and reports false if the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// or sets a value that is zero to its default.
func or[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}
