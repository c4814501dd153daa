package headgate

import (
	"context"
	"time"
)

// Hooks are called by the store that [Observe] returns. Any of them may be nil.
// They run in the caller's goroutine and must be quick; they must not keep the
// slices they are given.
type Hooks struct {
	// Decided is called after each Take that the store answered.
	Decided func(ctx context.Context, op Op, checks []Check, decisions []Decision, took time.Duration)
	// Failed is called after each Take that ended in an error.
	Failed func(ctx context.Context, op Op, checks []Check, err error, took time.Duration)
}

// Observe returns a store that answers as the given one does and tells the
// hooks.
func Observe(store Store, hooks Hooks) Store { return &observed{store, hooks} }

type observed struct {
	store Store
	hooks Hooks
}

func (o *observed) Take(ctx context.Context, op Op, checks []Check, dst []Decision) ([]Decision, error) {
	start := time.Now()
	before := len(dst)
	out, err := o.store.Take(ctx, op, checks, dst)
	switch took := time.Since(start); {
	case err != nil:
		if o.hooks.Failed != nil {
			o.hooks.Failed(ctx, op, checks, err, took)
		}
	case o.hooks.Decided != nil:
		o.hooks.Decided(ctx, op, checks, out[before:], took)
	}
	return out, err
}
