package postgres_test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

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
	store, err := postgres.Open(ctx, s.URL()+"?pool_max_conns=4&connect_timeout=60", options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

func TestConformance(t *testing.T) {
	s := servers.StartPostgres(t)
	storetest.Run(t, func(t testing.TB, clock func() int64) headgate.Store { return open(t, s, clock) })
}

// TestHistories holds the store against the model and the oracle.
func TestHistories(t *testing.T) {
	total := storetest.Steps(t, 6_000)
	const length, lanes = 250, 4
	s := servers.StartPostgres(t)
	for lane := range lanes {
		t.Run(strconv.Itoa(lane), func(t *testing.T) {
			t.Parallel()
			storetest.Histories(t, func(t testing.TB, clock func() int64) headgate.Store { return open(t, s, clock) },
				uint64(lane), max(1, total/length/lanes), length)
		})
	}
}
