package shared_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/shared"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// troubled is a store that can be made to fail.
type troubled struct {
	store.Permits
	mu      sync.Mutex // guards what follows
	acquire func() error
	renew   func() error
	release func() error
	after   bool // the call counts before it fails
	asked   int
	renewed int
}

var errDown = fmt.Errorf("%w: it is down", headgate.ErrUnavailable)

func down() error { return errDown }

func (s *troubled) set(acquire, renew, release func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acquire, s.renew, s.release = acquire, renew, release
}

func fails(of func() error) error {
	if of == nil {
		return nil
	}
	return of()
}

func (s *troubled) Acquire(ctx context.Context, r store.PermitRequest) (store.PermitAnswer, error) {
	s.mu.Lock()
	fail, after := s.acquire, s.after
	s.asked++
	s.mu.Unlock()
	err := fails(fail)
	if err != nil && !after {
		return store.PermitAnswer{}, err
	}
	a, other := s.Permits.Acquire(ctx, r)
	if err != nil {
		return store.PermitAnswer{}, err
	}
	return a, other
}

func (s *troubled) Renew(ctx context.Context, key, holder string, epoch int64, ttl time.Duration) (store.Lease, error) {
	s.mu.Lock()
	fail := s.renew
	s.renewed++
	s.mu.Unlock()
	if err := fails(fail); err != nil {
		return store.Lease{}, err
	}
	return s.Permits.Renew(ctx, key, holder, epoch, ttl)
}

func (s *troubled) Release(ctx context.Context, key, holder string, epoch int64) (bool, error) {
	s.mu.Lock()
	fail := s.release
	s.mu.Unlock()
	if err := fails(fail); err != nil {
		return false, err
	}
	return s.Permits.Release(ctx, key, holder, epoch)
}

func newGate(t *testing.T, permits store.Permits, c shared.Config) *shared.Gate {
	t.Helper()
	if c.Name == "" {
		c.Name = "g"
	}
	g, err := shared.New(permits, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = g.Close(ctx) // a test may leave permits held
	})
	return g
}

func acquire(t *testing.T, g flow.Gate, r flow.Request) flow.Permit {
	t.Helper()
	p, err := g.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func rejected(t *testing.T, err error, want flow.Reason) flow.Rejection {
	t.Helper()
	r, ok := errors.AsType[*flow.Rejection](err)
	if !ok || r.Reason != want {
		t.Fatalf("got %v, want a rejection: %v", err, want)
	}
	return *r
}

func held(t *testing.T, s store.Permits, key string) store.PermitHolders {
	t.Helper()
	all, err := s.Holders(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func bubble(t *testing.T, f func(t *testing.T, s *troubled)) {
	t.Helper()
	bubbletest.Test(t, func(t *testing.T) { f(t, &troubled{Permits: memory.New()}) })
}

func TestTwoGatesShareALimit(t *testing.T) {
	bubble(t, func(t *testing.T, s *troubled) {
		c := shared.Config{Limit: 3, TTL: time.Second, Prefix: "p:", Owner: "me"}
		a, b := newGate(t, s, c), newGate(t, s, c)
		p := acquire(t, a, flow.Request{Key: "k", Cost: 2})
		q := acquire(t, b, flow.Request{Key: "k"})
		for _, g := range []flow.Gate{a, b} {
			_, err := g.Acquire(t.Context(), flow.Request{Key: "k"})
			if r := rejected(t, err, flow.ReasonBusy); r.Limit != 3 || r.InUse != 3 || !r.Retry {
				t.Errorf("%+v", r)
			}
		}
		acquire(t, a, flow.Request{Key: "other", Cost: 3}).Done(flow.Success)
		// Leases last as long as the work does.
		time.Sleep(time.Minute)
		all := held(t, s, "p:k")
		if all.InUse() != 3 || !strings.HasPrefix(all.Leases[0].Holder, "me/") {
			t.Errorf("after a minute: %+v", all)
		}
		if !p.Done(flow.Success) || p.Done(flow.Success) {
			t.Error("a permit is given back once")
		}
		if all := held(t, s, "p:k"); all.InUse() != 1 {
			t.Errorf("still held: %+v", all)
		}
		q.Done(flow.Unused)
		st := a.Stats()
		if st.Leases != 0 || st.Renewed < 100 || st.Renewed > 400 || st.Admitted != 2 || st.Rejected[flow.ReasonBusy] != 1 || st.Keys != 0 || st.InUse != 0 || st.Done[flow.Success] != 2 {
			t.Errorf("%+v", st)
		}
		_, err := a.TryAcquire(t.Context(), flow.Request{Key: "k", Cost: 4})
		if r := rejected(t, err, flow.ReasonTooLarge); r.Retry || r.RetryAfter != headgate.Never || !errors.Is(err, store.ErrTooLarge) {
			t.Errorf("too large: %+v", r)
		}
	})
}

func TestWaiting(t *testing.T) {
	bubble(t, func(t *testing.T, s *troubled) {
		c := shared.Config{Limit: 1, TTL: time.Second, Queue: 30, MaxWait: time.Minute}
		gates := []*shared.Gate{newGate(t, s, c), newGate(t, s, c)}
		first := acquire(t, gates[0], flow.Request{Key: "k"})
		var mu sync.Mutex
		var order []string
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				class := flow.Sheddable
				if i >= 18 {
					class = flow.Critical // comes last, and goes before those who wait in its process
				}
				p, err := gates[i%2].Acquire(t.Context(), flow.Request{Key: "k", Class: class})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, fmt.Sprintf("%d %v", i%2, class))
				mu.Unlock()
				time.Sleep(10 * time.Millisecond)
				p.Done(flow.Success)
			})
			time.Sleep(time.Millisecond)
			bubbletest.Wait()
		}
		time.Sleep(time.Second)
		if n := len(held(t, s, "k").Waiting); n < 2 || n > 16 {
			t.Errorf("%d wait in the store", n)
		}
		first.Done(flow.Success)
		all.Wait()
		at := slices.Index(order, "0 critical")
		if len(order) != 20 || at < 0 || at > 17 {
			t.Errorf("the order is %v", order)
		}
		for i := range 2 {
			if n := slices.Index(order, fmt.Sprintf("%d sheddable", i)); n > 3 {
				t.Errorf("process %d has its first turn at %d: %v", i, n, order)
			}
		}
		if h := held(t, s, "k"); len(h.Leases) != 0 || len(h.Waiting) != 0 {
			t.Errorf("left behind: %+v", h)
		}
	})
}

func TestWaitsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, s *troubled) {
		g := newGate(t, s, shared.Config{Limit: 1, Queue: 2, MaxWait: 300 * time.Millisecond})
		acquire(t, g, flow.Request{})
		errs := make(chan error)
		ctx, cancel := context.WithCancelCause(t.Context())
		for range 3 {
			go func() {
				_, err := g.Acquire(ctx, flow.Request{})
				errs <- err
			}()
			time.Sleep(time.Millisecond)
		}
		rejected(t, <-errs, flow.ReasonQueueFull)
		began := time.Now()
		for range 2 {
			rejected(t, <-errs, flow.ReasonWaited)
		}
		if d := time.Since(began); d > 300*time.Millisecond {
			t.Errorf("waited for %v", d)
		}
		if n := len(held(t, s, "").Waiting); n != 0 {
			t.Errorf("%d wait", n)
		}
		go func() {
			_, err := g.Acquire(ctx, flow.Request{})
			errs <- err
		}()
		time.Sleep(time.Millisecond)
		why := errors.New("why")
		cancel(why)
		if err := <-errs; !errors.Is(err, why) {
			t.Errorf("a context that ends: %v", err)
		}
		bubbletest.Wait()
		if n := len(held(t, s, "").Waiting); n != 0 {
			t.Errorf("%d wait", n)
		}
		if _, err := g.Acquire(ctx, flow.Request{}); !errors.Is(err, why) {
			t.Errorf("a context that has ended: %v", err)
		}
	})
}

// TestLost: the context ends by the margin before the lease, with the cause.
func TestLost(t *testing.T) {
	for name, c := range map[string]struct {
		trouble func(t *testing.T, s *troubled)
		cause   error
		before  time.Duration // the latest end of the context
	}{
		"unreachable": {func(_ *testing.T, s *troubled) { s.set(nil, down, nil) }, shared.ErrEnded, 9 * time.Second},
		"revoked": {func(t *testing.T, s *troubled) {
			if ok, err := s.Revoke(t.Context(), "k", held(t, s, "k").Leases[0].Holder); !ok || err != nil {
				t.Error(ok, err)
			}
		}, store.ErrRevoked, 4 * time.Second},
		"forgotten": {func(t *testing.T, s *troubled) {
			if ok, err := s.Permits.Release(t.Context(), "k", held(t, s, "k").Leases[0].Holder, 0); !ok || err != nil {
				t.Error(ok, err)
			}
		}, store.ErrNotHeld, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *troubled) {
				var told *shared.LostError
				g := newGate(t, s, shared.Config{Limit: 1, TTL: 10 * time.Second, Lost: func(e *shared.LostError) { told = e }})
				p := acquire(t, g, flow.Request{Key: "k"})
				ctx := p.Context(t.Context())
				child, cancel := context.WithTimeout(ctx, time.Hour)
				defer cancel()
				fence, err := shared.FenceOf(child)
				if err != nil || fence.Epoch == 0 || !slices.Equal(fence.Slots, []int{0}) {
					t.Fatalf("the fence is %v, %v", fence, err)
				}
				time.Sleep(time.Minute + 333*time.Millisecond)
				c.trouble(t, s)
				began := time.Now()
				<-child.Done()
				if d := time.Since(began); d > c.before {
					t.Errorf("the context ends after %v", d)
				}
				bubbletest.Wait()
				var lost *shared.LostError
				if err := context.Cause(child); !errors.As(err, &lost) || !errors.Is(err, shared.ErrLost) || !errors.Is(err, c.cause) || lost.Key != "k" || lost.Epoch != fence.Epoch || told != lost {
					t.Errorf("the cause is %v, and %v was told", err, told)
				}
				if _, err := shared.FenceOf(ctx); !errors.Is(err, shared.ErrLost) {
					t.Errorf("the fence of a lease that is lost: %v", err)
				}
				if err := context.Cause(p.Context(t.Context())); !errors.Is(err, shared.ErrLost) {
					t.Errorf("a new context of a lease that is lost: %v", err)
				}
				if st := g.Stats(); st.Lost != 1 || st.Leases != 0 || st.InUse != 1 {
					t.Errorf("%+v", st)
				}
				p.Done(flow.Ignore)
				if h := held(t, s, "k"); len(h.Leases) != 0 {
					t.Errorf("still held: %+v", h)
				}
			})
		})
	}
}

// TestShortTrouble: a store that is away for less than a lease lasts costs nothing.
func TestShortTrouble(t *testing.T) {
	bubble(t, func(t *testing.T, s *troubled) {
		g := newGate(t, s, shared.Config{Limit: 1, TTL: 10 * time.Second})
		p := acquire(t, g, flow.Request{})
		ctx := p.Context(t.Context())
		for range 20 {
			s.set(down, down, down)
			time.Sleep(4 * time.Second)
			s.set(nil, nil, nil)
			time.Sleep(4 * time.Second)
		}
		if err := ctx.Err(); err != nil {
			t.Errorf("%v: %v", err, context.Cause(ctx))
		}
		p.Done(flow.Success)
		if ctx.Err() == nil {
			t.Error("the context of a permit that was given back has not ended")
		}
	})
}

// TestStopped: a process that was stopped beyond the end of its lease is told so by the
// first look at its context, before anything else of it has run.
func TestStopped(t *testing.T) {
	g := newGate(t, memory.New(), shared.Config{Limit: 1, TTL: 200 * time.Millisecond, Margin: 50 * time.Millisecond})
	p := acquire(t, g, flow.Request{})
	ctx := p.Context(t.Context())
	if err := ctx.Err(); err != nil {
		t.Fatal(err)
	}
	shared.Stop(g) // nothing but the caller goes on
	time.Sleep(time.Second)
	if err := ctx.Err(); !errors.Is(err, context.Canceled) || !errors.Is(context.Cause(ctx), shared.ErrEnded) {
		t.Errorf("%v: %v", err, context.Cause(ctx))
	}
	select {
	case <-ctx.Done():
	default:
		t.Error("the context has an error and is not done")
	}
}

// TestUnknown: what was granted without the caller's knowledge is given back.
func TestUnknown(t *testing.T) {
	bubble(t, func(t *testing.T, s *troubled) {
		g := newGate(t, s, shared.Config{Limit: 1, TTL: time.Hour, Queue: 1})
		s.after = true
		s.set(down, nil, down)
		if _, err := g.Acquire(t.Context(), flow.Request{}); !errors.Is(err, headgate.ErrUnavailable) {
			t.Fatal(err)
		}
		if n := len(held(t, s, "").Leases); n != 1 {
			t.Fatalf("%d leases", n)
		}
		s.set(nil, nil, nil)
		time.Sleep(3 * time.Second)
		if n := len(held(t, s, "").Leases); n != 0 {
			t.Errorf("%d leases", n)
		}
		// The same for a permit whose giving back is not heard.
		p := acquire(t, g, flow.Request{})
		s.set(nil, nil, down)
		p.Done(flow.Success)
		if n := len(held(t, s, "").Leases); n != 1 {
			t.Fatalf("%d leases", n)
		}
		time.Sleep(time.Minute)
		s.set(nil, nil, nil)
		time.Sleep(3 * time.Second)
		if n := len(held(t, s, "").Leases); n != 0 {
			t.Errorf("%d leases", n)
		}
	})
}

// TestOneLostCall: a call that is not answered for once is repeated, and counts once.
func TestOneLostCall(t *testing.T) {
	bubble(t, func(t *testing.T, s *troubled) {
		g := newGate(t, s, shared.Config{Limit: 2})
		for _, after := range []bool{true, false} {
			n := 0
			s.after = after
			s.set(func() error {
				if n++; n == 1 {
					return errDown
				}
				return nil
			}, nil, nil)
			acquire(t, g, flow.Request{})
		}
		if all := held(t, s, ""); all.InUse() != 2 {
			t.Errorf("%+v", all)
		}
		// A store that stays away is asked three times, and then once each time.
		s.set(down, down, down)
		for _, want := range []int{3, 1, 1} {
			before := s.asked
			if _, err := g.Acquire(t.Context(), flow.Request{}); !errors.Is(err, headgate.ErrUnavailable) {
				t.Error(err)
			}
			if n := s.asked - before; n != want {
				t.Errorf("asked %d times, want %d", n, want)
			}
		}
	})
}

func TestOnError(t *testing.T) {
	bubble(t, func(t *testing.T, s *troubled) {
		c := shared.Config{Limit: 4, TTL: 10 * time.Second, OnError: headgate.OnErrorLocal, Share: 2, Queue: 3, MaxWait: time.Second}
		local := newGate(t, s, c)
		c.OnError = headgate.OnErrorAllow
		open := newGate(t, s, c)
		p := acquire(t, local, flow.Request{})
		ctx := p.Context(t.Context())
		s.set(down, down, down)
		q := acquire(t, local, flow.Request{})
		if _, err := shared.FenceOf(q.Context(t.Context())); !errors.Is(err, shared.ErrNoLease) {
			t.Errorf("a fence without a lease: %v", err)
		}
		_, err := local.Acquire(t.Context(), flow.Request{})
		if r := rejected(t, err, flow.ReasonBusy); r.InUse != 2 || !errors.Is(err, headgate.ErrUnavailable) {
			t.Errorf("%+v", r)
		}
		for range 9 {
			acquire(t, open, flow.Request{})
		}
		time.Sleep(time.Hour)
		if err := ctx.Err(); err != nil {
			t.Errorf("the work of a lease that cannot be renewed ends: %v", context.Cause(ctx))
		}
		if _, err := shared.FenceOf(ctx); !errors.Is(err, shared.ErrNoLease) {
			t.Errorf("a fence without a lease: %v", err)
		}
		p.Done(flow.Success)
		q.Done(flow.Success)
		if st := local.Stats(); st.Local != 2 || st.Lost != 0 || st.InUse != 0 || st.Failed == 0 {
			t.Errorf("%+v", st)
		}
		s.set(nil, nil, nil)
		acquire(t, local, flow.Request{Cost: 4}).Done(flow.Success)
	})
}

// TestInside: work of a permit passes, and never waits for another key.
func TestInside(t *testing.T) {
	bubble(t, func(t *testing.T, s *troubled) {
		g := newGate(t, s, shared.Config{Limit: 1, Queue: 5})
		p := acquire(t, g, flow.Request{Key: "a"})
		ctx := p.Context(t.Context())
		inside, err := g.Acquire(ctx, flow.Request{Key: "a"})
		if err != nil || inside.Held() {
			t.Errorf("inside: %v", err)
		}
		q, err := g.Acquire(ctx, flow.Request{Key: "b"})
		if err != nil {
			t.Fatal(err)
		}
		if inside, err = g.Acquire(q.Context(ctx), flow.Request{Key: "a"}); err != nil || inside.Held() {
			t.Errorf("inside both: %v", err)
		}
		acquire(t, g, flow.Request{Key: "c"})
		_, err = g.Acquire(ctx, flow.Request{Key: "c"})
		rejected(t, err, flow.ReasonBusy)
	})
}
