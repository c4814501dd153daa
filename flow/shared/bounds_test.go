package shared_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/flow"
	"github.com/headgate/headgate/flow/shared"
	"github.com/headgate/headgate/store/memory"
)

func TestClose(t *testing.T) {
	bubble(t, func(t *testing.T, s *troubled) {
		g := newGate(t, s, shared.Config{Limit: 1, Queue: 20, TTL: 10 * time.Second})
		p := acquire(t, g, flow.Request{})
		errs := make(chan error)
		for range 12 { // in the store's line, and in this process
			go func() {
				_, err := g.Acquire(t.Context(), flow.Request{})
				errs <- err
			}()
		}
		time.Sleep(time.Second)
		go func() {
			time.Sleep(time.Minute)
			p.Done(flow.Success)
		}()
		began := time.Now()
		if err := g.Close(t.Context()); err != nil || time.Since(began) != time.Minute {
			t.Errorf("closed after %v: %v", time.Since(began), err)
		}
		for range 12 {
			if err := <-errs; !errors.Is(err, shared.ErrClosed) {
				t.Error(err)
			}
		}
		if h := held(t, s, ""); len(h.Leases) != 0 || len(h.Waiting) != 0 {
			t.Errorf("left behind: %+v", h)
		}
		if _, err := g.Acquire(t.Context(), flow.Request{}); !errors.Is(err, shared.ErrClosed) {
			t.Error(err)
		}

		g = newGate(t, s, shared.Config{Limit: 1, TTL: 10 * time.Second})
		p = acquire(t, g, flow.Request{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		work := p.Context(t.Context())
		if err := g.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("closed with a permit: %v", err)
		}
		if !errors.Is(context.Cause(work), shared.ErrClosed) {
			t.Errorf("the work goes on: %v", context.Cause(work))
		}
		p.Done(flow.Success)
		if h := held(t, s, ""); len(h.Leases) != 0 {
			t.Errorf("left behind: %+v", h)
		}
	})
}

func TestInvalid(t *testing.T) {
	for field, c := range map[string]shared.Config{
		"limit":    {},
		"ttl":      {Limit: 1, TTL: time.Millisecond},
		"margin":   {Limit: 1, TTL: time.Second, Margin: 500 * time.Millisecond},
		"queue":    {Limit: 1, Queue: -1},
		"max_wait": {Limit: 1, MaxWait: -1},
		"owner":    {Limit: 1, Owner: strings.Repeat("o", 97)},
		"share":    {Limit: 1, OnError: headgate.OnErrorLocal, Share: 2},
		"on_error": {Limit: 1, OnError: 9},
		"max_keys": {Limit: 1, MaxKeys: -1},
		"prefix":   {Limit: 1, Prefix: strings.Repeat("p", headgate.MaxKey+1)},
	} {
		_, err := shared.New(memory.New(), c)
		var invalid *headgate.InvalidError
		if !errors.As(err, &invalid) || len(invalid.Problems) != 1 || invalid.Problems[0].Field != field {
			t.Errorf("a bad %s: %v", field, err)
		}
	}
	if _, err := shared.New(nil, shared.Config{Limit: 1}); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("no store: %v", err)
	}
	g := newGate(t, memory.New(), shared.Config{Limit: 1, MaxKeys: 1})
	acquire(t, g, flow.Request{Key: "a"})
	_, err := g.Acquire(t.Context(), flow.Request{Key: "b"})
	rejected(t, err, flow.ReasonKeys)
	for _, r := range []flow.Request{{Cost: -1}, {Key: strings.Repeat("k", headgate.MaxKey+1)}} {
		if _, err := g.Acquire(t.Context(), r); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%.20v: %v", r, err)
		}
	}
}

// TestAtOnce: whatever callers do, no more than the limit is in progress.
func TestAtOnce(t *testing.T) {
	s := memory.New()
	c := shared.Config{Limit: 3, Queue: 100, TTL: time.Minute}
	gates := []*shared.Gate{newGate(t, s, c), newGate(t, s, c), newGate(t, s, c)}
	var mu sync.Mutex
	now, most := int64(0), int64(0)
	var all sync.WaitGroup
	for i := range 30 {
		all.Go(func() {
			for range 20 {
				r := flow.Request{Key: "k", Cost: 1 + int64(i%2)}
				p, err := gates[i%3].Acquire(t.Context(), r)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				now += r.Cost
				most = max(most, now)
				mu.Unlock()
				time.Sleep(50 * time.Microsecond)
				mu.Lock()
				now -= r.Cost
				mu.Unlock()
				p.Done(flow.Success)
			}
		})
	}
	all.Wait()
	if most > 3 || now != 0 {
		t.Errorf("%d were in progress", most)
	}
	h, err := s.Holders(t.Context(), "k")
	if err != nil || len(h.Leases) != 0 || len(h.Waiting) != 0 {
		t.Errorf("left behind: %+v, %v", h, err)
	}
}
