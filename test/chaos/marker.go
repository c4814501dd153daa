package chaos

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	client "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/headgate/headgate/test/servers"
)

// markerEvery is how often a marker is written.
const markerEvery = 5 * time.Millisecond

// marker tells which admissions a server has that was a replica; see the package's
// description.
type marker struct {
	key  string
	stop context.CancelFunc
	done sync.WaitGroup

	mu   sync.Mutex // guards seen
	seen []int64    // what had been admitted before the marker of that number was written
}

// mark writes markers to the primary until it is told to stop, over a connection that stays: one for
// each marker would cost more than the callers do.
func mark(ctx context.Context, primary *servers.Server, key string, admitted func() int64) *marker {
	m := &marker{key: key}
	ctx, m.stop = context.WithCancel(ctx)
	const within = 100 * time.Millisecond
	to := client.NewClient(&client.Options{
		Addr: primary.Addr(), PoolSize: 1, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true,
		DialTimeout: within, ReadTimeout: within, WriteTimeout: within,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	m.done.Go(func() {
		defer to.Close()
		for ctx.Err() == nil {
			m.mu.Lock()
			m.seen = append(m.seen, admitted())
			number := len(m.seen)
			m.mu.Unlock()
			// One that is not written is a number that is not found.
			_ = to.Set(ctx, key, number, 0).Err()
			select {
			case <-ctx.Done():
			case <-time.After(markerEvery):
			}
		}
	})
	return m
}

func (m *marker) end() {
	m.stop()
	m.done.Wait()
}

// reached returns what had been admitted before the last marker that the server has:
// it has at least that.
func (m *marker) reached(t testing.TB, s *servers.Server) int64 {
	t.Helper()
	reply := do(t, s, "GET", m.key)
	if reply == nil {
		return 0
	}
	number, err := strconv.Atoi(fmt.Sprint(reply))
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil || number < 1 || number > len(m.seen) {
		t.Fatalf("chaos: the marker at %s is %v, want 1 to %d", s.Addr(), reply, len(m.seen))
	}
	return m.seen[number-1]
}
