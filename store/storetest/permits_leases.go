package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/store"
)

func permitsLimit(s *permitSubject) {
	var all []store.Lease
	for i := range 3 {
		all = append(all, s.granted(permitAsk(fmt.Sprint(i))))
		s.slots(all[i], i)
	}
	a := s.refused(permitAsk("late"), false, 0)
	if a.InUse != 3 || a.Line != 0 {
		s.Errorf("a refusal says %+v", a)
	}
	other := permitAsk("late")
	other.Key = "other"
	s.slots(s.granted(other), 0)
	s.release(all[1], true)
	s.slots(s.granted(permitAsk("late")), 1)
	if h := s.holders("k"); len(h.Leases) != 3 || h.InUse() != 3 || len(h.Waiting) != 0 {
		s.Errorf("holders: %+v", h)
	}
	if h := s.holders("nobody"); len(h.Leases) != 0 {
		s.Errorf("holders of a key that nobody has asked for: %+v", h)
	}
}

func permitsWeights(s *permitSubject) {
	ask := func(holder string, cost int64) store.PermitRequest {
		r := permitAsk(holder)
		r.Cost, r.Limit = cost, 6
		return r
	}
	a := s.granted(ask("a", 2))
	b := s.granted(ask("b", 1))
	s.slots(s.granted(ask("c", 3)), 3, 4, 5)
	s.refused(ask("d", 1), false, 0)
	s.release(a, true)
	s.refused(ask("d", 3), false, 0)
	s.release(b, true)
	s.slots(s.granted(ask("d", 3)), 0, 1, 2)
	_, err := s.store.Acquire(context.Background(), ask("e", 7))
	var large *store.TooLargeError
	if !errors.As(err, &large) || !errors.Is(err, store.ErrTooLarge) || large.Cost != 7 || large.Limit != 6 ||
		!strings.Contains(err.Error(), "7") || !strings.Contains(err.Error(), "6") {
		s.Errorf("a cost above the limit: %v", err)
	}
}

func permitsEnd(s *permitSubject) {
	r := permitAsk("a")
	r.Limit = 1
	a := s.granted(r)
	s.wait(10*time.Second - time.Microsecond)
	r.Holder = "b"
	s.refused(r, false, 0)
	s.wait(time.Microsecond)
	b := s.granted(r)
	s.slots(b, 0)
	if b.Epoch <= a.Epoch {
		s.Errorf("the epoch goes from %d to %d", a.Epoch, b.Epoch)
	}
	s.release(a, false)
	s.renew(a, time.Second, store.ErrNotHeld)
	s.renew(b, time.Second, nil)
	s.wait(time.Second)
	if h := s.holders("k"); len(h.Leases) != 0 {
		s.Errorf("after the end: %+v", h)
	}
}

func permitsRenew(s *permitSubject) {
	a := s.granted(permitAsk("a"))
	s.wait(9 * time.Second)
	s.renew(a, 10*time.Second, nil)
	s.wait(10*time.Second - time.Microsecond)
	s.renew(a, 5*time.Second, nil)
	s.wait(5 * time.Second)
	s.renew(a, 10*time.Second, store.ErrNotHeld)
	if h := s.holders("k"); len(h.Leases) != 0 {
		s.Errorf("renewing has acquired: %+v", h)
	}
	b := s.granted(permitAsk("a"))
	s.renew(a, 10*time.Second, store.ErrNotHeld)
	b.Epoch++
	s.renew(b, 10*time.Second, store.ErrNotHeld)
	b.Holder = "nobody"
	s.renew(b, 10*time.Second, store.ErrNotHeld)
}

func permitsRelease(s *permitSubject) {
	a := s.granted(permitAsk("a"))
	other := a
	other.Holder = "b"
	s.release(other, false)
	other = a
	other.Epoch++
	s.release(other, false)
	s.release(a, true)
	s.release(a, false)
	// A second release of the old lease leaves the new one of the same holder alone.
	b := s.granted(permitAsk("a"))
	s.release(a, false)
	if h := s.holders("k"); len(h.Leases) != 1 || h.Leases[0].Epoch != b.Epoch {
		s.Errorf("a stale release has ended a new lease: %+v", h)
	}
	b.Epoch = 0
	s.release(b, true)
	s.release(b, false)
}

func permitsAgain(s *permitSubject) {
	a := s.granted(permitAsk("a"))
	s.wait(time.Second)
	r := permitAsk("a")
	r.TTL = time.Minute
	again := s.granted(r)
	if again.Epoch != a.Epoch || again.Remaining != 9*time.Second || again.TTL != 10*time.Second {
		s.Errorf("asked again: %+v, want %+v", again, a)
	}
	r.Cost = 2
	if _, err := s.store.Acquire(context.Background(), r); !errors.Is(err, store.ErrOtherCost) {
		s.Errorf("at another cost: %v", err)
	}
	if h := s.holders("k"); h.InUse() != 1 {
		s.Errorf("holders: %+v", h)
	}
}

func permitsLimits(s *permitSubject) {
	ask := func(holder string, limit int64) store.PermitRequest {
		r := permitAsk(holder)
		r.Limit = limit
		return r
	}
	var all []store.Lease
	for i := range 3 {
		all = append(all, s.granted(ask(fmt.Sprint(i), 3)))
	}
	s.refused(ask("x", 2), false, 0)
	all = append(all, s.granted(ask("3", 4)))
	s.slots(all[3], 3)
	s.release(all[0], true)
	s.release(all[1], true)
	s.refused(ask("x", 2), false, 0)
	s.release(all[2], true)
	s.slots(s.granted(ask("x", 2)), 0) // the slot 3 is still held, and counts
	s.refused(ask("y", 2), false, 0)
	s.release(all[3], true)
	s.slots(s.granted(ask("y", 2)), 1)
}

func permitsRevoke(s *permitSubject) {
	revoke := func(holder string, want bool) {
		s.Helper()
		if got, err := s.store.Revoke(context.Background(), "k", holder); err != nil || got != want {
			s.Fatalf("revoking %s: %t, %v; want %t", holder, got, err, want)
		}
	}
	r := permitAsk("a")
	r.Cost = 3
	a := s.granted(r)
	s.refused(permitWait("b", 1), true, 0)
	revoke("b", true)
	revoke("b", false)
	revoke("a", true)
	revoke("a", true)
	revoke("nobody", false)
	s.renew(a, time.Second, store.ErrRevoked)
	if _, err := s.store.Acquire(context.Background(), r); !errors.Is(err, store.ErrRevoked) {
		s.Errorf("who was revoked asks again: %v", err)
	}
	// Its holder may still be at work.
	s.refused(permitAsk("c"), false, 0)
	if h := s.holders("k"); len(h.Leases) != 1 || !h.Leases[0].Revoked || len(h.Waiting) != 0 {
		s.Errorf("holders: %+v", h)
	}
	s.release(a, true)
	c := s.granted(permitAsk("c"))
	revoke("c", true)
	s.wait(10 * time.Second)
	s.renew(c, time.Second, store.ErrNotHeld)
	s.granted(permitAsk("c"))
}

func permitsStepBack(s *permitSubject) {
	r := permitAsk("a")
	r.Limit = 1
	a := s.granted(r)
	s.wait(-time.Hour)
	other := r
	other.Holder = "b"
	s.refused(other, false, 0)
	s.wait(9 * time.Second)
	s.refused(other, false, 0)
	s.wait(time.Second)
	b := s.granted(other)
	s.renew(a, time.Second, store.ErrNotHeld)
	// A step ahead ends leases: their holders find out, and fences keep them out.
	s.wait(2 * time.Hour)
	c := s.granted(r)
	s.renew(b, time.Second, store.ErrNotHeld)
	s.renew(c, time.Second, nil)
}

func permitsEpochs(s *permitSubject) {
	var last int64
	for i := range 20 {
		l := s.granted(permitAsk("a"))
		if l.Epoch <= last || l.Epoch < s.clock.Now() {
			s.Fatalf("at %d the epoch goes from %d to %d", s.clock.Now(), last, l.Epoch)
		}
		last = l.Epoch
		switch i % 3 {
		case 0: // the same microsecond, with another lease in between
			b := s.granted(permitAsk("b"))
			if b.Epoch <= last {
				s.Fatalf("the epoch goes from %d to %d", last, b.Epoch)
			}
			last = b.Epoch
			s.release(l, true)
		case 1:
			s.release(l, true)
			s.wait(time.Microsecond)
		default: // nothing is left of the key
			s.wait(time.Minute)
		}
	}
}
