package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// TestFailover: a replica takes over from a primary that has crashed, and what was admitted
// then and after is the limit, and what the replica had not received. Where the primary
// waits for it, and the store for the primary, that is nothing.
func TestFailover(t *testing.T) {
	t.Parallel()
	const units = 1500
	for _, c := range []struct {
		name                 string
		synchronous, durable bool
	}{
		{"asynchronous", false, false},
		{"synchronous", true, false},
		{"synchronous, durable", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			primary := servers.StartPostgres(t)
			replica := primary.StartReplica()
			url := fmt.Sprintf("postgres://headgate@%s,%s/postgres?target_session_attrs=primary", primary.Addr(), replica.Addr())
			options := []postgres.Option{postgres.Timeout(500 * time.Millisecond)}
			if c.durable {
				options = append(options, postgres.Durable())
			}
			var store *postgres.Store
			stores.Until(t, "the store is opened", func() (done bool) {
				var err error
				store, err = postgres.Open(t.Context(), url, options...)
				return err == nil
			})
			defer store.Close()
			if c.synchronous {
				command(t, primary, "ALTER SYSTEM SET synchronous_standby_names = '*'")
				command(t, primary, "SELECT pg_reload_conf()")
				stores.Until(t, "the primary waits for the replica", func() bool {
					return ask[bool](t, primary, "SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'")
				})
			}
			l := &failoverLoad{store: store, rule: headgate.MustRule("r", headgate.Limit{
				Algorithm: headgate.FixedWindow, Count: units, Period: 24 * time.Hour, Align: headgate.AlignFirst,
			})}
			l.ask(t, func() bool { return l.admitted.Load() >= 500 })
			received := l.admitted.Load()
			stores.Until(t, "the replica has it all", func() bool {
				return ask[bool](t, primary, "SELECT coalesce(bool_and(replay_lsn >= pg_current_wal_insert_lsn()), false) FROM pg_stat_replication")
			})
			replica.Pause() // it would come again at once
			command(t, primary, "SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
			missed := l.unknown.Load()
			l.ask(t, func() bool { return l.admitted.Load() >= received+200 || l.unknown.Load() >= missed+40 })
			told := l.admitted.Load()
			primary.Kill()
			replica.Resume()
			replica.Promote()
			var left int64
			stores.Until(t, "the store has found the new primary", func() bool {
				d, err := headgate.New(store, l.rule).Peek(t.Context(), "k", 1)
				left = d.Remaining
				return err == nil
			})
			lost := told - (units - left)
			if c.synchronous && c.durable && lost > 0 {
				t.Errorf("%d units were lost that callers had been told of", lost)
			}
			// The replica may have units of calls that failed before it was paused.
			if !c.durable && (lost > told-received || lost < told-received-missed) {
				t.Errorf("%d units were lost, and the replica had missed %d and up to %d less", lost, told-received, missed)
			}
			failed := l.unknown.Load()
			l.ask(t, func() bool { return l.denied.Load() >= 100 })
			failed = l.unknown.Load() - failed
			over := l.admitted.Load() - units
			t.Logf("%d units were admitted without the replica, of which %d were lost; %d were admitted too much", told-received, lost, over)
			if over > max(0, lost) || over < lost-failed {
				t.Errorf("%d units were admitted too much, and %d were lost, with %d calls that may count", over, lost, failed)
			}
		})
	}
}

// failoverLoad is callers of one counter.
type failoverLoad struct {
	store                     *postgres.Store
	rule                      *headgate.Rule
	admitted, denied, unknown atomic.Int64
}

// ask has callers take units until they are told to stop.
func (l *failoverLoad) ask(t *testing.T, enough func() bool) {
	t.Helper()
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for end := time.Now().Add(2 * time.Minute); !enough() && time.Now().Before(end); {
				switch d, err := headgate.New(l.store, l.rule).Allow(t.Context(), "k"); {
				case err != nil:
					l.unknown.Add(1)
				case d.Allowed:
					l.admitted.Add(1)
				default:
					l.denied.Add(1)
				}
			}
		})
	}
	all.Wait()
	if !enough() {
		t.Fatalf("%d were admitted, %d denied and %d failed, which is not enough", l.admitted.Load(), l.denied.Load(), l.unknown.Load())
	}
}

// command runs a statement past the store.
func command(t *testing.T, s *servers.Postgres, sql string) {
	t.Helper()
	conn := connect(t, s)
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.Exec(servers.Bounded(t), sql); err != nil {
		t.Fatal(err)
	}
}
