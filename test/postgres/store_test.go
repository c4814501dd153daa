package postgres_test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/storetest"
	"github.com/headgate/headgate/test/servers"
)

// prefixes gives every store of a test its own counters on the shared server.
var prefixes atomic.Int64

// open returns a store with counters of its own. A nil clock is the server's.
func open(t testing.TB, s *servers.Postgres, clock func() int64, options ...postgres.Option) *postgres.Store {
	t.Helper()
	options = append([]postgres.Option{
		postgres.Prefix(fmt.Sprintf("t%d:", prefixes.Add(1))), postgres.Timeout(30 * time.Second),
	}, options...)
	if clock != nil {
		options = append(options, postgres.Clock(clock))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	store, err := postgres.Open(ctx, s.URL()+patient, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// sharing returns a function that makes stores with counters of their own and one pool of
// connections. The suites ask for hundreds of stores: where each connects for itself, the server
// has nothing else to do.
func sharing(t *testing.T, url string) func(t testing.TB, clock func() int64) *postgres.Store {
	t.Helper()
	pool, err := pgxpool.New(servers.Bounded(t), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return func(t testing.TB, clock func() int64) *postgres.Store {
		t.Helper()
		store, err := postgres.New(servers.Bounded(t), pool, postgres.Clock(clock),
			postgres.Prefix(fmt.Sprintf("t%d:", prefixes.Add(1))), postgres.Timeout(30*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		return store
	}
}

// patient is how the URLs of these tests end.
const patient = "?pool_max_conns=4&connect_timeout=60"

func TestConformance(t *testing.T) {
	open := sharing(t, servers.StartPostgres(t).URL()+patient)
	storetest.Run(t, func(t testing.TB, clock func() int64) headgate.Store { return open(t, clock) })
}

// TestHistories holds the store against the model and the oracle. What is decided is computed in this
// process, by code that store/cas holds to both at length: here it is to come back as it was written.
func TestHistories(t *testing.T) {
	total := storetest.Steps(t, 2_400)
	const length, lanes = 250, 4
	open := sharing(t, servers.StartPostgres(t).URL()+patient)
	for lane := range lanes {
		t.Run(strconv.Itoa(lane), func(t *testing.T) {
			t.Parallel()
			storetest.Histories(t, func(t testing.TB, clock func() int64) headgate.Store { return open(t, clock) },
				uint64(lane), max(1, total/length/lanes), length)
		})
	}
}
