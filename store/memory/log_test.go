//go:build !race

// The tests of this file fill logs from one goroutine, where the race detector has nothing to find.
// `make test` runs this package without the detector as well.

package memory_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// TestLogBytes: what logs take and give back adds up, whatever makes them shrink.
func TestLogBytes(t *testing.T) {
	r := headgate.MustRule("r", headgate.Sliding(100, time.Minute), headgate.Sliding(40, 10*time.Second))
	check := headgate.Check{Rule: r, Key: "k"}
	for name, cycle := range map[string]func(t *testing.T, s *memory.Store, clock *storetest.Clock){
		"refund": func(t *testing.T, s *memory.Store, _ *storetest.Clock) {
			c := check
			c.Cost = 10
			for range 10 {
				take(t, s, headgate.OpTake, check)
			}
			take(t, s, headgate.OpRefund, c)
		},
		"reset": func(t *testing.T, s *memory.Store, _ *storetest.Clock) {
			take(t, s, headgate.OpTake, check)
			take(t, s, headgate.OpReset, check)
		},
		"expiry": func(t *testing.T, s *memory.Store, clock *storetest.Clock) {
			for range 20 {
				take(t, s, headgate.OpTake, check)
			}
			clock.Add(3 * time.Minute)
		},
		"a clock that steps back": func(t *testing.T, s *memory.Store, clock *storetest.Clock) {
			for range 20 {
				take(t, s, headgate.OpTake, check)
				clock.Add(3 * time.Second)
			}
			clock.Add(-time.Second)
			take(t, s, headgate.OpPeek, check)
			clock.Add(2 * time.Minute)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, clock := small()
			for range 50 {
				cycle(t, s, clock)
			}
			before := s.Stats()
			for range 2000 {
				cycle(t, s, clock)
			}
			if after := s.Stats(); after.Bytes > before.Bytes+1024 || after.Merged != 0 {
				t.Errorf("%+v after 2,000 cycles more, it was %+v", after, before)
			}
			clock.Add(time.Hour)
			for i := range 5000 { // every part of the store is swept
				take(t, s, headgate.OpTake, headgate.Check{Rule: crowdRule, Key: fmt.Sprint(i)})
			}
			if stats := s.Stats(); stats.Logs != 0 {
				t.Errorf("%d logs are left an hour after the last use", stats.Logs)
			}
		})
	}
}

// TestLargeLog: one log may take what memory there is, not a part of the store's
// share of it.
func TestLargeLog(t *testing.T) {
	clock := storetest.NewClock(storetest.Epoch)
	s := memory.New(memory.Clock(clock.Now), memory.MaxBytes(32<<20))
	const count = 300_000
	limiter := headgate.New(s, headgate.MustRule("r", headgate.Sliding(count, time.Hour)))
	for i := range count {
		d, err := limiter.Allow(t.Context(), "k")
		if err != nil || !d.Allowed {
			t.Fatalf("unit %d: %+v, %v", i, d, err)
		}
		clock.Add(time.Millisecond)
	}
	stats := s.Stats()
	if stats.Merged != 0 || stats.Bytes < 16*count || stats.Bytes > 32<<20 {
		t.Fatalf("%+v; want a log of %d exact entries within 32 MiB", stats, count)
	}
	// The first unit leaves an hour after it came, and then one each millisecond.
	d, err := limiter.Allow(t.Context(), "k")
	if want := time.Hour - count*time.Millisecond; err != nil || d.RetryAfter != want {
		t.Errorf("retry after %v, %v; want %v", d.RetryAfter, err, want)
	}
	clock.Add(2 * time.Hour)
	if d, err := limiter.Allow(t.Context(), "k"); err != nil || !d.Allowed {
		t.Errorf("%+v, %v", d, err)
	}
	if stats := s.Stats(); stats.Bytes > 1<<20 {
		t.Errorf("%d bytes are in use for a log of one entry", stats.Bytes)
	}
}

// TestMergedLogsNeverAdmitMore drives a few keys with large logs in a full store,
// and counts every window of theirs afresh.
func TestMergedLogsNeverAdmitMore(t *testing.T) {
	s, clock := small()
	crowd(t, s, crowdRule, crowded)
	r := headgate.MustRule("r", headgate.Sliding(3000, time.Minute), headgate.Sliding(400, 5*time.Second))
	type charge struct{ at, cost int64 }
	past := map[string][]charge{}
	rng := rand.New(rand.NewPCG(5, 6))
	for range 40_000 {
		clock.Add(time.Duration(rng.IntN(9_000)) * time.Microsecond)
		key, cost := string(rune('a'+rng.IntN(4))), 1+rng.Int64N(3)
		if !take(t, s, headgate.OpTake, headgate.Check{Rule: r, Key: key, Cost: cost}).Allowed {
			continue
		}
		past[key] = append(past[key], charge{clock.Now(), cost})
		for i := range r.Limits() {
			l, used := &r.Limits()[i], int64(0)
			for j := len(past[key]) - 1; j >= 0 && past[key][j].at > clock.Now()-l.Micros(); j-- {
				used += past[key][j].cost
			}
			if used > l.Count {
				t.Fatalf("key %s: %d units are within %v", key, used, l)
			}
		}
	}
	stats := s.Stats()
	if stats.Merged == 0 {
		t.Errorf("%+v: no log was merged; the test does not fill the store", stats)
	}
	if most := int64(memory.MinMaxBytes * 5 / 4); stats.Bytes > most {
		t.Errorf("%d bytes are in use, want at most %d", stats.Bytes, most)
	}
}
