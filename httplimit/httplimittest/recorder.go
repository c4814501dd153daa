package httplimittest

import (
	"context"
	"sync"

	"github.com/headgate/headgate"
)

// Recorder is a store that admits everything, without a decision, and remembers
// the keys that it was asked for. It is safe for concurrent use.
type Recorder struct {
	mu   sync.Mutex // guards keys
	keys []string
}

// Take implements [headgate.Store].
func (r *Recorder) Take(_ context.Context, _ headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range checks {
		r.keys = append(r.keys, c.Key)
	}
	return dst, nil
}

// Keys returns the keys that were asked for since the last call.
func (r *Recorder) Keys() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := r.keys
	r.keys = nil
	return keys
}
