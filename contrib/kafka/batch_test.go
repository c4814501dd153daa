package kafka

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/bubbletest"
)

// TestBatching: a letter that must be alone is produced while no other is, nobody waits for ever,
// and whoever gives up leaves the way free.
func TestBatching(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		b := newBatching()
		var producing, alone atomic.Int64
		var all sync.WaitGroup
		for i := range 200 {
			solo := i%5 == 0
			all.Go(func() {
				time.Sleep(time.Duration(i%17) * time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if i%7 == 0 {
					cancel()
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
				}
				defer cancel()
				leave, err := b.enter(ctx, solo)
				if err != nil {
					if i%7 != 0 || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("letter %d: %v", i, err)
					}
					return
				}
				defer leave()
				defer producing.Add(-1)
				n := producing.Add(1)
				if solo {
					alone.Add(1)
				}
				time.Sleep(5 * time.Millisecond)
				if solo && (n != 1 || producing.Load() != 1) {
					t.Errorf("letter %d shared its time with %d others", i, max(n, producing.Load())-1)
				}
			})
		}
		all.Wait()
		if b.shared != 0 || len(b.turn) != 0 || alone.Load() == 0 {
			t.Errorf("in the end %d share, the turn is taken %d times; %d were alone", b.shared, len(b.turn), alone.Load())
		}
		leave, err := b.enter(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		leave()
	})
}

// TestBatchingGivesUp: one that waits to be alone and gives up holds nobody back.
func TestBatchingGivesUp(t *testing.T) {
	t.Parallel()
	bubbletest.Test(t, func(t *testing.T) {
		b := newBatching()
		leave, err := b.enter(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan error)
		go func() {
			_, err := b.enter(ctx, true)
			gaveUp <- err
		}()
		bubbletest.Wait() // it has the turn
		late, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := b.enter(late, false); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a letter overtook the one that waits to be alone: %v", err)
		}
		cancel()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("it gave up with %v", err)
		}
		second, err := b.enter(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		leave()
		second()
		if leave, err = b.enter(t.Context(), true); err != nil {
			t.Fatal(err)
		}
		leave()
	})
}
