package async_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/bubbletest"
	"github.com/headgate/headgate/internal/race"
	"github.com/headgate/headgate/store/layered/async"
	"github.com/headgate/headgate/store/layered/internal/layertest"
)

// TestAsyncFlood: a key that is denied costs a report for each interval, and at most
// eight questions. When it is reset by somebody else, the next report tells.
func TestAsyncFlood(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		a := open(t, primary, async.Options{})
		for _, limit := range []headgate.Limit{headgate.PerSecond(50), headgate.Sliding(10, time.Hour)}[:race.Fewer(2)] {
			c := anAsync(limit)
			layertest.Spend(t, a.Store(), c)
			time.Sleep(time.Second)
			calls, start := primary.Calls.Load(), time.Now()
			for time.Since(start) < 10*time.Second {
				layertest.Take(t, a.Store(), c)
				time.Sleep(100 * time.Microsecond)
			}
			if calls = primary.Calls.Load() - calls; calls > 100*9+50 {
				t.Errorf("%s: %d calls in ten seconds", &limit, calls)
			}
			if _, err := primary.Take(t.Context(), headgate.OpReset, []headgate.Check{c}, nil); err != nil {
				t.Fatal(err)
			}
			start = time.Now()
			for !layertest.Take(t, a.Store(), c).Allowed {
				time.Sleep(time.Millisecond)
			}
			if passed := time.Since(start); passed > 105*time.Millisecond {
				t.Errorf("%s: a reset was heard of after %v", &limit, passed)
			}
		}
	})
}

// TestAsyncPauses: a node that has been denied by the store does not ask again at once,
// even if it knows too little of the others to expect another denial.
func TestAsyncPauses(t *testing.T) {
	bubbletest.Test(t, func(t *testing.T) {
		primary := layertest.NewScripted()
		a := open(t, primary, async.Options{})
		c := anAsync(headgate.PerSecond(2000).WithBurst(10)) // full again in less than an interval
		denied := 0
		start := time.Now()
		for time.Since(start) < 5*time.Second {
			layertest.Take(t, primary, c) // somebody else, who takes what there is
			layertest.Take(t, primary, c)
			for range 3 {
				if v := layertest.Take(t, a.Store(), c); !v.Allowed && v.Decisions[0].Source == headgate.SourceStore {
					denied++
				}
				time.Sleep(200 * time.Microsecond)
			}
		}
		if denied > 200 {
			t.Errorf("denied by the store %d times in five seconds", denied)
		}
	})
}

// TestAsyncUndone: what was set aside or given back here for a request that the store
// does not answer is as it was before.
func TestAsyncUndone(t *testing.T) {
	for _, op := range []headgate.Op{headgate.OpTake, headgate.OpRefund} {
		bubbletest.Test(t, func(t *testing.T) {
			primary := layertest.NewScripted()
			a := open(t, primary, async.Options{})
			c := anAsync(headgate.Per(1000, 300*24*time.Hour))
			used := knownIn(t, a.Store(), c)
			c.Cost = 5
			if d := layertest.Take(t, a.Store(), c).Decisions[0]; d.Source != headgate.SourceAsync {
				t.Fatalf("got %+v", d)
			}
			primary.Feel(layertest.Refuses)
			strict := headgate.Check{Rule: headgate.MustRule("strict", headgate.PerHour(10)), Key: "k"}
			if d, err := a.Store().Take(t.Context(), op, []headgate.Check{c, strict}, nil); err == nil || len(d) != 0 {
				t.Fatalf("%s: got %+v, %v", op, d, err)
			}
			primary.Feel(layertest.Well)
			if s := a.Stats(); s.Unreported != 6 {
				t.Errorf("%s: %d units are unreported", op, s.Unreported)
			}
			time.Sleep(time.Second)
			if left := leftInStore(t, primary, headgate.Check{Rule: c.Rule, Key: "k"}); left != 1000-used-5 {
				t.Errorf("%s: %d left after %d", op, left, used+5)
			}
		})
	}
}

// TestAsyncSmallBurst: what others take is refilled as well. A bucket that fills in half an
// interval is asked for before the next report, unless the others take all that is refilled.
func TestAsyncSmallBurst(t *testing.T) {
	limit := headgate.PerSecond(2000).WithBurst(100)
	for _, now := range []struct {
		others  float64
		after   time.Duration
		refuses bool
	}{
		{1400, 10 * time.Millisecond, true},
		{1400, 60 * time.Millisecond, false},
		{1400, 99 * time.Millisecond, false},
		{2000, 60 * time.Millisecond, true},
		{2000, 99 * time.Millisecond, true},
		{500, 10 * time.Millisecond, false},
	} {
		if refuses := async.Refuses(limit, 38, now.others, now.after); refuses != now.refuses {
			t.Errorf("38 left, others take %v a second: refuses after %v: %v", now.others, now.after, refuses)
		}
	}
}
