package layered_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/layered"
	"github.com/headgate/headgate/store/memory"
)

// deadline is what the scripted store gives its calls, as store/redis does.
const deadline = 15 * time.Millisecond

// health is how the scripted store feels.
type health int32

const (
	well    health = iota
	refuses        // every call fails at once
	hangs          // every call ends by its deadline
)

// scripted is a store that fails as it is told to, and counts who asks it.
type scripted struct {
	*memory.Store
	health         atomic.Int32
	calls          atomic.Int64 // but for those of the keeper
	probes         atomic.Int64
	asking, busier atomic.Int64 // probes at the same time, and the most of them

	mu    sync.Mutex // guards what follows
	nodes map[string]time.Time
	since time.Time
	deaf  bool // Members fails
}

func newScripted() *scripted {
	return &scripted{Store: memory.New(memory.WithMaxBytes(memory.MinMaxBytes)), nodes: map[string]time.Time{}, since: time.Now().Add(-time.Hour)}
}

func (s *scripted) feel(h health) { s.health.Store(int32(h)) }

var errRefused = errors.New("connection refused")

func (s *scripted) ask(ctx context.Context) error {
	switch health(s.health.Load()) {
	case refuses:
		return fmt.Errorf("%w: %w", headgate.ErrUnavailable, errRefused)
	case hangs:
		ctx, cancel := context.WithTimeout(ctx, deadline)
		defer cancel()
		<-ctx.Done()
		return fmt.Errorf("%w: %w", headgate.ErrUnavailable, ctx.Err())
	}
	return nil
}

func (s *scripted) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if len(checks) > 0 && checks[0].Rule != nil && checks[0].Rule.Name() == "headgate.probe" {
		s.probes.Add(1)
		s.busier.Store(max(s.busier.Load(), s.asking.Add(1)))
		defer s.asking.Add(-1)
	} else {
		s.calls.Add(1)
	}
	if err := s.ask(ctx); err != nil {
		return dst, err
	}
	return s.Store.Take(ctx, op, checks, dst)
}

func (s *scripted) TakeOnce(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := s.ask(ctx); err != nil {
		return dst, err
	}
	return s.Store.TakeOnce(ctx, terms, checks, dst)
}

func (s *scripted) Reserve(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	if err := s.ask(ctx); err != nil {
		return headgate.Reservation{}, dst, err
	}
	return s.Store.Reserve(ctx, terms, checks, dst)
}

func (s *scripted) Recall(ctx context.Context, id string) (headgate.Reservation, error) {
	if err := s.ask(ctx); err != nil {
		return headgate.Reservation{}, err
	}
	return s.Store.Recall(ctx, id)
}

func (s *scripted) Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := s.ask(ctx); err != nil {
		return dst, err
	}
	return s.Store.Settle(ctx, r, units, dst)
}

func (s *scripted) Members(ctx context.Context, node string, ttl time.Duration) (int64, time.Duration, error) {
	if err := s.ask(ctx); err != nil {
		return 0, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deaf {
		return 0, 0, fmt.Errorf("%w: NOPERM", headgate.ErrUnavailable)
	}
	now := time.Now()
	s.nodes[node] = now.Add(ttl)
	for n, until := range s.nodes {
		if !until.After(now) {
			delete(s.nodes, n)
		}
	}
	return int64(len(s.nodes)), now.Sub(s.since), nil
}

// lose forgets everything, as a restart without its data does.
func (s *scripted) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Store = memory.New(memory.WithMaxBytes(memory.MinMaxBytes))
	s.nodes, s.since = map[string]time.Time{}, time.Now()
}

// join has other nodes beside the one that is tested, for so long.
func (s *scripted) join(others int, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range others {
		s.nodes[fmt.Sprint("other ", i)] = time.Now().Add(ttl)
	}
}

// with makes a fallback around a primary, which ends with the test.
func with(t *testing.T, primary headgate.Store, options layered.FallbackOptions) *layered.Fallback {
	t.Helper()
	f, err := layered.NewFallback(t.Context(), primary, memory.New(memory.WithMaxBytes(memory.MinMaxBytes)), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// take takes units of one check.
func take(t *testing.T, s headgate.Store, c headgate.Check) headgate.Verdict {
	t.Helper()
	decisions, err := s.Take(t.Context(), headgate.OpTake, []headgate.Check{c}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return headgate.NewVerdict(decisions)
}

// spend takes single units until one is denied, and returns how many were not.
func spend(t *testing.T, s headgate.Store, c headgate.Check) int64 {
	t.Helper()
	for n := int64(0); ; n++ {
		if n > 100_000 {
			t.Fatal("there is no end of it")
		}
		if !take(t, s, c).Allowed {
			return n
		}
	}
}

// fails has the primary fail until the breaker is open.
func fails(t *testing.T, f *layered.Fallback, primary *scripted, h health) {
	t.Helper()
	primary.feel(h)
	c := headgate.Check{Rule: headgate.MustRule("trigger", headgate.PerSecond(1000)), OnError: headgate.OnErrorAllow}
	for range 1000 {
		if f.Status().State == layered.Open {
			return
		}
		take(t, f.Store(), c)
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the breaker does not open")
}

// recovers waits until the primary decides again.
func recovers(t *testing.T, f *layered.Fallback, primary *scripted) {
	t.Helper()
	primary.feel(well)
	for range 10_000 {
		if f.Status().State == layered.Closed {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the breaker does not close")
}
