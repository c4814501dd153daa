package flow

import (
	"context"
	"fmt"
	"sync/atomic"
)

// Outcome says how the work of a permit ended. Adaptive gates learn from it.
type Outcome uint8

const (
	// Ignore is for work whose duration says nothing about load: it failed at once for a reason of
	// its own, or it was a stream that lasts as long as its client likes. It is the zero Outcome.
	Ignore Outcome = iota
	// Success is for work that was done, so that its duration is meaningful.
	Success
	// Overload is for work that failed because something was too slow or too busy: a timeout, a 503 or
	// RESOURCE_EXHAUSTED. A connection that is refused is none: nothing runs there.
	Overload
	// Unused is for work that never began. Gates that charge when work begins give the charge back.
	// [Chain] uses it to give back permits when a later gate refuses.
	Unused
	// Canceled is for work whose caller left before it had ended. It would have taken at least as
	// long as it took; whether the caller left because of that, an estimator has to find out.
	Canceled

	outcomes // the number of outcomes
)

// Outcomes is the number of outcomes.
const Outcomes = int(outcomes)

var outcomeNames = [outcomes]string{"ignore", "success", "overload", "unused", "canceled"}

// String returns "ignore", "success", "overload", "unused" or "canceled".
func (o Outcome) String() string {
	if o < outcomes {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// Permit is the right to have work in progress. It is a small value and may be copied: of all
// copies, only the first call of Done counts. The zero Permit holds nothing, and its methods do
// nothing. Done and Held may be called concurrently. Context and Begin must not be called at the
// same time as Done.
//
// Give a permit back whatever happens:
//
//	permit, err := gate.Acquire(ctx, request)
//	if err != nil {
//		return err
//	}
//	defer permit.Done(flow.Ignore) // counts only if the next Done is never reached
//	err = work(permit.Context(ctx))
//	permit.Done(outcomeOf(err))
type Permit struct {
	slot       *Slot
	generation uint64
}

// Done gives the permit back and tells the gate how the work ended. It reports whether this call
// gave the permit back. An unknown outcome counts as [Ignore].
func (p Permit) Done(outcome Outcome) bool {
	if p.slot == nil || !p.slot.generation.CompareAndSwap(p.generation, p.generation+1) {
		return false
	}
	if outcome >= outcomes {
		outcome = Ignore
	}
	p.slot.holder.GiveBack(outcome)
	return true
}

// Held reports whether the permit holds something that has not been given back.
func (p Permit) Held() bool {
	return p.slot != nil && p.slot.generation.Load() == p.generation
}

// Context returns a context for the work, by which the gate recognizes what it has already
// admitted; see [Gate]. Use it if the work may lead back to the same gate. If the permit holds
// nothing, Context returns ctx itself.
func (p Permit) Context(ctx context.Context) context.Context {
	if !p.Held() {
		return ctx
	}
	return p.slot.holder.Bind(ctx, p)
}

// Begin tells the gate that the work begins only now. Time since the permit was issued, such as for
// a call to a store, then does not count as part of the work. Without a call of Begin, the work
// begins when the permit is issued. Begin must not be called at the same time as Done.
func (p Permit) Begin() {
	if !p.Held() {
		return
	}
	if holder, ok := p.slot.holder.(Beginner); ok {
		holder.Begin()
	}
}

// Beginner is a [Holder] that has to know when the work begins: that of a gate that measures how
// long work takes, or of a gate around others. It is for authors of gates.
type Beginner interface {
	// Begin is called by [Permit.Begin]. It is called before GiveBack, never at the same time.
	Begin()
}

// Holder is what a gate remembers of a permit. It is for authors of gates.
type Holder interface {
	// GiveBack is called once for each permit, by its first Done. After that call
	// the slot may be issued again.
	GiveBack(outcome Outcome)
	// Bind returns a context by which the gate recognizes the permit. It is called
	// before GiveBack, never at the same time.
	Bind(ctx context.Context, p Permit) context.Context
}

// Slot identifies the permit for which it was issued last, so that copies of earlier permits do
// nothing. It lets a gate reuse a Holder for the next permit without allocating. Gates embed it in
// their Holder. It must not be copied after Issue.
type Slot struct {
	generation atomic.Uint64
	holder     Holder
}

// Issue returns a new permit that is held by holder. The gate must not issue a slot
// again before GiveBack, and must pass the same holder each time.
func (s *Slot) Issue(holder Holder) Permit {
	if s.holder == nil {
		s.holder = holder
	}
	return Permit{s, s.generation.Load()}
}
