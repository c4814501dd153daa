package target

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/store/redis/internal/refusal"
)

// Links are the open connections of a client. They are safe for concurrent use.
//
// The host name of a single server may be moved to another server, by DNS or a load balancer, while
// the connections still lead to the old one. That is a replica by then and refuses writes. Then
// Links closes the connections, and the next call looks the name up again.
type Links struct {
	// Alone is a client in which each call takes a connection for itself. The first call must be
	// made with the context that [Lone] returns, and so must each call that follows a failed one.
	// Alone is nil unless the target is a single server.
	Alone rueidis.Client

	connect dialer

	mu    sync.Mutex // guards what follows
	open  map[*link]struct{}
	after time.Time // when the connections may be closed again
	over  bool      // no more lone calls are allowed
	ended bool      // no more connections are allowed
}

// dialer makes a connection for a client.
type dialer = func(ctx context.Context, address string, d *net.Dialer, config *tls.Config) (net.Conn, error)

// dropEvery is the shortest time between two closings, while the name leads to a replica.
const dropEvery = time.Second

func newLinks(connect dialer) *Links {
	return &Links{connect: connect, open: make(map[*link]struct{})}
}

type link struct {
	net.Conn
	links *Links
	lone  bool
}

func (l *Links) dial(ctx context.Context, address string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
	c, err := l.connect(ctx, address, d, config)
	if err != nil {
		return nil, err
	}
	lone := ctx.Value(loneKey{}) != nil
	if lone {
		c = newLoneLink(c)
	}
	one := &link{c, l, lone}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || lone && l.over {
		return nil, errors.Join(ErrGone, c.Close())
	}
	l.open[one] = struct{}{}
	return one, nil
}

// Close implements [net.Conn].
func (l *link) Close() error {
	l.links.mu.Lock()
	delete(l.links.open, l)
	l.links.mu.Unlock()
	return l.Conn.Close()
}

// Note closes all connections to a single server if err says that the server refused a call because
// it is a replica, at most once per dropEvery. Calls in flight end with an error, but the replica
// would have refused them anyway.
func (l *Links) Note(err error) {
	if l.Alone == nil || err == nil {
		return // before anything is allocated
	}
	if !refusal.Is(err, "READONLY") {
		return
	}
	l.mu.Lock()
	now := time.Now()
	due := now.After(l.after)
	if due {
		l.after = now.Add(dropEvery)
	}
	l.mu.Unlock()
	if due {
		l.drop(func(*link) bool { return true })
	}
}

// HangUp closes the connections of lone calls, including those that are just being made. A lone
// call in flight ends with an error.
func (l *Links) HangUp() {
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.drop(func(one *link) bool { return one.lone })
}

// Close closes all connections, including those that are just being made. A client that is closed
// while it connects anew may forget the new connection, which would stay open with its goroutines.
// Calls in flight end with an error.
func (l *Links) Close() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
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
