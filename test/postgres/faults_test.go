package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/test/servers"
)

// ask runs a statement past the store, and returns the one value that it has.
func ask[T any](t *testing.T, s *servers.Postgres, sql string, args ...any) T {
	t.Helper()
	conn := connect(t, s)
	defer conn.Close(context.WithoutCancel(t.Context()))
	rows, err := conn.Query(servers.Bounded(t), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	value, err := pgx.CollectOneRow(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func connect(t *testing.T, s *servers.Postgres) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(servers.Bounded(t), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestProcesses: stores that share nothing but the server admit exactly the limit
// together, of every kind, and each of a request's limits is charged as often as the
// others.
func TestProcesses(t *testing.T) {
	const stores, callers, tries, limit = 3, 16, 8, 120
	s := servers.StartPostgres(t)
	var all []*postgres.Store
	for range stores {
		all = append(all, open(t, s, nil, postgres.Prefix("together:")))
	}
	total := headgate.MustRule("total", headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1_000_000, Period: time.Hour, Align: headgate.AlignFirst})
	sum := int64(0)
	for _, l := range []headgate.Limit{
		headgate.Per(limit, 30*24*time.Hour),
		headgate.Sliding(limit, time.Hour),
		{Algorithm: headgate.FixedWindow, Count: limit, Period: time.Hour, Align: headgate.AlignFirst},
		{Algorithm: headgate.SlidingCounter, Count: limit, Period: 24 * time.Hour},
	} {
		t.Run(l.Algorithm.String(), func(t *testing.T) {
			rule := headgate.MustRule("r-"+l.Algorithm.String(), l)
			var admitted, failed atomic.Int64
			var wg sync.WaitGroup
			for i := range stores * callers {
				wg.Go(func() {
					checks := []headgate.Check{{Rule: rule, Key: "k"}, {Rule: total}}
					if i%2 == 1 {
						checks[0], checks[1] = checks[1], checks[0]
					}
					for range tries {
						switch got, err := all[i%stores].Take(t.Context(), headgate.OpTake, checks, nil); {
						case err != nil:
							failed.Add(1)
						case headgate.NewVerdict(got).Allowed:
							admitted.Add(1)
						}
					}
				})
			}
			wg.Wait()
			if n := admitted.Load(); n != limit || failed.Load() != 0 {
				t.Errorf("%d were admitted and %d failed, want %d and none", n, failed.Load(), limit)
			}
			sum += admitted.Load()
			got, err := all[0].Take(t.Context(), headgate.OpPeek, []headgate.Check{{Rule: total}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got[0].Remaining != 1_000_000-sum {
				t.Errorf("of the total %d are in use, want %d", 1_000_000-got[0].Remaining, sum)
			}
		})
	}
}

// TestServerGone: while the server is away every call is an error that says so, within
// its deadline. When it is back so is the store, with the counters as they were.
func TestServerGone(t *testing.T) {
	s := servers.StartPostgres(t)
	store := open(t, s, nil, postgres.Timeout(500*time.Millisecond), postgres.Durable())
	survives(t, store, []fault{{"hangs", s.Pause, s.Resume}, {"killed", s.Kill, s.Restart}})
}

// fault is something that keeps decisions from being made until it ends.
type fault struct {
	name       string
	begin, end func()
}

// survives holds a store to its errors while there are faults, one after the other, and
// to what was in use before them afterwards.
func survives(t *testing.T, store headgate.Store, faults []fault) {
	t.Helper()
	limiter := headgate.New(store, headgate.MustRule("r", headgate.Per(9, 30*24*time.Hour)))
	recovers(t, limiter)
	// The deadline is short: on a busy machine a call may be late, and charge or not.
	await(t, "four units are in use", func() bool {
		if limiter.Reset(t.Context(), "k") != nil {
			return false
		}
		d, err := limiter.AllowN(t.Context(), "k", 4)
		return err == nil && d.Remaining == 5
	})
	for _, fault := range faults {
		fault.begin()
		for range 3 {
			if _, err := limiter.Peek(t.Context(), "k", 1); !errors.Is(err, headgate.ErrUnavailable) {
				t.Errorf("%s: got %v, want ErrUnavailable", fault.name, err)
			}
		}
		fault.end()
		recovers(t, limiter)
		if d, err := limiter.Peek(t.Context(), "k", 1); err == nil && d.Remaining != 5 {
			t.Errorf("%s: %d remain, want 5", fault.name, d.Remaining)
		}
	}
}

func recovers(t *testing.T, limiter *headgate.Limiter) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		_, err := limiter.Peek(t.Context(), "k", 1)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the store does not come back: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestCancelled: who gives up is answered at once, and is not charged by a transaction
// that could not be committed by then.
func TestCancelled(t *testing.T) {
	s := servers.StartPostgres(t)
	store := open(t, s, nil)
	rule := headgate.MustRule("r", headgate.Per(9, 30*24*time.Hour))
	limiter := headgate.New(store, rule)
	if _, err := limiter.Allow(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(servers.Bounded(t), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	tx, err := conn.Begin(servers.Bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(servers.Bounded(t), "LOCK TABLE headgate IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := limiter.Allow(ctx, "k"); !errors.Is(err, headgate.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want ErrUnavailable and DeadlineExceeded", err)
			}
		})
	}
	wg.Wait()
	if err := tx.Rollback(servers.Bounded(t)); err != nil {
		t.Fatal(err)
	}
	// None had come as far as to commit.
	if d, err := limiter.Peek(t.Context(), "k", 1); err != nil || d.Remaining != 8 {
		t.Errorf("%d remain, %v; want 8", d.Remaining, err)
	}
}

// TestHostileBytes: whatever is stored under a counter's name, the store neither panics
// nor takes it for a fresh counter, and a reset mends it.
func TestHostileBytes(t *testing.T) {
	s := servers.StartPostgres(t)
	store := open(t, s, nil)
	limiter := headgate.New(store, headgate.MustRule("r", headgate.PerHour(9)))
	if _, err := limiter.Allow(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "0", "\xff\xff", "\x01", "\x01\xff", strings.Repeat("x", 5000)} {
		ask[int64](t, s, "WITH u AS (UPDATE headgate SET v = $1 RETURNING 1) SELECT count(*) FROM u", []byte(text))
		if _, err := limiter.Allow(t.Context(), "k"); !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), "cannot be read") {
			t.Errorf("%.5q: got %v, want an error that says so", text, err)
		}
	}
	if err := limiter.Reset(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if d, err := limiter.Allow(t.Context(), "k"); err != nil || d.Remaining != 8 {
		t.Errorf("after a reset %d remain, %v; want 8", d.Remaining, err)
	}
}

// TestRowsGo: rows that have expired are removed, those that are in use are not, and
// reservations that nobody settles give their units back, all by themselves.
func TestRowsGo(t *testing.T) {
	s := servers.StartPostgres(t)
	store := open(t, s, nil)
	rule := headgate.MustRule("r", headgate.Per(9, 30*24*time.Hour))
	for i := range 50 {
		if _, err := headgate.New(store, rule).Allow(t.Context(), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	ask[int64](t, s, "WITH u AS (UPDATE headgate SET expires = 1 WHERE k <> $1 RETURNING 1) SELECT count(*) FROM u", ask[[]byte](t, s, "SELECT k FROM headgate ORDER BY k LIMIT 1"))
	checks := []headgate.Check{{Rule: rule, Key: "reserved", Cost: 4, GiveBack: true}}
	if _, _, err := store.Reserve(t.Context(), headgate.Terms{For: 100 * time.Millisecond}, checks, nil); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		rows := ask[int64](t, s, "SELECT count(*) FROM headgate WHERE expires < 2")
		got, err := store.Take(t.Context(), headgate.OpPeek, []headgate.Check{{Rule: rule, Key: "reserved"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if rows == 0 && got[0].Remaining == 9 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d rows are left that have expired, and %d units of 9", rows, got[0].Remaining)
		}
	}
	if n := ask[int64](t, s, "SELECT count(*) FROM headgate"); n < 1 {
		t.Error("the row in use is gone")
	}
}

// TestUnprepared: behind a pooler that hands each transaction another connection,
// statements cannot be prepared.
func TestUnprepared(t *testing.T) {
	s := servers.StartPostgres(t)
	store, err := postgres.Open(servers.Bounded(t), s.URL()+patient+"&default_query_exec_mode=exec", postgres.Timeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	checks := []headgate.Check{{Rule: headgate.MustRule("r", headgate.PerHour(9), headgate.Sliding(9, time.Hour)), Key: "k\x00", GiveBack: true}}
	reserved, _, err := store.Reserve(t.Context(), headgate.Terms{}, checks, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Settle(t.Context(), reserved, []int64{3}, nil); err != nil {
		t.Fatal(err)
	}
	got, err := store.Take(t.Context(), headgate.OpTake, checks, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got[1].Remaining != 5 {
		t.Errorf("%d remain, want 5", got[1].Remaining)
	}
	if _, err := store.Take(t.Context(), headgate.OpReset, checks, nil); err != nil {
		t.Error(err)
	}
	if err := store.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestDocumentedTable: the SQL in the documentation is the one that the store uses.
func TestDocumentedTable(t *testing.T) {
	text, err := os.ReadFile("../../docs/postgres.md")
	if err != nil {
		t.Fatal(err)
	}
	if sql := postgres.Migration(postgres.DefaultTable, false); !strings.Contains(string(text), "```sql\n"+sql+"```") {
		t.Errorf("docs/postgres.md does not have:\n%s", sql)
	}
}

// TestTables: several stores may make the table at once, an unlogged one is one, and
// without leave to make it the error has the SQL.
func TestTables(t *testing.T) {
	s := servers.StartPostgres(t)
	_, err := postgres.Open(servers.Bounded(t), s.URL()+patient+"&create=false")
	if !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), postgres.Migration(postgres.DefaultTable, false)) {
		t.Errorf("got %v, want ErrUnavailable with the SQL", err)
	}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			store, err := postgres.Open(servers.Bounded(t), s.URL()+patient+"&table=public.fast&unlogged=true&timeout=30s")
			if err != nil {
				t.Error(err)
				return
			}
			defer store.Close()
			if _, err := headgate.New(store, headgate.MustRule("r", headgate.PerHour(9))).Allow(t.Context(), "k"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := ask[string](t, s, "SELECT relpersistence::text FROM pg_class WHERE relname = 'fast'"); got != "u" {
		t.Errorf("the table's persistence is %q, want u", got)
	}
	pool, err := pgxpool.New(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	store, err := postgres.New(servers.Bounded(t), pool, postgres.Table("fast"), postgres.Timeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if !strings.Contains(store.String(), s.Addr()) {
		t.Errorf("the store calls itself %q", store)
	}
}
