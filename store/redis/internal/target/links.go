package target

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"github.com/headgate/headgate/store/redis/internal/refusal"
)

// Links are the connections to one server. Its name may come to mean another
// server, by DNS or a balancer, while the connections still lead to the old one,
// which is a replica by then and refuses writes: they are closed, and the next call
// looks the name up again.
type Links struct {
	mu    sync.Mutex // guards both
	open  map[*link]struct{}
	after time.Time // when they may be closed again
}

// dropEvery bounds how often the connections are closed while the name leads to a
// replica.
const dropEvery = time.Second

func newLinks() *Links { return &Links{open: make(map[*link]struct{})} }

type link struct {
	net.Conn
	links *Links
}

func (l *Links) dial(ctx context.Context, address string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
	c, err := dial(ctx, address, dialer, config)
	if err != nil {
		return nil, err
	}
	one := &link{c, l}
	l.mu.Lock()
	l.open[one] = struct{}{}
	l.mu.Unlock()
	return one, nil
}

// Close implements [net.Conn].
func (l *link) Close() error {
	l.links.mu.Lock()
	delete(l.links.open, l)
	l.links.mu.Unlock()
	return l.Conn.Close()
}

// Note closes the connections if a call was refused because the server is a
// replica. Calls that are on their way on them end with an error, and that would
// have been the same.
func (l *Links) Note(err error) {
	if l == nil || err == nil {
		return // before anything is allocated
	}
	if !refusal.Is(err, "READONLY") {
		return
	}
	l.mu.Lock()
	now := time.Now()
	due := now.After(l.after)
	var drop []*link
	if due {
		l.after = now.Add(dropEvery)
		for one := range l.open {
			drop = append(drop, one)
		}
	}
	l.mu.Unlock()
	for _, one := range drop {
		// That it is closed is all that matters.
		_ = one.Close()
	}
}
