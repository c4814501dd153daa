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
