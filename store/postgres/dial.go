package postgres

import (
	"context"
	"errors"
	stdnet "net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// inTurn returns a pool's BeforeConnect that makes connections one after the other: the next one
// begins when the server has sent something on the last one, or that has ended, or after a while.
//
// A server that is stopped still gets connections, from its kernel. When it goes on, it starts a
// process for each of them in their order, also for those that were given up. Seventy of them,
// which eight at a time make in twenty seconds, would keep the first caller waiting for 200 ms.
//
// For the same reason nothing asks the server to cancel a statement, which takes a connection, too:
// statements have deadlines that the server knows.
func inTurn(while time.Duration) func(context.Context, *pgx.ConnConfig) error {
	turn := make(chan struct{}, 1)
	return func(ctx context.Context, config *pgx.ConnConfig) error {
		if slices.ContainsFunc(config.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.Host != config.Host }) {
			return nil // to try the first of several servers takes time
		}
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		next := sync.OnceFunc(func() { <-turn })
		timer := time.AfterFunc(while, next)
		over := sync.OnceFunc(func() { timer.Stop(); next() })
		look, dial := config.LookupFunc, config.DialFunc
		var made atomic.Bool
		config.AfterConnect = func(context.Context, *pgconn.PgConn) error {
			made.Store(true)
			return nil
		}
		config.LookupFunc = func(ctx context.Context, host string) ([]string, error) {
			addresses, err := look(ctx, host)
			if err != nil {
				over()
			}
			return addresses, err
		}
		config.DialFunc = func(ctx context.Context, network, address string) (stdnet.Conn, error) {
			if made.Load() {
				return nil, errNoCancel
			}
			c, err := dial(ctx, network, address)
			if err != nil {
				over()
				return nil, err
			}
			return &watched{c, over}, nil
		}
		return nil
	}
}

var errNoCancel = errors.New("statements are not cancelled")

// watched is a connection that calls over after the first read, and when it is closed.
type watched struct {
	stdnet.Conn
	over func()
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	w.over()
	return n, err
}

func (w *watched) Close() error {
	w.over()
	return w.Conn.Close()
}
