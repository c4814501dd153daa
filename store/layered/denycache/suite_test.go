package denycache_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/race"
	"github.com/headgate/headgate/store/layered/denycache"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// held is a deny cache that is held to its store: what it answers from memory must
// be what the store says, but for what remains and for checks that it says nothing
// of. Those it answers as the store does, so that it passes for one.
type held struct {
	headgate.Ledger // the cache
	behind          headgate.Ledger
	t               testing.TB
	clock           func() int64
	answered        *atomic.Int64

	mu           sync.Mutex // guards what follows
	begun, ended int64      // operations
	last         int64      // the clock as it was seen last
	stepped      bool       // it went back
	gives        bool       // a reservation gives back by itself
}

func newHeld(t testing.TB, clock func() int64, answered *atomic.Int64) *held {
	h := &held{behind: memory.New(memory.Clock(clock)), t: t, clock: clock, answered: answered}
	var mu sync.Mutex
	last, passed := clock(), int64(0)
	// The cache's own clock never goes back.
	own := func() int64 {
		mu.Lock()
		defer mu.Unlock()
		now := clock()
		passed += max(0, now-last)
		last = now
		return passed
	}
	d := open(t, h.behind, denycache.Options{All: true})
	d.SetClock(own)
	h.Ledger = d.Store().(headgate.Ledger)
	return h
}

// begin returns what tells whether the store and the memory must agree on an operation:
// it was alone, nothing came back without a word, and no clock that stepped back over a
// window has emptied it.
func (h *held) begin() func() (agree bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.clock()
	h.stepped, h.last = h.stepped || now < h.last, now
	before := h.begun == h.ended
	h.begun++
	mine := h.begun
	return func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.ended++
		return before && h.begun == mine && !h.gives && !h.stepped
	}
}

func (h *held) Take(ctx context.Context, op headgate.Op, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	end := h.begin()
	got, err := h.Ledger.Take(ctx, op, checks, dst)
	told := got[min(len(dst), len(got)):]
	if err != nil || len(told) == 0 || told[0].Source != headgate.SourceCache {
		end()
		return got, err
	}
	told = append([]headgate.Decision(nil), told...)
	want, err := h.behind.Take(ctx, op, checks, dst)
	if !end() {
		return want, err
	}
	h.answered.Add(1)
	if headgate.NewVerdict(told).Allowed || headgate.NewVerdict(want[len(dst):]).Allowed {
		h.t.Errorf("%s of %+v from memory, when the store says %+v", op, told, want[len(dst):])
	}
	for i := range told {
		one := &told[i]
		same := false
		for _, w := range want[len(dst):] {
			if w.Check == one.Check && w.Limit == one.Limit {
				remaining := w.Remaining
				if w.Limit.Algorithm <= headgate.LeakyBucket {
					// To ask the store behind is to ask. A list whose own bucket has drained
					// gets one again, and may be told a later time than before.
					w.RetryAfter, w.ResetAfter = min(w.RetryAfter, one.RetryAfter), min(w.ResetAfter, one.ResetAfter)
				}
				w.Remaining, w.Source = one.Remaining, one.Source
				same = w == *one && one.Remaining <= remaining
			}
		}
		if !same {
			h.t.Errorf("from memory %+v, when the store says %+v", *one, want[len(dst):])
		}
	}
	return want, err
}

func (h *held) TakeOnce(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) ([]headgate.Decision, error) {
	defer h.begin()()
	return h.Ledger.TakeOnce(ctx, terms, checks, dst)
}

func (h *held) Reserve(ctx context.Context, terms headgate.Terms, checks []headgate.Check, dst []headgate.Decision) (headgate.Reservation, []headgate.Decision, error) {
	h.mu.Lock()
	for i := range checks {
		h.gives = h.gives || checks[i].GiveBack
	}
	h.mu.Unlock()
	defer h.begin()()
	return h.Ledger.Reserve(ctx, terms, checks, dst)
}

func (h *held) Settle(ctx context.Context, r headgate.Reservation, units []int64, dst []headgate.Decision) ([]headgate.Decision, error) {
	defer h.begin()()
	return h.Ledger.Settle(ctx, r, units, dst)
}

// TestDenyCacheConforms: a deny cache that remembers everything passes for its store.
func TestDenyCacheConforms(t *testing.T) {
	var answered atomic.Int64
	storetest.Run(t, func(t testing.TB, clock func() int64) headgate.Store {
		return newHeld(t, clock, &answered)
	})
	if n := answered.Load(); n < 100 {
		t.Errorf("%d requests were answered from memory, too few to say anything", n)
	}
}

// TestDenyCacheHistories: so it is in random histories, held to the model.
func TestDenyCacheHistories(t *testing.T) {
	const length = 100
	histories := storetest.Steps(t, race.Fewer(48_000)) / length
	var answered atomic.Int64
	storetest.Histories(t, func(t testing.TB, clock func() int64) headgate.Store {
		return newHeld(t, clock, &answered)
	}, 5, histories, length)
	if n := answered.Load(); n < int64(histories)/4 {
		t.Errorf("%d requests were answered from memory, too few to say anything", n)
	}
	t.Logf("%d requests were answered from memory", answered.Load())
}
