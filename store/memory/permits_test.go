package memory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/race"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

func TestPermits(t *testing.T) {
	storetest.RunPermits(t, 200, func(_ testing.TB, clock func() int64) store.Permits {
		return memory.New(memory.Clock(clock))
	})
}

// TestPermitsAreForgotten: keys that are used once take no memory once their leases have
// ended, and when there is no memory left the store says so.
func TestPermitsAreForgotten(t *testing.T) {
	now := int64(1e15)
	s := memory.New(memory.Clock(func() int64 { return now }), memory.MaxBytes(memory.MinMaxBytes))
	acquire := func(i int, ttl time.Duration) error {
		_, err := s.Acquire(context.Background(), store.PermitRequest{Key: fmt.Sprint(i), Holder: "h", Limit: 1, TTL: ttl})
		return err
	}
	for i := range race.Fewer(100_000) {
		if err := acquire(i, time.Second); err != nil {
			t.Fatalf("key %d: %v", i, err)
		}
		now += 10_000
	}
	var full error
	for i := range 100_000 {
		if full = acquire(i, time.Hour); full != nil {
			break
		}
	}
	if !errors.Is(full, headgate.ErrUnavailable) {
		t.Fatalf("no bound is reached: %v", full)
	}
	now += time.Hour.Microseconds()
	if err := acquire(0, time.Hour); err != nil {
		t.Errorf("once all have ended: %v", err)
	}
}
