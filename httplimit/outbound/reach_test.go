package outbound

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/store"
)

// The tests of this file run in virtual time.

// weak is a store that may be well, fail, or hang.
type weak struct {
	remote
	state atomic.Int32
	asked atomic.Int64
}

const (
	isWell int32 = iota
	fails
	hangs
)

func (s *weak) ask(ctx context.Context) error {
	s.asked.Add(1)
	switch s.state.Load() {
	case fails:
		return headgate.ErrUnavailable
	case hangs:
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (s *weak) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := s.ask(ctx); err != nil {
		return nil, err
	}
	return s.remote.Take(ctx, op, checks, dst)
}

func (s *weak) ReadDocument(ctx context.Context, key string) (store.Document, error) {
	if err := s.ask(ctx); err != nil {
		return store.Document{}, err
	}
	return s.remote.ReadDocument(ctx, key)
}

// limited is a fleet with a limit of its own, over a weak store.
type limited struct {
	*traffic
	store *weak
	mu    sync.Mutex // guards sent
	sent  []time.Time
}

func newLimited(t *testing.T, rate, processes int, own headgate.Limit, config Config) *limited {
	c := &limited{store: &weak{remote: newRemote()}}
	c.traffic = newTraffic(t, rate, processes, c.store, nil)
	config.Limits = []Limit{{Rules: []*headgate.Rule{headgate.MustRule("own", own)}}}
	for i := range c.over {
		var err error
		c.over[i], err = New(c.store, &simulated{answer: func(*http.Request, *http.Response) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.sent = append(c.sent, time.Now())
			return nil
		}}, config)
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// TestStoreIsAway: calls do not wait for a store that is known to hang or to fail, which is hardly asked meanwhile, and
// is used within seconds of its return. Until it is known to hang, each waits for no longer than that takes.
func TestStoreIsAway(t *testing.T) {
	t.Parallel()
	const rate, processes, part = 45, 3, 10 * time.Second
	for _, state := range []int32{fails, hangs} {
		bubbletest.Test(t, func(t *testing.T) {
			c := newLimited(t, rate, processes, headgate.Limit{Count: 60, Period: time.Second, Burst: 20}, Config{})
			var slowest time.Duration
			for _, tr := range c.over {
				base := tr.base
				tr.base = roundTripper(func(r *http.Request) (*http.Response, error) {
					waited := time.Since(r.Context().Value(beganAt{}).(time.Time))
					c.mu.Lock()
					slowest = max(slowest, waited)
					c.mu.Unlock()
					return base.RoundTrip(r)
				})
			}
			c.context = func(ctx context.Context) context.Context { return context.WithValue(ctx, beganAt{}, time.Now()) }
			run := func(d time.Duration) (wait time.Duration, asked int64) {
				slowest = 0
				c.store.asked.Store(0)
				if good, calls := c.run(d); good[""] != calls[""] {
					t.Errorf("%d: %d of %d calls were answered", state, good[""], calls[""])
				}
				return slowest, c.store.asked.Load()
			}
			run(part)
			c.store.state.Store(state)
			if wait, _ := run(silence); wait > silence+100*time.Millisecond {
				t.Errorf("%d: at first, a call waits for %v", state, wait)
			}
			c.run(silence) // The last process finds out.
			if wait, asked := run(part); wait > 200*time.Millisecond || asked > processes*int64(2*part/longestAway) {
				t.Errorf("%d: a call waits for %v, and the store is asked %d times", state, wait, asked)
			}
			c.store.state.Store(isWell)
			run(tellWithin + longestAway)
			if wait, asked := run(part); wait > 200*time.Millisecond || asked < rate*int64(part.Seconds())*8/10 {
				t.Errorf("%d: after the return, a call waits for %v, and the store is asked %d times", state, wait, asked)
			}
		})
	}
}

// beganAt is the key of when a call began in its context.
type beganAt struct{}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestStoreIsAwayFromTheBeginning: no process sends more than its limits admit because the store was never there, even
// if no call has waited for one of them.
func TestStoreIsAwayFromTheBeginning(t *testing.T) {
	t.Parallel()
	const limit = 50
	for _, state := range []int32{fails, hangs} {
		bubbletest.Test(t, func(t *testing.T) {
			c := newLimited(t, 4*limit, 1, headgate.PerSecond(limit), Config{MaxWait: time.Second})
			c.store.state.Store(state)
			c.run(10 * time.Second)
			if n := len(c.sent); n < 9*limit || n > 12*limit {
				t.Errorf("%d: %d calls were sent", state, n)
			}
		})
	}
}

// TestAnswerDoesNotWait: the first call that is accepted after refusals is answered at once, though the store hangs
// that is to be told.
func TestAnswerDoesNotWait(t *testing.T) {
	t.Parallel()
	for _, closed := range []bool{false, true} {
		bubbletest.Test(t, func(t *testing.T) {
			shared, calls := &weak{remote: newRemote()}, 0
			tr, err := New(shared, &simulated{answer: func(_ *http.Request, res *http.Response) error {
				switch calls++; calls {
				case 2:
					res.StatusCode = http.StatusTooManyRequests
					res.Header.Set("Retry-After", "1")
				case 3:
					shared.state.Store(hangs) // since the store was asked
				}
				return nil
			}}, Config{FailClosed: closed})
			if err != nil {
				t.Fatal(err)
			}
			post(t, tr, "")
			post(t, tr, "")
			time.Sleep(2 * time.Second)
			began := time.Now()
			post(t, tr, "")
			if d := time.Since(began); d > 100*time.Millisecond {
				t.Errorf("fails closed: %v: the answer took %v", closed, d)
			}
			time.Sleep(tellWithin)
		})
	}
}

// partly is a store of which a part is away: its answers take so long, and may be errors.
type partly struct {
	remote
	asked atomic.Int64
	take  func(ctx context.Context, asked int64) error
}

func (s *partly) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := s.take(ctx, s.asked.Add(1)); err != nil {
		return nil, err
	}
	return s.remote.Take(ctx, op, checks, dst)
}

// soon is a store's answer that takes a while.
func soon(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(50 * time.Millisecond):
		return nil
	}
}

// TestStoreThatNobodyAsks: a store is not taken for one that hangs because a caller has left, or one of several calls
// has failed, and nobody asks it for a while. Nor is it when somebody asks again just before it would be.
func TestStoreThatNobodyAsks(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(ctx context.Context, asked int64) error{
		"a caller leaves": func(ctx context.Context, asked int64) error {
			if asked == 1 {
				<-ctx.Done()
				return ctx.Err()
			}
			return soon(ctx)
		},
		"one of two fails": func(ctx context.Context, asked int64) error {
			if asked == 1 {
				time.Sleep(20 * time.Millisecond)
				return headgate.ErrUnavailable
			}
			if asked == 2 {
				return nil
			}
			return soon(ctx)
		},
	} {
		bubbletest.Test(t, func(t *testing.T) {
			began := time.Now()
			s := &partly{remote: newRemote(), take: take}
			r := &reach{store: s}
			ask := func(ctx context.Context) error {
				_, err := r.Take(ctx, headgate.OpTake, []headgate.Check{{Rule: callRule, Key: "k"}}, nil)
				return err
			}
			var all sync.WaitGroup
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				if err := ask(ctx); err == nil {
					t.Errorf("%s: the first call does not fail", name)
				}
			})
			time.Sleep(time.Millisecond)
			if name == "one of two fails" {
				if err := ask(t.Context()); err != nil {
					t.Error(err)
				}
			}
			all.Wait()
			for _, after := range []time.Duration{silence - 20*time.Millisecond, 3 * silence} {
				time.Sleep(time.Until(began.Add(after)))
				before := s.asked.Load()
				if err := ask(t.Context()); err != nil || s.asked.Load() != before+1 {
					t.Errorf("%s: the store is well, and a call after %v ends with %v", name, after, err)
				}
			}
		})
	}
}
