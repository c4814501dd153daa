package redis_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// TestMembers: nodes are counted by the server's clock, and it is known for how long
// it has had its data.
func TestMembers(t *testing.T) {
	const second = int64(time.Second / time.Microsecond)
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		now := int64(1_763_712_000) * second
		client := dial(t, s)
		store := stores.Open(t, client, func() int64 { return now })
		members := func(store *redis.Store, node string, ttl time.Duration) (int64, time.Duration) {
			t.Helper()
			n, age, err := store.Members(t.Context(), node, ttl)
			if err != nil {
				t.Fatal(err)
			}
			return n, age
		}
		for i, step := range []struct {
			at   int64 // seconds after the step before
			node string
			ttl  time.Duration
			want int64
			age  time.Duration
		}{
			{0, "a", 10 * time.Second, 1, 0},
			{3, "b", 10 * time.Second, 2, 3 * time.Second},
			{3, "a", 10 * time.Second, 2, 6 * time.Second},
			{6, "c", 10 * time.Second, 3, 12 * time.Second},
			{1, "c", 10 * time.Second, 2, 13 * time.Second}, // b's time is over
			{1, "c", 0, 1, 14 * time.Second},                // c goes
			{1, "c", 0, 1, 15 * time.Second},
			{1, " 17", time.Second, 1, 16 * time.Second}, // a's time is over; a name like any other
			{-100, "a", time.Second, 2, 0},               // the clock steps back: as if the data began now
			{5, "b", time.Second, 2, 5 * time.Second},
		} {
			now += step.at * second
			if n, age := members(store, step.node, step.ttl); n != step.want || age != step.age {
				t.Errorf("step %d: %d nodes, data of %v; want %d and %v", i+1, n, age, step.want, step.age)
			}
		}
		// Others on the same server are others.
		if n, _ := members(stores.Open(t, client, nil), "a", time.Second); n != 1 {
			t.Errorf("under another prefix there are %d nodes", n)
		}
		for _, node := range []string{"", strings.Repeat("n", 65)} {
			if _, _, err := store.Members(t.Context(), node, time.Second); !errors.Is(err, headgate.ErrInvalid) {
				t.Errorf("a node of %d bytes: %v", len(node), err)
			}
		}
		if _, _, err := store.Members(t.Context(), "a", -1); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("a negative time: %v", err)
		}
		if _, err := s.Do(t.Context(), "FLUSHALL"); err != nil {
			t.Fatal(err)
		}
		if n, age := members(store, "a", time.Second); n != 1 || age != 0 {
			t.Errorf("after the data was lost: %d nodes, data of %v", n, age)
		}
	})
}

// TestMembersByTheServersClock: a day that the server has seen is a day, whatever
// this process believes, and what is noted expires by itself.
func TestMembersByTheServersClock(t *testing.T) {
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		store := stores.Open(t, dial(t, s), nil)
		if _, age, err := store.Members(t.Context(), "a", time.Minute); err != nil || age != 0 {
			t.Errorf("at first: data of %v, %v", age, err)
		}
		if _, age, err := store.Members(t.Context(), "b", time.Minute); err != nil || age <= 0 || age > time.Minute {
			t.Errorf("then: data of %v, %v", age, err)
		}
		keys, err := s.Do(t.Context(), "KEYS", "*")
		if err != nil {
			t.Fatal(err)
		}
		list := keys.([]any)
		if len(list) != 1 {
			t.Fatalf("keys: %v", list)
		}
		ttl, err := s.Do(t.Context(), "TTL", list[0].(string))
		if err != nil {
			t.Fatal(err)
		}
		if ttl.(int64) < 86400 || ttl.(int64) > 32*86400 {
			t.Errorf("%v expires in %v s", list[0], ttl)
		}
	})
}
