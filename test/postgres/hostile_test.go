package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
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

const nothing = "nothing was charged"

// pooled returns a store that uses a pool of the test's own.
func pooled(t *testing.T, s *servers.Postgres, connections int32, options ...postgres.Option) (*postgres.Store, *pgxpool.Pool) {
	t.Helper()
	config, err := pgxpool.ParseConfig(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	store, err := postgres.New(servers.Bounded(t), pool, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store, pool
}

// execute carries statements out past the store.
func execute(t *testing.T, s *servers.Postgres, sql string) {
	t.Helper()
	conn, err := pgx.Connect(servers.Bounded(t), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.Exec(servers.Bounded(t), sql); err != nil {
		t.Fatal(err)
	}
}

// TestErrorsAreTrue: while backends are killed and the table is locked, under deadlines
// that are too short, no call is charged that was told that nothing was, and none is
// forgotten that was admitted.
func TestErrorsAreTrue(t *testing.T) {
	const callers, rounds = 16, 12
	s := servers.StartPostgres(t)
	rule := headgate.MustRule("r", headgate.Limit{Algorithm: headgate.FixedWindow, Count: 1_000_000, Period: time.Hour, Align: headgate.AlignFirst})
	checks := []headgate.Check{{Rule: rule, Key: "a"}, {Rule: rule, Key: "b"}}
	patient := open(t, s, nil, postgres.Prefix("true:"))
	store, _ := pooled(t, s, 4, postgres.Prefix("true:"), postgres.Timeout(15*time.Millisecond))
	var admitted, unknown, nobody atomic.Int64
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				switch got, err := store.Take(t.Context(), headgate.OpTake, checks, nil); {
				case err == nil && headgate.NewVerdict(got).Allowed:
					admitted.Add(1)
				case err == nil:
					t.Errorf("denied: %+v", got)
				case !errors.Is(err, headgate.ErrUnavailable):
					t.Error(err)
				case strings.Contains(err.Error(), nothing):
					nobody.Add(1)
				default:
					unknown.Add(1)
				}
			}
		})
	}
	for range rounds {
		execute(t, s, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND query LIKE '%headgate%'")
		execute(t, s, "BEGIN; LOCK TABLE headgate IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(0.05); COMMIT")
	}
	close(stop)
	all.Wait()
	store.Close() // what is still being written is known then
	for _, c := range checks {
		got, err := patient.Take(t.Context(), headgate.OpPeek, []headgate.Check{c}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if used := 1_000_000 - got[0].Remaining; used < admitted.Load() || used > admitted.Load()+unknown.Load() {
			t.Errorf("%d units are in use, %d were admitted, and %d calls were not told", used, admitted.Load(), unknown.Load())
		}
	}
	if nobody.Load() == 0 {
		t.Error("no call failed: this tests nothing")
	}
	t.Logf("%d were admitted, %d told that nothing was charged, %d told nothing", admitted.Load(), nobody.Load(), unknown.Load())
}

// TestMissedDeadlines: a deadline that is missed because of a lock does not cost the
// connection each time.
func TestMissedDeadlines(t *testing.T) {
	const calls = 12
	s := servers.StartPostgres(t)
	store, pool := pooled(t, s, 2, postgres.Timeout(30*time.Millisecond))
	limiter := headgate.New(store, headgate.MustRule("r", headgate.PerHour(9)))
	recovers(t, limiter)
	conn, err := pgx.Connect(servers.Bounded(t), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.Exec(servers.Bounded(t), "BEGIN; LOCK TABLE headgate IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	// A server that is busy with other things answers too late at times, and that costs one.
	await(t, "most calls that miss their deadline keep their connections", func() bool {
		before := pool.Stat().NewConnsCount()
		for range calls {
			if _, err := limiter.Allow(t.Context(), "k"); !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), nothing) {
				t.Errorf("got %v, want ErrUnavailable that says that nothing was charged", err)
			}
		}
		made := pool.Stat().NewConnsCount() - before
		t.Logf("%d connections were made anew for %d calls", made, calls)
		return made < calls/2
	})
}

// TestTerminated: connections that the server has ended while nobody used them fail no
// call.
func TestTerminated(t *testing.T) {
	const connections = 6
	s := servers.StartPostgres(t)
	store, err := postgres.Open(servers.Bounded(t), s.URL()+"?connect_timeout=60&timeout=30s&pool_max_conns=6&pool_min_conns=6")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	limiter := headgate.New(store, headgate.MustRule("r", headgate.Per(9, 30*24*time.Hour)))
	for call := range 2 {
		await(t, "all connections are there", func() bool {
			// After the first call the pool makes new ones when it next looks, which takes some
			// seconds, and each question to the server costs it a process.
			time.Sleep(100 * time.Millisecond)
			return ask[int64](t, s, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'headgate'") == connections
		})
		execute(t, s, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'headgate'")
		if d, err := limiter.Allow(t.Context(), "k"); err != nil || d.Remaining != int64(8-call) {
			t.Errorf("call %d: %d remain, %v; want %d", call, d.Remaining, err, 8-call)
		}
	}
}

// TestFullDisk: what the server refuses to write is an error that says that nothing was
// charged, and costs no connection.
func TestFullDisk(t *testing.T) {
	s := servers.StartPostgres(t)
	store, pool := pooled(t, s, 2, postgres.Timeout(30*time.Second))
	rule := headgate.MustRule("r", headgate.Per(9, 30*24*time.Hour))
	checks := []headgate.Check{{Rule: rule, Key: "old"}, {Rule: rule, Key: "new"}}
	if _, err := store.Take(t.Context(), headgate.OpTake, checks[:1], nil); err != nil {
		t.Fatal(err)
	}
	execute(t, s, `CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
		RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END$$;
		CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON headgate FOR EACH ROW EXECUTE FUNCTION full_disk()`)
	if _, err := store.Take(t.Context(), headgate.OpPeek, checks, nil); err != nil {
		t.Errorf("looking at counters: %v", err)
	}
	before := pool.Stat().NewConnsCount()
	for range 3 {
		if _, err := store.Take(t.Context(), headgate.OpTake, checks, nil); !errors.Is(err, headgate.ErrUnavailable) ||
			!strings.Contains(err.Error(), nothing) || !strings.Contains(err.Error(), "No space left") {
			t.Errorf("got %v, want ErrUnavailable with the reason, and that nothing was charged", err)
		}
	}
	if made := pool.Stat().NewConnsCount() - before; made > 1 { // for what is swept
		t.Errorf("%d connections were made anew", made)
	}
	execute(t, s, "DROP TRIGGER full_disk ON headgate")
	got, err := store.Take(t.Context(), headgate.OpTake, checks, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got[0].Remaining != 7 || got[1].Remaining != 8 {
		t.Errorf("%d and %d remain, want 7 and 8", got[0].Remaining, got[1].Remaining)
	}
}

// TestReplica: a server that cannot be written is an error at once, which says so.
func TestReplica(t *testing.T) {
	s := servers.StartPostgres(t)
	open(t, s, nil).Close()
	directory := ask[string](t, s, "SHOW data_directory")
	execute(t, s, "CHECKPOINT")
	s.Kill()
	if err := os.WriteFile(filepath.Join(directory, "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s.Restart()
	store, err := postgres.Open(servers.Bounded(t), s.URL()+patient)
	if err == nil {
		store.Close()
	}
	if !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), "replica") {
		t.Errorf("got %v, want ErrUnavailable that says that it is a replica", err)
	}
}

// TestServerDefaults: what transactions are by default, by the server's settings or the
// role's, does not change how the store's are.
func TestServerDefaults(t *testing.T) {
	const callers, tries, limit = 8, 10, 40
	s := servers.StartPostgres(t, "default_transaction_isolation=serializable", "default_transaction_read_only=on")
	stores := []*postgres.Store{open(t, s, nil, postgres.Prefix("d:")), open(t, s, nil, postgres.Prefix("d:"))}
	rule := headgate.MustRule("r", headgate.Limit{Algorithm: headgate.FixedWindow, Count: limit, Period: time.Hour, Align: headgate.AlignFirst})
	var admitted atomic.Int64
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for range tries {
				d, err := headgate.New(stores[i%2], rule).Allow(t.Context(), "k")
				if err != nil {
					t.Error(err)
				} else if d.Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n := admitted.Load(); n != limit {
		t.Errorf("%d were admitted, want %d", n, limit)
	}
	if err := stores[0].Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	if err := stores[0].Publish(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestSchemas: tables of one name in two schemas are two sets of counters, several
// processes may make each at once, and a schema that is not there is an error.
func TestSchemas(t *testing.T) {
	s := servers.StartPostgres(t)
	if store, err := postgres.Open(servers.Bounded(t), s.URL()+patient+"&table=one.limits"); !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), `"one"`) {
		t.Errorf("without the schema: %v, want ErrUnavailable that names it", err)
		if err == nil {
			store.Close()
		}
	}
	execute(t, s, "CREATE SCHEMA one; CREATE SCHEMA two")
	var mu sync.Mutex
	stores := map[string]*postgres.Store{}
	var all sync.WaitGroup
	for range 4 {
		for _, table := range []string{"one.limits", "two.limits"} {
			all.Go(func() {
				store, err := postgres.Open(servers.Bounded(t), s.URL()+"?connect_timeout=60&timeout=30s&pool_max_conns=2&table="+table)
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(store.Close)
				mu.Lock()
				stores[table] = store
				mu.Unlock()
			})
		}
	}
	all.Wait()
	for table, store := range stores {
		if d, err := headgate.New(store, headgate.MustRule("r", headgate.PerHour(9))).Allow(t.Context(), "k"); err != nil || d.Remaining != 8 {
			t.Errorf("%s: %d remain, %v; want 8", table, d.Remaining, err)
		}
	}
}

// TestHostileKeys: keys of all bytes and lengths have counters of their own.
func TestHostileKeys(t *testing.T) {
	s := servers.StartPostgres(t)
	store := open(t, s, nil, postgres.Prefix(strings.Repeat("\xff", 64)), postgres.Part(strings.Repeat("p", 64)))
	rule := headgate.MustRule(strings.Repeat("r", headgate.MaxName), headgate.PerHour(9), headgate.Sliding(9, time.Hour))
	var checks []headgate.Check
	for _, key := range []string{
		"", "\x00", "\x00\x00", "\xff", "\xff\xfe\x80", "k", "k ", " k", "k\x00", "K", "'; DROP TABLE headgate; --", `\x00`, "{k,NULL}", "\r\nNULL\t\"",
		strings.Repeat("\xff", headgate.MaxKey), strings.Repeat("\x00", headgate.MaxKey), string(bytes.Repeat([]byte("öä"), headgate.MaxKey/4)),
	} {
		checks = append(checks, headgate.Check{Rule: rule, Key: key, Cost: int64(len(checks)%9 + 1), GiveBack: true})
	}
	reserved, got, err := store.Reserve(t.Context(), headgate.Terms{ID: strings.Repeat("\x00\xff", headgate.MaxID/2)}, checks, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if want := 9 - checks[got[i].Check].Cost; got[i].Remaining != want {
			t.Errorf("key %d: %d remain, want %d", got[i].Check, got[i].Remaining, want)
		}
	}
	if _, err := store.Settle(t.Context(), reserved, make([]int64, len(checks)), nil); err != nil {
		t.Error(err)
	}
	if err := store.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	if got, err = store.Take(t.Context(), headgate.OpPeek, checks, nil); err != nil || !headgate.NewVerdict(got).Allowed || got[0].Remaining != 9 {
		t.Errorf("after all was given back: %+v, %v", got, err)
	}
}

// TestGrowingTable: the server does not read the whole table for each counter, though it
// was empty when the server last looked.
func TestGrowingTable(t *testing.T) {
	const calls = 500
	s := servers.StartPostgres(t)
	store := open(t, s, nil)
	execute(t, s, "VACUUM ANALYZE headgate")
	limiter := headgate.New(store, headgate.MustRule("r", headgate.PerHour(9)))
	for i := range calls {
		if _, err := limiter.Allow(t.Context(), strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	store.Close() // backends tell what they did when they end
	await(t, "it is known what was read", func() bool {
		return ask[int64](t, s, "SELECT coalesce(idx_scan, 0) FROM pg_stat_user_tables WHERE relname = 'headgate'") >= calls
	})
	if n := ask[int64](t, s, "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'headgate'"); n > calls {
		t.Errorf("for %d calls %d rows were read in sequence", calls, n)
	}
}
