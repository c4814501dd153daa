package stores

import (
	"testing"

	"github.com/headgate/headgate/store/storetest"
)

// Soaking reports whether tests are to search for long, as `make soak` has them do.
func Soaking(t testing.TB) bool {
	t.Helper()
	return storetest.Steps(t, 0) > 0
}
