package target

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/store/redis/internal/guard"
	"github.com/headgate/headgate/store/redis/internal/refusal"
)

// Links are the open connections of a client. They are safe for concurrent use.
//
// The host name of a single server may be moved to another server, by DNS or a load balancer, while
// the connections still lead to the old one. That is a replica by then and refuses writes. Then
// Links closes the connections, and the next call looks the name up again.
type Links struct {
	// Dedicated is a client in which each call takes a connection for itself. The first call must be
	// made with the context that the function [Dedicated] returns, and so must each call that
	// follows a failed one. It is nil unless the target is a single server.
	Dedicated rueidis.Client

	connect dialer
	calls   atomic.Int64 // the calls in flight on shared connections
	// primary is where connections lead to, whatever the address is that the client asks for. It is
	// nil without Sentinels.
	primary *primary

	mu    sync.Mutex // guards what follows
	open  map[*link]struct{}
	after time.Time // when the server may be doubted again
	over  bool      // no more dedicated calls are allowed
	ended bool      // no more connections are allowed
}

// dialer makes a connection for a client.
type dialer = func(ctx context.Context, address string, d *net.Dialer, config *tls.Config) (net.Conn, error)

// dropEvery is the shortest time between two closings, while the name leads to a replica, and between
// two doubts of what Sentinels say.
const dropEvery = 200 * time.Millisecond

func newLinks(connect dialer) *Links {
	return &Links{connect: connect, open: make(map[*link]struct{})}
}

type link struct {
	net.Conn
	links     *Links
	reign     *reign // nil without Sentinels
	address   string
	dedicated bool
	gathering gathering
	refuses   atomic.Bool // the server has refused a call because it is a replica
	replica   atomic.Bool // it is closed because of that
}

// dialer returns the dialer of the client of a reign, which is nil without Sentinels.
func (l *Links) dialer(of *reign) dialer {
	return func(ctx context.Context, address string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
		c, err := l.dial(ctx, of, address, d, config)
		if err != nil {
			return nil, guard.Unreached(err)
		}
		return c, nil
	}
}

func (l *Links) dial(ctx context.Context, of *reign, address string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
	if l.primary != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.Timeout)
		defer cancel()
		var err error
		if address, err = l.primary.now(ctx); err != nil {
			return nil, err
		}
	}
	c, err := l.connect(ctx, address, d, config)
	if err != nil {
		if l.primary != nil && l.due() {
			l.primary.doubt(address)
		}
		return nil, err
	}
	dedicated := ctx.Value(dedicatedKey{}) != nil
	if dedicated {
		c = newDedicatedConn(c)
	}
	one := &link{Conn: c, links: l, reign: of, address: address, dedicated: dedicated, gathering: gathering{calls: &l.calls}}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || dedicated && l.over || of != nil && (of.over || !l.primary.leads(address)) {
		return nil, errors.Join(ErrGone, c.Close())
	}
	l.open[one] = struct{}{}
	return one, nil
}

// Write implements [net.Conn].
func (l *link) Write(b []byte) (int, error) {
	if !l.dedicated {
		l.gathering.wait()
	}
	n, err := l.Conn.Write(b)
	return n, l.explained(err)
}

// Read implements [net.Conn].
func (l *link) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if bytes.Contains(b[:n], readOnly) {
		l.refuses.Store(true)
	}
	return n, l.explained(err)
}

// readOnly is how a replica refuses a call. If it comes in two parts, the next refusal may come in one.
var readOnly = []byte("-READONLY ")

// explained returns the error of a call: a replica has charged nothing, so calls that end with its
// connection may be made again. Other connections of the same name may lead to a primary.
func (l *link) explained(err error) error {
	if err != nil && l.replica.Load() {
		return guard.Unreached(err)
	}
	return err
}

// Close implements [net.Conn].
func (l *link) Close() error {
	l.links.mu.Lock()
	delete(l.links.open, l)
	l.links.mu.Unlock()
	return l.Conn.Close()
}

// Note is told the errors of calls. If the server refused a call because it is a replica, Note closes
// all connections, at most once per dropEvery. Calls in flight end with an error. Behind Sentinels it
// asks these instead: the replica may be the old primary of a handover. Nodes of a cluster say where
// the primary is.
func (l *Links) Note(err error) {
	if l.Dedicated == nil && l.primary == nil || err == nil {
		return // before anything is allocated
	}
	if !refusal.Is(err, "READONLY") || !l.due() {
		return
	}
	if l.primary != nil {
		if address, err := l.primary.now(context.Background()); err == nil { // it has answered, so this does not wait
			l.primary.doubt(address)
		}
		return
	}
	l.dropReplica()
}

// dropReplica closes all connections because one of them leads to a replica.
func (l *Links) dropReplica() {
	l.drop(func(one *link) bool { one.replica.Store(one.refuses.Load()); return true })
}

// due reports whether dropEvery has passed since it last returned true.
func (l *Links) due() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !now.After(l.after) {
		return false
	}
	l.after = now.Add(dropEvery)
	return true
}

// end closes the connections of a reign, including those that are just being made.
func (l *Links) end(r *reign) {
	l.mu.Lock()
	r.over = true
	l.mu.Unlock()
	l.drop(func(one *link) bool { return one.reign == r })
}

// HangUp closes the connections of dedicated calls, including those that are just being made. A
// dedicated call in flight ends with an error.
func (l *Links) HangUp() {
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.drop(func(one *link) bool { return one.dedicated })
}

// Close closes all connections, including those that are just being made. A client that is closed
// while it connects anew may forget the new connection, which would stay open with its goroutines.
// Calls in flight end with an error.
func (l *Links) Close() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	if l.primary != nil {
		l.primary.Close()
	}
	l.drop(func(*link) bool { return true })
}

// drop closes the connections for which the function returns true.
func (l *Links) drop(which func(*link) bool) {
	var drop []*link
	l.mu.Lock()
	for one := range l.open {
		if which(one) {
			drop = append(drop, one)
		}
	}
	l.mu.Unlock()
	for _, one := range drop {
		// The connection is closed even if Close returns an error.
		_ = one.Close()
	}
}
