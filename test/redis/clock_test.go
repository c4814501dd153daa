package redis_test

import (
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/test/servers"
	"github.com/headgate/headgate/test/stores"
)

// TestClockSteps: the server's own clock steps back and ahead under load, and nothing is
// admitted but by time that has passed.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	servers.Each(t, func(t *testing.T, s *servers.Server) {
		stores.ClockSteps(t, stores.OpenURL(t, s.URL()), headgate.Strict, s.SetClock)
	})
}
