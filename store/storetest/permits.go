package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// PermitsMaker makes a fresh and empty store that decides by clock, in microseconds since
// the Unix epoch. It may register a cleanup, and end the test if it cannot make one.
type PermitsMaker func(t testing.TB, clock func() int64) store.Permits

// RunPermits is the conformance suite for [store.Permits]. Each of its cases is a subtest,
// on fresh stores. The last one compares that many random histories with an oracle.
func RunPermits(t *testing.T, histories int, mk PermitsMaker) {
	for _, c := range []struct {
		name string
		run  func(*permitSubject)
	}{
		{"no more than the limit", permitsLimit},
		{"a weight holds as many slots", permitsWeights},
		{"an ended lease is free again", permitsEnd},
		{"renewing never acquires", permitsRenew},
		{"releasing is for the owner, and once", permitsRelease},
		{"acquiring again gets the same lease", permitsAgain},
		{"who waits is served in turn", permitsLine},
		{"a place is kept for as long as was said", permitsPlace},
		{"the queue is bounded", permitsQueue},
		{"small ones overtake a large one for a while", permitsOvertake},
		{"the limit changes while it is in use", permitsLimits},
		{"what is revoked cannot be renewed", permitsRevoke},
		{"a clock that steps back lengthens nothing", permitsStepBack},
		{"epochs grow", permitsEpochs},
		{"keys and holders of any kind", permitsNames},
		{"invalid calls", permitsInvalid},
		{"a context that has ended", permitsEnded},
		{"goroutines never hold too much", permitsAtOnce},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := NewClock(Epoch)
			c.run(&permitSubject{t, clock, mk(t, clock.Now)})
		})
	}
	t.Run("random histories", func(t *testing.T) {
		for seed := range histories {
			clock := NewClock(Epoch)
			if err := permitHistory(uint64(seed), mk(t, clock.Now), clock); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	})
}

// permitSubject is a store under test and its clock.
type permitSubject struct {
	*testing.T
	clock *Clock
	store store.Permits
}

func (s *permitSubject) wait(d time.Duration) { s.clock.Set(s.clock.Now() + d.Microseconds()) }

// permitAsk is a request for one of three units for ten seconds, with room for three to
// wait.
func permitAsk(holder string) store.PermitRequest {
	return store.PermitRequest{Key: "k", Holder: holder, Limit: 3, TTL: 10 * time.Second, Queue: 3}
}

func (s *permitSubject) acquire(r store.PermitRequest) store.PermitAnswer {
	s.Helper()
	a, err := s.store.Acquire(context.Background(), r)
	if err != nil {
		s.Fatalf("%s: %v", r.Holder, err)
	}
	if a.Granted() {
		l := &a.Lease
		if l.Key != r.Key || l.Holder != r.Holder || l.Cost() != r.Units() || a.Waiting || l.Remaining <= 0 || l.Remaining > l.TTL || l.Epoch < s.clock.Now()-store.MaxTTL.Microseconds() {
			s.Fatalf("%s was told %+v", r.Holder, a)
		}
	}
	return a
}

func (s *permitSubject) granted(r store.PermitRequest) store.Lease {
	s.Helper()
	a := s.acquire(r)
	if !a.Granted() {
		s.Fatalf("%s is refused: %+v", r.Holder, a)
	}
	return a.Lease
}

func (s *permitSubject) refused(r store.PermitRequest, waiting bool, ahead int) store.PermitAnswer {
	s.Helper()
	a := s.acquire(r)
	if a.Granted() || a.Waiting != waiting || a.Ahead != ahead {
		s.Fatalf("%s was told %+v, want a refusal, waiting %t with %d ahead", r.Holder, a, waiting, ahead)
	}
	return a
}

func (s *permitSubject) renew(l store.Lease, ttl time.Duration, want error) {
	s.Helper()
	got, err := s.store.Renew(context.Background(), l.Key, l.Holder, l.Epoch, ttl)
	if !errors.Is(err, want) || errors.Is(err, store.ErrRevoked) != (want == store.ErrRevoked) { //nolint:errorlint // which one is wanted
		s.Fatalf("renewing %s: %v, want %v", l.Holder, err, want)
	}
	if want == nil && (got.Epoch != l.Epoch || fmt.Sprint(got.Slots) != fmt.Sprint(l.Slots) || got.Remaining != ttl || got.TTL != ttl) {
		s.Fatalf("renewing %+v for %v: %+v", l, ttl, got)
	}
}

func (s *permitSubject) release(l store.Lease, want bool) {
	s.Helper()
	if got, err := s.store.Release(context.Background(), l.Key, l.Holder, l.Epoch); err != nil || got != want {
		s.Fatalf("releasing %s: %t, %v; want %t", l.Holder, got, err, want)
	}
}

func (s *permitSubject) holders(key string) store.PermitHolders {
	s.Helper()
	all, err := s.store.Holders(context.Background(), key)
	if err != nil {
		s.Fatal(err)
	}
	return all
}

func (s *permitSubject) slots(l store.Lease, want ...int) {
	s.Helper()
	if fmt.Sprint(l.Slots) != fmt.Sprint(want) {
		s.Fatalf("%s has the slots %v, want %v", l.Holder, l.Slots, want)
	}
}

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

func permitsNames(s *permitSubject) {
	for _, name := range []string{"", "{}", "{a}b", "a b", "\x00\xff", "%7B", " permit ", strings.Repeat("k", headgate.MaxKey)} {
		r := permitAsk(strings.Repeat("h", store.MaxHolder))
		r.Key, r.Limit = name, 1
		l := s.granted(r)
		for _, holder := range []string{"\x00", "é", "\xff\xfe", " ", "{x}"} {
			r.Holder = holder
			r.Wait = time.Second
			s.acquire(r)
		}
		h := s.holders(name)
		if len(h.Leases) != 1 || h.Leases[0].Holder != l.Holder || len(h.Waiting) != 3 || h.Waiting[2].Holder != "\xff\xfe" {
			s.Errorf("holders of %q: %+v", name, h)
		}
	}
}

func permitsInvalid(s *permitSubject) {
	ctx := context.Background()
	long := strings.Repeat("x", store.MaxHolder+1)
	for name, change := range map[string]func(*store.PermitRequest){
		"key":    func(r *store.PermitRequest) { r.Key = strings.Repeat("k", headgate.MaxKey+1) },
		"holder": func(r *store.PermitRequest) { r.Holder = "" },
		"limit":  func(r *store.PermitRequest) { r.Limit = 0 },
		"cost":   func(r *store.PermitRequest) { r.Cost = -1 },
		"ttl":    func(r *store.PermitRequest) { r.TTL = store.MinTTL - 1 },
		"queue":  func(r *store.PermitRequest) { r.Queue = store.MaxPermitQueue + 1 },
		"wait":   func(r *store.PermitRequest) { r.Wait = time.Nanosecond },
	} {
		r := permitAsk("a")
		change(&r)
		_, err := s.store.Acquire(ctx, r)
		var invalid *headgate.InvalidError
		if !errors.As(err, &invalid) || len(invalid.Problems) != 1 || invalid.Problems[0].Field != name {
			s.Errorf("a bad %s: %v", name, err)
		}
	}
	r := permitAsk(long)
	r.Limit, r.TTL, r.Wait = store.MaxPermits+1, store.MaxTTL+1, store.MaxTTL+1
	_, err := s.store.Acquire(ctx, r)
	var invalid *headgate.InvalidError
	if !errors.As(err, &invalid) || len(invalid.Problems) != 4 {
		s.Errorf("four mistakes: %v", err)
	}
	for what, call := range map[string]func() error{
		"renew at no epoch":         func() error { _, err := s.store.Renew(ctx, "k", "h", 0, time.Second); return err },
		"renew for nothing":         func() error { _, err := s.store.Renew(ctx, "k", "h", 1, 0); return err },
		"release at a bad epoch":    func() error { _, err := s.store.Release(ctx, "k", "h", -1); return err },
		"release by a long name":    func() error { _, err := s.store.Release(ctx, "k", long, 1); return err },
		"revoke nobody":             func() error { _, err := s.store.Revoke(ctx, "k", ""); return err },
		"holders of a key too long": func() error { _, err := s.store.Holders(ctx, strings.Repeat("k", headgate.MaxKey+1)); return err },
	} {
		if err := call(); !errors.Is(err, headgate.ErrInvalid) {
			s.Errorf("%s: %v", what, err)
		}
	}
}

func permitsEnded(s *permitSubject) {
	l := s.granted(permitAsk("a"))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for what, call := range map[string]func() error{
		"acquire": func() error { _, err := s.store.Acquire(ctx, permitAsk("b")); return err },
		"renew":   func() error { _, err := s.store.Renew(ctx, "k", "a", l.Epoch, time.Second); return err },
		"release": func() error { _, err := s.store.Release(ctx, "k", "a", l.Epoch); return err },
		"holders": func() error { _, err := s.store.Holders(ctx, "k"); return err },
		"revoke":  func() error { _, err := s.store.Revoke(ctx, "k", "a"); return err },
	} {
		if err := call(); !errors.Is(err, headgate.ErrUnavailable) || !errors.Is(err, context.Canceled) {
			s.Errorf("%s: %v", what, err)
		}
	}
	if h := s.holders("k"); len(h.Leases) != 1 || h.Leases[0].Revoked || h.Leases[0].Remaining != 10*time.Second {
		s.Errorf("something has changed: %+v", h)
	}
}

// permitsAtOnce has many callers take and give back, each with a slot that is marked as
// taken meanwhile.
func permitsAtOnce(s *permitSubject) {
	const callers, rounds, limit = 16, 20, 5
	var owners [limit]struct {
		sync.Mutex
		epoch int64
	}
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			r := store.PermitRequest{
				Key: "k", Holder: fmt.Sprint(c), Cost: 1 + int64(c%2), Limit: limit, TTL: store.MaxTTL,
				Queue: callers, Wait: store.MaxTTL,
			}
			for range rounds {
				a, err := s.store.Acquire(context.Background(), r)
				for err == nil && !a.Granted() {
					a, err = s.store.Acquire(context.Background(), r)
				}
				if err != nil {
					s.Error(err)
					return
				}
				for _, slot := range a.Lease.Slots {
					if !owners[slot].TryLock() {
						s.Errorf("slot %d has two holders", slot)
						return
					}
					if owners[slot].epoch >= a.Lease.Epoch {
						s.Errorf("slot %d: the epoch goes from %d to %d", slot, owners[slot].epoch, a.Lease.Epoch)
					}
					owners[slot].epoch = a.Lease.Epoch
				}
				for _, slot := range a.Lease.Slots {
					owners[slot].Unlock()
				}
				if ok, err := s.store.Release(context.Background(), "k", r.Holder, a.Lease.Epoch); err != nil || !ok {
					s.Errorf("released: %t, %v", ok, err)
					return
				}
			}
		})
	}
	all.Wait()
	if h := s.holders("k"); len(h.Leases) != 0 || len(h.Waiting) != 0 {
		s.Errorf("left behind: %+v", h)
	}
}
