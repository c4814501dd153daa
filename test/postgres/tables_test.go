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

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/test/servers"
)

// TestSameTable: stores that name one table with its schema and without wait for one
// another, and admit the limit together.
func TestSameTable(t *testing.T) {
	const callers, tries, limit = 16, 60, 200
	s := servers.StartPostgres(t)
	var all []*postgres.Store
	for _, table := range []string{"headgate", "public.headgate"} {
		all = append(all, open(t, s, nil, postgres.Prefix("same:"), postgres.Table(table)))
	}
	rule := headgate.MustRule("r", headgate.Limit{Algorithm: headgate.FixedWindow, Count: limit, Period: time.Hour, Align: headgate.AlignFirst})
	var admitted, failed atomic.Int64
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			limiter := headgate.New(all[i%len(all)], rule)
			for range tries {
				switch d, err := limiter.Allow(t.Context(), "k"); {
				case err != nil:
					failed.Add(1)
				case d.Allowed:
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := admitted.Load(); n != limit || failed.Load() != 0 {
		t.Errorf("%d were admitted and %d failed, want %d and none", n, failed.Load(), limit)
	}
}

// TestOtherTable: a table of that name that is another application's, or that the user
// may not read, is an error when the store is opened, and is left as it is.
func TestOtherTable(t *testing.T) {
	s := servers.StartPostgres(t)
	conn, err := pgx.Connect(servers.Bounded(t), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	run := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(servers.Bounded(t), sql); err != nil {
			t.Fatal(err)
		}
	}
	for _, columns := range []string{
		"id bigint", "k text, v text, expires bigint, due bigint", "k bytea, v bytea, expires timestamptz, due bigint",
		"k bytea, v bytea, expires bigint, due bigint",
	} {
		run("CREATE TABLE other (" + columns + ")")
		store, err := postgres.Open(servers.Bounded(t), s.URL()+patient+"&table=other")
		if !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), "not one of this store") {
			t.Errorf("a table of %s: %v, want ErrUnavailable that says so", columns, err)
		}
		if err == nil {
			store.Close()
		}
		run("DROP TABLE other")
	}
	run(postgres.Migration("mine", false))
	run("CREATE ROLE guest LOGIN")
	guest := strings.Replace(s.URL(), "headgate@", "guest@", 1) + patient + "&table=mine&timeout=30s"
	for _, rights := range []string{"", "SELECT", "SELECT, INSERT, UPDATE"} {
		if rights != "" {
			run("GRANT " + rights + " ON mine TO guest")
		}
		if store, err := postgres.Open(servers.Bounded(t), guest); !errors.Is(err, headgate.ErrUnavailable) || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("with the rights %q: %v", rights, err)
			if err == nil {
				store.Close()
			}
		}
	}
	run("GRANT SELECT, INSERT, UPDATE, DELETE ON mine TO guest")
	store, err := postgres.Open(servers.Bounded(t), guest)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	limiter := headgate.New(store, headgate.MustRule("r", headgate.PerHour(9)))
	if _, err := limiter.Allow(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	if err := limiter.Reset(t.Context(), "k"); err != nil {
		t.Error(err)
	}
	if err := store.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestLongTimeout: a deadline beyond what the server's own can be is no error.
func TestLongTimeout(t *testing.T) {
	s := servers.StartPostgres(t)
	store := open(t, s, nil, postgres.Timeout(60*24*time.Hour))
	if _, err := headgate.New(store, headgate.MustRule("r", headgate.PerHour(9))).Allow(t.Context(), "k"); err != nil {
		t.Error(err)
	}
}
