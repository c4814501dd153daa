package target

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// TestGathering: what is about to run runs before a write, but only while many calls are in flight, and
// not for a while after it took long.
func TestGathering(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, c := range []struct {
		name  string
		calls int64
		from  time.Time
		waits bool
	}{
		{"crowded", gatherFrom, time.Time{}, true},
		{"not crowded", gatherFrom - 1, time.Time{}, false},
		{"after a long wait", gatherFrom, time.Now().Add(time.Hour), false},
	} {
		var calls atomic.Int64
		calls.Store(c.calls)
		const tries = 100
		before := 0
		for range tries {
			var ran atomic.Bool
			go ran.Store(true)
			g := gathering{&calls, c.from}
			g.wait()
			if ran.Load() {
				before++
			}
			for !ran.Load() {
				runtime.Gosched()
			}
		}
		// The scheduler may choose otherwise now and then.
		if waits := before > tries/2; waits != c.waits {
			t.Errorf("%s: of %d others, %d ran before the write", c.name, tries, before)
		}
	}
}

// TestGatheringRests: where others keep the processor for long, the writer does not wait each time.
func TestGatheringRests(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var calls atomic.Int64
	calls.Store(gatherFrom)
	g := gathering{calls: &calls}
	for range 100 {
		done := make(chan struct{})
		go func() {
			defer close(done)
			now := time.Now()
			for end := now.Add(2 * gatherWithin); now.Before(end); {
				now = time.Now()
			}
		}()
		began := time.Now()
		g.wait()
		<-done
		if !g.from.IsZero() {
			if rest := g.from.Sub(began); rest < 64*gatherWithin {
				t.Errorf("it rests for %v", rest)
			}
			return
		}
	}
	t.Error("it never rests")
}
