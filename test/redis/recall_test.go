package redis_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// TestRecallOfHangingServer: to recall a reservation and to sweep end by their
// deadlines, too, when the connection is gone and the server does not take another.
func TestRecallOfHangingServer(t *testing.T) {
	t.Parallel()
	const patience = time.Minute // what connecting may take, and these calls must not
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		t.Parallel()
		for name, call := range map[string]func(*redis.Store, string) error{
			"recall": func(store *redis.Store, id string) error {
				_, err := store.Recall(context.Background(), id)
				return err
			},
			"sweep": func(store *redis.Store, _ string) error { return store.Sweep(context.Background()) },
		} {
			store := stores.OpenURL(t, s.URL()+"?connect_timeout=1m", redis.Timeout(5*time.Second))
			checks := []headgate.Check{{Rule: headgate.MustRule("r", headgate.PerHour(10)), Key: "k"}}
			r, _, err := store.Reserve(t.Context(), headgate.Terms{}, checks, nil)
			if err != nil {
				t.Fatal(err)
			}
			stores.Do(t, s, "CLIENT", "KILL", "TYPE", "normal")
			s.Pause()
			start := time.Now()
			err = call(store, r.ID)
			if took := time.Since(start); !errors.Is(err, headgate.ErrUnavailable) || took > patience/2 {
				t.Errorf("%s: %v after %v, want ErrUnavailable by its deadline", name, err, took)
			}
			s.Resume()
		}
	})
}
