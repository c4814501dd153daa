package postgres_test

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
	s := servers.StartPostgres(t)
	stores.ClockSteps(t, open(t, s, nil), headgate.Strict, s.SetClock)
}
