package rabbitmq

import (
	"testing"
	"time"
)

// consumption is a consumer of a queue that never ends, as far as a prefetch matters: each
// message takes a place from when it is sent until its acknowledgement has come back.
type consumption struct {
	workers   int
	each      time.Duration // that a message is handled
	roundTrip time.Duration
	rate      float64 // that a gate lets in a second; 0 for any
	size      int64
}

// next is what a second with a prefetch looks like.
func (c consumption) next(prefetch int) window {
	rate := min(float64(c.workers)/c.each.Seconds(), float64(prefetch)/(c.each+c.roundTrip).Seconds())
	if c.rate > 0 {
		rate = min(rate, c.rate)
	}
	busy := rate * c.each.Seconds()
	underway := rate * c.roundTrip.Seconds()
	seconds := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	return window{
		length: time.Second, done: int(rate), busy: seconds(busy), waiting: seconds(max(float64(prefetch)-busy-underway, 0)),
		ready: 1000, roundTrip: c.roundTrip, size: c.size,
	}
}

// TestTuner: from wherever it begins, the prefetch comes to where workers are busy, holds
// little more than that, and stays there.
func TestTuner(t *testing.T) {
	for name, test := range map[string]struct {
		consumption
		config     Prefetch
		least, top int // where it must end
	}{
		"near and slow":  {consumption{workers: 64, each: 50 * time.Millisecond, roundTrip: time.Millisecond}, Prefetch{Min: 10, Max: 300}, 64, 140},
		"near and quick": {consumption{workers: 64, each: time.Millisecond, roundTrip: time.Millisecond}, Prefetch{Min: 10, Max: 1000}, 128, 1000},
		"far and quick":  {consumption{workers: 20, each: 2 * time.Millisecond, roundTrip: 50 * time.Millisecond}, Prefetch{Min: 10, Max: 2000}, 500, 2000},
		"bounded":        {consumption{workers: 200, each: 20 * time.Millisecond, roundTrip: 50 * time.Millisecond}, Prefetch{Min: 10, Max: 100}, 100, 100},
		"fixed":          {consumption{workers: 200, each: 20 * time.Millisecond, roundTrip: 50 * time.Millisecond}, Prefetch{Min: 7, Max: 7}, 7, 7},
		"gate":           {consumption{workers: 100, each: time.Millisecond, roundTrip: time.Millisecond, rate: 50}, Prefetch{Min: 3, Max: 300}, 3, 8},
		"large messages": {consumption{workers: 100, each: 100 * time.Millisecond, roundTrip: time.Millisecond, size: 1 << 20}, Prefetch{Min: 3, Max: 300, MaxBytes: 10 << 20}, 10, 10},
		"huge messages":  {consumption{workers: 100, each: 100 * time.Millisecond, roundTrip: time.Millisecond, size: 1 << 30}, Prefetch{Min: 3, Max: 300, MaxBytes: 10 << 20}, 3, 3},
	} {
		t.Run(name, func(t *testing.T) {
			if test.config.MaxBytes == 0 {
				test.config.MaxBytes = 64 << 20
			}
			for _, begin := range []int{test.config.Min, test.config.Max} {
				tuner := newTuner(&test.config, test.workers)
				tuner.now = begin
				now, changes := begin, 0
				for second := range 600 {
					next := tuner.next(test.consumption.next(now))
					if next < test.config.Min || next > test.config.Max {
						t.Fatalf("the prefetch is %d", next)
					}
					if second >= 300 && next != now {
						changes++
					}
					now = next
				}
				if now < test.least || now > test.top || changes > 12 {
					t.Errorf("from %d it came to %d, want %d to %d; it changed %d times in the last 300 seconds", begin, now, test.least, test.top, changes)
				}
			}
		})
	}
}

// TestTunerIdle: where nothing is done, nothing is learned.
func TestTunerIdle(t *testing.T) {
	config := Prefetch{Min: 10, Max: 300, MaxBytes: 1 << 20}
	tuner := newTuner(&config, 200)
	for range 1000 {
		if n := tuner.next(window{length: time.Second}); n != 200 {
			t.Fatalf("the prefetch became %d", n)
		}
	}
}
