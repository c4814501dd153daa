package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// TestDurable: what callers of a durable store were told of survives a crash, also where
// commits are told by default not to wait for the disk.
func TestDurable(t *testing.T) {
	t.Parallel()
	s := servers.StartPostgres(t, "synchronous_commit=off", "wal_writer_delay=10s", "wal_writer_flush_after=1GB")
	store := open(t, s, nil, postgres.Durable())
	limiter := headgate.New(store, headgate.MustRule("r", headgate.Per(1000, 30*24*time.Hour)))
	const taken = 20
	for range taken {
		if _, err := limiter.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	s.Kill()
	s.Restart()
	recovers(t, limiter)
	if d, err := limiter.Peek(t.Context(), "k", 1); err != nil || d.Remaining != 1000-taken {
		t.Errorf("%d remain after a crash, %v; want %d", d.Remaining, err, 1000-taken)
	}
}

// TestUnreplicated: a synchronous replica is away, and somebody ends the wait for it. The
// server commits, with a warning, and nobody is told that he was admitted.
func TestUnreplicated(t *testing.T) {
	t.Parallel()
	s := servers.StartPostgres(t)
	store := open(t, s, nil, postgres.Durable())
	limiter := headgate.New(store, headgate.MustRule("r", headgate.Per(1_000_000, 30*24*time.Hour)))
	if _, err := limiter.Allow(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	command(t, s, "ALTER SYSTEM SET synchronous_standby_names = 'away'")
	command(t, s, "SELECT pg_reload_conf()")
	stores.Until(t, "the server waits for the replica", func() bool {
		return ask[string](t, s, "SHOW synchronous_standby_names") == "away"
	})
	type outcome struct {
		d   headgate.Decision
		err error
	}
	answers := make(chan outcome, 1)
	go func() {
		// The server's checkpointer is who has commits wait, and may not have read the
		// setting yet.
		for {
			if d, err := limiter.Allow(t.Context(), "k"); err != nil || !d.Allowed {
				answers <- outcome{d, err}
				return
			}
		}
	}()
	stores.Until(t, "the commit waits, and is told not to", func() bool {
		return ask[int64](t, s, "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") > 0
	})
	got := stores.Ended(t, "the call is answered", answers)
	if !errors.Is(got.err, headgate.ErrUnavailable) {
		t.Errorf("got %+v, %v; want ErrUnavailable, for the replica does not know of it", got.d, got.err)
	}
}
