package postgres_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered/denycache"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/storetest"
	"github.com/headgate/headgate/test/servers"
)

// unprepared is how docs/postgres.md has a URL end behind a pooler in transaction mode.
const unprepared = patient + "&default_query_exec_mode=exec"

// openThrough opens a store behind a pooler.
func openThrough(t testing.TB, url string, options ...postgres.Option) *postgres.Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	store, err := postgres.Open(ctx, url, append([]postgres.Option{postgres.Timeout(30 * time.Second)}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// TestPgBouncerConformance: the store decides as it does without a pooler, also where each
// of its transactions has another connection than the one before. What is decided is computed in
// this process, from what the server has kept: the vectors, a reservation and TestPgBouncerTogether
// bring every statement and lock past the pooler. The whole suite does it in `make soak`.
func TestPgBouncerConformance(t *testing.T) {
	s := servers.StartPostgres(t)
	p := servers.StartPgBouncer(t, s, "transaction", "default_pool_size=3", "server_round_robin=1")
	open := sharing(t, p.URL()+unprepared)
	mk := func(t testing.TB, clock func() int64) headgate.Store { return open(t, clock) }
	if soaking := storetest.Steps(t, 0) > 0; soaking {
		storetest.Run(t, mk)
		return
	}
	storetest.RunVectors(t, mk)
	store := open(t, storetest.NewClock(storetest.Epoch).Now)
	checks := []headgate.Check{{Rule: headgate.MustRule("r", headgate.Per(9, time.Hour)), Key: "k", Cost: 5}}
	reserved, _, err := store.Reserve(t.Context(), headgate.Terms{}, checks, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it is settled already
		if _, err := store.Settle(t.Context(), reserved, []int64{3}, nil); err != nil {
			t.Fatal(err)
		}
	}
	got, err := store.Take(t.Context(), headgate.OpPeek, checks, nil)
	if err != nil || got[0].Remaining != 6 {
		t.Errorf("a reservation of 5 of 9 units was settled with 3: %+v, %v; want 6 remaining", got, err)
	}
}

// TestPgBouncerTogether: servers behind poolers of both modes, and one without any, admit
// exactly the limit together: the locks are the same for all of them, and are let go
// with the transaction, although there are fewer connections than callers want.
func TestPgBouncerTogether(t *testing.T) {
	const callers, tries, limit = 8, 12, 100
	s := servers.StartPostgres(t)
	transactions := servers.StartPgBouncer(t, s, "transaction", "default_pool_size=2").URL() + unprepared
	sessions := servers.StartPgBouncer(t, s, "session", "default_pool_size=8").URL() + patient
	prefix := postgres.Prefix("together:")
	all := []*postgres.Store{
		openThrough(t, transactions, prefix), openThrough(t, transactions, prefix), openThrough(t, sessions, prefix), open(t, s, nil, prefix),
	}
	checks := []headgate.Check{
		{Rule: headgate.MustRule("a", headgate.Per(limit, 30*24*time.Hour)), Key: "k"},
		{Rule: headgate.MustRule("b", headgate.Sliding(1_000_000, time.Hour)), Key: "k"},
	}
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for _, store := range all {
		for range callers {
			wg.Go(func() {
				for range tries {
					got, err := store.Take(t.Context(), headgate.OpTake, checks, nil)
					if err != nil {
						t.Error(err)
					} else if headgate.NewVerdict(got).Allowed {
						admitted.Add(1)
					}
				}
			})
		}
	}
	wg.Wait()
	got, err := all[0].Take(t.Context(), headgate.OpPeek, checks, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := admitted.Load(); n != limit || got[1].Remaining != 1_000_000-limit {
		t.Errorf("%d were admitted, and %d counted by the second rule; want %d", n, 1_000_000-got[1].Remaining, limit)
	}
	if n := ask[int64](t, s, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"); n != 0 {
		t.Errorf("%d locks are left", n)
	}
}

// TestPgBouncerSettings: nothing that the store tells a connection of the server is left
// to those who have it next.
func TestPgBouncerSettings(t *testing.T) {
	s := servers.StartPostgres(t)
	p := servers.StartPgBouncer(t, s, "transaction", "default_pool_size=1")
	store := openThrough(t, p.URL()+unprepared)
	if _, err := headgate.New(store, headgate.MustRule("r", headgate.PerHour(9))).Allow(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(servers.Bounded(t), p.URL()+"?default_query_exec_mode=exec")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	for name, want := range map[string]string{
		"statement_timeout": "0", "idle_in_transaction_session_timeout": "0", "enable_seqscan": "on", "synchronous_commit": "on",
	} {
		var is string
		if err := conn.QueryRow(servers.Bounded(t), "SELECT current_setting($1)", name).Scan(&is); err != nil || is != want {
			t.Errorf("%s is %q, %v; want %q", name, is, err, want)
		}
	}
}

// TestPgBouncerDeadlines: the server ends a statement that its deadline has overtaken, and
// a call that the pooler has no connection for ends by its own. Neither is charged, and
// the store goes on.
func TestPgBouncerDeadlines(t *testing.T) {
	s := servers.StartPostgres(t)
	p := servers.StartPgBouncer(t, s, "transaction", "default_pool_size=1")
	store := openThrough(t, p.URL()+unprepared)
	limiter := headgate.New(store, headgate.MustRule("r", headgate.Per(9, 30*24*time.Hour)))
	if _, err := limiter.Allow(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	refused := func(what string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := limiter.Allow(ctx, "k"); !errors.Is(err, headgate.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got %v, want ErrUnavailable and DeadlineExceeded", what, err)
		}
	}
	for what, through := range map[string]string{"locked": s.URL(), "no connection": p.URL()} {
		conn, err := pgx.Connect(servers.Bounded(t), through+"?default_query_exec_mode=exec")
		if err != nil {
			t.Fatal(err)
		}
		tx, err := conn.Begin(servers.Bounded(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(servers.Bounded(t), "LOCK TABLE headgate IN ACCESS EXCLUSIVE MODE"); err != nil {
			t.Fatal(err)
		}
		refused(what)
		if err := errors.Join(tx.Rollback(servers.Bounded(t)), conn.Close(servers.Bounded(t))); err != nil {
			t.Fatal(err)
		}
		recovers(t, limiter)
		if d, err := limiter.Peek(t.Context(), "k", 1); err != nil || d.Remaining != 8 {
			t.Errorf("%s: %d remain, %v; want 8", what, d.Remaining, err)
		}
	}
}

// TestPgBouncerNews: in session mode servers hear of what others give back. In
// transaction mode none does, and says so, but is heard by those that hear.
func TestPgBouncerNews(t *testing.T) {
	s := servers.StartPostgres(t)
	prefix := postgres.Prefix("news:")
	sessions := openThrough(t, servers.StartPgBouncer(t, s, "session").URL()+"?pool_max_conns=4&connect_timeout=60", prefix)
	transactions := openThrough(t, servers.StartPgBouncer(t, s, "transaction").URL()+unprepared, prefix)
	there := remembering(t, sessions)
	here, err := denycache.New(transactions, denycache.Options{All: true, Bus: transactions})
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close(t.Context())
	await(t, "the reason is known why nothing is heard", func() bool {
		err := here.Stats().Error
		return err != nil && strings.Contains(err.Error(), "pooler")
	})
	if here.Stats().Listening {
		t.Error("it listens, and hears nothing")
	}
	c := []headgate.Check{{Rule: headgate.MustRule("r", headgate.Per(3, 30*24*time.Hour)), Key: "k"}}
	await(t, "the key is denied from memory", func() bool {
		got, err := there.Store().Take(t.Context(), headgate.OpTake, c, nil)
		if err != nil {
			t.Fatal(err)
		}
		return got[0].Source == headgate.SourceCache
	})
	if _, err := here.Store().Take(t.Context(), headgate.OpReset, c, nil); err != nil {
		t.Fatal(err)
	}
	await(t, "the other server admits what was freed", func() bool {
		got, err := there.Store().Take(t.Context(), headgate.OpTake, c, nil)
		if err != nil {
			t.Fatal(err)
		}
		return headgate.NewVerdict(got).Allowed
	})
}

// TestPgBouncerStrangers: a store that listens in vain leaves no connection of the server
// listening, whose next users would be sent its messages.
func TestPgBouncerStrangers(t *testing.T) {
	s := servers.StartPostgres(t)
	p := servers.StartPgBouncer(t, s, "transaction", "default_pool_size=1")
	prefix := postgres.Prefix("strangers:")
	deaf, speaker := openThrough(t, p.URL()+unprepared, prefix), open(t, s, nil, prefix)
	config, err := pgx.ParseConfig(p.URL() + "?default_query_exec_mode=exec")
	if err != nil {
		t.Fatal(err)
	}
	heard := 0
	config.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { heard++ }
	stranger, err := pgx.ConnectConfig(servers.Bounded(t), config)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close(context.WithoutCancel(t.Context()))
	told := func() int {
		heard = 0
		tx, err := stranger.Begin(servers.Bounded(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := speaker.Publish(t.Context(), []byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(servers.Bounded(t)); err != nil {
			t.Fatal(err)
		}
		// What was sent behind the answer comes before that of the next question.
		if _, err := stranger.Exec(servers.Bounded(t), "SELECT 1"); err != nil {
			t.Fatal(err)
		}
		return heard
	}
	if err := deaf.Subscribe(t.Context(), func() { t.Error("it is ready, and hears nothing") }, func([]byte) {}); !errors.Is(err, headgate.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	if n := told(); n != 0 {
		t.Errorf("a stranger was sent %d messages", n)
	}
}

// TestPgBouncerRefused: a pooler that hands each statement another connection is no use,
// which is said when the store is opened; and calls say what a URL lacks whose statements
// are prepared where another connection does not know of them.
func TestPgBouncerRefused(t *testing.T) {
	s := servers.StartPostgres(t)
	open(t, s, nil) // makes the table
	statements := servers.StartPgBouncer(t, s, "statement")
	for _, query := range []string{"", unprepared} {
		if _, err := postgres.Open(servers.Bounded(t), statements.URL()+query); !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), "statement pooling mode") {
			t.Errorf("%q: got %v, want an error that says why", query, err)
		}
	}
	transactions := servers.StartPgBouncer(t, s, "transaction", "default_pool_size=2", "server_round_robin=1")
	rule := headgate.MustRule("r", headgate.Per(1_000_000, 30*24*time.Hour))
	// The calls of one store may take turns in such a way that each meets the server that knows its
	// statement. But of three stores that prepare the same statement at two servers, one must fail:
	// when it is opened or when it is asked.
	var said error
	await(t, "a statement is not known, or is known already", func() bool {
		store, err := postgres.Open(servers.Bounded(t), transactions.URL(), postgres.Timeout(30*time.Second))
		if err == nil {
			t.Cleanup(store.Close)
			if _, err = headgate.New(store, rule).Allow(t.Context(), "k"); err != nil && !strings.Contains(err.Error(), "nothing was charged") {
				t.Errorf("got %v, want an error that says what was charged", err)
			}
		}
		said = err
		return said != nil
	})
	if !errors.Is(said, headgate.ErrUnavailable) || !strings.Contains(said.Error(), "default_query_exec_mode=exec") {
		t.Errorf("got %v, want ErrUnavailable that says what to do", said)
	}
}

// TestPgBouncerServerGone: a server that is killed behind the pooler, and a pooler that is
// itself, come back without anything being done, with the counters as they were.
func TestPgBouncerServerGone(t *testing.T) {
	s := servers.StartPostgres(t)
	p := servers.StartPgBouncer(t, s, "transaction", "server_login_retry=1")
	store := openThrough(t, p.URL()+unprepared, postgres.Timeout(500*time.Millisecond), postgres.Durable())
	survives(t, store, []fault{
		{"server hangs", s.Pause, s.Resume},
		{"server killed", s.Kill, s.Restart},
		{"pooler hangs", p.Pause, p.Resume},
		{"pooler killed", p.Kill, p.Restart},
	})
}
