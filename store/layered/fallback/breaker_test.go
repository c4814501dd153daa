package fallback_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/store/layered/fallback"
	"github.com/headgate/headgate/store/layered/internal/layertest"
)

// TestStateMachine drives a breaker with a store that changes its health at random,
// and holds what happens against what may.
func TestStateMachine(t *testing.T) {
	rule := headgate.MustRule("r", headgate.PerSecond(1_000_000_000))
	for seed := range uint64(60) {
		bubbletest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 4))
			primary := layertest.NewScripted()
			type change struct {
				at  time.Time
				was fallback.State
				is  fallback.State
			}
			var mu sync.Mutex // guards changes
			var changes []change
			f := layertest.Fallback(t, primary, fallback.Options{
				Default: headgate.OnErrorAllow, Failures: 1 + r.Int64N(10), Ramp: time.Duration(1+r.IntN(500)) * time.Millisecond,
				Changed: func(was, is fallback.Stats) {
					mu.Lock()
					defer mu.Unlock()
					if was.State != is.State {
						changes = append(changes, change{time.Now(), was.State, is.State})
					}
				},
			})
			c := []headgate.Check{{Rule: rule, Key: "k"}}
			wellSince, seen := time.Now(), 0
			for range 3000 {
				if r.IntN(200) == 0 {
					was := primary.Health()
					is := layertest.Health(r.IntN(3))
					primary.Feel(is)
					if is == layertest.Well && was != layertest.Well {
						wellSince = time.Now()
					}
				}
				bubbletest.Wait() // A probe at the same instant is none of the request's.
				mu.Lock()
				first := len(changes) != seen // since the last change
				seen = len(changes)
				mu.Unlock()
				state, calls := f.Stats().State, primary.Calls.Load()
				start := time.Now()
				d, err := f.Store().Take(t.Context(), headgate.OpTake, c, nil)
				if err != nil {
					t.Fatal(err)
				}
				asked := primary.Calls.Load() - calls
				switch {
				case state == fallback.Open && asked != 0:
					t.Fatal("an open breaker let a request through")
				case state == fallback.Closed && asked != 1:
					t.Fatal("a closed breaker held a request back")
				case state == fallback.HalfOpen && first && asked != 1:
					t.Fatal("a half-open breaker held the first request back")
				case asked == 0 && (time.Since(start) != 0 || d[0].Source != headgate.SourceOpen):
					t.Fatalf("a request that was held back took %v and got %+v", time.Since(start), d[0])
				case primary.Health() == layertest.Well && asked == 1 && d[0].Source != headgate.SourceStore:
					t.Fatalf("a good answer was thrown away: %+v", d[0])
				}
				if state != fallback.Closed && primary.Health() == layertest.Well && time.Since(wellSince) > 2*time.Second {
					t.Fatalf("still %v two seconds after the store was well", state)
				}
				time.Sleep(time.Duration(r.IntN(10)) * time.Millisecond)
			}
			next := map[fallback.State][]fallback.State{
				fallback.Closed: {fallback.Open}, fallback.Open: {fallback.HalfOpen}, fallback.HalfOpen: {fallback.Open, fallback.Closed},
			}
			state := fallback.Closed
			mu.Lock()
			defer mu.Unlock()
			for _, c := range changes {
				may := false
				for _, n := range next[state] {
					may = may || n == c.is
				}
				if c.was != state || !may {
					t.Fatalf("it went from %v (told %v) to %v", state, c.was, c.is)
				}
				state = c.is
			}
			if busy := primary.Busiest.Load(); busy > 1 {
				t.Fatalf("%d probes at a time", busy)
			}
		})
	}
}

// TestRamp: a store that is back gets a growing part of the requests.
func TestRamp(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		f := layertest.Fallback(t, primary, fallback.Options{Default: headgate.OnErrorAllow, Ramp: time.Second})
		layertest.Fail(t, f, primary, layertest.Hangs)
		time.Sleep(10 * time.Second)
		primary.Feel(layertest.Well)
		for f.Stats().State != fallback.HalfOpen {
			time.Sleep(time.Millisecond)
		}
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.PerSecond(1_000_000_000)), Key: "k"}
		const each = 5000
		var got [4]int64 // of each quarter of the ramp
		for i := range got {
			before := primary.Calls.Load()
			for range each {
				layertest.Take(t, f.Store(), c)
				time.Sleep(time.Second / (len4 * each))
			}
			got[i] = primary.Calls.Load() - before
		}
		for i, want := range []int64{each / 8, 3 * each / 8, 5 * each / 8, 7 * each / 8} {
			if d := got[i] - want; d < -each/20 || d > each/20 {
				t.Errorf("quarter %d: %d of %d requests, want about %d", i+1, got[i], each, want)
			}
		}
		time.Sleep(100 * time.Millisecond)
		if s := f.Stats(); s.State != fallback.Closed {
			t.Errorf("after the ramp: %v", s.State)
		}
	})
}

const len4 = 4

// TestRelapse: a store that fails while it is half open is left alone again.
func TestRelapse(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		f := layertest.Fallback(t, primary, fallback.Options{Default: headgate.OnErrorAllow})
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.PerSecond(1_000_000_000)), Key: "k"}
		layertest.Fail(t, f, primary, layertest.Refuses)
		time.Sleep(time.Minute)
		if probes := f.Stats().Probes; probes < 290 || probes > 650 {
			t.Errorf("%d probes in a minute", probes)
		}
		for round := range 5 {
			primary.Feel(layertest.Well)
			for f.Stats().State != fallback.HalfOpen {
				time.Sleep(time.Millisecond)
			}
			primary.Feel(layertest.Refuses)
			for range 1000 {
				layertest.Take(t, f.Store(), c)
			}
			if s := f.Stats(); s.State != fallback.Open || s.Opened != int64(round)+2 {
				t.Errorf("round %d: %+v", round, s)
			}
		}
	})
}

// TestStragglers: calls that began before the store was given up, and end when it is
// back, say nothing of it.
func TestStragglers(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		f := layertest.Fallback(t, primary, fallback.Options{Default: headgate.OnErrorAllow})
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.PerSecond(1_000_000_000)), Key: "k"}
		const outages = 8
		for range outages {
			primary.Feel(layertest.Hangs)
			var all sync.WaitGroup
			for f.Stats().State == fallback.Closed {
				for range 4 {
					all.Go(func() { layertest.Take(t, f.Store(), c) })
				}
				time.Sleep(time.Millisecond)
			}
			layertest.Recover(t, f, primary)
			all.Wait()
		}
		if got := f.Stats().Opened; got != outages {
			t.Errorf("the breaker has opened %d times in %d outages", got, outages)
		}
	})
}
