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
	"github.com/headgate/headgate/internal/consume"
)

// Broker says how to connect.
type Broker struct {
	// URLs are addresses such as "amqp://user:password@127.0.0.1:5672/vhost", or with the scheme
	// amqps. They are tried in turn, for instance the nodes of a cluster.
	URLs []string
	// TLS configures amqps addresses. Nil means the system's certificate authorities.
	TLS *tls.Config
	// Name is the name of the connection in the broker's own tools.
	Name string
	// Timeout bounds how long connecting may take, and how long each answer of the broker may take.
	// Zero means 10 seconds.
	Timeout time.Duration
	// Heartbeat is the interval at which each side shows that it is alive. After three missing
	// heartbeats, the connection is given up. Zero means 10 seconds; the minimum is 1 second.
	Heartbeat time.Duration
}

func (b *Broker) complete() {
	consume.Or(&b.Timeout, 10*time.Second)
	consume.Or(&b.Heartbeat, 10*time.Second)
}

func (b *Broker) validate(p *headgate.Problems) {
	if len(b.URLs) == 0 {
		p.Add("broker.urls", "there are no addresses, must be at least one")
	}
	for i, text := range b.URLs {
		if _, err := amqp.ParseURI(text); err != nil {
			// The text contains a password, and so does the error of package url.
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

// link is one connection. It has the socket too, because only closing the socket makes a call of
// the client return.
type link struct {
	*amqp.Connection
	socket  net.Conn
	timeout time.Duration
}

// dial connects to the next address, as counted by turn.
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
			broken = context.AfterFunc(ctx, func() { _ = socket.Close() }) // which makes the greeting fail
			return socket, nil
		},
	})
	if broken != nil && !broken() && err == nil {
		err = context.Cause(ctx) // the context has ended, which closed the socket
	}
	if err != nil {
		if l.socket != nil {
			_ = l.socket.Close() // it may be closed already
		}
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
		return nil, fmt.Errorf("rabbitmq: connecting: %w", err)
	}
	l.Connection = conn
	return l, nil
}

// ask runs a function that waits for an answer of the broker. If the answer does not come in time,
// or the context ends first, ask closes the connection.
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

// over closes the connection, or only the socket if the broker does not answer.
func (l *link) over() {
	timer := time.AfterFunc(min(l.timeout, goodbye), func() { _ = l.socket.Close() })
	defer timer.Stop()
	_ = l.Close()        // it may be over already
	_ = l.socket.Close() // the client has closed it, unless closing failed
}

// goodbye bounds how long closing a connection may take.
const goodbye = 5 * time.Second

// The waits between two attempts to connect begin at reconnectFirst and grow up to
// reconnectLongest. They begin anew after a connection that lasted for longer than lasting.
const (
	reconnectFirst   = 50 * time.Millisecond
	reconnectLongest = time.Second
	lasting          = 5 * time.Second
)
