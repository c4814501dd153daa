package insight

import (
	"context"
	"errors"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/errtext"
)

// Latency records how long calls to a store took, by minute, for [Kept]. It is safe for concurrent
// use. The zero Latency is ready to use.
type Latency struct {
	series [minutes]latencyMinute
	cause  atomic.Pointer[storeFailure]
	recent atomic.Pointer[recentMinute]
}

// recentMinute is the minute of the time at, and how much of it was left then.
type recentMinute struct {
	*latencyMinute
	at   time.Time
	left time.Duration
}

// now returns the current minute. It reads the wall clock only once a minute, because that takes
// twice as long as reading the monotonic clock.
func (l *Latency) now() *latencyMinute {
	if m := l.recent.Load(); m != nil {
		if since := time.Since(m.at); since >= 0 && since < m.left {
			return m.latencyMinute
		}
	}
	now := time.Now()
	m := l.at(now)
	l.recent.Store(&recentMinute{m, now, now.Truncate(time.Minute).Add(time.Minute).Sub(now)})
	return m
}

type latencyMinute struct {
	minute  atomic.Int64
	errors  atomic.Int64
	buckets [latencyBuckets]atomic.Uint32
}

type storeFailure struct {
	at   time.Time
	text string
}

// Each doubling of the duration, starting at 1 µs, has latencyParts buckets of equal width. The
// first bucket has the durations below 1 µs, and the last one all that are longer.
const (
	latencyParts   = 4
	latencyBuckets = 25 * latencyParts
)

// latencyBucket returns the index of the bucket for a duration.
func latencyBucket(took time.Duration) int {
	// In quarters of a microsecond, so that from 1 µs on at least two bits follow the highest one.
	// Those two bits are the part.
	n := uint64(max(took, 0)) * latencyParts / 1000
	if n < latencyParts {
		return 0
	}
	exponent := bits.Len64(n) - 3
	return min(exponent*latencyParts+int(n>>exponent)%latencyParts+1, latencyBuckets-1)
}

// latencyBound returns the upper bound of a bucket.
func latencyBound(bucket int) time.Duration {
	exponent, part := bucket/latencyParts, bucket%latencyParts
	return time.Duration(uint64(latencyParts+part)<<exponent) * time.Microsecond / latencyParts
}

// Hooks returns hooks for [headgate.Observe] that record each call. Times are those of the process's
// clock.
func (l *Latency) Hooks() headgate.Hooks {
	return headgate.Hooks{
		Decided: func(_ context.Context, _ headgate.Op, _ []headgate.Check, _ []headgate.Decision, took time.Duration) {
			l.now().buckets[latencyBucket(took)].Add(1)
		},
		Failed: func(ctx context.Context, _ headgate.Op, _ []headgate.Check, err error, took time.Duration) {
			now := time.Now()
			l.Add(now, took)
			if ctx.Err() == nil && !errors.Is(err, headgate.ErrInvalid) && !errors.Is(err, headgate.ErrConflict) {
				l.Fail(now, err)
			}
		},
	}
}

// Add adds one call.
func (l *Latency) Add(now time.Time, took time.Duration) {
	l.at(now).buckets[latencyBucket(took)].Add(1)
}

// Fail records that a call has failed.
func (l *Latency) Fail(now time.Time, err error) {
	l.at(now).errors.Add(1)
	l.cause.Store(&storeFailure{now, errtext.Text(err)})
}

// at returns the minute of the time, cleared if it was an older one. A call that is added while
// another goroutine clears the minute may be lost.
func (l *Latency) at(now time.Time) *latencyMinute {
	minute := minuteOf(now)
	m := &l.series[minute%minutes]
	if was := m.minute.Load(); was != minute && m.minute.CompareAndSwap(was, minute) {
		m.errors.Store(0)
		for i := range m.buckets {
			m.buckets[i].Store(0)
		}
	}
	return m
}

// StoreMinute has the calls to the store in one minute.
type StoreMinute struct {
	// At is the start of the minute, in seconds since 1970.
	At     int64 `json:"at"`
	Calls  int64 `json:"calls"`
	Errors int64 `json:"errors"`
	// P50, P99 and P999 are percentiles of the duration in microseconds, too high by a quarter at
	// most. They are zero if there were no calls.
	P50  int64 `json:"p50_us"`
	P99  int64 `json:"p99_us"`
	P999 int64 `json:"p999_us"`
}

// StoreReport has the calls to the store within a range.
type StoreReport struct {
	// Range has all calls within the range; its At is the start of the range.
	Range   StoreMinute   `json:"range"`
	Minutes []StoreMinute `json:"minutes"`
	// LastError is the text of the last failure, and LastErrorAt its time in milliseconds since 1970.
	// Both are zero if there was none.
	LastError   string `json:"last_error,omitempty"`
	LastErrorAt int64  `json:"last_error_at,omitempty"`
}

// Report reports the calls within the range.
func (l *Latency) Report(now time.Time, of Range) StoreReport {
	last := minuteOf(now)
	n, end := of.span(last)
	var r StoreReport
	var all [latencyBuckets]int64
	for m := max(last-minutes+1, 0); m <= last; m++ {
		at := &l.series[m%minutes]
		one := StoreMinute{At: m * 60}
		var buckets [latencyBuckets]int64
		if at.minute.Load() == m {
			one.Errors = at.errors.Load()
			for i := range buckets {
				buckets[i] = int64(at.buckets[i].Load())
			}
		}
		one.fill(&buckets)
		r.Minutes = append(r.Minutes, one)
		if m > end-n && m <= end {
			r.Range.Errors += one.Errors
			for i := range all {
				all[i] += buckets[i]
			}
		}
	}
	r.Range.At = (end - n + 1) * 60
	r.Range.fill(&all)
	if f := l.cause.Load(); f != nil {
		r.LastError, r.LastErrorAt = f.text, f.at.UnixMilli()
	}
	return r
}

// fill sets Calls and the percentiles.
func (s *StoreMinute) fill(buckets *[latencyBuckets]int64) {
	for _, n := range buckets {
		s.Calls += n
	}
	for _, q := range []struct {
		part int64 // in thousandths
		to   *int64
	}{{500, &s.P50}, {990, &s.P99}, {999, &s.P999}} {
		need, sum := (s.Calls*q.part+999)/1000, int64(0)
		for i := 0; i < len(buckets) && s.Calls > 0; i++ {
			if sum += buckets[i]; sum >= need {
				*q.to = latencyBound(i).Microseconds()
				break
			}
		}
	}
}
