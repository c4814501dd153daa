package redis

import (
	"context"
	"errors"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/redis/internal/guard"
)

// TestOvertaken: the error says what happened, and is what callers look for.
func TestOvertaken(t *testing.T) {
	for ended, want := range map[error]string{
		context.DeadlineExceeded: "headgate: store unavailable: redis: take: more ask than are answered in time; it was not sent: context deadline exceeded",
		guard.ErrClosed:          "headgate: store unavailable: redis: take: the store is closed",
	} {
		err := error(&overtaken{headgate.OpTake, ended})
		if !errors.Is(err, headgate.ErrUnavailable) || !errors.Is(err, ended) || err.Error() != want {
			t.Errorf("got %v", err)
		}
	}
}
