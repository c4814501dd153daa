package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate/store/cas"
)

const (
	// grace is how long after its deadline a transaction may still be answered. The server
	// itself ends a statement whose deadline has passed, and says so a little later. Waiting
	// for that is cheaper than giving the connection up and making another.
	grace = 250 * time.Millisecond
	// shortestIdle is how long the server waits at least for the second half of a
	// transaction. A busy process may need that long until it is scheduled.
	shortestIdle = 200 * time.Millisecond
)

// attempt is a transaction that holds the locks of its keys.
type attempt struct {
	b      *backend
	conn   *pgxpool.Conn
	now    int64
	keys   []string
	values [][]byte
}

func (a *attempt) Now() int64         { return a.now }
func (a *attempt) Value(i int) []byte { return a.values[i] }

// Begin implements [cas.Backend], in one round trip. If the server has closed the connection
// meanwhile, that is noticed here, before anything is charged, and Begin takes another one.
func (b *backend) Begin(ctx context.Context, keys []string) (cas.Attempt, error) {
	for try := 1; ; try++ {
		conn, err := b.pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		a := &attempt{b: b, conn: conn, keys: keys, values: make([][]byte, len(keys))}
		if err = a.begin(ctx); err == nil {
			return a, nil
		}
		lost := conn.Conn().IsClosed()
		a.Cancel()
		if !lost || try == b.tries || ctx.Err() != nil {
			return nil, err
		}
	}
}

func (a *attempt) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	names := make([][]byte, len(a.keys))
	places := make(map[string]int, len(a.keys))
	for i, k := range a.keys {
		names[i], places[k] = []byte(k), i
	}
	var batch pgx.Batch
	batch.Queue("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
	batch.Queue(a.b.local, left(ctx))
	batch.Queue(a.b.lock, a.b.hashes(a.keys)).QueryRow(func(row pgx.Row) error {
		var locks int64
		return row.Scan(&locks, &a.now)
	})
	batch.Queue(a.b.read, names).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var k, v []byte
			if err := rows.Scan(&k, &v); err != nil {
				return err
			}
			a.values[places[string(k)]] = v
		}
		return rows.Err()
	})
	return a.send(ctx, &batch)
}

// left returns the time up to the deadline as the server takes it: a whole number of
// milliseconds, at least 1, or 0 for no deadline.
func left(ctx context.Context) string {
	deadline, ok := ctx.Deadline()
	if !ok {
		return "0" // no end
	}
	const longest = 1<<31 - 1
	return strconv.FormatInt(min(max(time.Until(deadline).Milliseconds()+1, 1), longest), 10)
}

// send carries out statements. It waits for the answer until the deadline and the grace
// have passed.
func (a *attempt) send(ctx context.Context, batch *pgx.Batch) error {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(grace))
		defer cancel()
	}
	return explained(a.conn.SendBatch(ctx, batch).Close())
}

// explained returns an error of the server with what it means to a caller, if that is known.
func explained(err error) error {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pgErr.Code {
		case queryCanceled:
			return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
		case noStatement, sameStatement:
			return fmt.Errorf("%w; a pooler may stand between that gives each transaction another connection: add default_query_exec_mode=exec to the URL", err)
		}
	}
	return err
}

// lasting reports whether err is an answer to a new connection that stays the same until somebody
// changes the settings, here or at the server: of the user, the database, the table, or TLS.
func lasting(err error) bool {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pgErr.Code[:min(2, len(pgErr.Code))] {
		case "28", "3D", "3F", "42": // authorization, database, schema, and names and privileges
			return true
		}
	}
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	return certificate
}

// The server's codes for a statement that it has ended because of its deadline, for one that
// was prepared on another connection, and for one that is prepared already.
const (
	queryCanceled = "57014"
	noStatement   = "26000"
	sameStatement = "42P05"
)

// Commit implements [cas.Attempt], in one round trip. Nobody can have changed the keys since
// Begin, which has locked them.
func (a *attempt) Commit(ctx context.Context, changes []cas.Change) (bool, error) {
	defer a.Cancel()
	var keys, values, removed [][]byte
	var expires []int64
	var due []*int64
	for i := range changes {
		c := &changes[i]
		key := []byte(a.keys[c.Key])
		if c.Value == nil {
			removed = append(removed, key)
			continue
		}
		keys, values, expires = append(keys, key), append(values, c.Value), append(expires, c.Expires)
		if c.Due != 0 {
			due = append(due, &c.Due)
		} else {
			due = append(due, nil)
		}
	}
	var batch pgx.Batch
	if keys != nil {
		batch.Queue(a.b.write, keys, values, expires, due)
	}
	if removed != nil {
		batch.Queue(a.b.remove, removed)
	}
	var tag pgconn.CommandTag
	batch.Queue("COMMIT").Exec(func(t pgconn.CommandTag) error { tag = t; return nil })
	delete(a.conn.Conn().PgConn().CustomData(), warned)
	err := a.send(ctx, &batch)
	switch {
	case tag.String() == "COMMIT" && a.b.durable && a.half(ctx):
		return false, errHalf
	case tag.String() == "COMMIT": // whatever became of the connection behind that
		return true, nil
	case err == nil:
		err = errors.New("the transaction was rolled back")
	}
	if !a.conn.Conn().IsClosed() {
		// The server itself has refused the statement.
		err = fmt.Errorf("%w: nothing was charged", err)
	}
	return false, err
}

// half reports whether the server may have committed without waiting for its replicas. It
// waits for those that are synchronous, and when the wait is ended, by the deadline of the
// statement or by an administrator, it commits all the same: with a warning.
func (a *attempt) half(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline) || a.conn.Conn().PgConn().CustomData()[warned] != nil
}

var errHalf = errors.New("the server has not waited for its replicas: the units are lost if one of them takes over")

// warned is where a connection keeps the last warning of its server.
const warned = "headgate warned"

// noteWarning is what connections do with notices.
func noteWarning(c *pgconn.PgConn, n *pgconn.Notice) {
	if n.SeverityUnlocalized == "WARNING" {
		c.CustomData()[warned] = n.Message
	}
}

// Cancel implements [cas.Attempt]. It ends what is left of the transaction and gives back the
// connection, which the pool closes if it cannot be used again.
func (a *attempt) Cancel() {
	defer a.conn.Release()
	conn := a.conn.Conn().PgConn()
	if conn.IsClosed() || conn.TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	_, _ = conn.Exec(ctx, "ROLLBACK").ReadAll() // or the pool closes it
}
