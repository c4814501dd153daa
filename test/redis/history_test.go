package redis_test

import (
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/storetest"
	"github.com/headgate/headgate/test/servers"
)

// prefixes gives every store of a test its own counters on the shared server.
var prefixes atomic.Int64

// open returns a store with counters of its own. A nil clock is the server's.
func open(t testing.TB, client rueidis.Client, clock func() int64, more ...redis.Option) *redis.Store {
	t.Helper()
	options := []redis.Option{
		redis.WithPrefix("t" + strconv.FormatInt(prefixes.Add(1), 10) + ":"),
		redis.WithTimeout(30 * time.Second),
	}
	if clock != nil {
		options = append(options, redis.WithClock(clock))
	}
	store, err := redis.New(client, append(options, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// dial returns a client of the kind that redis.Open makes.
func dial(t testing.TB, s *servers.Server) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.Addr()}, DisableRetry: true, DisableCache: true, ForceSingleClient: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// steps is how many random steps each kind of server goes through.
func steps(t *testing.T) int {
	text := os.Getenv("HEADGATE_STEPS")
	if text == "" {
		return 200_000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("HEADGATE_STEPS: %v", err)
	}
	return n
}

// TestHistories holds the scripts against the Go steps and the oracle: two
// hundred thousand random steps on Redis and as many on Valkey.
func TestHistories(t *testing.T) {
	const length, lanes = 500, 16
	each := max(1, steps(t)/length/lanes)
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		client := dial(t, s)
		for lane := range lanes {
			t.Run(strconv.Itoa(lane), func(t *testing.T) {
				t.Parallel()
				storetest.Histories(t, func(t testing.TB, clock func() int64) headgate.Store {
					return open(t, client, clock)
				}, uint64(lane), each, length)
			})
		}
	})
}
