package redis_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/storetest"
	"github.com/headgate/headgate/test/servers"
)

// openURL opens a store with counters of its own, as a user would.
func openURL(t testing.TB, url string, options ...redis.Option) *redis.Store {
	t.Helper()
	options = append([]redis.Option{
		redis.WithPrefix("t" + strconv.FormatInt(prefixes.Add(1), 10) + ":"),
		redis.WithTimeout(30 * time.Second),
	}, options...)
	store, err := redis.Open(t.Context(), url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// eachKind runs a test for every kind of server, side by side.
func eachKind(t *testing.T, test func(t *testing.T, kind servers.Kind)) {
	for _, kind := range servers.Kinds() {
		t.Run(string(kind), func(t *testing.T) { test(t, kind) })
	}
}

// topologies are the servers in every form but that of a single one.
func topologies(t *testing.T, test func(t *testing.T, client rueidis.Client)) {
	t.Helper()
	eachKind(t, func(t *testing.T, kind servers.Kind) {
		t.Run("sentinel", func(t *testing.T) {
			s := servers.StartSentinel(t, kind)
			option := rueidis.ClientOption{Sentinel: rueidis.SentinelOption{MasterSet: servers.MasterName}}
			for _, one := range s.Sentinels {
				option.InitAddress = append(option.InitAddress, one.Addr())
			}
			test(t, connect(t, option))
		})
		t.Run("cluster", func(t *testing.T) {
			c := servers.StartCluster(t, kind)
			test(t, connect(t, rueidis.ClientOption{InitAddress: []string{c.Nodes[0].Addr(), c.Nodes[1].Addr()}}))
		})
	})
}

func connect(t *testing.T, option rueidis.ClientOption) rueidis.Client {
	t.Helper()
	option.DisableRetry, option.DisableCache = true, true
	client, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// TestTopologiesConform: the same decisions, however the servers belong together.
func TestTopologiesConform(t *testing.T) {
	topologies(t, func(t *testing.T, client rueidis.Client) {
		make := func(t testing.TB, clock func() int64) headgate.Store {
			return struct{ headgate.Store }{open(t, client, clock)}
		}
		storetest.Run(t, make)
		t.Run("histories", func(t *testing.T) {
			const length = 500
			storetest.Histories(t, make, 77, max(1, steps(t)/length/20), length)
		})
	})
}
