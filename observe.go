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
// hooks. It is a [Ledger] if the given one is: TakeOnce and Reserve are told as
// OpTake, and Settle is not told.
func Observe(store Store, hooks Hooks) Store {
	o := &observed{store, hooks}
	if ledger, ok := store.(Ledger); ok {
		return &observedLedger{o, ledger}
	}
	return o
}

type observed struct {
	store Store
	hooks Hooks
}

func (o *observed) Take(ctx context.Context, op Op, checks []Check, dst []Decision) ([]Decision, error) {
	start := time.Now()
	out, err := o.store.Take(ctx, op, checks, dst)
	o.tell(ctx, op, checks, out[min(len(dst), len(out)):], err, start)
	return out, err
}

func (o *observed) tell(ctx context.Context, op Op, checks []Check, decisions []Decision, err error, start time.Time) {
	switch took := time.Since(start); {
	case err != nil:
		if o.hooks.Failed != nil {
			o.hooks.Failed(ctx, op, checks, err, took)
		}
	case o.hooks.Decided != nil:
		o.hooks.Decided(ctx, op, checks, decisions, took)
	}
}

// observedLedger is an observed store that is a ledger.
type observedLedger struct {
	*observed
	ledger Ledger
}

func (o *observedLedger) TakeOnce(ctx context.Context, terms Terms, checks []Check, dst []Decision) ([]Decision, error) {
	start := time.Now()
	out, err := o.ledger.TakeOnce(ctx, terms, checks, dst)
	o.tell(ctx, OpTake, checks, out[min(len(dst), len(out)):], err, start)
	return out, err
}

func (o *observedLedger) Reserve(ctx context.Context, terms Terms, checks []Check, dst []Decision) (Reservation, []Decision, error) {
	start := time.Now()
	r, out, err := o.ledger.Reserve(ctx, terms, checks, dst)
	o.tell(ctx, OpTake, checks, out[min(len(dst), len(out)):], err, start)
	return r, out, err
}

func (o *observedLedger) Recall(ctx context.Context, id string) (Reservation, error) {
	return o.ledger.Recall(ctx, id)
}

func (o *observedLedger) Settle(ctx context.Context, r Reservation, units []int64, dst []Decision) ([]Decision, error) {
	return o.ledger.Settle(ctx, r, units, dst)
}
