package shared_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/shared"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/store"
)

func lingering(limit int64) shared.Config {
	return shared.Config{Limit: limit, TTL: time.Second, Linger: 10 * time.Millisecond}
}

func inUse(t *testing.T, s *troubled, want int64) {
	t.Helper()
	bubbletest.Wait()
	if all := held(t, s, "k"); all.InUse() != want {
		t.Errorf("the store has %d units in use, want %d", all.InUse(), want)
	}
}

// TestLinger: a request that follows soon on another one goes on with its lease, and a
// lease that nobody wants is released.
func TestLinger(t *testing.T) {
	bubble(t, func(t *testing.T, s *troubled) {
		g := newGate(t, s, lingering(8))
		p := acquire(t, g, flow.Request{Key: "k"})
		first, _ := shared.FenceOf(p.Context(t.Context()))
		p.Done(flow.Success)
		inUse(t, s, 1)
		time.Sleep(9 * time.Millisecond)
		p = acquire(t, g, flow.Request{Key: "k"})
		if again, _ := shared.FenceOf(p.Context(t.Context())); again.String() != first.String() || s.asked != 1 {
			t.Errorf("the fence was %v and is %v, after %d calls", first, again, s.asked)
		}
		q := acquire(t, g, flow.Request{Key: "k"}) // the lease is in use
		inUse(t, s, 2)
		if st := g.Stats(); st.Reused != 1 || st.Admitted != 3 || st.Leases != 2 || st.InUse != 2 {
			t.Errorf("%+v", st)
		}
		p.Done(flow.Success)
		q.Done(flow.Success)
		acquire(t, g, flow.Request{Key: "k", Cost: 2}).Done(flow.Success) // no lease that lingers is of two units
		if s.asked != 3 {
			t.Errorf("the store was asked %d times, want 3", s.asked)
		}
		time.Sleep(11 * time.Millisecond)
		inUse(t, s, 0)
		if st := g.Stats(); st.Keys != 0 || st.Leases != 0 || st.InUse != 0 {
			t.Errorf("%+v", st)
		}
	})
}

// TestLingerAsksAgain: under steady work the store is asked ten times a second, not for
// every permit.
func TestLingerAsksAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *troubled) {
		g := newGate(t, s, lingering(8))
		for begin := time.Now(); time.Since(begin) < 10*time.Second; {
			p := acquire(t, g, flow.Request{Key: "k"})
			time.Sleep(5 * time.Millisecond)
			p.Done(flow.Success)
		}
		if s.asked < 90 || s.asked > 120 {
			t.Errorf("the store was asked %d times within 10 s, want about 110", s.asked)
		}
	})
}

// TestLingerMakesRoom: a lease does not linger where others may want it.
func TestLingerMakesRoom(t *testing.T) {
	bubble(t, func(t *testing.T, s *troubled) {
		g, other := newGate(t, s, lingering(8)), newGate(t, s, shared.Config{Limit: 8, TTL: time.Second})
		many := acquire(t, other, flow.Request{Key: "k", Cost: 2})
		acquire(t, g, flow.Request{Key: "k"}).Done(flow.Success) // more than a quarter was in use
		inUse(t, s, 2)
		many.Done(flow.Success)

		acquire(t, g, flow.Request{Key: "k"}).Done(flow.Success)
		inUse(t, s, 1)
		acquire(t, other, flow.Request{Key: "k", Cost: 7})
		_, err := g.Acquire(t.Context(), flow.Request{Key: "k", Cost: 3})
		rejected(t, err, flow.ReasonBusy)
		inUse(t, s, 7) // what lingered was released at once
	})
}

// TestLingerRevoked: a lease that was revoked while it lingered ends for the request that
// goes on with it.
func TestLingerRevoked(t *testing.T) {
	bubble(t, func(t *testing.T, s *troubled) {
		g := newGate(t, s, lingering(8))
		acquire(t, g, flow.Request{Key: "k"}).Done(flow.Success)
		l := held(t, s, "k").Leases[0]
		if _, err := s.Revoke(t.Context(), "k", l.Holder); err != nil {
			t.Fatal(err)
		}
		p := acquire(t, g, flow.Request{Key: "k"})
		ctx := p.Context(t.Context())
		<-ctx.Done()
		if why := p.Context(t.Context()).Err(); why == nil || g.Stats().Reused != 1 {
			t.Errorf("%v, %+v", why, g.Stats())
		}
		if lost := new(shared.LostError); !errors.As(context.Cause(ctx), &lost) || !errors.Is(lost, store.ErrRevoked) {
			t.Errorf("the context ended by %v", context.Cause(ctx))
		}
		p.Done(flow.Success)
	})
}

// TestLingerClosed: a gate that is closed leaves nothing behind in the store.
func TestLingerClosed(t *testing.T) {
	bubble(t, func(t *testing.T, s *troubled) {
		g := newGate(t, s, lingering(8))
		p := acquire(t, g, flow.Request{Key: "k"})
		acquire(t, g, flow.Request{Key: "k"}).Done(flow.Success)
		inUse(t, s, 2)
		go func() {
			time.Sleep(time.Millisecond)
			p.Done(flow.Success)
		}()
		if err := g.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		inUse(t, s, 0)
	})
}
