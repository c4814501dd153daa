package stores

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
)

// timeout is a deadline for calls that a server which is well always meets.
const timeout = 30 * time.Second

// fresh gives every store of a test its own counters on a shared server.
var fresh atomic.Int64

// Fresh returns a number that it has not returned before, for the name of a prefix.
func Fresh() int64 { return fresh.Add(1) }

// options are those of a store with counters of its own.
func options() []redis.Option {
	return []redis.Option{redis.Prefix("t" + strconv.FormatInt(Fresh(), 10) + ":"), redis.Timeout(timeout)}
}

// Open returns a store with counters of its own. A nil clock is the server's.
func Open(t testing.TB, client rueidis.Client, clock func() int64, more ...redis.Option) *redis.Store {
	t.Helper()
	all := options()
	if clock != nil {
		all = append(all, redis.Clock(clock))
	}
	store, err := redis.New(client, append(all, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// OpenURL opens a store with counters of its own, as a user would who is patient. It is
// closed when the test ends.
func OpenURL(t testing.TB, url string, more ...redis.Option) *redis.Store {
	t.Helper()
	store, err := redis.Open(t.Context(), Patiently(url), append(options(), more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// OpenBriskly opens a store with the time to connect that users have, for tests of what
// comes when it is over. On a busy machine it can be over at once; it is tried again
// then. The store is closed when the test ends.
func OpenBriskly(t testing.TB, url string, timeout time.Duration) *redis.Store {
	t.Helper()
	var store *redis.Store
	Until(t, "a store is opened", func() bool {
		var err error
		store, err = redis.Open(t.Context(), url, redis.Timeout(timeout))
		if err != nil && !errors.Is(err, headgate.ErrUnavailable) {
			t.Fatal(err)
		}
		return err == nil
	})
	t.Cleanup(store.Close)
	return store
}

// Patiently is the URL with time to connect, which a busy machine needs, unless it says
// what there is.
func Patiently(url string) string {
	if strings.Contains(url, "connect_timeout=") {
		return url
	}
	sep := "?"
	if strings.Contains(url, "?") {
		sep = "&"
	}
	return url + sep + "connect_timeout=30s"
}

// Do sends a command that must succeed past the store.
func Do(t testing.TB, s *servers.Server, args ...string) {
	t.Helper()
	if _, err := s.Do(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
}

// Allow takes a unit, and fails the test if there is no decision.
func Allow(t testing.TB, store headgate.Store, rule *headgate.Rule, key string) headgate.Decision {
	t.Helper()
	d, err := headgate.New(store, rule).Allow(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Recovers waits until the limiter answers again.
func Recovers(t testing.TB, limiter *headgate.Limiter) {
	t.Helper()
	Until(t, "the store has recovered", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := limiter.Allow(ctx, "k")
		return err == nil
	})
}

// ScriptCalls is how many script calls the servers have had.
func ScriptCalls(t testing.TB, all ...*servers.Server) int {
	t.Helper()
	total := 0
	for _, s := range all {
		info, err := s.Do(t.Context(), "INFO", "commandstats")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(info.(string), "cmdstat_evalsha:calls=")
		count, _, _ := strings.Cut(rest, ",")
		n, _ := strconv.Atoi(count) // 0 if there was none
		total += n
	}
	return total
}
