package redis_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// connections are the ids of the server's connections with a name, in the order in which they were
// made.
func connections(t *testing.T, s *servers.Server, name string) (ids []int) {
	t.Helper()
	list, err := s.Do(t.Context(), "CLIENT", "LIST")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(fmt.Sprint(list)) {
		if !strings.Contains(line, " name="+name+" ") {
			continue
		}
		id, err := strconv.Atoi(strings.TrimPrefix(strings.Fields(line)[0], "id="))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// openLone opens a store and asks it until a single caller has a connection to itself. The name of
// the connections is the store's alone.
func openLone(t *testing.T, s *servers.Server, timeout time.Duration) (store *redis.Store, limiter *headgate.Limiter, name string) {
	t.Helper()
	name = "lone" + strconv.FormatInt(stores.Fresh(), 10)
	store, err := redis.Open(t.Context(), stores.Patiently(s.URL()+"?client_name="+name),
		redis.Timeout(timeout), redis.Prefix(name+":"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	limiter = headgate.New(store, headgate.MustRule("r", headgate.Per(1_000_000, time.Hour)))
	stores.Until(t, "a lone caller has a connection", func() bool {
		if _, err := limiter.Allow(t.Context(), "k"); err != nil && timeout > time.Second {
			t.Fatal(err)
		}
		return len(connections(t, s, name)) == 2
	})
	return store, limiter, name
}

// TestLoneConnectionClosed: the server closes the connection that a lone caller has to himself. No
// decision is lost, and a new connection takes its place.
func TestLoneConnectionClosed(t *testing.T) {
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		_, limiter, name := openLone(t, s, time.Minute)
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				for range 20 {
					if _, err := limiter.Allow(t.Context(), "k"); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		for range 2 {
			ids := connections(t, s, name)
			if len(ids) != 2 {
				t.Fatalf("there are %d connections, must be the shared one and the lone caller's", len(ids))
			}
			lone := ids[1]
			stores.Do(t, s, "CLIENT", "KILL", "ID", strconv.Itoa(lone))
			stores.Until(t, "the connection is closed", func() bool { return len(connections(t, s, name)) == 1 })
			stores.Until(t, "there is a new connection", func() bool {
				if _, err := limiter.Allow(t.Context(), "k"); err != nil {
					t.Fatalf("got %v after the server closed an idle connection", err)
				}
				ids := connections(t, s, name)
				return len(ids) == 2 && ids[1] > lone
			})
		}
	})
}

// TestLoneCallerOfHangingServer: a lone call ends at its deadline, what it may have charged is
// charged once at most, and the store works again when the server does.
func TestLoneCallerOfHangingServer(t *testing.T) {
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		store, limiter, _ := openLone(t, s, 50*time.Millisecond)
		rule := headgate.MustRule("counted", headgate.Per(1000, time.Hour))
		counted := headgate.New(store, rule)
		s.Pause()
		const calls = 3
		for range calls {
			_, err := counted.Allow(t.Context(), "k")
			if !errors.Is(err, headgate.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, want ErrUnavailable by the deadline", err)
			}
		}
		s.Resume()
		stores.Recovers(t, limiter)
		var d headgate.Decision
		stores.Until(t, "the counter can be read", func() (ok bool) {
			var err error
			d, err = counted.Peek(t.Context(), "k", 1)
			return err == nil
		})
		if used := 1000 - d.Remaining; used > calls {
			t.Errorf("%d units are in use after %d calls without an answer", used, calls)
		}
	})
}

// TestCloseEndsLoneCall: a store that is closed does not wait for a server that hangs.
func TestCloseEndsLoneCall(t *testing.T) {
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		store, limiter, _ := openLone(t, s, time.Hour)
		s.Pause()
		defer s.Resume()
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := limiter.Allow(t.Context(), "k"); !errors.Is(err, headgate.ErrUnavailable) {
				t.Errorf("got %v, want ErrUnavailable", err)
			}
		})
		// The call may begin before the store is closed or after it.
		store.Close()
		stores.Ended(t, "the call ends", stores.Waited(&all))
	})
}
