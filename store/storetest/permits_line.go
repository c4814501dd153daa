package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/store"
)

func permitWait(holder string, cost int64) store.PermitRequest {
	r := permitAsk(holder)
	r.Cost, r.Wait = cost, time.Second
	return r
}

func permitsLine(s *permitSubject) {
	a := s.granted(permitAsk("a"))
	b := s.granted(permitAsk("b"))
	s.granted(permitAsk("c"))
	s.refused(permitWait("d", 1), true, 0)
	s.refused(permitWait("e", 1), true, 1)
	s.refused(permitWait("d", 1), true, 0)
	if h := s.holders("k"); len(h.Waiting) != 2 || h.Waiting[0].Holder != "d" || h.Waiting[1].Holder != "e" || h.Waiting[1].Cost != 1 {
		s.Errorf("who waits: %+v", h.Waiting)
	}
	s.release(a, true)
	// What is free is for the first of those who wait.
	s.refused(permitAsk("f"), false, 0)
	s.refused(permitWait("e", 1), true, 1)
	s.slots(s.granted(permitWait("d", 1)), 0)
	s.refused(permitWait("e", 1), true, 0)
	s.release(b, true)
	s.slots(s.granted(permitWait("e", 1)), 1)
	if h := s.holders("k"); len(h.Waiting) != 0 || len(h.Leases) != 3 {
		s.Errorf("holders: %+v", h)
	}
	r := permitWait("f", 1)
	s.refused(r, true, 0)
	r.Cost = 2
	if _, err := s.store.Acquire(context.Background(), r); !errors.Is(err, store.ErrOtherCost) {
		s.Errorf("who waits asks at another cost: %v", err)
	}
}

func permitsPlace(s *permitSubject) {
	r := permitAsk("a")
	r.Cost = 3
	a := s.granted(r)
	s.refused(permitWait("b", 1), true, 0)
	s.refused(permitWait("c", 1), true, 1)
	s.refused(permitWait("d", 1), true, 2)
	s.wait(time.Second - time.Microsecond)
	s.refused(permitWait("c", 1), true, 1)
	s.refused(permitWait("d", 1), true, 2)
	s.wait(time.Microsecond)
	s.refused(permitWait("c", 1), true, 0)
	s.refused(permitWait("b", 1), true, 2) // b was gone too long, and is the last now
	s.refused(permitAsk("c"), false, 0)    // c asks for the last time
	s.refused(permitWait("d", 1), true, 0)
	d := store.Lease{Key: "k", Holder: "d"}
	s.release(d, true)
	s.release(d, false)
	s.refused(permitWait("b", 1), true, 0)
	s.release(a, true)
	s.granted(permitWait("b", 1))
	s.granted(permitAsk("d"))
}

func permitsQueue(s *permitSubject) {
	r := permitAsk("a")
	r.Cost = 3
	s.granted(r)
	for i := range 3 {
		s.refused(permitWait(fmt.Sprint(i), 1), true, i)
	}
	if a := s.refused(permitWait("3", 1), false, 0); a.Line != 3 {
		s.Errorf("a full queue says %+v", a)
	}
	more := permitWait("3", 1)
	more.Queue = 4
	s.refused(more, true, 3)
	s.refused(permitWait("1", 1), true, 1)
	none := permitWait("4", 1)
	none.Queue = 0
	s.refused(none, false, 0)
}

func permitsOvertake(s *permitSubject) {
	a := s.granted(permitAsk("a"))
	large := permitWait("large", 3)
	large.Wait = time.Minute
	s.refused(large, true, 0)
	// Three units may overtake it, as many as the limit.
	var last store.Lease
	for i := range 3 {
		last = s.granted(permitAsk(fmt.Sprint("small", i)))
		if i < 2 {
			s.release(last, true)
		}
	}
	s.release(last, true)
	s.refused(permitAsk("small3"), false, 0)
	s.refused(permitWait("small3", 1), true, 1)
	s.refused(large, true, 0)
	s.release(a, true)
	s.refused(permitWait("small3", 1), true, 1) // it would fit, and the large one goes first
	s.slots(s.granted(large), 0, 1, 2)
}
