package memcached

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// TestNoPermits: memcached tells no time, so a store in it keeps no leases, and says so
// when they are asked for.
func TestNoPermits(t *testing.T) {
	_, err := store.PermitsOf(&Store{})
	if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), "memcached.Store keeps no permits") {
		t.Errorf("got %v", err)
	}
}
