package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/test/permits"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// TestPermitsFailover: a replica takes over that lacks the last leases of a primary that
// has crashed. Fences hold all the same. Where the primary waits for the replica, and the
// store for the primary, no lease is lost.
func TestPermitsFailover(t *testing.T) {
	t.Parallel()
	for _, durable := range []bool{false, true} {
		t.Run(fmt.Sprintf("durable %t", durable), func(t *testing.T) {
			primary := servers.StartPostgres(t)
			replica := primary.StartReplica()
			url := fmt.Sprintf("postgres://headgate@%s,%s/postgres?target_session_attrs=primary&connect_timeout=60", primary.Addr(), replica.Addr())
			options := []postgres.Option{postgres.Timeout(500 * time.Millisecond)}
			if durable {
				options = append(options, postgres.Durable())
				command(t, primary, "ALTER SYSTEM SET synchronous_standby_names = '*'")
				command(t, primary, "SELECT pg_reload_conf()")
				stores.Until(t, "the primary waits for the replica", func() bool {
					return ask[bool](t, primary, "SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'")
				})
			}
			var store *postgres.Store
			stores.Until(t, "the store is opened", func() (done bool) {
				var err error
				store, err = postgres.Open(t.Context(), url, options...)
				return err == nil
			})
			defer store.Close()
			got := permits.RunFailover(t, store, func(granted func(int)) {
				if !durable {
					replica.Pause()
					command(t, primary, "SELECT pg_terminate_backend(pid) FROM pg_stat_replication")
					granted(20)
				}
				primary.Kill()
				if !durable {
					replica.Resume()
				}
				replica.Promote()
				granted(1)
			})
			t.Logf("%+v", got)
			if durable && got.Forgotten > 0 {
				t.Errorf("%d leases were lost that their holders had been told of", got.Forgotten)
			}
		})
	}
}
