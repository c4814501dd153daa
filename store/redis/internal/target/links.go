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

// Links are the connections to one server. Its name may come to mean another
// server, by DNS or a balancer, while the connections still lead to the old one,
// which is a replica by then and refuses writes: they are closed, and the next call
// looks the name up again.
type Links struct {
	// Alone is a client whose calls each take a connection for themselves. The first call must
	// be made with the context that [Lone] returns, and with it any call that follows one that
	// has failed.
	Alone rueidis.Client

	mu    sync.Mutex // guards what follows
	open  map[*link]struct{}
	after time.Time // when they may be closed again
	over  bool      // there are to be no more lone calls
}

// dropEvery bounds how often the connections are closed while the name leads to a
// replica.
const dropEvery = time.Second

func newLinks() *Links { return &Links{open: make(map[*link]struct{})} }

type link struct {
	net.Conn
	links *Links
	lone  bool
}

func (l *Links) dial(ctx context.Context, address string, dialer *net.Dialer, config *tls.Config) (net.Conn, error) {
	c, err := dial(ctx, address, dialer, config)
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
	if lone && l.over {
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
	if due {
		l.after = now.Add(dropEvery)
	}
	l.mu.Unlock()
	if due {
		l.drop(func(*link) bool { return true })
	}
}

// HangUp closes the connections of lone calls, and those that are being made. A call that is on its
// way ends with an error.
func (l *Links) HangUp() {
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	l.drop(func(one *link) bool { return one.lone })
}

// drop closes some of the connections.
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
		// That it is closed is all that matters.
		_ = one.Close()
	}
}
