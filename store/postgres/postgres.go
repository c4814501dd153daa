package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	stdnet "net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/cas"
)

// Store keeps counters in PostgreSQL. It is safe for concurrent use. Make one with
// [Open] or [New].
type Store struct {
	*cas.Ledger
	pool  *pgxpool.Pool
	bus   bus
	owned bool
	where string
}

var _ headgate.Ledger = (*Store)(nil)

// Open connects to the server that the URL names, creates the table if it does not exist, and
// checks that it can be used:
//
//	postgres://[user[:password]@]host[:port][/database][?parameter=value…]
//
// docs/postgres.md lists the parameters. The context bounds the time to connect. The error is
// an [*headgate.InvalidError] if the URL or an option is at fault; otherwise it wraps
// [headgate.ErrUnavailable], and [store.ErrRefused] too if the server does not take the password,
// the database, the table or the like. Close the store when it is no longer needed.
func Open(ctx context.Context, url string, options ...Option) (*Store, error) {
	set := newSettings()
	config, err := parseURL(url, &set)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.OnNotice = noteWarning
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("%w: connecting to %s failed", headgate.ErrUnavailable, describe(config))
	}
	s, err := newStore(ctx, pool, set, options)
	if err != nil {
		pool.Close()
		return nil, err
	}
	s.owned = true
	return s, nil
}

// New returns a store that uses the connections of a pool. It uses all but one of them at a
// time, so that one is left for others. [Store.Publish] and [Store.Subscribe] have connections
// of their own, which are made in the same way as the pool's. Close does not close the pool.
// The errors are those of [Open].
func New(ctx context.Context, pool *pgxpool.Pool, options ...Option) (*Store, error) {
	return newStore(ctx, pool, newSettings(), options)
}

func newStore(ctx context.Context, pool *pgxpool.Pool, set settings, options []Option) (*Store, error) {
	for _, o := range options {
		o(&set)
	}
	if err := set.check(); err != nil {
		return nil, err
	}
	where := describe(pool.Config())
	b := newBackend(pool, &set)
	lanes := max(1, int(pool.Config().MaxConns)-1) // one is for what is swept
	l, err := cas.NewLedger(b, append(set.options, cas.Lanes(lanes))...)
	if err != nil {
		return nil, err
	}
	if err := b.prepare(ctx, &set); err != nil {
		l.Close()
		err = fmt.Errorf("%w: %s: %w", headgate.ErrUnavailable, where, explained(err))
		if lasting(err) {
			err = store.Refused(err)
		}
		return nil, err
	}
	return &Store{Ledger: l, pool: pool, bus: newBus(pool, b.channel(l.Prefix())), where: where}, nil
}

// Close waits for the calls that are under way and refuses later calls. If [Open] has made the
// store, Close also closes its connections.
func (s *Store) Close() {
	s.Ledger.Close()
	s.bus.close()
	if s.owned {
		s.pool.Close()
	}
}

// String describes the store in a line for logs, without what may be secret.
func (s *Store) String() string { return s.where }

func net(host string, port uint16) string {
	return stdnet.JoinHostPort(host, strconv.Itoa(int(port)))
}

// backend is the [cas.LedgerBackend].
type backend struct {
	pool  *pgxpool.Pool
	tries int // to begin, while connections turn out to be gone
	// durable says that a commit waits until the server has made it as safe as its
	// configuration demands.
	durable bool
	// The statements. lock takes its locks in the order of the array and then reads the
	// clock. The values are read by another statement, which sees what was committed before
	// the locks were taken.
	local, lock, read, write, remove, due, forget string
	prefix                                        string // of what is hashed for a lock

	forgetting sync.Mutex // guards from
	from       []byte     // the key up to which expired rows were looked for, nil for none
}

const (
	// maxKeys is how many keys a transaction has, and so how many locks. It is no more than
	// the server provides for each connection by default (max_locks_per_transaction).
	// Otherwise many processes could use up all of the server's locks.
	maxKeys = headgate.MaxChecks + 1
	// readAhead is how many rows are looked at to find expired ones. If many of them have
	// expired, the store looks again at once, at most looks times.
	readAhead = 2000
	looks     = 16
)

func newBackend(pool *pgxpool.Pool, set *settings) *backend {
	table := quoted(set.table)
	clock := "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
	at := "coalesce(nullif($3::bigint, 0), " + clock + ")"
	// A transaction whose process is gone must not keep its locks, but one whose process is
	// only late must not lose its connection. The server's durations have 32 bits.
	idle := max(2*min(set.timeout, math.MaxInt32/2*time.Millisecond), shortestIdle).Milliseconds()
	local := fmt.Sprintf("SELECT set_config('statement_timeout', $1, true), set_config('idle_in_transaction_session_timeout', '%d', true), %s", idle, indexed)
	if set.durable {
		local += ", set_config('synchronous_commit', coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on'), true)"
	} else {
		local += ", set_config('synchronous_commit', 'off', true)"
	}
	// The schema is left out: "headgate" and "public.headgate" may be the same table, and
	// must then have the same locks.
	_, name, qualified := strings.Cut(set.table, ".")
	if !qualified {
		name = set.table
	}
	return &backend{
		pool: pool, tries: int(pool.Config().MaxConns) + 1, durable: set.durable, prefix: name, local: local,
		lock: "SELECT count(pg_advisory_xact_lock(h)), " + clock + " FROM unnest($1::bigint[]) AS h",
		read: "SELECT k, v FROM " + table + " WHERE k = ANY($1::bytea[])",
		write: "INSERT INTO " + table + " AS t (k, v, expires, due) SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bigint[])" +
			" ON CONFLICT (k) DO UPDATE SET v = excluded.v, expires = excluded.expires, due = excluded.due",
		remove: "DELETE FROM " + table + " WHERE k = ANY($1::bytea[])",
		due:    "SELECT k FROM " + table + " WHERE due <= $1 AND k >= $2 AND k < $3 ORDER BY due LIMIT $4",
		// Rows that somebody is writing are left alone: waiting for rows in another order
		// than for locks could end in a deadlock.
		forget: "WITH part AS MATERIALIZED (SELECT k, expires, due FROM " + table + " WHERE k > $1 AND ($4::bytea IS NULL OR k < $4) ORDER BY k LIMIT $2)," +
			" dead AS MATERIALIZED (SELECT t.k FROM " + table + " AS t JOIN part USING (k) WHERE part.expires <= " + at + " AND part.due IS NULL" +
			" AND t.expires <= " + at + " AND t.due IS NULL FOR UPDATE OF t SKIP LOCKED)," +
			" gone AS (DELETE FROM " + table + " WHERE k IN (SELECT k FROM dead) RETURNING 1)" +
			" SELECT (SELECT count(*) FROM part), (SELECT count(*) FROM gone), (SELECT k FROM part ORDER BY k DESC LIMIT 1)",
	}
}

// writing are the modes of every transaction, whatever the defaults of the user or the
// database are.
var writing = pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}

// indexed makes a transaction always read rows by the index. The server plans by the size that
// the table had when it was last analysed. If it was empty then, the server would read the
// whole table for each counter, for minutes, while the table grows.
const indexed = "set_config('enable_seqscan', 'off', true)"

// prepare creates the table if it is missing, unless that is left to others. Several processes
// may do so at once.
func (b *backend) prepare(ctx context.Context, set *settings) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 2*connectTimeout)
		defer cancel()
	}
	var version int
	var exists, replica bool
	err := b.pool.QueryRow(ctx, "SELECT current_setting('server_version_num')::int, to_regclass($1) IS NOT NULL, pg_is_in_recovery()", set.table).
		Scan(&version, &exists, &replica)
	switch {
	case err != nil:
		return err
	case replica:
		return store.Refused(errors.New("it is a replica, which cannot be written; name the primary, or all servers with target_session_attrs=primary"))
	case version < 130000:
		return store.Refused(fmt.Errorf("the server's version is %d, must be 130000 (13.0) or newer", version))
	case exists: // but may be another application's
		// A pooler that gives each statement another connection refuses the transaction.
		return pgx.BeginTxFunc(ctx, b.pool, writing, func(tx pgx.Tx) error {
			if err := tryTable(ctx, tx, quoted(set.table)); err != nil {
				return fmt.Errorf("the table %s is not one of this store, or may not be used: %w", set.table, err)
			}
			return nil
		})
	case !set.create:
		return store.Refused(fmt.Errorf("there is no table %s; make it with:\n%s", set.table, Migration(set.table, set.unlogged)))
	}
	return pgx.BeginTxFunc(ctx, b.pool, writing, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", b.hash("")); err != nil {
			return err
		}
		for statement := range strings.SplitSeq(Migration(set.table, set.unlogged), ";\n") {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
}

// tryTable runs the statements of a decision in one round trip, such that they match no row, to
// find out whether they are permitted.
func tryTable(ctx context.Context, tx pgx.Tx, table string) error {
	_, err := tx.Exec(ctx, "SELECT k = ''::bytea, v = ''::bytea, expires + 0::bigint, due + 0::bigint FROM "+table+" LIMIT 0;"+
		" INSERT INTO "+table+" AS t (k, v, expires, due) SELECT ''::bytea, ''::bytea, 0, 0 WHERE false ON CONFLICT (k) DO UPDATE SET v = excluded.v, expires = 0, due = 0;"+
		" DELETE FROM "+table+" WHERE false", pgx.QueryExecModeSimpleProtocol)
	return err
}

func (b *backend) MaxKeys() int  { return maxKeys }
func (b *backend) MaxValue() int { return 0 }

// hashes returns the locks of the keys, in the order in which all processes take them.
func (b *backend) hashes(keys []string) []int64 {
	all := make([]int64, len(keys))
	for i, k := range keys {
		all[i] = b.hash(k)
	}
	return sorted(all)
}

// hash returns the 64-bit FNV-1a hash of the table's name and the key, the same in all
// processes.
func (b *backend) hash(key string) int64 {
	h := uint64(0xcbf29ce484222325)
	for _, s := range [...]string{b.prefix, "\x00", key} {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 0x100000001b3
		}
	}
	return int64(h)
}

// channel returns the name of the channel for messages of stores with that prefix.
func (b *backend) channel(prefix string) string {
	return fmt.Sprintf("headgate_%016x", uint64(b.hash(prefix)))
}

// transaction runs a transaction that no caller waits for.
func (b *backend) transaction(ctx context.Context, do func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, b.pool, writing, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT "+indexed); err != nil {
			return err
		}
		return do(tx)
	})
}

// Due implements [cas.LedgerBackend].
func (b *backend) Due(ctx context.Context, prefix string, now int64, limit int) (names []string, err error) {
	err = b.transaction(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, b.due, now, []byte(prefix), after(prefix), limit)
		if err != nil {
			return err
		}
		names, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
			var k []byte
			err := row.Scan(&k)
			return string(k), err
		})
		return err
	})
	return names, err
}

// Clock implements [cas.LedgerBackend].
func (b *backend) Clock(ctx context.Context) (now int64, err error) {
	err = b.pool.QueryRow(ctx, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").Scan(&now)
	return now, err
}

// Forget implements [cas.LedgerBackend].
func (b *backend) Forget(ctx context.Context, prefix string, now int64) error {
	b.forgetting.Lock()
	defer b.forgetting.Unlock()
	end := after(prefix)
	if b.from == nil {
		b.from = []byte(prefix)
	}
	for range looks {
		var seen, gone int
		var last []byte
		err := b.transaction(ctx, func(tx pgx.Tx) error {
			return tx.QueryRow(ctx, b.forget, b.from, readAhead, now, end).Scan(&seen, &gone, &last)
		})
		if err != nil {
			return err
		}
		if b.from = last; seen < readAhead {
			b.from = nil
			return nil
		}
		if gone < seen/4 {
			return nil
		}
	}
	return nil
}
