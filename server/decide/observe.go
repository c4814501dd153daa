package decide

import (
	"context"

	"github.com/headgate/headgate"
)

// Event says what a Decider did with one Ask. All that it refers to is valid only while the hook
// runs.
type Event struct {
	Ask *Ask
	// Reserved says that the call was Reserve.
	Reserved bool
	// Terms are those of TakeOnce or Reserve. For other calls they have no ID.
	Terms headgate.Terms
	// Reservation is what Reserve has made. It is zero if the request was denied.
	Reservation headgate.Reservation
	// Decisions are the decisions that were appended, and Err is the error.
	Decisions []headgate.Decision
	Err       error
}

// Hooks are called by the Decider that [Observe] returns. Any of them may be nil.
// They run in the caller's goroutine and must be quick.
type Hooks struct {
	// Decided is called after each Take, TakeOnce and Reserve, whatever the result.
	Decided func(e Event)
	// Together is called after all calls for a request of several descriptors. Decided has been
	// called for each of them. The request and all that it refers to are valid only while the hook
	// runs.
	Together func(p *Parts, err error)
	// Settled is called after each Settle, with the reservation and the units of
	// each of its checks.
	Settled func(r headgate.Reservation, units []int64, err error)
}

// Observe returns a Decider that decides like the given one and calls the hooks. The hooks of
// [headgate.Observe] see calls to a store. These hooks see what doors asked for, including requests
// for which no store was called.
func Observe(d Decider, hooks Hooks) Decider {
	if hooks.Decided == nil {
		hooks.Decided = func(Event) {}
	}
	if hooks.Together == nil {
		hooks.Together = func(*Parts, error) {}
	}
	if hooks.Settled == nil {
		hooks.Settled = func(headgate.Reservation, []int64, error) {}
	}
	return &observed{d, hooks}
}

type observed struct {
	Decider
	hooks Hooks
}

func (o *observed) Take(ctx context.Context, ask *Ask, dst []headgate.Decision) ([]headgate.Decision, error) {
	out, err := o.Decider.Take(ctx, ask, dst)
	o.hooks.Decided(Event{Ask: ask, Decisions: appended(dst, out), Err: err})
	return out, err
}

func (o *observed) TakeOnce(ctx context.Context, terms headgate.Terms, ask *Ask, dst []headgate.Decision) ([]headgate.Decision, error) {
	out, err := o.Decider.TakeOnce(ctx, terms, ask, dst)
	o.hooks.Decided(Event{Ask: ask, Terms: terms, Decisions: appended(dst, out), Err: err})
	return out, err
}

func (o *observed) Reserve(ctx context.Context, terms headgate.Terms, ask *Ask, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	r, out, err := o.Decider.Reserve(ctx, terms, ask, dst)
	o.hooks.Decided(Event{Ask: ask, Reserved: true, Terms: terms, Reservation: r, Decisions: appended(dst, out), Err: err})
	return r, out, err
}

func (o *observed) Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	out, err := o.Decider.Settle(ctx, r, units, dst)
	o.hooks.Settled(r, units, err)
	return out, err
}

func (o *observed) Told(p *Parts, err error) {
	o.Decider.Told(p, err)
	o.hooks.Together(p, err)
}

// appended returns the decisions that were appended to dst, with the result out.
func appended(dst, out []headgate.Decision) []headgate.Decision {
	return out[min(len(dst), len(out)):]
}
