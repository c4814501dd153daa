package redis_test

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/storetest"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// dial returns a client of the kind that redis.Open makes.
func dial(t testing.TB, s *servers.Server) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.Addr()}, DisableRetry: true, DisableCache: true, ForceSingleClient: true,
		Dialer: net.Dialer{Timeout: 30 * time.Second, KeepAlive: time.Second}, ConnWriteTimeout: 30 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// onOneKind runs a test on one kind of server, and on all in `make soak`: where what nodes do is
// tested, and they have the same scripts on every kind, which TestConformance holds to each other.
func onOneKind(t *testing.T, kind servers.Kind, test func(t *testing.T, s *servers.Server)) {
	t.Helper()
	if stores.Soaking(t) {
		servers.Each(t, test)
		return
	}
	t.Run(string(kind), func(t *testing.T) { test(t, servers.Start(t, kind)) })
}

// TestHistories holds the scripts against the Go steps and the oracle, in as many random steps
// on Redis as on Valkey. The histories are others on each: a mistake of the scripts shows on both,
// so that both together go through all of them.
func TestHistories(t *testing.T) {
	const length, lanes = 300, 8
	each := max(1, storetest.Steps(t, 2_400)/length/lanes)
	seeds := map[servers.Kind]int{servers.Redis: 0, servers.Valkey: lanes}
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		client := dial(t, s)
		for lane := range lanes {
			t.Run(strconv.Itoa(lane), func(t *testing.T) {
				t.Parallel()
				storetest.Histories(t, func(t testing.TB, clock func() int64) headgate.Store {
					return stores.Open(t, client, clock)
				}, uint64(lane+seeds[s.Kind()]), each, length)
			})
		}
	})
}
