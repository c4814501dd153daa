package flow

import (
	"context"
	"fmt"
	"sync/atomic"
)

// Outcome says how the work of a permit ended. Adaptive gates learn from it.
type Outcome uint8

const (
	// Ignore is work that says nothing about load: it was cancelled by its caller,
	// failed at once for a reason of its own, or was a stream whose duration is its
	// client's choice. It is the zero Outcome.
	Ignore Outcome = iota
	// Success is work that was done, so that the time it took is worth knowing.
	Success
	// Overload is work that failed because something was too slow or too busy: a
	// timeout, a refused connection, an answer 503 or RESOURCE_EXHAUSTED.
	Overload
	// Unused is work that never began. Gates that charge for what begins give the
	// charge back. [Chain] uses it to roll back.
	Unused

	outcomes // the number of outcomes
)

// Outcomes is the number of outcomes.
const Outcomes = int(outcomes)

var outcomeNames = [outcomes]string{"ignore", "success", "overload", "unused"}

// String returns "ignore", "success", "overload" or "unused".
func (o Outcome) String() string {
	if o < outcomes {
		return outcomeNames[o]
	}
	return fmt.Sprintf("outcome(%d)", uint8(o))
}

// Permit is the right to have something in progress. It is a small value, and may be
// copied: of all copies together, the first Done counts and all others do nothing.
// The zero Permit holds nothing, and its methods do nothing. Done and Held may be
// called concurrently; Context and Begin must not be called at the same time as Done.
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

// Done gives the permit back and tells the gate how the work ended. It reports
// whether it was this call that gave the permit back. An outcome that is none counts
// as [Ignore].
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

// Context returns a context for the work, by which the gate recognizes what it has
// already let in; see [Gate]. Use it where work may lead back to the same gate. It
// returns ctx itself if the permit holds nothing.
func (p Permit) Context(ctx context.Context) context.Context {
	if !p.Held() {
		return ctx
	}
	return p.slot.holder.Bind(ctx, p)
}

// Begin tells the gate that the work begins only now: what has happened since the
// permit was issued, such as a question to a store, is no part of how long the work
// takes. It must not be called at the same time as Done. Without it the work begins when
// the permit is issued.
func (p Permit) Begin() {
	if !p.Held() {
		return
	}
	if holder, ok := p.slot.holder.(Beginner); ok {
		holder.Begin()
	}
}

// Beginner is a [Holder] to which it matters when the work begins: gates that measure
// how long work takes, and gates around others. It is for authors of gates.
type Beginner interface {
	// Begin is that of [Permit.Begin]. It is called before GiveBack, never at the same
	// time.
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

// Slot tells the permit that it was issued for last from all earlier ones, so that
// gates can use what they remember of a permit again for the next one without
// allocating. Gates embed it in their Holder. It must not be copied after Issue.
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
