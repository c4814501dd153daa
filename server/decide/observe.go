package decide

import (
	"context"

	"github.com/headgate/headgate"
)

// Event is what a Decider did with one Ask. All that it refers to is valid only
// while the hook runs that was given it.
type Event struct {
	Ask *Ask
	// Reserved says that the request was one of Reserve.
	Reserved bool
	// Terms are those of TakeOnce or Reserve; without an ID for any other.
	Terms headgate.Terms
	// Reservation is what Reserve made; its zero if the request was denied.
	Reservation headgate.Reservation
	// Decisions are what was appended, and Err is the error.
	Decisions []headgate.Decision
	Err       error
}

// Hooks are called by the Decider that [Observe] returns. Any of them may be nil.
// They run in the caller's goroutine and must be quick.
type Hooks struct {
	// Decided is called after each Take, TakeOnce and Reserve, whatever came of
	// it.
	Decided func(e Event)
	// Together is called after all calls for a request of several descriptors, each
	// of which Decided was told of. Both the request and all that it refers to are
	// valid only while the hook runs.
	Together func(p *Parts, err error)
	// Settled is called after each Settle, with the reservation and the units of
	// each of its checks.
	Settled func(r headgate.Reservation, units []int64, err error)
}

// Observe returns a Decider that decides as the given one does and tells the
// hooks. Hooks that [headgate.Observe] knows see calls to a store; these see what
// transports asked for, requests that no store was asked about among them.
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

// appended is what was appended to dst, which became out.
func appended(dst, out []headgate.Decision) []headgate.Decision {
	return out[min(len(dst), len(out)):]
}
