package bubbletest_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/bubbletest"
)

// Timers that several goroutines fire are what the race detector does not survive
// on two processors. Without Test's care, this test ends the program at once.
func TestTimersThatGoroutinesFire(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	bubbletest.Test(t, func(*testing.T) {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				timer := time.NewTimer(0)
				for range 10_000 {
					<-timer.C
					timer.Reset(0)
				}
			})
		}
		wg.Wait()
	})
	if after := runtime.GOMAXPROCS(0); after != before {
		t.Errorf("%d processors after the bubbles, %d before them", after, before)
	}
}

// Bubbles of parallel tests overlap: whichever ends last gives the processors back.
func TestBubblesThatOverlap(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	t.Run("all", func(t *testing.T) {
		for _, name := range []string{"one", "two", "three"} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				bubbletest.Test(t, func(t *testing.T) {
					start := time.Now()
					done := false
					go func() {
						time.Sleep(time.Hour)
						done = true
					}()
					time.Sleep(time.Hour)
					bubbletest.Wait()
					if !done || time.Since(start) != time.Hour {
						t.Errorf("done: %v after %v", done, time.Since(start))
					}
				})
			})
		}
	})
	if after := runtime.GOMAXPROCS(0); after != before {
		t.Errorf("%d processors after the bubbles, %d before them", after, before)
	}
}
