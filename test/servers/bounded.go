package servers

import (
	"context"
	"testing"
	"time"
)

// Patience is how long a test waits for one answer: longer than a busy machine takes. Whoever
// waits for longer waits in vain, as for a broker whose disk is full.
const Patience = 3 * time.Minute

// Bounded returns a context for one call of a client that has no deadline of its own. It ends
// with the test, and after [Patience].
func Bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	return ctx
}
