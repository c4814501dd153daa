// Package layertest has what the tests of several layers need: a store that fails as it is
// told to, and a bus within the process.
package layertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
)

// Deadline is what the Scripted store gives its calls, as store/redis does.
const Deadline = 500 * time.Millisecond

// Health is how the Scripted store feels.
type Health int32

// How a [Scripted] store can feel.
const (
	Well    Health = iota // answers
	Refuses               // every call fails at once
	Hangs                 // a call ends by its Deadline, unless the store feels otherwise before that
)

// Scripted is a store that fails as it is told to, and counts who asks it.
type Scripted struct {
	*memory.Store
	feeling         atomic.Int32
	felt            atomic.Pointer[chan struct{}] // closed when it feels otherwise
	Calls           atomic.Int64                  // but for those of the keeper
	Probes          atomic.Int64
	asking, Busiest atomic.Int64 // probes at the same time, and the most of them

	mu    sync.Mutex // guards what follows
	nodes map[string]time.Time
	since time.Time
	deaf  bool
}

// NewScripted returns a store that feels well.
func NewScripted() *Scripted {
	s := &Scripted{Store: memory.New(memory.MaxBytes(memory.MinMaxBytes)), nodes: map[string]time.Time{}, since: time.Now().Add(-time.Hour)}
	s.felt.Store(new(make(chan struct{})))
	return s
}

// Feel has the store feel otherwise from now on.
func (s *Scripted) Feel(h Health) {
	if Health(s.feeling.Swap(int32(h))) != h {
		close(*s.felt.Swap(new(make(chan struct{}))))
	}
}

// ErrRefused is in the errors of a store that refuses.
var ErrRefused = errors.New("connection refused")

func (s *Scripted) ask(ctx context.Context) error {
	felt := *s.felt.Load()
	switch Health(s.feeling.Load()) {
	case Refuses:
		return fmt.Errorf("%w: %w", headgate.ErrUnavailable, ErrRefused)
	case Hangs:
		ctx, cancel := context.WithTimeout(ctx, Deadline)
		defer cancel()
		select {
		case <-felt:
			return s.ask(ctx)
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", headgate.ErrUnavailable, ctx.Err())
		}
	}
	return nil
}

// Take implements [headgate.Store].
func (s *Scripted) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if len(checks) > 0 && checks[0].Rule != nil && checks[0].Rule.Name() == "headgate.probe" {
		s.Probes.Add(1)
		s.Busiest.Store(max(s.Busiest.Load(), s.asking.Add(1)))
		defer s.asking.Add(-1)
	} else {
		s.Calls.Add(1)
	}
	if err := s.ask(ctx); err != nil {
		return dst, err
	}
	return s.Store.Take(ctx, op, checks, dst)
}

// TakeOnce implements [headgate.Ledger].
func (s *Scripted) TakeOnce(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := s.ask(ctx); err != nil {
		return dst, err
	}
	return s.Store.TakeOnce(ctx, terms, checks, dst)
}

// Reserve implements [headgate.Ledger].
func (s *Scripted) Reserve(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	if err := s.ask(ctx); err != nil {
		return headgate.Reservation{}, dst, err
	}
	return s.Store.Reserve(ctx, terms, checks, dst)
}

// Recall implements [headgate.Ledger].
func (s *Scripted) Recall(ctx context.Context, id string) (headgate.Reservation, error) {
	if err := s.ask(ctx); err != nil {
		return headgate.Reservation{}, err
	}
	return s.Store.Recall(ctx, id)
}

// Settle implements [headgate.Ledger].
func (s *Scripted) Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	if err := s.ask(ctx); err != nil {
		return dst, err
	}
	return s.Store.Settle(ctx, r, units, dst)
}

// Members counts nodes, unless the store does not answer.
func (s *Scripted) Members(ctx context.Context, node string, ttl time.Duration) (int64, time.Duration, error) {
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

// Lose forgets everything, as a restart without its data does.
func (s *Scripted) Lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Store = memory.New(memory.MaxBytes(memory.MinMaxBytes))
	s.nodes, s.since = map[string]time.Time{}, time.Now()
}

// Join has other nodes beside the one that is tested, for so long.
func (s *Scripted) Join(others int, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range others {
		s.nodes[fmt.Sprint("other ", i)] = time.Now().Add(ttl)
	}
}

// Health is how the store feels.
func (s *Scripted) Health() Health { return Health(s.feeling.Load()) }

// There reports whether a node is counted.
func (s *Scripted) There(node string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, there := s.nodes[node]
	return there
}

// Deafen has Members fail.
func (s *Scripted) Deafen(deaf bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf = deaf
}

// Take takes units of one check.
func Take(t *testing.T, s headgate.Store, c headgate.Check) headgate.Verdict {
	t.Helper()
	decisions, err := s.Take(t.Context(), headgate.OpTake, []headgate.Check{c}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return headgate.NewVerdict(decisions)
}

// Spend takes single units until one is denied, and returns how many were not.
func Spend(t *testing.T, s headgate.Store, c headgate.Check) int64 {
	t.Helper()
	for n := int64(0); ; n++ {
		if n > 100_000 {
			t.Fatal("there is no end of it")
		}
		if !Take(t, s, c).Allowed {
			return n
		}
	}
}
