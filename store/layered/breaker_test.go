package layered_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/store/layered"
)

// TestStateMachine drives a breaker with a store that changes its health at random,
// and holds what happens against what may.
func TestStateMachine(t *testing.T) {
	rule := headgate.MustRule("r", headgate.PerSecond(1_000_000_000))
	for seed := range uint64(60) {
		bubbletest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 4))
			primary := newScripted()
			type change struct {
				at  time.Time
				was layered.State
				is  layered.State
			}
			var mu sync.Mutex // guards changes
			var changes []change
			f := with(t, primary, layered.FallbackOptions{
				Default: headgate.OnErrorAllow, Failures: 1 + r.Int64N(10), Ramp: time.Duration(1+r.IntN(500)) * time.Millisecond,
				Changed: func(was, is layered.Status) {
					mu.Lock()
					defer mu.Unlock()
					if was.State != is.State {
						changes = append(changes, change{time.Now(), was.State, is.State})
					}
				},
			})
			c := []headgate.Check{{Rule: rule, Key: "k"}}
			wellSince := time.Now()
			for range 3000 {
				if r.IntN(200) == 0 {
					was := health(primary.health.Load())
					is := health(r.IntN(3))
					primary.feel(is)
					if is == well && was != well {
						wellSince = time.Now()
					}
				}
				state, calls := f.Status().State, primary.calls.Load()
				start := time.Now()
				d, err := f.Store().Take(t.Context(), headgate.OpTake, c, nil)
				if err != nil {
					t.Fatal(err)
				}
				asked := primary.calls.Load() - calls
				switch {
				case state == layered.Open && asked != 0:
					t.Fatal("an open breaker let a request through")
				case state == layered.Closed && asked != 1:
					t.Fatal("a closed breaker held a request back")
				case asked == 0 && (time.Since(start) != 0 || d[0].Source != headgate.SourceOpen):
					t.Fatalf("a request that was held back took %v and got %+v", time.Since(start), d[0])
				case health(primary.health.Load()) == well && asked == 1 && d[0].Source != headgate.SourceStore:
					t.Fatalf("a good answer was thrown away: %+v", d[0])
				}
				if state != layered.Closed && health(primary.health.Load()) == well && time.Since(wellSince) > 2*time.Second {
					t.Fatalf("still %v two seconds after the store was well", state)
				}
				time.Sleep(time.Duration(r.IntN(10)) * time.Millisecond)
			}
			next := map[layered.State][]layered.State{
				layered.Closed: {layered.Open}, layered.Open: {layered.HalfOpen}, layered.HalfOpen: {layered.Open, layered.Closed},
			}
			state := layered.Closed
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
			if busy := primary.busier.Load(); busy > 1 {
				t.Fatalf("%d probes at a time", busy)
			}
		})
	}
}

// TestRamp: a store that is back gets a growing part of the requests.
func TestRamp(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := newScripted()
		f := with(t, primary, layered.FallbackOptions{Default: headgate.OnErrorAllow, Ramp: time.Second})
		fails(t, f, primary, hangs)
		primary.feel(well)
		for f.Status().State != layered.HalfOpen {
			time.Sleep(time.Millisecond)
		}
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.PerSecond(1_000_000_000)), Key: "k"}
		const each = 5000
		var got [4]int64 // of each quarter of the ramp
		for i := range got {
			before := primary.calls.Load()
			for range each {
				take(t, f.Store(), c)
				time.Sleep(time.Second / (len4 * each))
			}
			got[i] = primary.calls.Load() - before
		}
		for i, want := range []int64{each / 8, 3 * each / 8, 5 * each / 8, 7 * each / 8} {
			if d := got[i] - want; d < -each/20 || d > each/20 {
				t.Errorf("quarter %d: %d of %d requests, want about %d", i+1, got[i], each, want)
			}
		}
		time.Sleep(100 * time.Millisecond)
		if s := f.Status(); s.State != layered.Closed {
			t.Errorf("after the ramp: %v", s.State)
		}
	})
}

const len4 = 4

// TestRelapse: a store that fails while it is half open is left alone again, for
// longer each time.
func TestRelapse(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := newScripted()
		f := with(t, primary, layered.FallbackOptions{Default: headgate.OnErrorAllow})
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.PerSecond(1_000_000_000)), Key: "k"}
		fails(t, f, primary, refuses)
		time.Sleep(time.Minute)
		if probes := f.Status().Probes; probes < 55 || probes > 130 {
			t.Errorf("%d probes in a minute", probes)
		}
		for round := range 5 {
			primary.feel(well)
			for f.Status().State != layered.HalfOpen {
				time.Sleep(time.Millisecond)
			}
			primary.feel(refuses)
			for range 1000 {
				take(t, f.Store(), c)
			}
			if s := f.Status(); s.State != layered.Open || s.Opened != int64(round)+2 {
				t.Errorf("round %d: %+v", round, s)
			}
		}
	})
}

// TestStragglers: calls that began before the store was given up, and end when it is
// back, say nothing of it.
func TestStragglers(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := newScripted()
		f := with(t, primary, layered.FallbackOptions{Default: headgate.OnErrorAllow})
		c := headgate.Check{Rule: headgate.MustRule("r", headgate.PerSecond(1_000_000_000)), Key: "k"}
		const outages = 100
		for range outages {
			primary.feel(hangs)
			var all sync.WaitGroup
			for f.Status().State == layered.Closed {
				for range 4 {
					all.Go(func() { take(t, f.Store(), c) })
				}
				time.Sleep(time.Millisecond)
			}
			recovers(t, f, primary)
			all.Wait()
		}
		if got := f.Status().Opened; got != outages {
			t.Errorf("the breaker has opened %d times in %d outages", got, outages)
		}
	})
}
