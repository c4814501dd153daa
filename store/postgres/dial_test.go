package postgres

import (
	"context"
	"errors"
	stdnet "net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate/internal/bubbletest"
)

// dialed is how connections are made in these tests: to the other end of a pipe, unless the port is 1.
func dialed(t *testing.T) pgconn.Config {
	return pgconn.Config{
		Host:       "a",
		LookupFunc: func(context.Context, string) ([]string, error) { return nil, errors.New("no such host") },
		DialFunc: func(_ context.Context, _, address string) (stdnet.Conn, error) {
			if address == "127.0.0.1:1" {
				return nil, errors.New("refused")
			}
			ours, theirs := stdnet.Pipe()
			t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
			go func() { _, _ = theirs.Write([]byte("R")) }()
			return ours, nil
		},
	}
}

// TestInTurn: the next connection begins when the last one is no longer what a server that hangs
// would have to do first.
func TestInTurn(t *testing.T) {
	for _, tt := range []struct {
		name  string
		lasts time.Duration // until the next connection begins
		ends  func(ctx context.Context, config *pgx.ConnConfig) error
	}{
		{"the server sends something", 0, func(ctx context.Context, config *pgx.ConnConfig) error {
			c, err := config.DialFunc(ctx, "tcp", "127.0.0.1:5432")
			if err == nil {
				_, err = c.Read(make([]byte, 8))
			}
			return err
		}},
		{"it is closed", 0, func(ctx context.Context, config *pgx.ConnConfig) error {
			c, err := config.DialFunc(ctx, "tcp", "127.0.0.1:5432")
			if err == nil {
				err = c.Close()
			}
			return err
		}},
		{"the server sends nothing", time.Second, func(ctx context.Context, config *pgx.ConnConfig) error {
			_, err := config.DialFunc(ctx, "tcp", "127.0.0.1:5432")
			return err
		}},
		{"there is no such host", 0, func(ctx context.Context, config *pgx.ConnConfig) error {
			_, err := config.LookupFunc(ctx, "nowhere")
			return wanted(err)
		}},
		{"it is refused", 0, func(ctx context.Context, config *pgx.ConnConfig) error {
			_, err := config.DialFunc(ctx, "tcp", "127.0.0.1:1")
			return wanted(err)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubbletest.Test(t, func(t *testing.T) {
				before := inTurn(time.Second)
				one, two := pgx.ConnConfig{Config: dialed(t)}, pgx.ConnConfig{Config: dialed(t)}
				if err := before(t.Context(), &one); err != nil {
					t.Fatal(err)
				}
				began, next := time.Now(), make(chan error, 1)
				go func() { next <- before(t.Context(), &two) }()
				bubbletest.Wait()
				if len(next) != 0 {
					t.Fatal("two connections are made at a time")
				}
				if err := tt.ends(t.Context(), &one); err != nil {
					t.Fatal(err)
				}
				if err := <-next; err != nil || time.Since(began) != tt.lasts {
					t.Errorf("the next one began after %v, with %v; want %v", time.Since(began), err, tt.lasts)
				}
			})
		})
	}
}

// TestNoCancel: once a connection is made, nothing dials to cancel its statements.
func TestNoCancel(t *testing.T) {
	config := pgx.ConnConfig{Config: dialed(t)}
	if err := inTurn(time.Hour)(t.Context(), &config); err != nil {
		t.Fatal(err)
	}
	if _, err := config.DialFunc(t.Context(), "tcp", "127.0.0.1:5432"); err != nil {
		t.Fatal(err)
	}
	if err := config.AfterConnect(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := config.DialFunc(t.Context(), "tcp", "127.0.0.1:5432"); !errors.Is(err, errNoCancel) {
		t.Errorf("got %v", err)
	}
}

// wanted returns an error if there was none.
func wanted(err error) error {
	if err == nil {
		return errors.New("there was no error")
	}
	return nil
}
