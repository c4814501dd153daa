package postgres

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	randv2 "math/rand/v2"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
)

// MaxMessage is the longest message that [Store.Publish] sends, in bytes. PostgreSQL's own
// limit is a little higher.
const MaxMessage = 4 << 10

const (
	// busWithin bounds connecting, sending a message, and waiting for one's own.
	busWithin = 2 * time.Second
	// quiet is how long a listener that hears nothing waits at least before it tests its
	// connection, which may have been lost without notice. It waits at most twice as long.
	quiet = 3 * time.Second
	// question begins a message by which a listener tests whether it hears. Base64 does not
	// use this character.
	question = "?"
)

// bus publishes over one connection and listens over another. Neither is one of the pool's, so
// that decisions never wait for them.
type bus struct {
	pool    *pgxpool.Pool
	channel string
	// speaker holds the connection that messages are sent over, or nil if there is none
	// yet. A goroutine that has taken it out is its only user.
	speaker chan *pgx.Conn
	closed  chan struct{}
}

func newBus(pool *pgxpool.Pool, channel string) bus {
	b := bus{pool, channel, make(chan *pgx.Conn, 1), make(chan struct{})}
	b.speaker <- nil
	return b
}

// close ends the connection, and refuses later messages.
func (b *bus) close() {
	conn := <-b.speaker // within busWithin
	select {
	case <-b.closed:
	default:
		close(b.closed) // before anybody else finds that there is no connection, and makes one
	}
	b.speaker <- nil
	hangUp(conn)
}

func hangUp(conn *pgx.Conn) {
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // it is of no more use either way
}

// ignore drops notifications. It is for connections that are not there to listen: those of the
// pool, to which a pooler may send what others listen to, and the one that publishes, since the
// application's pool may make every connection listen.
func ignore(*pgconn.PgConn, *pgconn.Notification) {}

// dial makes a connection as the pool would, and passes notifications to onMessage. With nil they
// are kept until they are waited for.
func (b *bus) dial(ctx context.Context, onMessage pgconn.NotificationHandler) (*pgx.Conn, error) {
	config := b.pool.Config()
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, err
		}
	}
	config.ConnConfig.OnNotification = onMessage
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil || config.AfterConnect == nil {
		return conn, err
	}
	if err := config.AfterConnect(ctx, conn); err != nil {
		hangUp(conn)
		return nil, err
	}
	return conn, nil
}

// Publish sends a message to all stores with the same table and prefix that are subscribed
// in the database at the moment, including this one. It takes two seconds at most. The message
// may have been sent even if Publish fails, and it may arrive twice. It is not kept for stores
// that are not connected. Publish uses a connection of its own, which no decision uses.
func (s *Store) Publish(ctx context.Context, message []byte) error {
	if len(message) > MaxMessage {
		return headgate.Invalid("message", "", "it has %d bytes, must have at most %d", len(message), MaxMessage)
	}
	if err := s.bus.say(ctx, base64.StdEncoding.EncodeToString(message)); err != nil {
		return fmt.Errorf("%w: publish: %w", headgate.ErrUnavailable, err)
	}
	return nil
}

// say sends a text. It does not wait for the server's disk: messages need not survive a crash.
func (b *bus) say(ctx context.Context, text string) error {
	ctx, cancel := context.WithTimeout(ctx, busWithin)
	defer cancel()
	var conn *pgx.Conn
	select {
	case conn = <-b.speaker:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { b.speaker <- conn }()
	select {
	case <-b.closed:
		return errors.New("the store is closed")
	default:
	}
	for old := conn != nil; ; old = false {
		var err error
		if conn == nil {
			if conn, err = b.dial(ctx, ignore); err != nil {
				conn = nil
				return err
			}
		}
		if _, err = conn.Exec(ctx, "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)", b.channel, text); err == nil {
			return nil
		}
		if !conn.IsClosed() {
			return err
		}
		conn = nil
		if !old || ctx.Err() != nil {
			return err
		}
		// The server had closed the connection meanwhile.
	}
}

// Subscribe calls receive with each message that is published, one after another, until the
// context has ended or the connection is lost. It returns the context's error or one that
// wraps [headgate.ErrUnavailable]. It calls ready once, when it has heard a message of its own.
// Behind a pooler that gives each transaction another connection nothing is heard, which is an
// error. When it has heard nothing for some seconds it tests the connection again. Subscribe
// has a connection of its own. Neither function may block. End Subscribe before the store is
// closed.
func (s *Store) Subscribe(ctx context.Context, ready func(), receive func(message []byte)) error {
	err := s.bus.listen(ctx, ready, receive)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: subscribe: %w", headgate.ErrUnavailable, err)
}

var errDeaf = errors.New("a message to oneself was not heard: a pooler may stand between that passes on no notifications")

func (b *bus) listen(ctx context.Context, ready func(), receive func(message []byte)) error {
	conn, server, err := b.tuneIn(ctx)
	if err != nil {
		return err
	}
	asked, began := true, false
	defer func() {
		if !began {
			b.tuneOut(conn, server)
		}
		hangUp(conn)
	}()
	mine := question + rand.Text()
	if err := b.say(ctx, mine); err != nil {
		return err
	}
	for until := time.Now().Add(busWithin); ; {
		waiting, cancel := context.WithDeadline(ctx, until)
		n, err := conn.WaitForNotification(waiting)
		late := waiting.Err() != nil
		cancel()
		switch {
		case err == nil && (n.Channel != b.channel || !began && n.Payload != mine):
			continue // it is the application's own, or ready has it forgotten
		case err == nil:
			if !began {
				began = true
				ready()
			}
			if message, err := base64.StdEncoding.DecodeString(n.Payload); err == nil { // and no question
				receive(message)
			}
			asked, until = false, time.Now().Add(quiet+randv2.N(quiet))
		case ctx.Err() != nil || conn.IsClosed() || !late:
			return err
		case asked:
			return errDeaf
		default:
			if err := b.say(ctx, mine); err != nil {
				return err
			}
			asked, until = true, time.Now().Add(busWithin)
		}
	}
}

// tuneIn makes a connection that listens, and returns the number of the server's process at the
// other end.
func (b *bus) tuneIn(ctx context.Context) (conn *pgx.Conn, server uint32, err error) {
	ctx, cancel := context.WithTimeout(ctx, busWithin)
	defer cancel()
	if conn, err = b.dial(ctx, nil); err != nil {
		return nil, 0, err
	}
	if server, err = served(ctx, conn, "LISTEN "+b.channel); err != nil {
		hangUp(conn)
		return nil, 0, err
	}
	return conn, server, nil
}

// tuneOut makes the server's process that listens for this connection stop listening. Behind a
// pooler that gives each transaction another process, that process would listen on after the
// connection has ended, and its notifications would reach the clients that it serves next. It
// may not succeed, because the pooler chooses the process.
func (b *bus) tuneOut(conn *pgx.Conn, server uint32) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for range 64 {
		if by, err := served(ctx, conn, "UNLISTEN "+b.channel); err != nil || by == server {
			return
		}
	}
}

// served carries out a statement, and returns the number of the server's process that did.
func served(ctx context.Context, conn *pgx.Conn, sql string) (server uint32, err error) {
	results, err := conn.PgConn().Exec(ctx, sql+"; SELECT pg_backend_pid()").ReadAll()
	if err != nil {
		return 0, err
	}
	last := results[len(results)-1].Rows
	if len(last) != 1 || len(last[0]) != 1 {
		return 0, errors.New("the server does not say which process of its own has answered")
	}
	n, err := strconv.ParseUint(string(last[0][0]), 10, 32)
	return uint32(n), err
}
